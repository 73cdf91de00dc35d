//! All routers of a configuration.

use super::interface::{Interface, InterfaceId, LEAST_MTU, Owner, RouterId};
use super::router::RouterAccess;
use super::specials::{Special, Specials};
use crate::drops::DropReason;
use crate::wire::{Link, MacAddress, VlanId};
use polder_buffers::{BATCH, NO_PORT, Packet, PortId};
use std::net::{IpAddr, Ipv4Addr};

/// Minimum payload in bytes of a fragment, for an MTU of 68 bytes, which every IPv4 link supports (RFC 791,
/// 3.2) and a route may configure. With many options the payload is smaller, and packets with too many
/// fragments are dropped.
const LEAST_FRAGMENT: usize = 68 - 20;

/// Error in a set of routers and interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoutersError {
    /// Two interfaces have the same name.
    #[error("interface {0:?} is given twice")]
    Twice(InterfaceId),
    /// The interface's router does not exist.
    #[error("interface {0:?} belongs to router {1:?}, which does not exist")]
    NoRouter(InterfaceId, RouterId),
    /// The MTU is below [`LEAST_MTU`].
    #[error("interface {0:?}: an MTU of {1} bytes is too small; use at least {LEAST_MTU}")]
    MtuTooSmall(InterfaceId, u16),
    /// The MAC address is multicast.
    #[error("interface {0:?}: {1} is not a unicast MAC address")]
    NoStation(InterfaceId, MacAddress),
}

/// In [`Lane`]: no interface.
const NONE: u16 = u16::MAX;

/// Interfaces of one port: position in the list of interfaces.
#[derive(Clone, Debug)]
struct Lane {
    untagged: u16,
    /// VLAN and position, sorted by VLAN.
    tagged: Box<[(u16, u16)]>,
    /// Macvlans; usually none.
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

/// All routers of a configuration and their interfaces; immutable, part of [`Tables`](crate::engine::Tables).
#[derive(Debug, Default)]
pub struct Routers {
    routers: Box<[RouterAccess]>,
    interfaces: Box<[Interface]>,
    /// Interfaces by port.
    lanes: Box<[Option<Lane>]>,
    /// By port of a device that Polder has made for an interface: the interface's position, or [`NONE`].
    devices: Box<[u16]>,
    specials: Specials,
    looks_up_sources: bool,
}

impl Routers {
    /// Without routers: the stage is skipped.
    pub fn none() -> Self {
        Self::default()
    }

    /// Builds the tables.
    ///
    /// # Errors
    /// [`RoutersError`] if routers and interfaces are inconsistent.
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
        let devices = devices(&interfaces);
        let specials = Specials::new(own_addresses(&interfaces));
        let looks_up_sources = interfaces.iter().any(|interface| interface.sources.looks_up());
        Ok(Self { routers, interfaces, lanes: lanes.into(), devices, specials, looks_up_sources })
    }

    /// The same, with further special source addresses: the machine's on other interfaces, and broadcast
    /// addresses.
    #[must_use]
    pub fn with_specials(mut self, further: impl IntoIterator<Item = (Ipv4Addr, Special)>) -> Self {
        self.specials = Specials::new(own_addresses(&self.interfaces).chain(further));
        self
    }

    /// Special source addresses.
    #[inline(always)]
    pub(super) fn specials(&self) -> &Specials {
        &self.specials
    }

    /// True if some interface looks up the routes to sources.
    pub(super) fn looks_up_sources(&self) -> bool {
        self.looks_up_sources
    }

