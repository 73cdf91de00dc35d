//! Queues in front of the stages, for packets that ports receive.
//!
//! A port with a rate for its way in has an [`Inlet`] at the one worker that polls its receive queues. Received
//! packets wait there, and go through the stages when they leave it. Super-packets that would take long at
//! the rate are cut before they enter.

use super::cut::{cut, is_long, longest};
use super::outlet::{NewQueue, Waiting, refuse};
use polder_buffers::{Batch, Packet, Pool, PortId};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::drops::DropReason;
use polder_datapath::queue::{EgressCounters, EgressQueue, QueueOptions, QueueReport};
use polder_datapath::units::Nanos;
use std::sync::Arc;

/// Maximum number of batches that leave an inlet at a time.
const TURN: usize = 8;

/// All inlets of a worker.
#[derive(Default)]
pub(super) struct Inlets(Vec<Inlet>);

/// Queue of the packets that a port receives.
struct Inlet {
    port: PortId,
    queue: EgressQueue,
    counters: Arc<EgressCounters>,
    waiting: Waiting,
    /// Maximum length of a super-packet in bytes.
    longest: usize,
}

/// Packet memory and counters of the worker.
pub(super) struct InletContext<'a> {
    pub(super) now: Nanos,
    pub(super) pool: &'a mut Pool,
    pub(super) counters: &'a WorkerCounters,
}

impl Inlets {
    /// True if the port has an inlet here.
    #[inline]
    pub(super) fn has(&self, port: PortId) -> bool {
        self.0.iter().any(|inlet| inlet.port == port)
    }

    /// Gives a port an inlet, or replaces it; waiting packets stay in order, as far as there is room.
    pub(super) fn set(&mut self, port: PortId, new: NewQueue, with: InletContext<'_>) {
        let NewQueue { queue, counters, options } = new;
        let longest = longest(&options);
        let Some(inlet) = self.0.iter_mut().find(|inlet| inlet.port == port) else {
            let inlet = Inlet { port, queue, counters, waiting: Waiting::default(), longest };
            return self.0.push(inlet);
        };
        inlet.publish();
        inlet.longest = longest;
        let old = std::mem::replace(&mut inlet.queue, queue);
        let Inlet { queue, counters, waiting, .. } = inlet;
        let region = with.pool.region().id();
        queue.take_over(old, |packet, why| {
            waiting.remove(&packet, region);
            refuse(packet, why, with.pool, &mut None, counters, with.counters);
        });
        inlet.publish();
    }

    /// Changes the parameters of a port's inlet; waiting packets stay.
    pub(super) fn adjust(&mut self, port: PortId, options: &QueueOptions) {
        if let Some(inlet) = self.0.iter_mut().find(|inlet| inlet.port == port) {
            inlet.queue.adjust(options);
            inlet.longest = longest(options);
        }
    }

    /// Removes the inlet of a port that closes, and drops its packets.
    pub(super) fn remove(&mut self, port: PortId, with: InletContext<'_>) {
        let Some(index) = self.0.iter().position(|inlet| inlet.port == port) else { return };
        let mut inlet = self.0.remove(index);
        with.counters.drops.count(DropReason::PortDown, inlet.waiting.wire_packets());
        inlet.queue.clear().for_each(|packet| with.pool.release_packet(packet));
        inlet.waiting = Waiting::default();
        inlet.publish();
        self.count(with.counters);
    }

    /// Enqueues all packets of `batch`, which the port has received.
    pub(super) fn put(&mut self, port: PortId, batch: &mut Batch, with: InletContext<'_>) {
        let Some(inlet) = self.0.iter_mut().find(|inlet| inlet.port == port) else { return };
        let InletContext { now, pool, counters } = with;
        if batch.iter().any(|packet| is_long(packet, inlet.longest)) {
            cut(batch, inlet.longest, (pool, counters), |batch, pool| {
                inlet.put(batch, InletContext { now, pool, counters });
            });
        } else {
            inlet.put(batch, InletContext { now, pool, counters });
        }
        self.count(counters);
    }

    /// Dequeues up to a batch of one port's packets: as far as the rate allows, and whatever the rate if
    /// `at_once` is true for the port. Returns the port; `None` if no packet may leave.
    pub(super) fn take(
        &mut self,
        batch: &mut Batch,
        at_once: &impl Fn(PortId) -> bool,
        with: InletContext<'_>,
    ) -> Option<PortId> {
        let InletContext { now, pool, counters } = with;
        let mut port = None;
        for inlet in &mut self.0 {
            let is_at_once = at_once(inlet.port);
            inlet.fill(batch, is_at_once, InletContext { now, pool, counters });
            inlet.publish();
            if !batch.is_empty() {
                port = Some(inlet.port);
                break;
            }
        }
        self.count(counters);
        port
    }

    /// Number of batches that may leave before other work.
    pub(super) const fn turn() -> usize {
        TURN
    }

    /// Number of slots of packets that wait.
    pub(super) fn slots(&self) -> u64 {
        self.0.iter().map(|inlet| inlet.waiting.slots()).sum()
    }

    /// Time at which the next packet may leave; `None` if none waits.
    pub(super) fn next_deadline(&self, now: Nanos) -> Option<Nanos> {
        let waiting = self.0.iter().filter(|inlet| !inlet.queue.is_empty());
        waiting.map(|inlet| inlet.queue.next_deadline().unwrap_or(now)).min()
    }

    /// Report of a port's inlet; `None` if the port has none here.
    #[cold]
    pub(super) fn report(&self, port: PortId, now: Nanos) -> Option<QueueReport> {
        self.0.iter().find(|inlet| inlet.port == port).map(|inlet| inlet.queue.report(now))
    }

    /// Publishes the number of packets that wait.
    fn count(&self, counters: &WorkerCounters) {
        counters.waiting_to_enter.set(self.0.iter().map(|inlet| inlet.waiting.wire_packets()).sum());
    }
}

impl Inlet {
    fn put(&mut self, batch: &mut Batch, with: InletContext<'_>) {
        let InletContext { now, pool, counters: worker } = with;
        let Self { queue, counters, waiting, .. } = self;
        let region = pool.region().id();
        for packet in batch.iter() {
            counters.entered.add(packet.wire_packets.into());
            waiting.add(packet, region);
        }
        queue.put(batch, now, |packet, why| {
            waiting.remove(&packet, region);
            refuse(packet, why, pool, &mut None, counters, worker);
        });
    }

    /// Dequeues packets until `batch` is full.
    fn fill(&mut self, batch: &mut Batch, at_once: bool, with: InletContext<'_>) {
        let InletContext { now, pool, counters: worker } = with;
        let Self { queue, counters, waiting, .. } = self;
        let region = pool.region().id();
        let mut dropped = |waiting: &mut Waiting, packet: Packet, why| {
            waiting.remove(&packet, region);
            refuse(packet, why, pool, &mut None, counters, worker);
        };
        while !batch.is_full() {
            let packet = match at_once {
                true => queue.clear().next(),
                false => queue.take(now, |packet, why| dropped(waiting, packet, why)),
            };
            let Some(packet) = packet else { break };
            waiting.remove(&packet, region);
            counters.left.add(packet.wire_packets.into());
            counters.left_bytes.add(packet.len() as u64);
            counters.waits.add(packet.wire_packets.into(), queue.wait());
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room for a batch");
        }
    }

    fn publish(&mut self) {
        self.counters.waiting.set(self.waiting.wire_packets());
        self.counters.publish(&mut self.queue);
    }
}
