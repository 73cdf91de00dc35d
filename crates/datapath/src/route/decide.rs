//! Verdict on a packet with a valid header: a pure function of the packet and the next hop of its route.

use super::waiting::Wanted;
use super::{Hop, InterfaceId, NextHopEntry, NextHopId, NextHopTable, RouterId};
use crate::drops::DropReason;
use crate::route::error::Problem;
use crate::segment::Measure;
use crate::wire::{Ipv4, Ipv6, MacAddress};
use polder_buffers::{Packet, SegmentationKind};
use std::net::IpAddr;

/// Minimum MTU of an IPv6 link in bytes (RFC 8200, 5).
const LEAST_MTU_V6: u16 = 1280;

/// Verdict on a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum RouteVerdict<'a> {
    /// Forward to a neighbour with this MAC address.
    Forward(&'a Hop, MacAddress),
    /// Fragment, then forward to a neighbour.
    Cut(&'a Hop, MacAddress),
    /// Wait: the neighbour's MAC address is unresolved.
    Wait(Wanted),
    /// Deliver to this machine.
    Host,
    /// Pass to the kernel, which forwards the packet.
    Kernel,
    /// Drop, with the ICMP error to the sender, if any.
    Refuse(DropReason, Option<Problem>),
}

/// Packet fields that the verdict depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    /// True if the source is link-local.
    is_of_link: bool,
    /// TTL or hop limit.
    hops: u8,
    /// Length in bytes of the IP packet, or of the largest segment of a super-packet.
    length: usize,
    may_cut: bool,
}

impl Facts {
    /// Reads the fields of a packet whose header was checked before.
    pub(super) fn of(packet: &Packet) -> Option<Self> {
        let bytes = packet.bytes().get(usize::from(packet.network_offset)..)?;
        if bytes.first()? >> 4 == 4 {
            let ip = Ipv4::parse_head(bytes, usize::MAX).ok()?;
            let length = longest(packet, usize::from(ip.total_length()), ip.header_bytes());
            return Some(Self {
                source: ip.source().into(),
                destination: ip.destination().into(),
                is_of_link: false,
                hops: ip.time_to_live(),
                length,
                may_cut: !ip.dont_fragment() && packet.segmentation.kind == SegmentationKind::None,
            });
        }
        let ip = Ipv6::parse_head(bytes, usize::MAX).ok()?;
        let whole = Ipv6::HEADER_BYTES + usize::from(ip.payload_length());
        Some(Self {
            source: ip.source().into(),
            destination: ip.destination().into(),
            is_of_link: ip.source().is_unicast_link_local(),
            hops: ip.hop_limit(),
            length: longest(packet, whole, Ipv6::HEADER_BYTES),
            may_cut: false,
        })
    }
}

impl Facts {
    /// Fields of any valid packet between these global addresses.
    pub(super) const fn of_pair(source: IpAddr, destination: IpAddr) -> Self {
        Self { source, destination, is_of_link: false, hops: u8::MAX, length: 0, may_cut: false }
    }
}

/// Length in bytes of the largest IP packet that leaves: a segment's if the packet is a super-packet.
/// `header` is the length of the IP header; a plausible partial checksum begins after it.
fn longest(packet: &Packet, whole: usize, header: usize) -> usize {
    let network = usize::from(packet.network_offset);
    match Measure::of(packet).filter(|_| usize::from(packet.checksum_start) >= network + header) {
        None => whole,
        Some(Measure { longest_bytes, .. }) => whole.min(longest_bytes.saturating_sub(network)),
    }
}

/// Router and interface of the packet's ingress.
pub(super) type Arrival = (RouterId, InterfaceId);

