//! Offloads: work that a sender left to the device, and packets that a device takes uncut.
//!
//! A local sender behind a TAP or a virtual machine's port leaves only the sum of the pseudo-header in
//! a TCP or UDP checksum, and whole payloads of which links carry parts. An [`Outlet`] says what a port
//! takes of that; [`complete_checksum`] and [`segment`](crate::segment) do what it does not. What enters a tunnel leaves by
//! the tunnel's underlay, so that port's abilities count.

mod recognise;

pub use recognise::{Recognised, recognise};

use crate::counters::{Counter, totals};
use crate::drops::{Context, DropReason};
use crate::wire::{Checksum, Udp};
use polder_buffers::{ChecksumState, Packet, PortId, Segmentation, SegmentationKind};
use std::sync::Arc;

/// Packets that a port takes beyond complete packets that fit its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Packets whose transport checksum is partial.
    pub partial_checksums: bool,
    /// TCP packets that have to be cut.
    pub segments: bool,
    /// Of those, the ones over IPv4 alone.
    pub only_ipv4_segments: bool,
    /// UDP packets that have to be cut.
    pub udp_segments: bool,
    /// Such packets in a tunnel over UDP, whose headers every segment gets.
    pub tunnel_segments: bool,
}

impl Takes {
    /// True if it takes a packet that has to be cut so.
    #[inline]
    pub fn takes(self, segmentation: Segmentation) -> bool {
        let takes_kind = match segmentation.kind {
            SegmentationKind::None => return true,
            SegmentationKind::Tcp4 => self.segments,
            SegmentationKind::Tcp6 => self.segments && !self.only_ipv4_segments,
            SegmentationKind::Udp => self.udp_segments,
        };
        takes_kind && (!segmentation.outer.is_some() || self.tunnel_segments && segmentation.outer.is_udp())
    }
}

/// Offloads and counters of packets that leave by a port.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Packets that it takes beyond complete ones.
    pub takes: Takes,
    /// True if segments are merged for it.
    pub coalesce: bool,
    /// State that outlives the configuration.
    pub state: Arc<OutletState>,
}

impl Outlet {
    /// A port that takes complete packets alone.
    pub fn plain() -> Self {
        Self { takes: Takes::default(), coalesce: false, state: Arc::new(OutletState::new(1)) }
    }

    /// The same that counts for itself.
    pub(crate) fn image(&self) -> Self {
        Self { state: Arc::new(OutletState::new(1)), ..*self }
    }
}

/// Counts of packets merged and cut for a port, one block a worker.
#[derive(Debug)]
pub struct OutletState {
    /// By worker.
    pub counters: Box<[OutletCounters]>,
}

/// Counts of one worker's packets merged and cut for a port.
#[derive(Debug, Default)]
#[cfg_attr(target_arch = "aarch64", repr(align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(64)))]
pub struct OutletCounters {
    /// Packets that were made by merging.
    pub merged_into: Counter,
    /// Packets that became part of those, the first of each included.
    pub merged: Counter,
    /// Packets that were cut.
    pub cut: Counter,
    /// Segments that were made of those.
    pub segments: Counter,
}

totals! {
    OutletCounters { merged_into, merged, cut, segments } [];
}

impl OutletState {
    /// State of a port that no packet has left by, for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { counters: (0..workers.max(1)).map(|_| OutletCounters::default()).collect() }
    }

    /// The block of one worker; that of the last one for numbers beyond.
    #[inline]
    pub fn worker(&self, worker: usize) -> &OutletCounters {
        &self.counters[worker.min(self.counters.len() - 1)]
    }

    /// The sum of one counter over all workers.
    pub fn total(&self, counter: impl Fn(&OutletCounters) -> &Counter) -> u64 {
        self.counters.iter().map(|block| counter(block).get()).sum()
    }
}

impl OutletCounters {
    /// Counts `joined` packets that joined `into` others.
    pub(crate) fn merged(&self, joined: u64, into: u64) {
        self.merged_into.add(into);
        self.merged.add(joined + into);
    }

    /// Counts a packet that is cut into `segments` segments.
    pub(crate) fn cut(&self, segments: u64) {
        self.cut.add(1);
        self.segments.add(segments);
    }
}

/// Packets that a port takes beyond complete ones.
#[inline]
pub fn takes_of(port: PortId, outlets: &[Outlet]) -> Takes {
    outlets.get(usize::from(port.0)).map_or(Takes::default(), |outlet| outlet.takes)
}

/// Completes the checksum of a packet for a port that takes none that is partial.
///
/// Exits: `DeviceError`.
#[inline(never)]
pub fn complete(packet: &mut Packet, takes: Takes, context: &Context<'_>) {
    if !takes.partial_checksums && complete_checksum(packet).is_err() {
        context.discard(packet, DropReason::DeviceError);
    }
}

/// A packet whose metadata say that a checksum is to be computed where there is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the checksum is to be written outside the packet")]
pub struct OutsidePacket;

