//! Interfaces of the router: ports, VLANs on ports, macvlans and layer-3 tunnels, with their addresses.

use super::settings::Settings;
use crate::config::filters::Direction;
use crate::config::model::{Configuration, Decide, Port, Role, Tunnel};
use crate::config::router::InterfaceAddress;
use crate::device::PortProperties;
use crate::kernel::Mirror;
use crate::kernel::message::Link;
use crate::runtime::tunnels::stations;
use polder_buffers::PortId;
use polder_datapath::next_hop::NextHop;
use polder_datapath::route::{Interface, InterfaceId, LEAST_MTU, OwnAddress, Owner, RouterId, SourceCheck};
use polder_datapath::tunnel::Stations;
use polder_datapath::wire::{MacAddress, VlanId};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// State of a port, as the router sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct AttachedPort {
    /// Properties of the port when it was last opened.
    pub(in crate::runtime) facts: PortProperties,
    /// True if the port is open and its link is up.
    pub(in crate::runtime) up: bool,
    /// True if packets of the port can be punted to the kernel.
    pub(in crate::runtime) punts: bool,
}

/// All ports that have been open.
pub(in crate::runtime) type Ports = HashMap<PortId, AttachedPort>;

/// An interface of the router.
#[derive(Clone, Debug)]
pub(super) struct Attached {
    /// The interface in the datapath's form.
    pub(super) interface: Interface,
    /// The kernel's interface index; [`own_index`] for a port that the kernel does not have.
    pub(super) index: u32,
    /// Name: port, VLAN and macvlan.
    pub(super) name: String,
    /// True if packets can be sent by the interface.
    pub(super) carries: bool,
    /// True if filters apply to packets that the port sends.
    pub(super) is_filtered: bool,
    /// The only neighbour of a point-to-point link: the remote end of a tunnel, a mobile network, or the other end of
    /// an interface without Ethernet.
    pub(super) far: Option<Far>,
    /// This host, if it is a station on the link: at the other end of a TAP.
    pub(super) machine: Option<Machine>,
}

/// This host as a station on a TAP's link.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// The kernel's index of the TAP.
    pub(super) index: u32,
    /// Link-layer address of the TAP, which is always known.
    pub(super) neighbour: Arc<NextHop>,
    /// True if the host's interface is up.
    pub(super) listens: bool,
}

/// The remote end of a point-to-point link.
#[derive(Clone, Debug)]
pub(super) struct Far {
    /// Internal MAC address of the remote end, which is always known.
    pub(super) neighbour: Arc<NextHop>,
    /// True if the tunnel fragments outer packets, so that it carries the IPv6 minimum MTU.
    pub(super) cuts: bool,
}

impl PartialEq for Attached {
    fn eq(&self, other: &Self) -> bool {
        let parts = |attached: &Self| {
            let Interface { id, router, mac, mtu, addresses, owner, sources } = attached.interface.clone();
            (id, router, mac, mtu, addresses, owner, sources)
        };
        let cuts = |attached: &Self| attached.far.as_ref().map(|far| far.cuts);
        let machine = |attached: &Self| {
            let Machine { index, neighbour, listens } = attached.machine.as_ref()?;
            Some((*index, neighbour.address(), *listens))
        };
        (self.index, self.carries, self.is_filtered, &self.name)
            == (other.index, other.carries, other.is_filtered, &other.name)
            && (cuts(self), machine(self)) == (cuts(other), machine(other))
            && parts(self) == parts(other)
    }
}

/// First bit of the modem session's number in the interface index.
const SESSION_SHIFT: u32 = 16;

/// An interface index that the kernel does not use.
pub(super) fn own_index(port: PortId) -> u32 {
    1 << 31 | u32::from(port.0)
}

