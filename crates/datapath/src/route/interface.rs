//! Interfaces of a router, and all routers of a configuration.

use super::Prefix;
use super::router::RouterAccess;
use super::sources::{SourceCheck, Special, Specials};
use crate::wire::{MacAddress, VlanId};
use core::fmt;
use polder_buffers::{BATCH, NO_PORT, PortId};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The least MTU of an interface: what every IPv4 host takes (RFC 791).
pub const LEAST_MTU: u16 = 576;

/// Payload of a fragment of 68 bytes, which every link of IPv4 carries (RFC 791, 3.2): a route may say no more. With many
/// options there is less, and packets that need more room are dropped.
const LEAST_FRAGMENT: usize = 68 - 20;

/// A router of the configuration: the position of its [`RouterAccess`] in [`Routers::new`]. One VRF is one
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

/// Reason why routers and interfaces do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoutersError {
    /// Two interfaces are at the same place.
    #[error("interface {0:?} is given twice")]
    Twice(InterfaceId),
    /// There is no such router.
    #[error("interface {0:?} is of {1:?}, which there is not")]
    NoRouter(InterfaceId, RouterId),
    /// The MTU is below [`LEAST_MTU`].
    #[error("interface {0:?}: an MTU of {1} is too small: at least {LEAST_MTU} bytes")]
    MtuTooSmall(InterfaceId, u16),
    /// The link-layer address is none.
    #[error("interface {0:?}: {1} is no station's address")]
    NoStation(InterfaceId, MacAddress),
}

/// No interface, in [`Lane`].
const NONE: u16 = u16::MAX;

/// The interfaces of one port.
#[derive(Clone, Debug)]
struct Lane {
    untagged: u16,
    /// By VLAN, sorted.
    tagged: Box<[(u16, u16)]>,
    /// Mostly none.
    macvlans: Box<[Macvlan]>,
}

/// A macvlan on an interface.
#[derive(Clone, Copy, Debug)]
struct Macvlan {
    vlan: u16,
    number: u16,
    mac: MacAddress,
    position: u16,
}

/// All routers of a configuration and their interfaces; immutable, part of
/// [`Tables`](crate::engine::Tables).
#[derive(Debug, Default)]
pub struct Routers {
    routers: Box<[RouterAccess]>,
    interfaces: Box<[Interface]>,
    /// By port.
    lanes: Box<[Option<Lane>]>,
    specials: Specials,
    looks_up_sources: bool,
}

impl Routers {
    /// No router: no stage.
    pub fn none() -> Self {
        Self::default()
    }

    /// Builds the tables.
    ///
    /// # Errors
    /// [`RoutersError`] names what does not fit together.
    pub fn new(
        routers: impl IntoIterator<Item = RouterAccess>,
        interfaces: impl IntoIterator<Item = Interface>,
    ) -> Result<Self, RoutersError> {
        let routers: Box<[_]> = routers.into_iter().collect();
        let interfaces: Box<[Interface]> = interfaces.into_iter().take(usize::from(NONE)).collect();
        let mut lanes: Vec<Option<Lane>> = Vec::new();
        for (position, interface) in (0..).zip(&interfaces) {
            check(interface, routers.len())?;
            let port = interface.id.port;
            if lanes.len() <= usize::from(port.0) {
                lanes.resize(usize::from(port.0) + 1, None);
            }
            let lane = lanes[usize::from(port.0)].get_or_insert_with(Lane::empty);
            if lane.find(interface.id).is_some() {
                return Err(RoutersError::Twice(interface.id));
            }
            lane.put(interface, position);
        }
        let specials = Specials::new(own_addresses(&interfaces));
        let looks_up_sources = interfaces.iter().any(|interface| interface.sources.looks_up());
        Ok(Self { routers, interfaces, lanes: lanes.into(), specials, looks_up_sources })
    }

    /// The same, and further addresses that are special as sources: the machine's on other interfaces, and broadcasts.
    #[must_use]
    pub fn with_specials(mut self, further: impl IntoIterator<Item = (Ipv4Addr, Special)>) -> Self {
        self.specials = Specials::new(own_addresses(&self.interfaces).chain(further));
        self
    }

    /// Addresses that are special as sources.
    #[inline(always)]
    pub(super) fn specials(&self) -> &Specials {
        &self.specials
    }

    /// True if routes to sources are looked up for some interface.
    pub(super) fn looks_up_sources(&self) -> bool {
        self.looks_up_sources
    }

