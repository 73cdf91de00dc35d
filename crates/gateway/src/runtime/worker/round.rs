//! One round of a worker: a turn for each queue, then handed-over packets, then sending and reclaiming.

use super::inlet::{InletContext, Inlets};
use super::{NewQueue, Report, Worker};
use polder_buffers::{BATCH, Class, PortId};
use polder_datapath::engine::TurnContext;
use polder_datapath::port::{Budget, Turn};
use polder_datapath::scheduler::{Elapsed, Grant, Outcome};
use polder_datapath::steer::Order;
use polder_datapath::transmit::Egress as _;
use polder_datapath::units::Nanos;

/// Maximum number of packets received by one call: one batch.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
pub(super) const BATCH_BUDGET: u32 = BATCH as u32;

/// Maximum time that a consumer's answers wait to be sent together, while its backlog is small.
const SOON: Nanos = Nanos(20_000);

/// Maximum length of one queue's turn.
const LONGEST_TURN: Nanos = Nanos::from_millis(100);

impl Worker {
    /// Runs one round. Returns true if another round should follow at once.
    pub(super) fn round(&mut self, now: Nanos) -> bool {
        self.senders.now = now;
        self.senders.is_watched = self.engine.captures().is_some();
        let (mut busy, packets) = self.cycle(now);
        busy |= self.let_in(now, |_| false);
        for index in 0..self.incoming.len() {
            busy |= self.take_over(index, now);
        }
        if self.sharing.is_some() {
            busy = self.take_part(busy, now);
        }
        busy |= self.senders.round(&mut self.pool);
        if let Some(captures) = self.engine.captures() {
            self.senders.show_dropped(&mut self.pool, &mut |port, packets| {
                captures.dropped_from_queue(packets, port, now)
            });
        }
        self.engine.tick(now, &mut self.pool);
        let with = TurnContext { now, pool: &mut self.pool, timed: false };
        self.engine.look_after(with, &mut self.senders);
        self.counters.cached_frames.set(self.pool.cached() as u64);
        self.counters.pool_exhausted.set(self.pool.exhausted());
        if let Some(mode) = self.schedule.note(now, packets.max(u32::from(busy))) {
            self.drive_all(mode, now);
        }
        busy
    }

    /// Gives each queue in the run queue a turn within the cycle's time. Returns whether another cycle should
    /// follow at once, and the number of received packets.
    fn cycle(&mut self, now: Nanos) -> (bool, u32) {
        let (mut busy, mut packets, mut time) = (false, 0, now);
        let mut wanted = self.senders.wanted();
        self.schedule.line.begin(now, wanted);
        while let Some(grant) = self.schedule.line.next(time, wanted) {
            let outcome;
            (outcome, time) = self.turn(grant, time);
            busy |= outcome.packets > 0 || outcome.turn == Turn::OutOfBudget;
            packets += outcome.packets;
            if self.schedule.line.ended(grant, outcome, time) {
                self.receivers[grant.index].control(|control| control.end_flush());
            }
            let limit = self.schedule.line.waiting_limit(grant.index);
            self.receivers[grant.index].control(|control| control.set_waiting_limit(limit));
            if wanted.is_some() {
                wanted = self.senders.wanted();
            }
        }
        // Queues that were not polled in this cycle may have packets.
        (busy || self.schedule.line.is_cut(), packets)
    }

    /// Runs one queue's turn, batch by batch. Returns its outcome and end time.
    fn turn(&mut self, grant: Grant, start: Nanos) -> (Outcome, Nanos) {
        let Grant { index, packets, flush, bound, freed } = grant;
        let mut outcome = Outcome {
            packets: 0,
            took: Some(Nanos(0)),
            turn: Turn::Drained,
            unwanted: false,
            elsewhere: false,
            has_backlog: false,
        };
        if self.receivers[index].closed {
            return (outcome, start);
        }
        let contention = &self.schedule.contention;
        let begun = || contention.reading_at(start).unwrap_or_else(|| self.clock.cpu());
        let cpu = contention.is_watched(start).then(begun);
        self.senders.begin_turn();
        self.limit_backlog(grant);
        if bound {
            let few = self.packets_in_delay();
            self.receivers[index].control(|control| control.set_posted_limit(few));
        } else if freed {
            self.receivers[index].control(|control| control.set_posted_limit(u32::MAX));
        }
        if flush {
            // Packets stay in a device that cannot flush.
            let _: Option<bool> = self.receivers[index].control(|control| control.flush());
        }
        let mut left = packets;
        let mut now = start;
        loop {
            let batch = self.batch_of(index, left);
            let (received, charged, turn) = self.receive(index, batch, now);
            outcome.turn = turn;
            outcome.packets = outcome.packets.saturating_add(received);
            // A device with techniques switched off may deliver more packets than asked for, or charge none.
            left -= charged;
            if received > 0 {
                now = self.clock.now();
            }
            let goes_on = turn == Turn::OutOfBudget && received >= batch && left > 0;
            // Without a balanced budget a turn may never end, and commands have to be handled.
            if !goes_on || now.since(start) > LONGEST_TURN || self.senders.has_sated() {
                break;
            }
        }
        outcome.unwanted = self.senders.has_sated();
        outcome.elsewhere = outcome.packets > self.senders.offered_to_consumers();
        outcome.has_backlog =
            self.receivers[index].control(|control| control.has_backlog()).unwrap_or_default();
        if outcome.packets > 0 {
            let cpu = cpu.map(|begun| self.cpu_since(begun, now));
            outcome.took =
                self.cpu_time(index, outcome.packets, Elapsed { wall: now.since(start), cpu }, now);
        }
        (outcome, now)
    }

