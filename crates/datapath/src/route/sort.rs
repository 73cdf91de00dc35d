//! The first loop of the routing stage: checks headers and collects destinations.

use super::check::{Destination, check_v4, check_v6};
use super::local::{HostInterfaces, OutputContext};
use super::lookups::Work;
use super::onward::trim;
use super::plain::{Station, look_v4, look_v6};
use super::send::ETHERNET;
use super::state::RouteState;
use super::{Interface, Owner, RouterId, Routers, discover, options};
use crate::drops::{Context, DropReason, is_dropped};
use crate::wire::{Arp, EtherType, Link, VlanId};
use polder_buffers::{Batch, NO_PORT, Packet, PortId};
use std::net::IpAddr;

/// Maximum length in bytes of the headers that are parsed: link header, extension headers, a message of
/// neighbour discovery.
const LOOKED_AT: usize = 256;

/// Ingress port of the previous packet.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    port: PortId,
    has_interfaces: bool,
    untagged: Option<&'a Interface>,
    /// Interface by which the kernel has routed the packets, if the port is its device.
    onward: Option<&'a Interface>,
}

impl RouteState {
    /// Checks the headers of the packets in `meant` that belong to the same router as the first of them;
    /// returns the router, and the bit set of packets of other routers.
    #[inline(never)]
    pub(super) fn sort(
        &mut self,
        batch: &mut Batch,
        meant: u64,
        routers: &Routers,
        context: &mut Context<'_>,
    ) -> (Option<RouterId>, u64) {
        let (mut router, mut others) = (None, 0);
        let mut arrival = Arrival { port: NO_PORT, has_interfaces: false, untagged: None, onward: None };
        for (position, packet) in batch.iter_mut().enumerate() {
            if packet.ingress != arrival.port {
                let port = packet.ingress;
                arrival = Arrival {
                    port,
                    has_interfaces: routers.has(port),
                    untagged: routers.untagged(port),
                    onward: routers.of_device(port),
                };
            }
            if let Some(interface) = arrival.onward {
                send_by(packet, interface);
                continue;
            }
            if !arrival.has_interfaces || meant >> position & 1 == 0 || is_dropped(packet) {
                continue;
            }
            if let Some(interface) = arrival.untagged
                && router == Some(interface.router)
                && self.work.put(position, packet, Station::of(interface))
            {
                continue;
            }
            let interface = match routers.arrival_of(packet) {
                Ok(interface) => interface,
                Err(reason) => {
                    context.discard(packet, reason);
                    continue;
                }
            };
            if *router.get_or_insert(interface.router) == interface.router {
                self.look_closely(position, packet, interface, routers, context);
            } else {
                others |= 1 << position;
            }
        }
        (router, others)
    }

    /// Processes a packet that is not plain, or the first packet of its router.
    fn look_closely(
        &mut self,
        position: usize,
        packet: &mut Packet,
        interface: &Interface,
        routers: &Routers,
        context: &mut Context<'_>,
    ) {
        let is_untagged = interface.id.vlan == VlanId::PRIORITY;
        if is_untagged && self.work.put(position, packet, Station::of(interface)) {
            return;
        }
        let Some(lane) = self.lanes.get(usize::from(interface.router.0)) else { return };
        let Self { work, output, waiting, .. } = self;
        let site =
            Site { interface, routers, host_interfaces: HostInterfaces { waiting, notices: &lane.notices } };
        if let Err(reason) = site.look(position, packet, work, output, context) {
            context.discard(packet, reason);
        }
    }
}

impl Work {
    /// Stores a plain packet; returns false for other packets.
    fn put(&mut self, position: usize, packet: &Packet, station: Station) -> bool {
        let (bytes, room) = (packet.bytes(), packet.len().wrapping_sub(ETHERNET));
        if let Some((to, plan)) = look_v4(bytes, room, station) {
            self.v4.count = self.v4.put_at(self.v4.count, position, to, plan);
        } else if let Some((to, plan)) = look_v6(bytes, room, station) {
            self.v6.count = self.v6.put_at(self.v6.count, position, to, plan);
        } else {
            return false;
        }
        true
    }
}

/// Sends a packet by the interface by which the kernel has routed it.
#[cold]
fn send_by(packet: &mut Packet, interface: &Interface) {
    if is_dropped(packet) {
        return;
    }
    // A message about it comes back to this station.
    if let Some(source) = packet.bytes_mut().get_mut(6..ETHERNET - 2) {
        source.copy_from_slice(&interface.mac.0);
    }
    packet.egress = interface.id.port;
}