/// Computes a partial checksum; does nothing to a packet that has none.
///
/// # Errors
/// [`OutsidePacket`] when the metadata, which a local sender chose, do not fit the packet.
///
/// Cost: reads the packet from where the checksum starts, a nanosecond for some 20 bytes.
#[cold]
pub fn complete_checksum(packet: &mut Packet) -> Result<(), OutsidePacket> {
    if packet.checksum != ChecksumState::Partial {
        return Ok(());
    }
    let start = usize::from(packet.checksum_start);
    let field = start + usize::from(packet.checksum_offset);
    if field + 2 > packet.bytes().len() {
        return Err(OutsidePacket);
    }
    let sum = sum_onto(Checksum::new(), packet, start, usize::MAX);
    // The field holds the sum of the pseudo-header and is summed along. Zero would mean "none" to UDP.
    let is_udp = packet.checksum_offset == Udp::CHECKSUM_OFFSET;
    let checksum = if is_udp { sum.finish_nonzero() } else { sum.finish() };
    packet.bytes_mut()[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.checksum = ChecksumState::Unknown;
    Ok(())
}

/// The sum over the `length` bytes of the packet from `start` on, added to `first`, as it is once a partial checksum among
/// them is complete (local checksum offload).
///
/// A message with a complete checksum and its pseudo-header add up to zero; so the message alone adds up to the complement
/// of the pseudo-header's sum, which is in the field while the checksum is partial.
///
/// Cost: reads the bytes in front of what a partial checksum covers; all of them without one.
pub(crate) fn sum_as_completed(first: Checksum, packet: &Packet, start: usize, length: usize) -> Checksum {
    let covered = usize::from(packet.checksum_start);
    let field = covered + usize::from(packet.checksum_offset);
    let end = start.saturating_add(length);
    if packet.checksum == ChecksumState::Partial
        && (start..end).contains(&covered)
        && (covered - start).is_multiple_of(2)
        && let Some(field) = packet.bytes().get(field..).and_then(<[u8]>::first_chunk)
    {
        let partial = u16::from_be_bytes(*field);
        return sum_onto(first, packet, start, covered - start).with(&(!partial).to_be_bytes());
    }
    sum_onto(first, packet, start, length)
}

/// The sum over `length` bytes of the packet from `offset` on, whatever frames they are in, added to `sum`.
pub(crate) fn sum_onto(mut sum: Checksum, packet: &Packet, offset: usize, length: usize) -> Checksum {
    let (mut skip, mut left) = (offset, length);
    for segment in packet.segments() {
        let from = skip.min(segment.len());
        let count = (segment.len() - from).min(left);
        sum.add(&segment[from..from + count]);
        skip -= from;
        left -= count;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::{Region, RegionOptions};

    /// Any part of a chain, in frames of odd lengths.
    #[test]
    fn sums_over_chains() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test");
        let mut pool = region.pool();
        let bytes = (0..=255).cycle().take(1000).collect::<Vec<u8>>();
        let mut packet = Packet::copy_from(&bytes[..101], &mut pool).expect("a free slot");
        for part in [&bytes[101..300], &bytes[300..303], &bytes[303..]] {
            packet.join(Packet::copy_from(part, &mut pool).expect("a free slot"));
        }
        let sum = |packet: &Packet, from, length| sum_onto(Checksum::new(), packet, from, length);
        for (from, length) in
            [(0, 1000), (0, 101), (7, 94), (100, 2), (101, 199), (150, 400), (999, 1), (3, 0)]
        {
            let expected = Checksum::of(&bytes[from..from + length]);
            assert_eq!(sum(&packet, from, length).finish(), expected, "{length} from {from}");
        }
        assert_eq!(sum(&packet, 500, usize::MAX).finish(), Checksum::of(&bytes[500..]));
        pool.release_packet(packet);
    }

    /// Partial at any place, or not: the sum is that of the packet with its checksum completed.
    #[test]
    fn sums_know_what_a_partial_checksum_will_be() {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test");
        let mut pool = region.pool();
        let bytes = (0..=255).cycle().skip(3).take(901).collect::<Vec<u8>>();
        for (start, covered) in [(34_usize, 84_u16), (34, 34), (34, 35), (34, 20), (0, 200)] {
            let mut packet = Packet::copy_from(&bytes, &mut pool).expect("a free slot");
            packet.checksum = ChecksumState::Partial;
            (packet.checksum_start, packet.checksum_offset) = (covered, 6);
            let first = Checksum::new().with(&[7, 8]);
            let foreseen = sum_as_completed(first, &packet, start, usize::MAX).finish();
            let is_foreseen = usize::from(covered) >= start && covered % 2 == 0;
            if is_foreseen {
                complete_checksum(&mut packet).expect("in the packet");
            }
            assert_eq!(foreseen, sum_onto(first, &packet, start, usize::MAX).finish(), "{start} {covered}");
            pool.release_packet(packet);
        }
    }
}
