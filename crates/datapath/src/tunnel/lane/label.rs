//! Flow label and encapsulation limit of an outer IPv6 header.

use super::Lane;
use crate::parse::{HeaderSummary, Network};
use crate::tunnel::template::Label;
use crate::tunnel::{FlowLabel, Tunnel};
use crate::wire::Ipv6;
use polder_buffers::Packet;

impl Lane<'_> {
    /// Flow label and encapsulation limit of the outer IPv6 header; `hash` is the flow's hash over UDP.
    /// `None` if the packet's own limit forbids a further tunnel (RFC 2473, 4.1.1).
    #[inline(never)]
    pub(super) fn label(&self, packet: &Packet, headers: HeaderSummary, hash: u32) -> Option<Label> {
        let limit = match headers.is_extended_v6().then(|| encapsulation_limit(packet, headers)).flatten() {
            Some(limit) => Some(limit.checked_sub(1)?),
            None => None,
        };
        if self.tunnel.lane.is_udp && self.tunnel.options().flow_label == FlowLabel::Flow {
            return Some(Label::new(hash, limit));
        }
        Some(Label::new(flow_label(packet, headers, self.tunnel), limit))
    }
}

/// Hash of the inner packet's flow, for any header format.
#[inline(never)]
pub(super) fn flow_hash(packet: &Packet, tunnel: &Tunnel) -> u32 {
    tunnel.labels.flow(packet, false).hash
}

/// Encapsulation limit of an IPv6 packet; `None` without that option.
#[cold]
fn encapsulation_limit(packet: &Packet, headers: HeaderSummary) -> Option<u8> {
    Ipv6::parse_head(headers.network_header(packet.bytes()), usize::MAX).ok()?.encapsulation_limit()
}

/// Flow label of the outer packet (RFC 6437, RFC 6438).
#[inline(never)]
fn flow_label(packet: &Packet, headers: HeaderSummary, tunnel: &Tunnel) -> u32 {
    match tunnel.options().flow_label {
        FlowLabel::Fixed(label) => label,
        FlowLabel::Flow => flow_hash(packet, tunnel),
        FlowLabel::Inherit if headers.network() == Network::Ipv6 => {
            let header = headers.network_header(packet.bytes());
            Ipv6::parse_head(header, usize::MAX).map_or(0, |ip| ip.flow_label())
        }
        FlowLabel::Inherit => 0,
    }
}
