//! One round of a worker: a turn for every queue, what others handed over, what was sent.

use super::{Report, Worker};
use crate::runtime::sharing::Desk;
use polder_buffers::{BATCH, Class, PortId};
use polder_datapath::engine::With;
use polder_datapath::port::{Budget, Turn};
use polder_datapath::steer::Order;
use polder_datapath::units::Nanos;

/// Packets a turn: one batch.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const BATCH_BUDGET: u32 = BATCH as u32;

impl Worker {
    /// One turn for everything. Says whether there is reason for another round at once.
    pub(super) fn round(&mut self, now: Nanos) -> bool {
        let mut busy = false;
        self.senders.now = now;
        for index in 0..self.receivers.len() {
            busy |= self.turn(index, now);
        }
        for index in 0..self.incoming.len() {
            busy |= self.take_over(index, now);
        }
        if self.sharing.is_some() {
            busy = self.take_part(busy, now);
        }
        busy |= self.senders.round(&mut self.pool);
        self.engine.tick(now, &mut self.pool);
        self.counters.cached_frames.set(self.pool.cached() as u64);
        self.counters.pool_exhausted.set(self.pool.exhausted());
        busy
    }

    fn turn(&mut self, index: usize, now: Nanos) -> bool {
        let queue = &mut self.receivers[index];
        if queue.closed {
            return false;
        }
        let timed = self.engine.begin_turn();
        let start = if timed { self.clock.now() } else { now };
        let mut budget = Budget::new(BATCH_BUDGET);
        let pool = match queue.class {
            Class::Control => self.pool.control(),
            Class::Data => &mut self.pool,
        };
        let turn = queue.rx.receive(&mut budget, &mut self.batch, pool);
        let (port, number) = (queue.port, queue.number);
        let received = self.batch.len();
        if received > 0 {
            for packet in self.batch.iter_mut() {
                packet.ingress = port;
                packet.received_at = now.0;
            }
            if let Some(captures) = self.engine.captures() {
                captures.received(&self.batch, port, number, now);
            }
            let clock = self.clock;
            let elapsed = timed.then(|| clock.now().since(start));
            self.engine.received(received, elapsed);
            match self.sharing.as_ref().map_or(Order::Queue, |sharing| sharing.order(port)) {
                Order::Queue => {
                    let with = With { now, pool: &mut self.pool, timed };
                    self.engine.process(&mut self.batch, port, with, &mut self.senders, &mut || clock.now());
                }
                order @ (Order::Hash | Order::Spread | Order::Auto) => self.share_out(port, order, now),
            }
        }
        if turn == Turn::Closed {
            self.deafen(index);
            self.report(Report::Closed(port));
        }
        received > 0 || turn == Turn::OutOfBudget
    }

    /// Shares a received batch with the other workers.
    fn share_out(&mut self, port: PortId, order: Order, now: Nanos) {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, batch, .. } = self else { return };
        let kind = (order, engine.is_underlay(port));
        let mut desk = Desk { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.crew.define(batch, kind, &mut desk);
        sharing.wake();
        sharing.crew.share(now, &mut desk);
        sharing.wake();
    }

    /// Does what other workers brought, and their work when there is nothing else to do. `busy` and the
    /// answer: whether there is reason for another round at once.
    pub(super) fn take_part(&mut self, mut busy: bool, now: Nanos) -> bool {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, .. } = self else { return busy };
        let mut desk = Desk { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.crew.round(now, sharing.was_busy);
        let mut shared = sharing.crew.collect(now, &mut desk);
        if !busy && !shared {
            shared = sharing.crew.help(now, &mut desk);
        }
        busy |= shared;
        if shared {
            sharing.shared_at = now;
        }
        sharing.wake();
        sharing.was_busy = busy;
        busy
    }

    /// Sends what another worker handed over.
    pub(super) fn take_over(&mut self, index: usize, now: Nanos) -> bool {
        let batch = &mut self.batch;
        let taken = self.incoming[index].pop_all(BATCH, |packet| {
            // The batch is empty before and holds as many as are taken at most.
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room for a batch");
        });
        if taken > 0 {
            self.counters.taken_over.add(taken as u64);
            let with = With { now, pool: &mut self.pool, timed: false };
            self.engine.transmit(&mut self.batch, with, &mut self.senders);
        }
        taken > 0
    }
}
