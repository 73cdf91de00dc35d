//! Super-packets that are segmented after encapsulation.

use super::Lane;
use crate::drops::Context;
use crate::parse::HeaderSummary;
use crate::segment::Measure;
use crate::tunnel::encapsulate::gather;
use crate::tunnel::{ETHERNET_BYTES, Tunnel};
use polder_buffers::{Packet, Segmentation};

impl Tunnel {
    /// True if a super-packet can be encapsulated uncut: each segment fits in one piece, and the whole into
    /// an IP packet. Gathers the headers into the head frame.
    pub fn takes_uncut(&self, packet: &mut Packet, context: &mut Context<'_>) -> bool {
        if !self.lane.takes_uncut {
            return false;
        }
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
    /// Records the outer header offsets of a super-packet with `count` segments.
    #[cold]
    pub(super) fn describe(&self, packet: &mut Packet, headers: HeaderSummary, count: u16) {
        let outer = self.tunnel.options.uncut(headers.network_bytes());
        match outer.filter(|_| count > 1) {
            Some(outer) => packet.segmentation.outer = outer,
            None => packet.segmentation = Segmentation::default(),
        }
    }
}
