//! Congestion marks of an outer packet, copied to the inner packet.

use super::inner::class_and_ttl;
use crate::drops::DropReason;
use crate::parse::{HeaderSummary, Network};
use crate::wire::{Ecn, Ipv4Mut, Ipv6Mut, TrafficClass};
use polder_buffers::Packet;

/// Merges the outer congestion mark into the inner IP header (RFC 6040, 4.2). Other inner packets have no ECN
/// field.
#[cold]
pub(super) fn merge_ecn(packet: &mut Packet, strip: u16, outer: Ecn) -> Result<(), DropReason> {
    let Some(frame) = packet.bytes_mut().get_mut(usize::from(strip)..) else { return Ok(()) };
    let headers = HeaderSummary::parse(frame, usize::MAX);
    let (class, _) = class_and_ttl(headers, frame);
    if headers.network() == Network::Other {
        return Ok(());
    }
    let ecn = Ecn::decapsulate(outer, class.ecn()).map_err(|_| DropReason::EcnNotCapable)?;
    let class = class.with_ecn(ecn);
    write_traffic_class(headers, frame, class);
    Ok(())
}

/// Writes the traffic class of the IP header that `headers` describes in `frame`, and updates its checksum.
pub(crate) fn write_traffic_class(headers: HeaderSummary, frame: &mut [u8], class: TrafficClass) {
    let header = frame.get_mut(headers.network_offset()..).unwrap_or_default();
    match headers.network() {
        Network::Ipv4 => {
            if let Ok(mut ip) = Ipv4Mut::parse_head(header, usize::MAX) {
                ip.set_traffic_class(class);
            }
        }
        Network::Ipv6 => {
            if let Ok(mut ip) = Ipv6Mut::parse_head(header, usize::MAX) {
                ip.set_traffic_class(class);
            }
        }
        Network::Other => {}
    }
}