/// Lists the interfaces of the router.
pub(super) fn attached(
    configuration: &Configuration,
    ports: &Ports,
    mirror: Option<&Mirror>,
    settings: &Settings,
    before: &[Attached],
) -> Vec<Attached> {
    let mut all = Vec::new();
    let kernel_port = configuration.kernel_port().filter(|port| ports.get(port).is_some_and(|port| port.up));
    for port in configuration.ports.iter().filter(|port| port.role == Role::Router) {
        let Some(seen) = ports.get(&port.id) else { continue };
        match (port.device.interface(), mirror) {
            (Some(_), Some(mirror)) => {
                let host = kernel_port.filter(|_| seen.punts);
                kernels(port, (seen, ports, host), (mirror, settings), (before, &mut all));
            }
            (Some(_), None) => {}
            (None, _) if seen.facts.link_addresses.is_some() => point_to_point(port, seen, &mut all),
            (None, _) => {
                let known = before.iter().find(|known| known.interface.id == InterfaceId::untagged(port.id));
                all.push(own(port, seen, mirror, known));
            }
        }
    }
    let devices = configuration.ports.iter().filter_map(|port| Some((port.device.tun()?, port.id)));
    let devices = devices.collect::<HashMap<_, _>>();
    for tunnel in configuration.tunnels.iter().filter(|tunnel| tunnel.is_routed()) {
        let Some(seen) = ports.get(&tunnel.id) else { continue };
        let attached = over(tunnel, seen);
        let device = tunnel.device.as_deref().and_then(|device| devices.get(device));
        all.push(match device {
            Some(port) => by_device(attached, (*port, ports.get(port)), (mirror, settings)),
            None => attached,
        });
    }
    let is_filtered = |port: PortId| {
        let mut outbound = configuration.filters.iter().filter(|filter| filter.direction == Direction::Out);
        outbound.any(|filter| filter.meets(port))
    };
    all.iter_mut().for_each(|attached| attached.is_filtered = is_filtered(attached.interface.id.port));
    // Packets to interfaces that cannot be routed over stay with the kernel.
    all.retain(|attached| attached.interface.mtu >= LEAST_MTU && !attached.interface.mac.is_multicast());
    all
}

/// Adds a kernel interface, the VLANs on it, and the macvlans on these.
fn kernels(
    port: &Port,
    (seen, ports, host): (&AttachedPort, &Ports, Option<PortId>),
    (mirror, settings): (&Mirror, &Settings),
    (before, all): (&[Attached], &mut Vec<Attached>),
) {
    let Some(link) = seen.facts.index.and_then(|index| mirror.link(index)) else { return };
    let below = seen.up && link.carries();
    let far = seen.facts.link_addresses.as_ref().map(|link| {
        let neighbour = NextHop::default();
        neighbour.set_address(Some(link.neighbour));
        Far { neighbour: Arc::new(neighbour), cuts: false }
    });
    let make = |link: &Link, id: InterfaceId, name: String| {
        let addresses = mirror.addresses().filter(|address| address.index == link.index);
        let own = addresses.map(|address| OwnAddress { address: address.address, bits: address.bits });
        let mtu = link.mtu.min(seen.facts.mtu);
        Attached {
            interface: Interface {
                id,
                router: RouterId(0),
                mac: MacAddress(link.mac),
                mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
                addresses: own.collect(),
                owner: Owner::Kernel { host, decides: port.decide == Decide::Kernel },
                sources: settings.source_check(&link.name),
            },
            index: link.index,
            name,
            carries: below && link.carries(),
            is_filtered: false,
            far: far.clone(),
            machine: None,
        }
    };
    let macvlans = macvlans(mirror, ports);
    let mut put = |link: &Link, id: InterfaceId, name: String| {
        for upper in macvlans.iter().filter(|upper| upper.macvlan == Some(link.index)) {
            let number = numbered(id, upper.index, (before, all));
            all.extend(number.map(|id| make(upper, id, format!("{name}:{}", upper.name))));
        }
        all.push(make(link, id, name));
    };
    put(link, InterfaceId::untagged(port.id), port.name.clone());
    for upper in mirror.links() {
        let Some((_, vlan)) = upper.vlan.filter(|(lower, _)| *lower == link.index) else { continue };
        // VLAN 0 is a priority tag; such packets belong to the port itself.
        let Some(vlan) = VlanId::new(vlan).filter(|vlan| vlan.get() != 0) else { continue };
        let name = format!("{}.{}", port.name, vlan.get());
        put(upper, InterfaceId::tagged(port.id, vlan), name);
    }
}

