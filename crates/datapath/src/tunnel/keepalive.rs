//! Keepalives: answers the remote endpoint's keepalives, and counts the answers to this gateway's.
//!
//! A keepalive of a GRE tunnel of packets contains its own answer (Cisco's format): an IP packet from the
//! receiver to the sender, with a GRE header that has the tunnel's key and protocol type 0. A router
//! decapsulates and forwards it. Polder's router never sends by an underlay port, so the answer is sent to
//! the tunnel's own next hop. Its TTL is unchanged, because no router is crossed, and an answer is not
//! answered.
//!
//! Some vendors use other addresses in the inner packet (VeloCloud: the addresses inside the tunnel;
//! MikroTik: its own address behind a NAT), and Huawei uses outer protocol type 4. So over IPv4, a GRE packet
//! of type 0 is a keepalive if its source is an address of this gateway, or its destination the remote
//! endpoint. The answer is always sent to the tunnel's remote endpoint, at most twenty times a second, so
//! that nothing is reflected to third parties.
//!
//! In a tunnel of frames, the request is ARP or neighbour discovery, and the answer a frame to the MAC
//! address [`TunnelOptions::keepalive`]. That address is random, and also follows the header of type 0: an
//! answer is accepted only if it contains the address, which only the remote endpoint can know.

use super::decapsulate::{Lane, shape};
use super::outer::Opened;
use super::{ETHERNET_BYTES, Ends, TunnelOptions, TunnelState};
use crate::drops::{Context, DropReason};
use crate::units::Nanos;
use crate::wire::{EtherType, Gre, IpProtocol, Ipv4, Ipv4Mut, Ipv6, MacAddress};
use core::sync::atomic::Ordering;
use polder_buffers::{ChecksumState, Packet, Segmentation};

/// Protocol type of the GRE header inside a keepalive, which has no payload.
const NOTHING: EtherType = EtherType(0);
/// Outer protocol type of Huawei's keepalives: an IPv4 packet follows.
const OTHER_KEEPALIVE: EtherType = EtherType(4);
/// GRE protocol types that a tunnel of packets accepts.
pub const PACKET_PROTOCOLS: [EtherType; 4] = [EtherType::IPV4, EtherType::IPV6, NOTHING, OTHER_KEEPALIVE];
/// Maximum length of the packet inside a keepalive in bytes, IP header included.
const MOST_BYTES: u16 = 128;
/// Rate limit of answers: one token per interval, and the capacity of the bucket. Keepalives are sent about
/// once a second.
const INTERVAL: Nanos = Nanos::from_millis(50);
const BURST: u64 = 20;
/// Offsets of the protocol field in IPv4 and of the next-header field in IPv6.
const PROTOCOL_V4: usize = 9;
const PROTOCOL_V6: usize = 6;

/// Payload of a tunnel without inner Ethernet header.
pub(super) enum Payload {
    /// A packet of this EtherType.
    Packet(EtherType),
    /// A keepalive of the remote endpoint; the length of its inner packet in bytes.
    Keepalive(u16),
    /// An answer to a keepalive of this gateway.
    Answer,
}

impl Payload {
    /// Classifies the payload after a GRE header; `None` if the tunnel does not carry it.
    pub(super) fn of(gre: &Gre<'_>, options: &TunnelOptions) -> Option<Self> {
        match gre.protocol() {
            NOTHING => {
                let is_own = |station: &MacAddress| gre.payload().starts_with(&station.0);
                options.keepalive.filter(is_own).map(|_| Self::Answer)
            }
            protocol @ (EtherType::IPV4 | EtherType::IPV6) => {
                Some(keepalive(gre, options).map_or(Self::Packet(protocol), Self::Keepalive))
            }
            OTHER_KEEPALIVE => keepalive(gre, options).map(Self::Keepalive),
            _ => None,
        }
    }
}

/// Length of the inner packet if this is a keepalive of the remote endpoint; `None` otherwise.
fn keepalive(gre: &Gre<'_>, options: &TunnelOptions) -> Option<u16> {
    let at = if options.ends.is_v6() { PROTOCOL_V6 } else { PROTOCOL_V4 };
    let is_gre = gre.payload().get(at) == Some(&IpProtocol::GRE.0);
    if is_gre { leading_back(gre, options) } else { None }
}