/// Context of the slow path for a packet received on an interface.
struct Site<'a> {
    interface: &'a Interface,
    routers: &'a Routers,
    host_interfaces: HostInterfaces<'a>,
}

impl Site<'_> {
    #[cold]
    fn look(
        &self,
        position: usize,
        packet: &mut Packet,
        work: &mut Work,
        output: &mut OutputContext,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let wanted = u16::try_from(packet.len().min(LOOKED_AT)).unwrap_or(0);
        // If the pool is empty, missing bytes are detected below.
        let _ = packet.gather(wanted, context.pool);
        let link = Link::parse(packet.bytes())?;
        let (offset, kind) = (link.header_bytes(), link.ether_type());
        let destination = link.ethernet.destination();
        if destination != self.interface.mac && !destination.is_multicast() {
            return Err(DropReason::OtherStation);
        }
        packet.network_offset = u16::try_from(offset).map_err(|_| DropReason::NotRouted)?;
        if destination.is_multicast() && self.interface.owner != Owner::Polder {
            return output.pass_up(packet, self.interface);
        }
        if let Owner::Kernel { decides: true, .. } = self.interface.owner {
            return output.leave_to_kernel(packet, self.interface, context);
        }
        let length = packet.len() - offset;
        let bytes = packet.bytes().get(offset..).unwrap_or_default();
        match kind {
            EtherType::ARP => return self.hear(packet, output, context),
            EtherType::IPV4 => match check_v4(bytes, length)? {
                Destination::To(_) if destination.is_multicast() => return Err(DropReason::GroupNotRouted),
                Destination::To(address) => work.v4.put(position, address.octets()),
                Destination::Group => return self.group(packet, output),
                Destination::OnLink(address) => return self.on_link(packet, address.into(), output, context),
            },
            EtherType::IPV6 => match check_v6(bytes, length)? {
                Destination::To(_) if destination.is_multicast() => return Err(DropReason::GroupNotRouted),
                Destination::To(address) => {
                    self.look_at_options(packet, (offset, length), output, context)?;
                    work.v6.put(position, address.octets());
                }
                Destination::Group if self.is_devices() => return self.group(packet, output),
                Destination::Group => {
                    trim(packet, context.pool);
                    return output.discover(packet, self.interface, self.host_interfaces, context);
                }
                Destination::OnLink(address) => return self.on_link(packet, address.into(), output, context),
            },
            _ => return Err(DropReason::NotRouted),
        }
        Ok(())
    }

    /// Checks hop-by-hop options, and sends an ICMP error about invalid ones.
    fn look_at_options(
        &self,
        packet: &mut Packet,
        (offset, length): (usize, usize),
        output: &mut OutputContext,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let bytes = packet.bytes().get(offset..).unwrap_or_default();
        options::check(bytes, length).map_err(|options::Refused(problem)| {
            if let Some(problem) = problem {
                output.tell(packet, self.interface, problem, context);
            }
            DropReason::HopByHop
        })
    }

    /// True if the kernel has the interface by a device of Polder's.
    fn is_devices(&self) -> bool {
        matches!(self.interface.owner, Owner::Device(_))
    }

    /// Processes a packet to a group: on a link without stations the kernel receives it.
    fn group(&self, packet: &mut Packet, output: &OutputContext) -> Result<(), DropReason> {
        if self.is_devices() {
            output.pass_up(packet, self.interface)
        } else {
            Err(DropReason::GroupNotRouted)
        }
    }

    /// Processes a packet to a link-local address.
    fn on_link(
        &self,
        packet: &mut Packet,
        address: IpAddr,
        output: &mut OutputContext,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if !self.interface.has(address) {
            return Err(DropReason::LinkLocal);
        }
        trim(packet, context.pool);
        output.take(packet, self.interface, self.routers, self.host_interfaces, context)
    }

    fn hear(
        &self,
        packet: &mut Packet,
        output: &mut OutputContext,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        if self.interface.owner != Owner::Polder {
            return output.pass_up(packet, self.interface);
        }
        let bytes = packet.bytes().get(usize::from(packet.network_offset)..).unwrap_or_default();
        let arp = Arp::parse(bytes)?;
        output.hear(packet, &arp_word(&arp, self.interface)?, self.interface, self.host_interfaces, context)
    }
}

fn arp_word(arp: &Arp<'_>, interface: &Interface) -> Result<discover::Word, DropReason> {
    discover::read_arp(arp, interface).ok_or(DropReason::NoListener)
}