/// Active macvlans that are not ports themselves. A macvlan that is down is left out: its virtual router is
/// active on another host.
fn macvlans<'a>(mirror: &'a Mirror, ports: &Ports) -> Vec<&'a Link> {
    let is_port = |link: &Link| ports.values().any(|seen| seen.facts.index == Some(link.index));
    mirror.links().filter(|link| link.macvlan.is_some() && link.carries() && !is_port(link)).collect()
}

/// Interface identifier of a macvlan: the previous one, or else one that was and is free.
fn numbered(
    below: InterfaceId,
    index: u32,
    (before, now): (&[Attached], &[Attached]),
) -> Option<InterfaceId> {
    let had = |known: &&Attached| known.index == index && known.interface.id.macvlan(0) == below;
    if let Some(known) = before.iter().find(had) {
        return Some(known.interface.id);
    }
    let taken = before.iter().chain(now).map(|known| known.interface.id).collect::<HashSet<_>>();
    (1..=u16::MAX).map(|number| below.macvlan(number)).find(|id| !taken.contains(id))
}

/// A port that the kernel does not route. `known` is its previous state.
fn own(port: &Port, seen: &AttachedPort, mirror: Option<&Mirror>, known: Option<&Attached>) -> Attached {
    let (mac, link) = match port.device.capabilities().has_kernel_peer {
        // For a TAP, the port's address is the host's; Polder uses another one.
        true => {
            let link = seen.facts.index.and_then(|index| mirror?.link(index));
            // The host's neighbour table has Polder's address, so it is kept when the TAP's address changes.
            let kept = known.map(|known| known.interface.mac).filter(|mac| *mac != seen.facts.mac);
            (kept.unwrap_or_else(|| beside(seen.facts.mac)), link)
        }
        false => (seen.facts.mac, None),
    };
    let machine = link.map(|link| {
        let neighbour = NextHop::default();
        neighbour.set_address(Some(MacAddress(link.mac)));
        Machine { index: link.index, neighbour: Arc::new(neighbour), listens: link.carries() }
    });
    let mut attached = alone((port.id, &port.name), mac, &port.addresses, seen);
    attached.interface.sources.machine = machine.is_some();
    Attached { machine, ..attached }
}

/// Adds the interfaces of a point-to-point port, one for each active modem session.
fn point_to_point(port: &Port, seen: &AttachedPort, all: &mut Vec<Attached>) {
    let Some(link) = &seen.facts.link_addresses else { return };
    let first = (0, Vec::new());
    let has_first = link.sessions.iter().any(|(number, _)| *number == 0);
    for (number, addresses) in link.sessions.iter().chain((!has_first).then_some(&first)) {
        let neighbour = NextHop::default();
        neighbour.set_address(Some(link.neighbour));
        let far = Some(Far { neighbour: Arc::new(neighbour), cuts: false });
        let plain = |name: &str, own: &[InterfaceAddress]| alone((port.id, name), seen.facts.mac, own, seen);
        let attached = match VlanId::new(u16::from(*number)).filter(|_| *number != 0) {
            // The first session also has the port's configured addresses.
            None => plain(&port.name, &[port.addresses.as_slice(), addresses].concat()),
            Some(vlan) => {
                let mut attached = plain(&format!("{}.{number}", port.name), addresses);
                attached.interface.id = InterfaceId::tagged(port.id, vlan);
                attached.index = own_index(port.id) | u32::from(*number) << SESSION_SHIFT;
                attached
            }
        };
        all.push(Attached { far, ..attached });
    }
}

