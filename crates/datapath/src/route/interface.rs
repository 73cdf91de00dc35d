//! Interfaces of a router.

use super::Prefix;
use crate::wire::{MacAddress, VlanId};
use core::fmt;
use polder_buffers::PortId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The least MTU of an interface: what every IPv4 host takes (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// A router of the configuration: the position of its [`RouterAccess`](super::RouterAccess) in
/// [`Routers::new`](super::Routers::new). One VRF is one
/// router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouterId(pub u16);

/// An interface's name: a port, one VLAN of a port, or a macvlan on either. Ports keep their numbers over a reload, so
/// this does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId {
    /// The port.
    pub port: PortId,
    /// The VLAN whose tag its frames have; [`VlanId::PRIORITY`] for frames without a tag.
    pub vlan: VlanId,
    /// Number of the macvlan, which has the frames for its own link-layer address; 0 for the port or VLAN itself.
    pub macvlan: u16,
}

impl InterfaceId {
    /// A port's frames without a tag.
    pub const fn untagged(port: PortId) -> Self {
        Self::tagged(port, VlanId::PRIORITY)
    }

    /// A port's frames with the tag of a VLAN.
    pub const fn tagged(port: PortId, vlan: VlanId) -> Self {
        Self { port, vlan, macvlan: 0 }
    }

    /// The macvlan of a number on this interface.
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
    /// The kernel, which has the interface too. What is for the machine, ARP and neighbour discovery
    /// included, leaves by the port that leads to it, if there is one, and is dropped else
    /// (`to-host`). Neighbours are the kernel's: see [`Notice::Wanted`](super::Notice::Wanted).
    Kernel {
        /// A TAP that the host listens on; `None` where an XDP program passes such packets by.
        host: Option<PortId>,
        /// True if all packets that come in by the interface return to it: it decides about them.
        decides: bool,
    },
    /// Polder: it answers ARP, neighbour discovery and pings, and asks for neighbours itself.
    Polder,
}

/// An address of an interface, and how many of its bits its network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OwnAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network.
    pub bits: u8,
}

/// The kernel's `rp_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Sources may be anywhere.
    #[default]
    Off,
    /// A route leads to the source by the interface that the packet came in by (RFC 3704, 2.2).
    Strict,
    /// Some route leads to the source (RFC 3704, 2.4).
    Loose,
}

/// Check of the sources of IPv4 packets that come in by an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCheck {
    /// `rp_filter`, the higher one of `all` and the interface.
    pub reverse_path: ReversePath,
    /// True if packets may have a source of this machine: `accept_local`.
    pub accept_local: bool,
    /// True if a packet that leaves by the interface it came in by has its source looked up: `send_redirects`.
    pub redirects: bool,
    /// True if each source is looked up although `rp_filter` is off: the kernel has rules or local routes beyond
    /// those of its addresses.
    pub always: bool,
    /// True if the machine itself is a station behind the interface, and sends with its own addresses.
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
    /// Port and VLAN of the interface.
    pub id: InterfaceId,
    /// Router of the packets that come in by it.
    pub router: RouterId,
    /// Its link-layer address: frames for another station are not routed.
    pub mac: MacAddress,
    /// The largest IP packet that it carries, in bytes.
    pub mtu: u16,
    /// Its addresses; the first of a family is the source of what the router has to say there.
    pub addresses: Vec<OwnAddress>,
    /// Owner of the addresses.
    pub owner: Owner,
    /// Check of the sources of IPv4 packets that come in by it.
    pub sources: SourceCheck,
}

impl Interface {
    /// True if one of its addresses is that.
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// The largest IP packet that it carries by a route with an MTU of its own, in bytes; 0 if the route has none.
    pub fn mtu_by(&self, route: u16) -> u16 {
        if route == 0 { self.mtu } else { self.mtu.min(route) }
    }

    /// The address to speak with to a station: the first in its network, or the first of all.
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

    /// The address to speak with, valid beyond the link if there is one.
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
