//! Packets that are cut behind the tunnel, and checksums over what is complete.

use super::{Completion, Lane, LaneOptions};
use crate::drops::Context;
use crate::offload::sum_as_completed;
use crate::parse::HeaderSummary;
use crate::segment::Measure;
use crate::tunnel::encapsulate::gather;
use crate::tunnel::{ETHERNET_BYTES, Tunnel};
use crate::wire::{Checksum, Gre};
use polder_buffers::{OuterHeaders, Packet, Segmentation};

impl Tunnel {
    /// True if an uncut packet can enter the tunnel as it is: each of its segments fits in one piece, and the whole into an
    /// IP packet. Others are cut first. Their headers are brought into the head of a chain.
    pub fn takes_uncut(&self, packet: &mut Packet, context: &mut Context<'_>) -> bool {
        if !packet.is_contiguous() {
            gather(packet, context);
        }
        let Some(Measure { longest_bytes, .. }) = Measure::of_described(packet) else { return false };
        let fits = self.carried_frame().min(self.mtu.saturating_add(ETHERNET_BYTES));
        let around = self.template.len() - self.template.link();
        longest_bytes <= usize::from(fits) && packet.len() + usize::from(around) <= usize::from(u16::MAX)
    }
}

impl Lane<'_> {
    /// Says of an uncut packet in which headers its `count` segments are.
    #[cold]
    pub(super) fn describe(&self, packet: &mut Packet, headers: HeaderSummary, count: u16) {
        let LaneOptions { is_udp, completion, .. } = self.tunnel.lane;
        let outer = if is_udp {
            OuterHeaders::udp(headers.network_bytes(), completion == Completion::UdpChecksum)
        } else {
            OuterHeaders::gre(headers.network_bytes())
        };
        match outer.filter(|_| count > 1) {
            Some(outer) => packet.segmentation.outer = outer,
            None => packet.segmentation = Segmentation::default(),
        }
    }
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