/// A layer-3 tunnel: a point-to-point link.
fn over(tunnel: &Tunnel, seen: &AttachedPort) -> Attached {
    let Stations { near, far } = stations(tunnel);
    let neighbour = NextHop::default();
    neighbour.set_address(Some(far));
    let far = Some(Far { neighbour: Arc::new(neighbour), cuts: !tunnel.dont_fragment });
    Attached { far, ..alone((tunnel.id, &tunnel.name), near, &tunnel.addresses, seen) }
}

/// The interface of a tunnel with a device, as far as the kernel has it: with its index, which routes of the kernel
/// name, its addresses, and its MTU if that is smaller.
fn by_device(
    attached: Attached,
    (port, seen): (PortId, Option<&AttachedPort>),
    (mirror, settings): (Option<&Mirror>, &Settings),
) -> Attached {
    let owner = Owner::Device(port);
    let link = seen.and_then(|seen| mirror?.link(seen.facts.index?));
    let (Some(link), Some(mirror)) = (link, mirror) else {
        return Attached { interface: Interface { owner, ..attached.interface }, ..attached };
    };
    let addresses = mirror.addresses().filter(|address| address.index == link.index);
    let own = addresses.map(|address| OwnAddress { address: address.address, bits: address.bits });
    let interface = Interface {
        owner,
        addresses: own.collect(),
        mtu: attached.interface.mtu.min(u16::try_from(link.mtu).unwrap_or(u16::MAX)),
        sources: settings.source_check(&link.name),
        ..attached.interface
    };
    Attached { interface, index: link.index, carries: attached.carries && link.carries(), ..attached }
}

/// An interface that the kernel does not have.
fn alone(
    (id, name): (PortId, &str),
    mac: MacAddress,
    own: &[InterfaceAddress],
    seen: &AttachedPort,
) -> Attached {
    let own = own.iter().map(|own| OwnAddress { address: own.address, bits: own.bits });
    let mut addresses = own.collect::<Vec<_>>();
    if addresses.iter().any(|own| own.address.is_ipv6()) {
        addresses.push(OwnAddress { address: link_local(mac).into(), bits: 64 });
    }
    Attached {
        interface: Interface {
            id: InterfaceId::untagged(id),
            router: RouterId(0),
            mac,
            mtu: u16::try_from(seen.facts.mtu).unwrap_or(u16::MAX),
            addresses,
            owner: Owner::Polder,
            sources: SourceCheck::default(),
        },
        index: own_index(id),
        name: name.to_owned(),
        carries: seen.up,
        is_filtered: false,
        far: None,
        machine: None,
    }
}

/// Derives a locally administered MAC address from an address, always the same one.
fn beside(MacAddress([a, b, c, d, e, f]): MacAddress) -> MacAddress {
    MacAddress([(a | 2) & !1, b, c, d, e, f ^ 1])
}

/// Link-local address from a MAC address (RFC 4291, appendix A).
fn link_local(MacAddress([a, b, c, d, e, f]): MacAddress) -> Ipv6Addr {
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Interface with the longest own network that contains an address.
pub(super) fn on_link(all: &[Attached], address: IpAddr) -> Option<&Attached> {
    let shares = |own: &&OwnAddress| {
        let network = polder_datapath::route::Prefix::new(own.address, own.bits);
        network.is_ok_and(|network| network.contains(address))
    };
    let networks = all.iter().filter_map(|attached| {
        let longest = attached.interface.addresses.iter().filter(shares).map(|own| own.bits).max()?;
        Some(((longest, attached.interface.id.macvlan == 0), attached))
    });
    networks.max_by_key(|(rank, _)| *rank).map(|(_, attached)| attached)
}
