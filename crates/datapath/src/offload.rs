//! Offloads: checksums and segmentation that a sender leaves to the device.
//!
//! A local sender behind a TAP or a virtual machine's port stores only the pseudo-header sum in a TCP or UDP
//! checksum field, and sends super-packets. An [`Outlet`] lists the offloads that a port supports;
//! [`complete_checksum`] and [`segment`](crate::segment) do the rest in software. Packets into a tunnel leave
//! by its underlay, so the underlay's offloads count.

mod recognise;

pub use recognise::{Recognised, recognise};

use crate::counters::{Counter, totals};
use crate::drops::{Context, DropReason};
use crate::wire::{Checksum, Udp};
use polder_buffers::{ChecksumState, Packet, PortId, Segmentation, SegmentationKind};
use std::sync::Arc;

/// Offloads that a port supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Packets whose transport checksum is partial.
    pub partial_checksums: bool,
    /// TCP super-packets.
    pub segments: bool,
    /// TCP super-packets over IPv4 only.
    pub only_ipv4_segments: bool,
    /// UDP super-packets.
    pub udp_segments: bool,
    /// Super-packets in a tunnel over UDP, whose outer headers each segment gets.
    pub tunnel_segments: bool,
    /// Maximum length of a super-packet in bytes, Ethernet header included; `None` for no limit.
    pub longest: Option<u32>,
}

impl Takes {
    /// True if the port takes the packet as it is.
    #[inline]
    pub fn takes(self, packet: &Packet) -> bool {
        packet.segmentation.kind == SegmentationKind::None
            || self.takes_segmentation(packet.segmentation) && self.takes_length(packet.len())
    }

    /// True if the port takes super-packets of `bytes` bytes.
    #[inline]
    pub fn takes_length(self, bytes: usize) -> bool {
        self.longest.is_none_or(|longest| bytes as u64 <= u64::from(longest))
    }

    /// True if the port takes packets with this segmentation.
    #[inline]
    fn takes_segmentation(self, segmentation: Segmentation) -> bool {
        let takes_kind = match segmentation.kind {
            SegmentationKind::None => return true,
            SegmentationKind::Tcp4 => self.segments,
            SegmentationKind::Tcp6 => self.segments && !self.only_ipv4_segments,
            SegmentationKind::Udp => self.udp_segments,
        };
        takes_kind && (!segmentation.outer.is_some() || self.tunnel_segments && segmentation.outer.is_udp())
    }
}

/// Offloads and counters of an egress port.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Offloads that the port supports.
    pub takes: Takes,
    /// True if segments are coalesced for the port.
    pub coalesce: bool,
    /// State that survives a reload.
    pub state: Arc<OutletState>,
}

impl Outlet {
    /// A port without offloads.
    pub fn plain() -> Self {
        Self { takes: Takes::default(), coalesce: false, state: Arc::new(OutletState::new(1)) }
    }

    /// A copy with separate counters.
    pub(crate) fn image(&self) -> Self {
        Self { state: Arc::new(OutletState::new(1)), ..*self }
    }
}

/// Counters of packets coalesced and segmented for a port, one block per worker.
#[derive(Debug)]
pub struct OutletState {
    /// Counters by worker.
    pub counters: Box<[OutletCounters]>,
}

/// One worker's counters of packets coalesced and segmented for a port.
#[derive(Debug, Default)]
#[cfg_attr(target_arch = "aarch64", repr(align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(64)))]
pub struct OutletCounters {
    /// Super-packets made by coalescing.
    pub merged_into: Counter,
    /// Packets that were coalesced, the first of each super-packet included.
    pub merged: Counter,
    /// Super-packets that were segmented.
    pub cut: Counter,
    /// Segments made of super-packets.
    pub segments: Counter,
}

totals! {
    OutletCounters { merged_into, merged, cut, segments } [];
}

impl OutletState {
    /// Initial state for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { counters: (0..workers.max(1)).map(|_| OutletCounters::default()).collect() }
    }

    /// Counter block of one worker; of the last worker if `worker` is out of range.
    #[inline]
    pub fn worker(&self, worker: usize) -> &OutletCounters {
        &self.counters[worker.min(self.counters.len() - 1)]
    }

    /// Sum of one counter over all workers.
    pub fn total(&self, counter: impl Fn(&OutletCounters) -> &Counter) -> u64 {
        self.counters.iter().map(|block| counter(block).get()).sum()
    }
}

impl OutletCounters {
    /// Counts `joined` packets that were appended to `into` others.
    pub(crate) fn merged(&self, joined: u64, into: u64) {
        self.merged_into.add(into);
        self.merged.add(joined + into);
    }

    /// Counts a super-packet that is cut into `segments` segments.
    pub(crate) fn cut(&self, segments: u64) {
        self.cut.add(1);
        self.segments.add(segments);
    }
}

/// Offloads that a port supports; none for an unknown port.
#[inline]
pub fn takes_of(port: PortId, outlets: &[Outlet]) -> Takes {
    outlets.get(usize::from(port.0)).map_or(Takes::default(), |outlet| outlet.takes)
}

/// Completes the checksum of a packet for a port without checksum offload.
///
/// Exits: `DeviceError`.
#[inline(never)]
pub fn complete(packet: &mut Packet, takes: Takes, context: &Context<'_>) {
    if !takes.partial_checksums && complete_checksum(packet).is_err() {
        context.discard(packet, DropReason::DeviceError);
    }
}

/// The metadata of a packet place its checksum outside the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet's metadata place its checksum outside of the packet")]
pub struct OutsidePacket;

/// Completes a partial checksum; does nothing to a packet without one.
///
/// # Errors
/// [`OutsidePacket`] if the metadata, which a local sender chose, contradict the packet.
///
/// Cost: reads the packet from the checksum's start on, about 20 bytes per nanosecond.
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
    // The field has the pseudo-header sum, which is included. In UDP, zero would mean "none".
    let is_udp = packet.checksum_offset == Udp::CHECKSUM_OFFSET;
    let checksum = if is_udp { sum.finish_nonzero() } else { sum.finish() };
    packet.bytes_mut()[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.checksum = ChecksumState::Unknown;
    Ok(())
}

/// Adds to `first` the sum over `length` bytes of the packet from `start` on, as if a partial checksum in
/// that range were complete (local checksum offload).
///
/// A message with complete checksum and its pseudo-header sum up to zero; so the message alone sums up to the
/// complement of the pseudo-header sum, which the field of a partial checksum contains.
///
/// Cost: reads the bytes before the range of a partial checksum; all bytes without one.
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

/// Adds to `sum` the sum over `length` bytes of the packet from `offset` on, across frames.
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