/// Decides in the same order as the kernel. `flow` returns the flow's hash for next-hop groups; `refuses`
/// returns the drop reason of the source check for an egress interface, or for local delivery.
pub(super) fn decide<'a>(
    facts: &Facts,
    (router, arrival): Arrival,
    (next_hops, found): (&'a NextHopTable, NextHopId),
    flow: impl FnOnce() -> u32,
    refuses: impl FnOnce(Option<InterfaceId>) -> Option<DropReason>,
) -> RouteVerdict<'a> {
    use DropReason as Reason;
    let found = next_hops.for_source(found, facts.source);
    let way = match next_hops.get(found) {
        None => return RouteVerdict::Refuse(Reason::NoRoute, Some(Problem::NoRoute)),
        Some(NextHopEntry::Blackhole) => return RouteVerdict::Refuse(Reason::Blackhole, None),
        Some(NextHopEntry::Unreachable) => {
            return RouteVerdict::Refuse(Reason::Unreachable, Some(Problem::Unreachable));
        }
        Some(NextHopEntry::Elsewhere) => {
            return RouteVerdict::Refuse(Reason::Unreachable, Some(Problem::HostUnreachable));
        }
        Some(NextHopEntry::Kernel(route)) if route.is_filtered => {
            return RouteVerdict::Refuse(Reason::ToKernel, Some(Problem::Prohibited));
        }
        // The kernel checks source and time to live itself.
        Some(NextHopEntry::Kernel(_)) => return RouteVerdict::Kernel,
        Some(NextHopEntry::BySource(_)) => {
            return RouteVerdict::Refuse(Reason::NoRoute, Some(Problem::NoRoute));
        }
        Some(NextHopEntry::Prohibit) => {
            return RouteVerdict::Refuse(Reason::Prohibited, Some(Problem::Prohibited));
        }
        Some(NextHopEntry::Broadcast) => return RouteVerdict::Refuse(Reason::GroupNotRouted, None),
        Some(NextHopEntry::Local) => {
            return refuses(None).map_or(RouteVerdict::Host, |reason| RouteVerdict::Refuse(reason, None));
        }
        Some(way @ (NextHopEntry::Hop(_) | NextHopEntry::Group(_) | NextHopEntry::Connected(_))) => way,
    };
    let (egress, hop) = if let NextHopEntry::Connected(interface) = *way {
        (interface, None)
    } else {
        let hash = if matches!(way, NextHopEntry::Group(_)) { flow() } else { 0 };
        let Some(hop) = next_hops.hop(found, hash) else {
            return RouteVerdict::Refuse(Reason::Unreachable, Some(Problem::HostUnreachable));
        };
        (hop.interface, Some(hop))
    };
    if let Some(reason) = refuses(Some(egress)) {
        return RouteVerdict::Refuse(reason, None);
    }
    if facts.hops <= 1 {
        return RouteVerdict::Refuse(Reason::TimeExceeded, Some(Problem::TimeExceeded));
    }
    if facts.is_of_link && egress != arrival {
        return RouteVerdict::Refuse(Reason::LinkLocal, Some(Problem::BeyondScope));
    }
    match hop {
        None => RouteVerdict::Wait(Wanted { router, interface: egress, address: facts.destination }),
        Some(hop) => to_hop(facts, router, hop),
    }
}

/// Verdict on a packet that is sent to a neighbour.
fn to_hop<'a>(facts: &Facts, router: RouterId, hop: &'a Hop) -> RouteVerdict<'a> {
    let least = if hop.cuts && facts.destination.is_ipv6() { LEAST_MTU_V6 } else { 0 };
    let mtu = hop.mtu.max(least);
    let fits = facts.length <= usize::from(mtu);
    if !fits && !facts.may_cut {
        return RouteVerdict::Refuse(DropReason::TooBig, Some(Problem::TooBig(mtu)));
    }
    match hop.neighbour.address() {
        Some(mac) if fits => RouteVerdict::Forward(hop, mac),
        Some(mac) => RouteVerdict::Cut(hop, mac),
        None => RouteVerdict::Wait(Wanted { router, interface: hop.interface, address: hop.address }),
    }
}
