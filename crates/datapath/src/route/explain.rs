//! Route look-up for a packet, for traces: same headers, tables and hash as in the routing stage, but no
//! verdict.

use super::{Hop, Interface, InterfaceId, NextHopEntry, NextHopId, Routers, check, multipath};
use crate::wire::{EtherType, Ipv4, Ipv6, Link, VlanId};
use polder_buffers::Packet;
use std::net::IpAddr;

/// Result of a route look-up for a packet.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// Ingress interface.
    pub interface: Interface,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Entry of the next-hop table.
    pub found: Found,
}

/// Entry that a route look-up found.
#[derive(Clone, Debug)]
pub enum Found {
    /// There is no route.
    Nothing,
    /// A neighbour.
    Hop(Hop),
    /// A next-hop group.
    Member {
        /// Hash of the packet's flow.
        hash: u32,
        /// Member that the hash selects; `None` if that is not a hop.
        hop: Option<Hop>,
    },
    /// A connected network; the neighbour is the destination, whose link-layer address is unresolved.
    Connected(InterfaceId),
    /// Local delivery.
    Local,
    /// Broadcast address of a network.
    Broadcast,
    /// The packet is dropped silently.
    Blackhole,
    /// The packet is dropped, with an ICMP error.
    Unreachable,
    /// The route's interface is gone or down.
    Elsewhere,
    /// The kernel forwards the packet.
    Kernel,
    /// The packet is dropped, with an ICMP error "prohibited".
    Prohibit,
}

impl Found {
    /// The neighbour; `None` if the result is no hop.
    pub fn hop(&self) -> Option<&Hop> {
        match self {
            Self::Hop(hop) => Some(hop),
            Self::Member { hop, .. } => hop.as_ref(),
            Self::Nothing
            | Self::Connected(_)
            | Self::Local
            | Self::Broadcast
            | Self::Blackhole
            | Self::Unreachable
            | Self::Elsewhere
            | Self::Kernel
            | Self::Prohibit => None,
        }
    }
}

impl Lookup {
    /// Looks up the route of a packet; `None` if the stage would look up none.
    pub fn of(packet: &Packet, routers: &Routers) -> Option<Self> {
        let link = Link::parse(packet.bytes()).ok()?;
        let vlan = match (link.tag, link.inner_tag) {
            (None, _) => VlanId::PRIORITY,
            (Some(tag), None) => tag.id()?,
            (Some(_), Some(_)) => return None,
        };
        let interface = routers.arrival(packet.ingress, vlan, link.ethernet.destination())?;
        if link.ethernet.destination() != interface.mac {
            return None;
        }
        let (source, destination) = addresses(&link, packet.len() - link.header_bytes())?;
        let access = routers.routers().get(usize::from(interface.router.0))?;
        let id = match destination {
            IpAddr::V4(address) => access.v4.reader().view().lookup_v4(address),
            IpAddr::V6(address) => access.v6.reader().view().lookup_v6(address),
        };
        let next_hops = access.next_hops.latest();
        let id = next_hops.for_source(id, source);
        let found = match next_hops.get(id) {
            None | Some(NextHopEntry::BySource(_)) => Found::Nothing,
            Some(NextHopEntry::Hop(hop)) => Found::Hop(hop.clone()),
            Some(NextHopEntry::Group(group)) => {
                let hash = multipath::hash(link.payload(), next_hops.hash_policy(destination.is_ipv6()));
                let hop = match next_hops.get(group.member(hash)) {
                    Some(NextHopEntry::Hop(hop)) => Some(hop.clone()),
                    _ => None,
                };
                Found::Member { hash, hop }
            }
            Some(NextHopEntry::Connected(to)) => Found::Connected(*to),
            Some(NextHopEntry::Local) => Found::Local,
            Some(NextHopEntry::Broadcast) => Found::Broadcast,
            Some(NextHopEntry::Blackhole) => Found::Blackhole,
            Some(NextHopEntry::Unreachable) => Found::Unreachable,
            Some(NextHopEntry::Elsewhere) => Found::Elsewhere,
            Some(NextHopEntry::Kernel(_)) => Found::Kernel,
            Some(NextHopEntry::Prohibit) => Found::Prohibit,
        };
        debug_assert!(id != NextHopId::NONE || matches!(found, Found::Nothing), "no route leads nowhere");
        Some(Self { interface: interface.clone(), source, destination, found })
    }
}

/// Source and destination of a packet; `None` if its header is invalid or it is not routed.
fn addresses(link: &Link<'_>, length: usize) -> Option<(IpAddr, IpAddr)> {
    let bytes = link.payload();
    match link.ether_type() {
        EtherType::IPV4 => match check::check_v4(bytes, length).ok()? {
            check::Destination::To(address) => {
                Some((Ipv4::parse_head(bytes, usize::MAX).ok()?.source().into(), address.into()))
            }
            check::Destination::Group | check::Destination::OnLink(_) => None,
        },
        EtherType::IPV6 => match check::check_v6(bytes, length).ok()? {
            check::Destination::To(address) => {
                Some((Ipv6::parse_head(bytes, usize::MAX).ok()?.source().into(), address.into()))
            }
            check::Destination::Group | check::Destination::OnLink(_) => None,
        },
        _ => None,
    }
}
