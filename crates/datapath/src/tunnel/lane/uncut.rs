//! Packets that are cut behind the tunnel, and checksums over what is complete.

use super::{Completion, Lane};
use crate::offload::sum_as_completed;
use crate::parse::HeaderSummary;
use crate::segment::Measure;
use crate::wire::{Checksum, Gre};
use polder_buffers::{OuterHeaders, Packet, Segmentation};

impl Lane<'_> {
    /// Says of an uncut packet in which headers its `count` segments are.
    #[cold]
    pub(super) fn describe(&self, packet: &mut Packet, headers: HeaderSummary, count: u16) {
        let outer = if self.is_udp {
            OuterHeaders::udp(headers.network_bytes(), self.completion == Completion::UdpChecksum)
        } else {
            OuterHeaders::gre(headers.network_bytes())
        };
        match outer.filter(|_| count > 1) {
            Some(outer) => packet.segmentation.outer = outer,
            None => packet.segmentation = Segmentation::default(),
        }
    }
}

/// Number of the segments of an uncut packet, each of which has an identification of its own.
#[cold]
pub(super) fn segments(packet: &Packet) -> u16 {
    Measure::of(packet).map_or(1, |measure| u16::try_from(measure.count).unwrap_or(u16::MAX))
}

/// Fills in the GRE checksum, which is zero so far; segments get theirs when they are cut.
pub(super) fn put_checksum(packet: &mut Packet) {
    if packet.segmentation.outer.is_some() {
        return;
    }
    let gre = usize::from(packet.transport_offset);
    let checksum = sum_as_completed(Checksum::new(), packet, gre, usize::MAX).finish();
    let field =
        packet.bytes_mut().get_mut(gre + Gre::HEADER_BYTES..).and_then(|bytes| bytes.first_chunk_mut());
    if let Some(field) = field {
        *field = checksum.to_be_bytes();
    }
}
