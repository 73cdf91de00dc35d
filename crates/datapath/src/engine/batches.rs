//! Batches between stages: division into chunks, collection into work batches, and summaries.

use crate::drops::is_dropped;
use crate::route::Sent;
use crate::sequence::is_marked;
use crate::steer::WorkBatch;
use polder_buffers::{Batch, ChecksumState, NO_PORT, Packet, Pool, PortId};

/// Moves the packets of a batch that are not dropped into its work batch.
#[inline]
pub(super) fn collect(batch: &mut Batch, work: &mut WorkBatch, pool: &mut Pool) {
    if work.len() == 0 && !batch.iter().any(is_dropped) {
        return core::mem::swap(&mut work.batch, batch);
    }
    for packet in batch.drain() {
        if is_dropped(&packet) { pool.release_packet(packet) } else { work.push(packet) }
    }
}

/// Summary of a batch for the stages after router and bridge, computed in one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchSummary {
    /// Number of packets that are not dropped.
    pub(super) alive: usize,
    /// True if some packets need a sequence number.
    pub(super) has_marked: bool,
    /// True if some packets have partial checksums.
    pub(super) has_partial: bool,
    /// Lowest and highest rank of the packets' egress, see [`rank`].
    pub(super) ranks: (u16, u16),
}

/// Rank of an egress: numbers that are no ports come first, so that the highest rank is a port if there is
/// one.
#[inline(always)]
pub(super) const fn rank(port: PortId) -> u16 {
    port.0.wrapping_add(2)
}

const _: () = assert!(rank(NO_PORT) == 1, "no port and dropped come before ports");

impl BatchSummary {
    #[inline]
    pub(super) fn of(batch: &Batch) -> Self {
        let mut summary = Self { alive: 0, has_marked: false, has_partial: false, ranks: (u16::MAX, 0) };
        for packet in batch.iter() {
            let is_alive = !is_dropped(packet);
            summary.alive = summary.alive.wrapping_add(usize::from(is_alive));
            summary.has_marked |= is_marked(packet);
            summary.has_partial |= is_alive & (packet.checksum == ChecksumState::Partial);
            let rank = rank(packet.egress);
            summary.ranks = (summary.ranks.0.min(rank), summary.ranks.1.max(rank));
        }
        summary
    }

    /// The egress port of all packets; `None` if they differ.
    pub(super) fn only_port(&self) -> Option<PortId> {
        let (first, last) = self.ranks;
        (first == last && first > rank(NO_PORT)).then(|| PortId(first.wrapping_sub(2)))
    }

    /// True if all packets leave by ports below `port`, or not at all.
    pub(super) fn is_below(&self, port: PortId) -> bool {
        self.ranks.1 < rank(port) || rank(port) <= rank(NO_PORT)
    }

    /// Summary of a batch that the router forwarded completely.
    #[inline]
    pub(super) fn of_sent(batch: &Batch, Sent { lowest, highest }: Sent) -> Self {
        let ranks = (rank(lowest), rank(highest));
        let summary = Self { alive: batch.len(), has_marked: false, has_partial: false, ranks };
        debug_assert_eq!(summary, Self::of(batch), "as if it had been looked at");
        summary
    }

    /// True if some packets may lack an egress; dropped packets also count.
    pub(super) fn may_lack_ports(&self) -> bool {
        self.ranks.0 <= rank(NO_PORT)
    }

    /// True if all packets leave by `port`, false if none does; `None` if each packet must be examined.
    pub(super) fn leaves_by(&self, port: PortId) -> Option<bool> {
        let (first, last) = self.ranks;
        if port == NO_PORT || !(first..=last).contains(&rank(port)) {
            return Some(false);
        }
        (first == last).then_some(true)
    }
}

/// Number of packets that are not dropped.
#[inline]
pub(super) fn alive(batch: &Batch) -> usize {
    batch.iter().filter(|packet| !is_dropped(packet)).count()
}

/// Empties `packets` in order, a batch at a time.
#[cold]
pub(super) fn in_chunks(packets: &mut Vec<Packet>, chunk: &mut Batch, mut go_on: impl FnMut(&mut Batch)) {
    let mut all = packets.drain(..).peekable();
    while all.peek().is_some() {
        while !chunk.is_full()
            && let Some(packet) = all.next()
        {
            let pushed = chunk.push(packet);
            debug_assert!(pushed.is_ok(), "looked for room before");
        }
        go_on(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::DROPPED;
    use polder_buffers::{Region, RegionOptions};

    /// The summary of a batch agrees with an examination of each packet.
    #[test]
    fn who_leaves_by_a_port_is_known_or_asked() {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 512 }).expect("memory for a test");
        let (mut pool, mut known) = (region.pool(), [0; 3]);
        let ports = [PortId(0), PortId(1), PortId(7), PortId(u16::MAX - 2), NO_PORT, DROPPED];
        for round in 0..4 * 216_usize {
            let mut batch = Batch::new();
            for number in 0..round % 4 {
                let mut packet = Packet::copy_from(&[0; 60], &mut pool).expect("256 slots");
                // Digits of the number of the round, in base six: each combination comes.
                packet.egress = ports[round / 4 / [1, 6, 36][number] % 6];
                batch.push(packet).expect("three of 64");
            }
            let summary = BatchSummary::of(&batch);
            for port in [PortId(0), PortId(1), PortId(7), PortId(u16::MAX - 2)] {
                let leave = batch.iter().filter(|packet| packet.egress == port).count();
                let said = summary.leaves_by(port);
                assert!(said != Some(true) || (leave == batch.len() && leave > 0), "{batch:?}");
                assert!(said != Some(false) || leave == 0, "{batch:?}");
                known[said.map_or(2, usize::from)] += 1;
            }
            pool.release(&mut batch);
        }
        assert!(known.iter().all(|&count| count > 100), "{known:?}");
    }
}
