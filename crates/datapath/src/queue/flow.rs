//! One flow of a flow queue: its packets, its deficit and its CoDel state.

use super::codel::CodelState;
use super::mark::{Marking, mark};
use super::store::{Chain, PacketStore, Stored};
use super::{CodelOptions, Refusal};
use crate::units::Nanos;

/// Active queue management of a flow queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aqm {
    /// CoDel's parameters, for each flow.
    pub codel: CodelOptions,
    /// True if ECN-capable packets are marked and not dropped.
    pub ecn: bool,
    /// Time in the queue from which ECN-capable packets are marked, whatever CoDel decides.
    pub ce_threshold: Option<Nanos>,
    /// Largest number of packets that a full queue drops at a time (RFC 8290, 4.1.3); at least 1.
    pub drop_batch: u32,
}

impl Default for Aqm {
    /// As RFC 8290, 5.2 advises: CoDel's defaults, ECN, no threshold, batches of 64.
    fn default() -> Self {
        Self { codel: CodelOptions::default(), ecn: true, ce_threshold: None, drop_batch: 64 }
    }
}

/// Packets and state of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    pub(super) chain: Chain,
    /// Bytes that the flow may send in its turn; what it has sent too much is negative.
    pub(super) deficit: i64,
    pub(super) codel: CodelState,
}

/// Receiver of dropped packets.
pub(super) type Refuse<'a> = &'a mut dyn FnMut(polder_buffers::Packet, Refusal);

impl Flow {
    /// Dequeues the next packet that CoDel does not drop; counts marked packets in `marks`.
    #[inline]
    pub(super) fn take(
        &mut self,
        (store, backlog): (&mut PacketStore, &mut u32),
        aqm: &Aqm,
        now: Nanos,
        marks: &mut u64,
        refuse: Refuse<'_>,
    ) -> Option<Stored> {
        let Self { chain, codel, .. } = self;
        let next = || {
            let stored = pop(store, chain, backlog)?;
            let came = stored.came;
            Some((stored, came, u64::from(*backlog)))
        };
        let signal = |stored| signal(stored, aqm.ecn, marks, &mut *refuse);
        let mut stored = codel.take(&aqm.codel, now, next, signal)?;
        if aqm.ce_threshold.is_some_and(|threshold| now.since(stored.came) > threshold)
            && mark(&mut stored.packet) == Marking::Marked
        {
            *marks += u64::from(stored.packet.wire_packets);
        }
        Some(stored)
    }

    /// Dequeues the next packet.
    #[inline]
    pub(super) fn pop(&mut self, store: &mut PacketStore, backlog: &mut u32) -> Option<Stored> {
        pop(store, &mut self.chain, backlog)
    }
}

#[inline]
fn pop(store: &mut PacketStore, chain: &mut Chain, backlog: &mut u32) -> Option<Stored> {
    let stored = store.pop(chain)?;
    *backlog -= bytes_of(&stored);
    Some(stored)
}

/// Length of a stored packet.
#[inline]
pub(super) fn bytes_of(stored: &Stored) -> u32 {
    u32::try_from(stored.packet.len()).unwrap_or(u32::MAX)
}

/// Marks a packet and returns it, or drops it.
#[cold]
fn signal(mut stored: Stored, ecn: bool, marks: &mut u64, refuse: Refuse<'_>) -> Option<Stored> {
    match if ecn { mark(&mut stored.packet) } else { Marking::NotCapable } {
        Marking::NotCapable => {
            refuse(stored.packet, Refusal::Delay);
            return None;
        }
        Marking::Already => {}
        Marking::Marked => *marks += u64::from(stored.packet.wire_packets),
    }
    Some(stored)
}

/// Drops up to `most_packets` packets of the flows with most bytes, those with the most first, each until half
/// of that most is left. `pop` drops a flow's first packet and updates its number of bytes; it returns false
/// if the flow has none.
///
/// Cost: 4 bytes read per flow, in order; one call makes room for many packets.
pub(super) fn relieve(
    backlogs: &mut [u32],
    mut most_packets: usize,
    mut pop: impl FnMut(usize, &mut u32) -> bool,
) {
    let most = backlogs.iter().copied().max().unwrap_or(0);
    let first = backlogs.iter().position(|&bytes| bytes == most).unwrap_or(0);
    for index in (first..backlogs.len()).chain(0..first) {
        while backlogs[index] > most / 2 {
            if most_packets == 0 || !pop(index, &mut backlogs[index]) {
                return;
            }
            most_packets -= 1;
        }
    }
}

/// Number of packets that a full queue of `len` packets drops at a time: a sixteenth, at most `most`.
pub(super) fn drop_batch(len: usize, most: u32) -> usize {
    (len / 16).clamp(1, usize::try_from(most).unwrap_or(usize::MAX).max(1))
}
