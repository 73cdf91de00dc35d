//! Interfaces of a router.

use super::Prefix;
use crate::wire::{MacAddress, VlanId};
use core::fmt;
use polder_buffers::PortId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Minimum MTU of an interface in bytes: the size that every IPv4 host accepts (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// Number of a router (one per VRF): the position of its [`RouterAccess`](super::RouterAccess) in
/// [`Routers::new`](super::Routers::new).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouterId(pub u16);

/// Name of an interface: a port, one VLAN of a port, or a macvlan on either. Like port numbers, it is stable
/// over reloads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId {
    /// The port.
    pub port: PortId,
    /// VLAN of its frames; [`VlanId::PRIORITY`] for untagged frames.
    pub vlan: VlanId,
    /// Number of the macvlan, which receives frames to its own MAC address; 0 for the port or VLAN itself.
    pub macvlan: u16,
}

impl InterfaceId {
    /// The interface of a port's untagged frames.
    pub const fn untagged(port: PortId) -> Self {
        Self::tagged(port, VlanId::PRIORITY)
    }

    /// The interface of a port's frames in a VLAN.
    pub const fn tagged(port: PortId, vlan: VlanId) -> Self {
        Self { port, vlan, macvlan: 0 }
    }

    /// The macvlan with this number on this interface.
    #[must_use]
    pub const fn macvlan(self, macvlan: u16) -> Self {
        Self { macvlan, ..self }
    }
}

impl fmt::Debug for InterfaceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.port.0, self.vlan)?;
        if self.macvlan != 0 {
            write!(formatter, ":{}", self.macvlan)?;
        }
        Ok(())
    }
}

/// Owner of an interface's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The kernel, which has the interface too. Packets for this machine, ARP and neighbour discovery
    /// included, are sent to the `host` port, or dropped as `to-host` without one. The kernel resolves
    /// neighbours: see [`Notice::Wanted`](super::Notice::Wanted).
    Kernel {
        /// TAP to the host's kernel; `None` if an XDP program passes packets for this machine to the kernel
        /// before.
        host: Option<PortId>,
        /// True if every received packet is passed to the kernel, which decides about it.
        decides: bool,
    },
    /// The kernel, by a device that Polder has made for a point-to-point link. Packets for this machine, groups
    /// included, are sent to the device's port; packets that the kernel sends by the device leave by the link, without
    /// a look-up.
    Device(PortId),
    /// Polder: workers answer ARP, neighbour discovery and pings, and resolve neighbours.
    Polder,
}

/// Address of an interface with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnAddress {
    /// The address.
    pub address: IpAddr,
    /// Prefix length of the network.
    pub bits: u8,
}

/// Reverse path filter, as the kernel's `rp_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Any source is accepted.
    #[default]
    Off,
    /// The route to the source must lead back by the ingress interface (RFC 3704, 2.2).
    Strict,
    /// A route to the source must exist (RFC 3704, 2.4).
    Loose,
}

/// Source address check of IPv4 packets that an interface receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCheck {
    /// `rp_filter`: the higher value of `all` and the interface.
    pub reverse_path: ReversePath,
    /// `accept_local`: true if a source may be an address of this machine.
    pub accept_local: bool,
    /// `send_redirects`: true if the source is looked up when ingress and egress are the same interface.
    pub redirects: bool,
    /// True if every source is looked up even if `rp_filter` is off, because the kernel has policy rules or
    /// additional local routes.
    pub always: bool,
    /// True if this machine itself sends by the interface, with its own addresses as source.
    pub machine: bool,
}

impl SourceCheck {
    /// True if the route to each source is looked up.
    #[inline]
    pub(super) fn looks_up(self) -> bool {
        self.always || self.reverse_path != ReversePath::Off
    }
}

/// An interface of a router.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Port and VLAN.
    pub id: InterfaceId,
    /// Router of received packets.
    pub router: RouterId,
    /// MAC address: frames to other addresses are not routed.
    pub mac: MacAddress,
    /// Maximum IP packet size in bytes.
    pub mtu: u16,
    /// Addresses; the first of a family is the default source of the router's own messages.
    pub addresses: Vec<OwnAddress>,
    /// Owner of the addresses.
    pub owner: Owner,
    /// Source address check of received IPv4 packets.
    pub sources: SourceCheck,
}

impl Owner {
    /// The port by which packets reach the kernel, if there is one.
    pub(super) const fn host(self) -> Option<PortId> {
        match self {
            Self::Kernel { host, .. } => host,
            Self::Device(port) => Some(port),
            Self::Polder => None,
        }
    }
}

impl Interface {
    /// True if `address` is an address of the interface.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// MTU in bytes of a route by this interface; `route` is the route's own MTU, 0 for none.
    pub fn mtu_by(&self, route: u16) -> u16 {
        if route == 0 { self.mtu } else { self.mtu.min(route) }
    }

    /// Source address for messages to a station: the first in its network, or the first of all.
    pub(super) fn speaker_v4(&self, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let all = || {
            self.addresses.iter().filter_map(|own| match own.address {
                IpAddr::V4(address) => Some((address, own.bits)),
                IpAddr::V6(_) => None,
            })
        };
        let is_near = |&(address, bits): &(Ipv4Addr, u8)| {
            Prefix::new(address.into(), bits).is_ok_and(|network| network.contains(to.into()))
        };
        all().find(is_near).or_else(|| all().next()).map(|(address, _)| address)
    }

    /// Source address for messages: the first that is not link-local, or the first of all.
    pub(super) fn speaker_v6(&self) -> Option<Ipv6Addr> {
        let mut all = self.addresses.iter().filter_map(|own| match own.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        let first = all.clone().next();
        all.find(|address| !address.is_unicast_link_local()).or(first)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn interface(port: u16, vlan: u16) -> Interface {
        let vlan = VlanId::new(vlan).expect("a VLAN");
        Interface {
            id: InterfaceId::tagged(PortId(port), vlan),
            router: RouterId(0),
            mac: MacAddress([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            addresses: Vec::new(),
            owner: Owner::Polder,
            sources: SourceCheck::default(),
        }
    }

    #[test]
    fn it_speaks_from_its_first_address_in_the_network_of_a_station() {
        let own = |address: &str| OwnAddress { address: address.parse().expect("an address"), bits: 24 };
        let addresses = ["fd00::1", "10.0.0.9", "10.0.0.1", "10.0.1.5"].map(own).to_vec();
        let interface = Interface { addresses, ..interface(1, 0) };
        let from = |to: [u8; 4]| interface.speaker_v4(to.into()).map(|address| address.octets());
        assert_eq!(from([10, 0, 0, 7]), Some([10, 0, 0, 9]));
        assert_eq!(from([10, 0, 1, 7]), Some([10, 0, 1, 5]));
        assert_eq!(from([192, 0, 2, 1]), Some([10, 0, 0, 9]), "beyond a router");
    }
}
