//! Drop reasons: every way in which a packet can end early, by name.
//!
//! Each variant has one counter and one row of `polder show drops`. A stage marks a dropped packet with
//! [`Context::discard`]; the packet stays in its batch, is skipped by later stages and released in bulk.

mod reason;

pub use reason::DropReason;

use crate::counter::Counter;
use crate::units::Nanos;
use polder_buffers::{Packet, Pool, PortId};

/// Egress of a dropped or delivered packet.
pub const DROPPED: PortId = PortId(u16::MAX - 1);

/// True if the packet was dropped or delivered.
#[inline(always)]
pub fn is_dropped(packet: &Packet) -> bool {
    packet.egress == DROPPED
}

/// Marks a packet as dropped, with its reason for captures and traces.
#[cold]
pub fn mark(packet: &mut Packet, reason: DropReason) {
    packet.egress = DROPPED;
    // A dropped packet needs no transport offset, so the field stores the reason.
    packet.transport_offset = u16::from(reason as u8);
}

impl DropReason {
    /// Drop reason of a packet; `None` if it was not dropped.
    pub fn of(packet: &Packet) -> Option<Self> {
        if !is_dropped(packet) {
            return None;
        }
        Self::ALL.get(usize::from(packet.transport_offset)).copied()
    }
}

/// Drop counters, one per reason.
#[derive(Debug)]
pub struct DropCounters([Counter; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { Counter::new() }; DropReason::COUNT])
    }
}

impl DropCounters {
    /// Counts `packets` drops. Called only by the owning worker.
    #[inline]
    pub fn count(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].add(packets);
    }

    /// Number of drops for one reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.counter(reason).get()
    }

    /// Counter of one reason.
    pub(crate) fn counter(&self, reason: DropReason) -> &Counter {
        &self.0[reason as usize]
    }

    /// Number of drops for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }

    /// Reasons with drops, and their numbers.
    pub fn occurred(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|&(_, count)| count > 0)
    }
}

/// Context of a stage, besides its batch.
pub struct Context<'a> {
    /// Time of this turn.
    pub now: Nanos,
    /// The worker's pool of free frames.
    pub pool: &'a mut Pool,
    /// The worker's drop counters.
    pub drops: &'a DropCounters,
    /// Packets created and merged: see [`Ledger`].
    pub ledger: &'a Ledger,
}

impl Context<'_> {
    /// Drops the packet: counts the reason and marks the packet.
    #[cold]
    pub fn discard(&self, packet: &mut Packet, reason: DropReason) {
        debug_assert!(!is_dropped(packet), "a packet is dropped once");
        self.drops.count(reason, packet.wire_packets.into());
        mark(packet, reason);
    }

    /// Ends a packet that was for the gateway itself.
    #[cold]
    pub fn deliver(&self, packet: &mut Packet) {
        debug_assert!(!is_dropped(packet), "a packet arrives once");
        self.ledger.delivered.add(packet.wire_packets.into());
        packet.egress = DROPPED;
        packet.transport_offset = u16::MAX;
    }
}

/// Packets that a worker created or merged, in [packets on the wire](Packet::wire_packets), for the
/// conservation law: received + generated + cloned + split = transmitted + delivered + dropped + merged +
/// held.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Packets created by the datapath itself (ICMP errors, ARP replies).
    pub generated: Counter,
    /// Copies made for flooding.
    pub cloned: Counter,
    /// Additional packets made from one: n fragments count n − 1.
    pub split: Counter,
    /// Packets that were merged into another: reassembly of n fragments counts n − 1.
    pub merged: Counter,
    /// Packets that were for the gateway itself.
    pub delivered: Counter,
    /// Packets that wait for a neighbour's link-layer address. A gauge, written with [`Counter::set`].
    pub waiting: Counter,
    /// Packets that stages hold (reassembly). A gauge, written with [`Counter::set`].
    pub held: Counter,
    /// Frames of the held packets in the packet memory. A gauge as well.
    pub held_slots: Counter,
}