    /// Number of packets in the next batch of a turn with a remaining budget of `left`. Shared batches have
    /// equal sizes, so that workers finish together. A consumer with a small backlog gets small batches, so
    /// that its answers are sent early.
    fn batch_of(&self, index: usize, left: u32) -> u32 {
        let port = self.receivers[index].port;
        if let Some(backlog) = self.senders.backlog(port)
            && self.senders.is_at_ease()
        {
            let whole = backlog.packets_each();
            let soon = self.schedule.line.packets_in(index, SOON).div_ceil(whole).max(1) * whole;
            return left.min(BATCH_BUDGET).min(soon);
        }
        let is_shared = self.sharing.as_ref().is_some_and(|sharing| sharing.order(port) != Order::Queue);
        if is_shared { left.div_ceil(left.div_ceil(BATCH_BUDGET).max(1)) } else { left.min(BATCH_BUDGET) }
    }

    /// Tells receive queues when packets begin to wait unsent in a device, and when none are left.
    #[inline]
    pub(super) fn note_unsent(&mut self) {
        let has_unsent = self.senders.has_unsent();
        if self.holds_completed != has_unsent {
            self.holds_completed = has_unsent;
            for queue in &mut self.receivers {
                queue.control(|control| control.hold_completed(has_unsent));
            }
        }
    }

    /// Gives a port an inlet, or removes it: waiting packets go through the stages then.
    #[cold]
    pub(super) fn set_inlet(&mut self, port: PortId, inlet: Option<Box<NewQueue>>) {
        let now = self.clock.now();
        self.senders.now = now;
        match inlet {
            Some(new) => {
                let with = InletContext { now, pool: &mut self.pool, counters: &self.counters };
                self.inlets.set(port, *new, with);
            }
            None => {
                while self.let_in(now, |other| other == port) {}
                let with = InletContext { now, pool: &mut self.pool, counters: &self.counters };
                self.inlets.remove(port, with);
            }
        }
    }

    /// Lets packets of inlets through the stages: as many as the rates allow, and all of ports for which
    /// `at_once` is true. Returns true if another call should follow at once.
    pub(super) fn let_in(&mut self, now: Nanos, at_once: impl Fn(PortId) -> bool) -> bool {
        for _ in 0..Inlets::turn() {
            let with = InletContext { now, pool: &mut self.pool, counters: &self.counters };
            let Some(port) = self.inlets.take(&mut self.batch, &at_once, with) else { return false };
            self.dispatch(port, false, false, now);
        }
        true
    }

    /// Runs the stages on the packets of `batch`, here or on the workers that share the port.
    fn dispatch(&mut self, port: PortId, has_more: bool, timed: bool, now: Nanos) {
        let clock = self.clock;
        match self.sharing.as_ref().map_or(Order::Queue, |sharing| sharing.order(port)) {
            Order::Queue => {
                let with = TurnContext { now, pool: &mut self.pool, timed };
                self.engine.process(&mut self.batch, port, with, &mut self.senders, &mut || clock.now());
            }
            order @ (Order::Hash | Order::Spread | Order::Auto) => self.share_out(port, order, has_more, now),
        }
    }

    /// Receives up to one batch and runs the stages on it.
    fn receive(&mut self, index: usize, packets: u32, now: Nanos) -> (u32, u32, Turn) {
        self.note_unsent();
        let queue = &mut self.receivers[index];
        let timed = self.engine.begin_turn();
        let start = if timed { self.clock.now() } else { now };
        let mut budget = Budget::new(packets);
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
            if self.inlets.has(port) {
                let with = InletContext { now, pool: &mut self.pool, counters: &self.counters };
                self.inlets.put(port, &mut self.batch, with);
                self.let_in(now, |_| false);
            } else {
                self.dispatch(port, turn == Turn::OutOfBudget, timed, now);
            }
        }
        if turn == Turn::Closed {
            self.unregister(index);
            self.report(Report::Closed(port));
        }
        (u32::try_from(received).unwrap_or(BATCH_BUDGET), packets - budget.left(), turn)
    }
}
