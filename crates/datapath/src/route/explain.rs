//! Explanation of the routing stage's look-up for a packet: the same headers, the same tables, the same hash.
//! The verdict on the packet is the stage's alone.

use super::{Hop, Interface, InterfaceId, NextHopEntry, NextHopId, Routers, check, multipath};
use crate::wire::{EtherType, Ipv4, Ipv6, Link, VlanId};
use polder_buffers::Packet;
use std::net::IpAddr;

/// A route that was looked up for a packet.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// Interface by which it came in.
    pub interface: Interface,
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Result of the look-up.
    pub found: Found,
}

/// Result of a look-up.
#[derive(Clone, Debug)]
pub enum Found {
    /// There is none.
    Nothing,
    /// To a neighbour.
    Hop(Hop),
    /// To one of several.
    Member {
        /// The hash of the packet's flow.
        hash: u32,
        /// The member whose range of hashes it is in.
        hop: Option<Hop>,
    },
    /// To the destination itself, whose link-layer address is to be found out.
    Connected(InterfaceId),
    /// To this machine.
    Local,
    /// To all stations of a network.
    Broadcast,
    /// Nowhere.
    Blackhole,
    /// Nowhere; the sender is told.
    Unreachable,
    /// By an interface that is gone or down.
    Elsewhere,
    /// The kernel forwards the packet.
    Kernel,
    /// Nowhere; the sender is told.
    Prohibit,
}

impl Found {
    /// The neighbour that packets go to, if it is one.
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
    /// Look-up for a packet; `None` when no route is looked up for it.
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

/// Source and destination of a packet, if its header is right.
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