/// Length of the inner packet if it is a short, empty GRE packet addressed to the remote endpoint; `None`
/// otherwise.
#[cold]
fn leading_back(gre: &Gre<'_>, options: &TunnelOptions) -> Option<u16> {
    let bytes = gre.payload();
    let (leads_back, protocol, length, payload) = match (options.ends, gre.protocol()) {
        (Ends::V4 { local, remote }, EtherType::IPV4 | OTHER_KEEPALIVE) => {
            let ip = Ipv4::parse(bytes).ok().filter(|ip| ip.verify().is_ok() && !ip.is_fragment())?;
            // A source route in the options would redirect the answer.
            let is_plain = ip.header_bytes() == Ipv4::HEADER_BYTES;
            let is_own = ip.source() == local || options.addresses.contains(&ip.source());
            let leads_back = is_plain && (is_own || ip.destination() == remote);
            (leads_back, ip.protocol(), ip.total_length(), ip.payload())
        }
        (ends @ Ends::V6 { .. }, EtherType::IPV6) => {
            let ip = Ipv6::parse(bytes).ok()?;
            let leads_back = ends == Ends::V6 { local: ip.source(), remote: ip.destination() };
            let length = u16::try_from(Ipv6::HEADER_BYTES).ok()?.saturating_add(ip.payload_length());
            (leads_back, ip.next_header(), length, ip.payload())
        }
        _ => return None,
    };
    let inner = Gre::parse(payload).ok()?;
    let is_keepalive = leads_back && protocol == IpProtocol::GRE && inner.protocol() == NOTHING;
    (is_keepalive && length <= MOST_BYTES).then_some(length)
}

/// Sends the packet inside a keepalive back to the remote endpoint.
#[cold]
pub(super) fn send_back(
    lane: &Lane<'_>,
    packet: &mut Packet,
    (opened, length): (&Opened, u16),
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    let tunnel = lane.tunnel;
    let next_hop = tunnel.state().next_hop.address().ok_or(DropReason::TunnelNoNeighbour)?;
    if !tunnel.state().may_answer(context.now) {
        return Err(DropReason::KeepaliveLimit);
    }
    // `strip` leaves room for an Ethernet header without tag.
    let end = usize::from(opened.strip + ETHERNET_BYTES + length).min(opened.end);
    shape(packet, opened.strip, end, context)?;
    let template = tunnel.template.addressed(next_hop);
    let link = template.link();
    packet.trim_front(opened.strip + ETHERNET_BYTES - link).map_err(|_| DropReason::NoBuffer)?;
    let (headers, ..) = template.parts();
    let bytes = packet.bytes_mut().iter_mut().zip(headers).take(usize::from(link));
    bytes.for_each(|(byte, &header)| *byte = header);
    if let Ends::V4 { local, remote } = tunnel.options().ends {
        let ip = packet.bytes_mut().get_mut(usize::from(link)..).unwrap_or_default();
        Ipv4Mut::parse(ip)?.set_addresses(local, remote);
    }
    (packet.network_offset, packet.transport_offset) = (link, 0);
    (packet.vlan, packet.flags, packet.flow_hash) = (0, 0, 0);
    (packet.segmentation, packet.checksum) = (Segmentation::default(), ChecksumState::Unknown);
    packet.egress = tunnel.underlay().port;
    lane.counters.keepalives_answered.add(1);
    lane.counters.last_received.set(lane.now.0);
    Ok(())
}

impl TunnelState {
    /// Takes a token for an answer; false if none is left. Generic cell rate algorithm on the time at which
    /// the bucket will be full.
    fn may_answer(&self, now: Nanos) -> bool {
        let next = |full_at| Nanos(full_at).max(now) + INTERVAL;
        let take = |full_at| {
            let next = next(full_at);
            (next.since(now) <= Nanos(INTERVAL.0 * BURST)).then_some(next.0)
        };
        // Relaxed: the word is self-contained and orders nothing.
        self.answers_full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Counts an answer to a keepalive of this gateway.
#[cold]
pub(super) fn take(lane: &Lane<'_>, packet: &mut Packet, context: &Context<'_>) {
    lane.counters.keepalives_heard.add(1);
    lane.counters.last_keepalive.set(lane.now.0);
    lane.counters.last_received.set(lane.now.0);
    context.deliver(packet);
}
