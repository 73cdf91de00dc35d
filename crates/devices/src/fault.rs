//! A fault injector around the receiving end of any device: it loses, delays, duplicates, reorders and
//! damages packets, and unplugs the device after a set number of packets.
//!
//! Faults are drawn from a seed, so a run can be repeated. The wrapped queue keeps the contract of
//! [`RxQueue`]; without faults it passes the conformance suite of the inner device.
//!
//! Conservation: packets received by the device, minus its drops, plus [`FaultCounts::duplicated`], equal the
//! packets that the wrapper passed on, plus [`FaultCounts::lost`], plus [`FaultyRx::held`].

use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::counters::{Counter, QueueCounters};
use polder_datapath::port::{Armed, Budget, RxControl, RxQueue, Turn};
use polder_datapath::units::Nanos;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Faults, and their frequency. All shares are in packets per thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Seed of the draws.
    pub seed: u64,
    /// Share of lost packets.
    pub lose: u16,
    /// Share of duplicated packets.
    pub duplicate: u16,
    /// Share of packets of which one bit is flipped.
    pub damage: u16,
    /// Share of packets that are held for [`delay_polls`](Self::delay_polls) polls, while others overtake
    /// them.
    pub delay: u16,
    /// Number of polls for which a delayed packet is held, at least 1.
    pub delay_polls: u32,
    /// Number of packets after which the device is unplugged.
    pub unplug_after: Option<u64>,
}

/// Number of faults so far, in packets.
#[derive(Debug, Default)]
pub struct FaultCounts {
    /// Lost packets, including those held when the device was unplugged.
    pub lost: Counter,
    /// Duplicates made.
    pub duplicated: Counter,
    /// Damaged packets.
    pub damaged: Counter,
    /// Delayed packets.
    pub delayed: Counter,
}

/// The receiving end of a device, with faults.
pub struct FaultyRx {
    inner: Box<dyn RxQueue>,
    faults: Faults,
    random: fastrand::Rng,
    /// Packets ready for the user, in order.
    ready: VecDeque<Packet>,
    /// Delayed packets with the poll at which each is due, in the order of those polls.
    delayed: VecDeque<(u64, Packet)>,
    polls: u64,
    taken: u64,
    staged: Batch,
    counters: Arc<QueueCounters>,
    counts: Arc<FaultCounts>,
}

impl core::fmt::Debug for FaultyRx {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { faults, counts, .. } = self;
        formatter
            .debug_struct("FaultyRx")
            .field("faults", faults)
            .field("counts", counts)
            .finish_non_exhaustive()
    }
}

impl FaultyRx {
    /// Wraps `inner` with `faults`.
    pub fn new(inner: Box<dyn RxQueue>, faults: Faults) -> Self {
        Self {
            inner,
            faults,
            random: fastrand::Rng::with_seed(faults.seed),
            ready: VecDeque::new(),
            delayed: VecDeque::new(),
            polls: 0,
            taken: 0,
            staged: Batch::new(),
            counters: Arc::default(),
            counts: Arc::default(),
        }
    }

    /// Returns the number of faults so far.
    pub fn counts(&self) -> &Arc<FaultCounts> {
        &self.counts
    }

    /// Returns the number of held packets: delayed, or ready for a user that had no room.
    pub fn held(&self) -> usize {
        self.ready.len() + self.delayed.len()
    }

    fn is_unplugged(&self) -> bool {
        self.faults.unplug_after.is_some_and(|limit| self.taken >= limit)
    }

    fn occurs(&mut self, share: u16) -> bool {
        share > 0 && self.random.u16(0..1000) < share
    }

    /// Draws the faults of one packet of the device.
    fn take(&mut self, mut packet: Packet, pool: &mut Pool) {
        self.taken += 1;
        if self.occurs(self.faults.lose) {
            self.counts.lost.add(1);
            return pool.release_packet(packet);
        }
        if self.occurs(self.faults.damage) {
            self.damage(&mut packet);
        }
        if self.occurs(self.faults.duplicate)
            && let Some(copy) = packet.duplicate(pool)
        {
            self.counts.duplicated.add(1);
            self.ready.push_back(copy);
        }
        if self.occurs(self.faults.delay) {
            self.counts.delayed.add(1);
            self.delayed.push_back((self.polls + u64::from(self.faults.delay_polls.max(1)), packet));
        } else {
            self.ready.push_back(packet);
        }
    }

    fn damage(&mut self, packet: &mut Packet) {
        let bits = packet.bytes().len() * 8;
        if bits == 0 {
            return;
        }
        let bit = self.random.usize(0..bits);
        if let Some(byte) = packet.bytes_mut().get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
            self.counts.damaged.add(1);
        }
    }

    /// Moves packets to the user, as far as there is room.
    fn deliver(&mut self, budget: &mut Budget, batch: &mut Batch) {
        while budget.left() > 0 && !batch.is_full() {
            let Some(packet) = self.ready.pop_front() else { return };
            self.counters.received.add(1);
            self.counters.received_bytes.add(packet.len() as u64);
            budget.spend(1);
            if let Err(packet) = batch.push(packet) {
                return self.ready.push_front(packet);
            }
        }
    }

    /// Unplugs the device; all held packets are lost.
    #[cold]
    fn unplug(&mut self, pool: &mut Pool) -> Turn {
        let delayed = self.delayed.drain(..).map(|(_, packet)| packet);
        for packet in self.ready.drain(..).chain(delayed) {
            self.counts.lost.add(1);
            pool.release_packet(packet);
        }
        Turn::Closed
    }
}

impl RxQueue for FaultyRx {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        self.polls += 1;
        if self.is_unplugged() {
            return self.unplug(pool);
        }
        while self.delayed.front().is_some_and(|(due, _)| *due <= self.polls) {
            self.ready.extend(self.delayed.pop_front().map(|(_, packet)| packet));
        }
        // No more than the user has room for: the rest stays in the device.
        let room = batch.room().saturating_sub(self.ready.len());
        let wanted = (budget.left() as usize).saturating_sub(self.ready.len()).min(room);
        let mut staged = core::mem::take(&mut self.staged);
        let turn =
            self.inner.receive(&mut Budget::new(u32::try_from(wanted).unwrap_or(0)), &mut staged, pool);
        staged.drain().for_each(|packet| self.take(packet, pool));
        self.staged = staged;
        self.deliver(budget, batch);
        match turn {
            Turn::Closed if self.held() == 0 => Turn::Closed,
            Turn::Closed | Turn::OutOfBudget => Turn::OutOfBudget,
            Turn::Drained if self.ready.is_empty() => Turn::Drained,
            Turn::Drained => Turn::OutOfBudget,
        }
    }

    fn arm(&mut self) -> Armed {
        // Delays are counted in polls, so the worker must go on polling.
        if self.held() > 0 || self.is_unplugged() { Armed::Raced } else { self.inner.arm() }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.inner.event()
    }

    fn longest_sleep(&self) -> Option<Nanos> {
        self.inner.longest_sleep()
    }

    fn control(&mut self) -> Option<&mut dyn RxControl> {
        self.inner.control()
    }

    fn posted(&self) -> u32 {
        self.inner.posted()
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
