//! Offloads: work that a sender left to the device, and packets that a device takes uncut.
//!
//! A local sender behind a TAP or a virtual machine's port leaves only the sum of the pseudo-header in
//! a TCP or UDP checksum, and whole payloads of which links carry parts. An [`Outlet`] says what a port
//! takes of that; [`complete_checksum`] and [`segment`](crate::segment) do what it does not.

mod recognise;

pub use recognise::{Recognised, recognise};

use crate::counters::Counter;
use crate::drops::{Context, DropReason};
use crate::wire::{Checksum, Udp};
use polder_buffers::{ChecksumState, Packet, SegmentationKind};
use std::sync::Arc;

/// Packets that a port takes beyond complete packets that fit its link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Packets whose transport checksum is partial.
    pub partial_checksums: bool,
    /// TCP packets that have to be cut.
    pub segments: bool,
    /// UDP packets that have to be cut.
    pub udp_segments: bool,
}

impl Takes {
    /// True if it takes a packet of that kind.
    #[inline]
    pub const fn takes(self, kind: SegmentationKind) -> bool {
        match kind {
            SegmentationKind::None => true,
            SegmentationKind::Tcp4 | SegmentationKind::Tcp4OneId | SegmentationKind::Tcp6 => self.segments,
            SegmentationKind::Udp | SegmentationKind::UdpOneId => self.udp_segments,
        }
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
#[repr(align(64))]
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

/// True if the port that a packet is to leave by takes it as it is.
#[inline]
pub fn takes_whole(packet: &Packet, outlets: &[Outlet]) -> bool {
    let outlet = outlets.get(usize::from(packet.egress.0));
    outlet.map_or(Takes::default(), |outlet| outlet.takes).takes(packet.segmentation.kind)
}

/// Completes the checksum of a packet whose port does not. Returns whether the port takes it whole; if not,
/// nothing was done: its segments get checksums of their own.
///
/// Exits: `DeviceError`.
#[inline(never)]
pub fn complete(packet: &mut Packet, outlets: &[Outlet], context: &Context<'_>) -> bool {
    if !takes_whole(packet, outlets) {
        return false;
    }
    let takes = outlets.get(usize::from(packet.egress.0)).is_some_and(|to| to.takes.partial_checksums);
    if !takes && complete_checksum(packet).is_err() {
        context.discard(packet, DropReason::DeviceError);
    }
    true
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
    let mut sum = Checksum::new();
    let mut skip = start;
    for segment in packet.segments() {
        let from = skip.min(segment.len());
        skip -= from;
        sum.add(&segment[from..]);
    }
    // The field holds the sum of the pseudo-header and is summed along. Zero would mean "none" to UDP.
    let is_udp = packet.checksum_offset == Udp::CHECKSUM_OFFSET;
    let checksum = if is_udp { sum.finish_nonzero() } else { sum.finish() };
    packet.bytes_mut()[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    packet.checksum = ChecksumState::Unknown;
    Ok(())
}
