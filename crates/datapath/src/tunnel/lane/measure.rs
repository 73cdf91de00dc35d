//! Packets longer than the length that always fits into one outer packet.

use super::{Lane, TunnelVerdict};
use crate::parse::HeaderSummary;
use crate::segment::Measure;
use crate::tunnel::{ETHERNET_BYTES, toobig};
use polder_buffers::{Packet, SegmentationKind};

impl Lane<'_> {
    /// Verdict on a packet longer than [`Lane::fits`]: one piece, fragments, or drop. For a super-packet the
    /// longest segment counts; it is [segmented before](crate::tunnel::Tunnel::takes_uncut) if segments do not fit.
    #[cold]
    pub(in crate::tunnel) fn measure(&self, packet: &Packet, headers: HeaderSummary) -> TunnelVerdict {
        if !self.is_known {
            return TunnelVerdict::NoNeighbour;
        }
        let length = Measure::of(packet).map_or(packet.len(), |measure| measure.longest_bytes);
        let carried = self.tunnel.carried_frame();
        let before = u16::try_from(headers.network_offset()).unwrap_or(ETHERNET_BYTES);
        let limit = toobig::limit(self.tunnel, carried.saturating_sub(before), packet.bytes(), headers);
        if length > usize::from(limit) + headers.network_offset() {
            return TunnelVerdict::TooBig(limit);
        }
        if length <= usize::from(carried) {
            TunnelVerdict::Send
        } else if packet.segmentation.kind == SegmentationKind::None {
            TunnelVerdict::Split
        } else {
            // The path MTU has fallen since `takes_uncut` was called.
            TunnelVerdict::TooBig(limit)
        }
    }
}
