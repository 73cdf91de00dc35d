//! Traffic class of waiting packets: DSCP and ECN of the outermost IP header.

use crate::parse::{HeaderSummary, Network};
use crate::tunnel::write_traffic_class;
use crate::wire::{Ecn, TrafficClass};
use polder_buffers::Packet;

/// Result of [`mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marking {
    /// The packet is not ECN-capable.
    NotCapable,
    /// The packet signals congestion since it was received.
    Already,
    /// The packet has been marked.
    Marked,
}

/// Marks an ECN-capable packet with "congestion experienced" (RFC 3168, 5).
#[cold]
pub(super) fn mark(packet: &mut Packet) -> Marking {
    match traffic_class(packet) {
        Some(class) if class.ecn() == Ecn::Congestion => Marking::Already,
        Some(class) if class.ecn() != Ecn::NotCapable => {
            set_traffic_class(packet, class.with_ecn(Ecn::Congestion));
            Marking::Marked
        }
        Some(_) | None => Marking::NotCapable,
    }
}

/// Traffic class of a packet; `None` if it is not IP.
#[inline]
pub(super) fn traffic_class(packet: &mut Packet) -> Option<TrafficClass> {
    let (headers, bytes) = HeaderSummary::with_bytes(packet);
    let &[first, second] = headers.network_header(bytes).first_chunk()?;
    match headers.network() {
        Network::Ipv4 => Some(TrafficClass(second)),
        Network::Ipv6 => Some(TrafficClass(first << 4 | second >> 4)),
        Network::Other => None,
    }
}

/// Writes the traffic class of an IP packet, and updates the header's checksum.
pub(super) fn set_traffic_class(packet: &mut Packet, class: TrafficClass) {
    let headers = HeaderSummary::of(packet);
    // No header changes its type or its length, so the summary stays valid.
    let (bytes, _) = packet.bytes_and_egress();
    write_traffic_class(headers, bytes, class);
}