    /// True if there is no interface.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.interfaces.is_empty()
    }

    /// True if the port has interfaces.
    #[inline]
    pub fn has(&self, port: PortId) -> bool {
        self.lanes.get(usize::from(port.0)).is_some_and(Option::is_some)
    }

    /// Interface with this id; `None` if there is none.
    #[inline]
    pub fn interface(&self, id: InterfaceId) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(id.port.0))?.as_ref()?;
        self.interfaces.get(usize::from(lane.find(id)?))
    }

    /// Interface whose device has this port; `None` for other ports.
    #[inline]
    pub(super) fn of_device(&self, port: PortId) -> Option<&Interface> {
        self.interfaces.get(usize::from(*self.devices.get(usize::from(port.0))?))
    }

    /// Ingress interface of frames to `station`: the macvlan with that address, otherwise the port or VLAN.
    pub(super) fn arrival(&self, port: PortId, vlan: VlanId, station: MacAddress) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(port.0))?.as_ref()?;
        self.interfaces.get(usize::from(lane.arrival(vlan, station)?))
    }

    /// Ingress interface of a packet.
    pub(super) fn arrival_of(&self, packet: &Packet) -> Result<&Interface, DropReason> {
        let link = Link::parse(packet.bytes())?;
        let vlan = match (link.tag, link.inner_tag) {
            (None, _) => VlanId::PRIORITY,
            (Some(tag), None) => tag.id().ok_or(DropReason::NoInterface)?,
            (Some(_), Some(_)) => return Err(DropReason::NoInterface),
        };
        let station = link.ethernet.destination();
        self.arrival(packet.ingress, vlan, station).ok_or(DropReason::NoInterface)
    }

    /// Interface of a port's untagged frames.
    #[inline(always)]
    pub(super) fn untagged(&self, port: PortId) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(port.0))?.as_ref()?;
        self.interfaces.get(usize::from(lane.untagged))
    }

    /// Interface of a port's untagged frames with the same destination as `frame`.
    #[inline(always)]
    pub(super) fn untagged_like(&self, port: PortId, frame: &[u8]) -> Option<&Interface> {
        let lane = self.lanes.get(usize::from(port.0))?.as_ref()?;
        let position = if lane.macvlans.is_empty() { lane.untagged } else { lane.untagged_like(frame) };
        self.interfaces.get(usize::from(position))
    }

    /// Maximum number of packets that a batch of frames of at most `longest_frame` bytes can become by
    /// fragmentation, plus one batch.
    pub fn longest_expansion(&self, longest_frame: usize) -> usize {
        let fragments = longest_frame.min(usize::from(u16::MAX)).div_ceil(LEAST_FRAGMENT);
        if self.is_empty() { 0 } else { BATCH * (fragments + 1) }
    }

    /// All interfaces in the order of the configuration.
    pub fn interfaces(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter()
    }

    /// A copy whose notices have no receiver.
    pub(crate) fn image(&self) -> Self {
        Self {
            routers: self.routers.iter().map(RouterAccess::unheard).collect(),
            interfaces: self.interfaces.clone(),
            lanes: self.lanes.clone(),
            devices: self.devices.clone(),
            specials: self.specials.clone(),
            looks_up_sources: self.looks_up_sources,
        }
    }

    /// All routers, by number.
    pub fn routers(&self) -> &[RouterAccess] {
        &self.routers
    }

    /// True if the address belongs to an interface of the router that Polder owns.
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

/// Positions of the interfaces, by port of their device.
fn devices(interfaces: &[Interface]) -> Box<[u16]> {
    let mut devices = Vec::new();
    for (position, interface) in (0..).zip(interfaces) {
        let Owner::Device(port) = interface.owner else { continue };
        let place = usize::from(port.0);
        devices.resize(devices.len().max(place + 1), NONE);
        devices[place] = position;
    }
    devices.into()
}

/// IPv4 addresses of the interfaces.
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
    use super::super::interface::tests::interface;
    use super::*;
    use crate::route::Router;

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
    fn an_interface_is_found_by_the_port_of_its_device() {
        let of = |number, port| Interface { owner: Owner::Device(PortId(port)), ..interface(number, 0) };
        let all = [interface(3, 0), of(7, 12), of(8, 10)];
        let routers = Routers::new([Router::new().access()], all).expect("they fit");
        let found = |port| routers.of_device(PortId(port)).map(|interface| interface.id.port.0);
        assert_eq!([10, 11, 12, 3, 400].map(found), [Some(8), None, Some(7), None, None]);
        assert!(!routers.has(PortId(12)), "nothing is looked up for its packets");
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
