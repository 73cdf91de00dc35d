//! Every way in which a journey can end early, by name.
//!
//! One variant is one counter is one row of `polder show drops`. A stage marks the packet with
//! [`Context::discard`]; the packet stays in its batch, is skipped by later stages and released in
//! bulk.

mod reason;

pub use reason::DropReason;

use crate::counter::Counter;
use crate::units::Nanos;
use polder_buffers::{Packet, Pool, PortId};

/// The egress of a packet whose journey has ended.
pub const DROPPED: PortId = PortId(u16::MAX - 1);

/// True if the packet's journey has ended.
#[inline(always)]
pub fn is_dropped(packet: &Packet) -> bool {
    packet.egress == DROPPED
}

/// Marks a packet whose journey has ended, for whoever looks at it before it is released.
#[cold]
pub fn mark(packet: &mut Packet, reason: DropReason) {
    packet.egress = DROPPED;
    // What only a packet on its way needs has room for why it is not.
    packet.transport_offset = u16::from(reason as u8);
}

impl DropReason {
    /// Reason why the packet's journey has ended, if it has.
    pub fn of(packet: &Packet) -> Option<Self> {
        if !is_dropped(packet) {
            return None;
        }
        Self::ALL.get(usize::from(packet.transport_offset)).copied()
    }
}

/// One counter a reason.
#[derive(Debug)]
pub struct DropCounters([Counter; DropReason::COUNT]);

impl Default for DropCounters {
    fn default() -> Self {
        Self([const { Counter::new() }; DropReason::COUNT])
    }
}

impl DropCounters {
    /// Counts `packets` drops. To be called by the owning worker alone.
    #[inline]
    pub fn count(&self, reason: DropReason, packets: u64) {
        self.0[reason as usize].add(packets);
    }

    /// Drops for one reason.
    pub fn get(&self, reason: DropReason) -> u64 {
        self.counter(reason).get()
    }

    /// The counter of one reason.
    pub(crate) fn counter(&self, reason: DropReason) -> &Counter {
        &self.0[reason as usize]
    }

    /// Drops for all reasons.
    pub fn total(&self) -> u64 {
        self.0.iter().map(Counter::get).sum()
    }

    /// All reasons that have occurred.
    pub fn occurred(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|&reason| (reason, self.get(reason))).filter(|&(_, count)| count > 0)
    }
}

/// Context of a stage besides its batch.
pub struct Context<'a> {
    /// The time of this turn.
    pub now: Nanos,
    /// The worker's free frames.
    pub pool: &'a mut Pool,
    /// The worker's drop counters.
    pub drops: &'a DropCounters,
    /// Packets beyond those received: see [`Ledger`].
    pub ledger: &'a Ledger,
}

impl Context<'_> {
    /// Ends the packet's journey: counts the reason and marks the packet.
    #[cold]
    pub fn discard(&self, packet: &mut Packet, reason: DropReason) {
        debug_assert!(!is_dropped(packet), "a packet is dropped once");
        self.drops.count(reason, packet.wire_packets.into());
        mark(packet, reason);
    }

    /// Ends the packet's journey: it was for the gateway itself.
    #[cold]
    pub fn deliver(&self, packet: &mut Packet) {
        debug_assert!(!is_dropped(packet), "a packet arrives once");
        self.ledger.delivered.add(packet.wire_packets.into());
        packet.egress = DROPPED;
        packet.transport_offset = u16::MAX;
    }
}

/// Packets that a worker made or unmade, for the conservation law, as they are [on a link](Packet::wire_packets):
/// received + generated + cloned + split = transmitted + delivered + dropped + merged + held.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Made by the datapath itself (ICMP errors, ARP replies).
    pub generated: Counter,
    /// Copies made for flooding.
    pub cloned: Counter,
    /// Further packets made from one: n fragments count n − 1.
    pub split: Counter,
    /// Packets that became part of another: n fragments that are reassembled count n − 1.
    pub merged: Counter,
    /// Packets that ended here because they were for the gateway itself, and were taken.
    pub delivered: Counter,
    /// Packets that wait for a neighbour's link-layer address. A gauge, written with [`Counter::set`].
    pub waiting: Counter,
    /// Packets that stages hold (reassembly). A gauge, written with [`Counter::set`].
    pub held: Counter,
    /// Frames of those packets, slots of the packet memory alone. A gauge as well.
    pub held_slots: Counter,
}