    /// True if there is no interface, and so nothing to route.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// True if a port has interfaces.
    #[inline]
    pub fn has(&self, port: PortId) -> bool {
        self.lanes.get(usize::from(port.0)).is_some_and(Option::is_some)
    }

    /// An interface.
    #[inline]
    pub fn interface(&self, id: InterfaceId) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(id.port.0))?.as_ref()?;
        self.interfaces.get(usize::from(lane.find(id)?))
    }

    /// The interface that frames for `station` come in by: the macvlan that has the address, else the port or VLAN.
    pub(super) fn arrival(&self, port: PortId, vlan: VlanId, station: MacAddress) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(port.0))?.as_ref()?;
        self.interfaces.get(usize::from(lane.arrival(vlan, station)?))
    }

    /// The interface of a port's frames without a tag.
    #[inline(always)]
    pub(super) fn untagged(&self, port: PortId) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(port.0))?.as_ref()?;
        self.interfaces.get(usize::from(lane.untagged))
    }

    /// The interface of a port's frames without a tag that are for the same station as `frame`.
    #[inline(always)]
    pub(super) fn untagged_like(&self, port: PortId, frame: &[u8]) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(port.0))?.as_ref()?;
        let position = if lane.macvlans.is_empty() { lane.untagged } else { lane.untagged_like(frame) };
        self.interfaces.get(usize::from(position))
    }

    /// Packets that a batch of frames of at most `longest_frame` bytes can become at most, cut into fragments by the
    /// MTU of a route, and room for another batch behind.
    pub fn longest_expansion(&self, longest_frame: usize) -> usize {
        let fragments = longest_frame.min(usize::from(u16::MAX)).div_ceil(LEAST_FRAGMENT);
        if self.is_empty() { 0 } else { BATCH * (fragments + 1) }
    }

    /// All interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter()
    }

    /// The same, with notices that have no receiver.
    pub(crate) fn image(&self) -> Self {
        Self {
            routers: self.routers.iter().map(RouterAccess::unheard).collect(),
            interfaces: self.interfaces.clone(),
            lanes: self.lanes.clone(),
            specials: self.specials.clone(),
            looks_up_sources: self.looks_up_sources,
        }
    }

    /// All routers, by number.
    pub fn routers(&self) -> &[RouterAccess] {
        &self.routers
    }

    /// True if an address is one of a router's own on an interface that Polder has for itself.
    pub(super) fn is_own(&self, router: RouterId, address: IpAddr) -> bool {
        let mut own = self.interfaces.iter().filter(|interface| interface.router == router);
        own.any(|interface| interface.owner == Owner::Polder && interface.has(address))
    }
}

impl Lane {
    fn empty() -> Self {
        Self { untagged: NONE, tagged: Box::default(), macvlans: Box::default() }
    }

    #[inline]
    fn find(&self, id: InterfaceId) -> Option<u16> {
        let vlan = id.vlan.get();
        if id.macvlan != 0 {
            let is_wanted = |known: &&Macvlan| (known.vlan, known.number) == (vlan, id.macvlan);
            return self.macvlans.iter().find(is_wanted).map(|known| known.position);
        }
        if vlan == 0 {
            return (self.untagged != NONE).then_some(self.untagged);
        }
        let place = self.tagged.binary_search_by_key(&vlan, |tagged| tagged.0).ok()?;
        Some(self.tagged[place].1)
    }

    fn arrival(&self, vlan: VlanId, station: MacAddress) -> Option<u16> {
        let is_wanted = |known: &&Macvlan| (known.vlan, known.mac) == (vlan.get(), station);
        match self.macvlans.iter().find(is_wanted) {
            Some(known) => Some(known.position),
            None => self.find(InterfaceId { port: NO_PORT, vlan, macvlan: 0 }),
        }
    }

    #[cold]
    fn untagged_like(&self, frame: &[u8]) -> u16 {
        let station = frame.first_chunk().map_or(MacAddress::BROADCAST, |station| MacAddress(*station));
        self.arrival(VlanId::PRIORITY, station).unwrap_or(NONE)
    }

    fn put(&mut self, interface: &Interface, position: u16) {
        let InterfaceId { vlan, macvlan: number, .. } = interface.id;
        let vlan = vlan.get();
        if number != 0 {
            let new = Macvlan { vlan, number, mac: interface.mac, position };
            self.macvlans = self.macvlans.iter().copied().chain([new]).collect();
            return;
        }
        if vlan == 0 {
            self.untagged = position;
            return;
        }
        let mut tagged = core::mem::take(&mut self.tagged).into_vec();
        tagged.push((vlan, position));
        tagged.sort_unstable();
        self.tagged = tagged.into();
    }
}

