//! Keepalives: those of the other end are sent back, and answers to those of this end are taken.
//!
//! A keepalive of a GRE tunnel of packets has its own answer inside (Cisco's format): an IP packet from the end that
//! gets it to the end that sends it, with a GRE header of the tunnel's key and protocol type 0. A router takes it out and
//! forwards it as any other. Polder's router sends nothing by an underlay port, so the packet inside leaves by the
//! tunnel's own next hop. Its TTL is left alone: no router is crossed, and an answer is not answered.
//!
//! In a tunnel of frames the question is one of ARP or neighbour discovery, and the answer a frame to
//! [`TunnelOptions::keepalive`], a station that nothing else has.

use super::decapsulate::{Lane, shape};
use super::outer::Opened;
use super::{ETHERNET_BYTES, Ends, TunnelOptions};
use crate::drops::{Context, DropReason};
use crate::wire::{EtherType, Gre, IpProtocol, Ipv4, Ipv6};
use polder_buffers::{ChecksumState, Packet, Segmentation};

/// Protocol type of the GRE header inside a keepalive: it carries nothing.
const NOTHING: EtherType = EtherType(0);
/// Offsets of the field that names the protocol in IPv4, and of the next header in IPv6.
const PROTOCOL_V4: usize = 9;
const PROTOCOL_V6: usize = 6;

/// Payload of a tunnel without Ethernet.
pub(super) enum Payload {
    /// A packet of this family.
    Packet(EtherType),
    /// A keepalive of the other end.
    Keepalive,
    /// An answer to a keepalive of this end.
    Answer,
}

impl Payload {
    /// Payload behind this header; `None` for one that the tunnel does not carry.
    pub(super) fn of(gre: &Gre<'_>, options: &TunnelOptions) -> Option<Self> {
        match gre.protocol() {
            NOTHING => options.keepalive.map(|_| Self::Answer),
            EtherType::IPV4 | EtherType::IPV6 if is_keepalive(gre, options.ends) => Some(Self::Keepalive),
            protocol @ (EtherType::IPV4 | EtherType::IPV6) => Some(Self::Packet(protocol)),
            _ => None,
        }
    }
}

fn is_keepalive(gre: &Gre<'_>, ends: Ends) -> bool {
    let at = if ends.is_v6() { PROTOCOL_V6 } else { PROTOCOL_V4 };
    gre.payload().get(at) == Some(&IpProtocol::GRE.0) && leads_back(gre, ends).unwrap_or(false)
}

/// True if the packet inside is from this end to the other one, with nothing in its GRE header.
#[cold]
fn leads_back(gre: &Gre<'_>, ends: Ends) -> Option<bool> {
    let bytes = gre.payload();
    let (own, protocol, payload) = match (ends, gre.protocol()) {
        (Ends::V4 { .. }, EtherType::IPV4) => {
            let ip = Ipv4::parse(bytes).ok().filter(|ip| ip.verify().is_ok() && !ip.is_fragment())?;
            (Ends::V4 { local: ip.source(), remote: ip.destination() }, ip.protocol(), ip.payload())
        }
        (Ends::V6 { .. }, EtherType::IPV6) => {
            let ip = Ipv6::parse(bytes).ok()?;
            (Ends::V6 { local: ip.source(), remote: ip.destination() }, ip.next_header(), ip.payload())
        }
        _ => return None,
    };
    let inner = Gre::parse(payload).ok()?;
    Some(own == ends && protocol == IpProtocol::GRE && inner.protocol() == NOTHING)
}

/// Sends the packet inside a keepalive of the other end to that end.
#[cold]
pub(super) fn send_back(
    lane: &Lane<'_>,
    packet: &mut Packet,
    opened: &Opened,
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    let tunnel = lane.tunnel;
    let next_hop = tunnel.state().next_hop.address().ok_or(DropReason::TunnelNoNeighbour)?;
    // Here `strip` leaves room for an Ethernet header without a tag.
    shape(packet, opened.strip, opened.end, context)?;
    let template = tunnel.template.addressed(next_hop);
    let link = template.link();
    packet.trim_front(opened.strip + ETHERNET_BYTES - link).map_err(|_| DropReason::NoBuffer)?;
    let (headers, ..) = template.parts();
    let bytes = packet.bytes_mut().iter_mut().zip(headers).take(usize::from(link));
    bytes.for_each(|(byte, &header)| *byte = header);
    (packet.network_offset, packet.transport_offset) = (link, 0);
    (packet.vlan, packet.flags, packet.flow_hash) = (0, 0, 0);
    (packet.segmentation, packet.checksum) = (Segmentation::default(), ChecksumState::Unknown);
    packet.egress = tunnel.underlay().port;
    lane.counters.keepalives_answered.add(1);
    lane.counters.last_received.set(lane.now.0);
    Ok(())
}

/// Takes an answer to a keepalive of this end.
#[cold]
pub(super) fn take(lane: &Lane<'_>, packet: &mut Packet, context: &Context<'_>) {
    lane.counters.keepalives_heard.add(1);
    lane.counters.last_keepalive.set(lane.now.0);
    lane.counters.last_received.set(lane.now.0);
    context.deliver(packet);
}