/// The IPv4 addresses of interfaces.
fn own_addresses(interfaces: &[Interface]) -> impl Iterator<Item = (Ipv4Addr, Special)> + '_ {
    interfaces.iter().flat_map(|interface| {
        let special = if interface.owner == Owner::Polder { Special::Polder } else { Special::Machine };
        interface.addresses.iter().filter_map(move |own| match own.address {
            IpAddr::V4(address) => Some((address, special)),
            IpAddr::V6(_) => None,
        })
    })
}

fn check(interface: &Interface, routers: usize) -> Result<(), RoutersError> {
    let Interface { id, router, mac, mtu, .. } = *interface;
    if usize::from(router.0) >= routers {
        return Err(RoutersError::NoRouter(id, router));
    }
    if mtu < LEAST_MTU {
        return Err(RoutersError::MtuTooSmall(id, mtu));
    }
    if mac.is_multicast() {
        return Err(RoutersError::NoStation(id, mac));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Router;

    fn interface(port: u16, vlan: u16) -> Interface {
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
    fn interfaces_are_found_by_port_and_vlan() {
        let all = [interface(3, 0), interface(3, 7), interface(3, 5), interface(9, 7)];
        let routers = Routers::new([Router::new().access()], all.clone()).expect("they fit");
        for interface in &all {
            assert_eq!(routers.interface(interface.id).expect("it is there").id, interface.id);
        }
        assert!(routers.has(PortId(9)) && routers.untagged(PortId(9)).is_none());
        assert!(!routers.has(PortId(4)) && !routers.has(PortId(400)) && Routers::none().is_empty());
        assert!(routers.interface(InterfaceId::tagged(PortId(3), VlanId::HIGHEST)).is_none());
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

    #[test]
    fn a_macvlan_has_the_frames_for_its_address() {
        let mac = |last| MacAddress([0, 0, 0x5e, 0, 1, last]);
        let on = |below: Interface, number| Interface {
            id: below.id.macvlan(number),
            mac: mac(number.to_be_bytes()[1]),
            ..below
        };
        let all = [interface(3, 0), interface(3, 7)];
        let all = all.iter().cloned().chain([on(interface(3, 0), 1), on(interface(3, 7), 2)]);
        let routers = Routers::new([Router::new().access()], all).expect("they fit");
        let (port, vlan) = (PortId(3), VlanId::new(7).expect("a VLAN"));
        let by = |vlan, station| routers.arrival(port, vlan, station).expect("an interface").id;
        let [untagged, tagged] = [InterfaceId::untagged(port), InterfaceId::tagged(port, vlan)];
        assert_eq!(by(VlanId::PRIORITY, mac(1)), untagged.macvlan(1));
        assert_eq!(by(vlan, mac(2)), tagged.macvlan(2));
        assert_eq!(by(vlan, mac(1)), tagged, "that of another VLAN");
        assert_eq!(by(VlanId::PRIORITY, MacAddress::BROADCAST), untagged);
        for id in [untagged, tagged, untagged.macvlan(1), tagged.macvlan(2)] {
            assert_eq!(routers.interface(id).expect("it is there").id, id);
        }
        assert!(routers.interface(untagged.macvlan(2)).is_none());
        let frame = |station: MacAddress| [&station.0[..], &[0; 8]].concat();
        let like = |frame: &[u8]| routers.untagged_like(port, frame).expect("an interface").id;
        assert_eq!(like(&frame(mac(1))), untagged.macvlan(1));
        assert_eq!(like(&frame(mac(2))), untagged);
        assert_eq!(like(&[0, 0, 0x5e]), untagged);
    }

    #[test]
    fn what_does_not_fit_together() {
        let build = |interfaces: Vec<Interface>| {
            Routers::new([Router::new().access()], interfaces).map(|_| ()).unwrap_err()
        };
        let id = InterfaceId::untagged(PortId(1));
        assert_eq!(build(vec![interface(1, 0), interface(1, 0)]), RoutersError::Twice(id));
        let other = Interface { router: RouterId(1), ..interface(1, 0) };
        assert_eq!(build(vec![other]), RoutersError::NoRouter(id, RouterId(1)));
        assert_eq!(
            build(vec![Interface { mtu: 575, ..interface(1, 0) }]),
            RoutersError::MtuTooSmall(id, 575)
        );
        let group = Interface { mac: MacAddress::BROADCAST, ..interface(1, 0) };
        assert_eq!(build(vec![group]), RoutersError::NoStation(id, MacAddress::BROADCAST));
    }
}
