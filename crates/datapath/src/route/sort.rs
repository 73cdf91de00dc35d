//! The first loop: headers are looked at, and destinations collected.

use super::check::{Destination, check_v4, check_v6};
use super::local::{HostInterfaces, OutputContext};
use super::onward::trim;
use super::plain::{Station, look_v4, look_v6};
use super::send::ETHERNET;
use super::stage::RouteState;
use super::{FibReader, Interface, NextHopId, Owner, RouterId, Routers, discover, options};
use crate::drops::{Context, DropReason, is_dropped};
use crate::wire::{Arp, EtherType, Link, VlanId};
use polder_buffers::{BATCH, Batch, NO_PORT, Packet, PortId};
use std::net::IpAddr;

/// Bytes of a packet that are looked at: link header, extension headers, a message of neighbour discovery.
const LOOKED_AT: usize = 256;

/// The packets of a batch that routes are looked up for.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) v4: Lookups<4>,
    pub(super) v6: Lookups<16>,
    /// The sources of the packets of `v4`, by place, where these are looked up.
    pub(super) origins: Lookups<4>,
}

#[derive(Debug)]
pub(super) struct Lookups<const N: usize> {
    pub(super) count: usize,
    pub(super) positions: [u8; BATCH],
    pub(super) addresses: [[u8; N]; BATCH],
    pub(super) found: [NextHopId; BATCH],
    pub(super) plans: [Plan; BATCH],
}

/// Result of the header check, before the look-up: the rewritten header word, and the length of the
/// packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The four bytes with the time to live, one less, and the adjusted checksum.
    pub(super) word: [u8; 4],
    /// Bytes of the IP packet; more than fits anywhere if it was looked at closely.
    pub(super) total: u32,
}

impl Plan {
    /// Of a packet that the short path is not for.
    const CLOSELY: Self = Self { word: [0; 4], total: u32::MAX };
}

impl<const N: usize> Lookups<N> {
    pub(super) const fn new() -> Self {
        let (positions, addresses, found) = ([0; BATCH], [[0; N]; BATCH], [NextHopId::NONE; BATCH]);
        Self { count: 0, positions, addresses, found, plans: [Plan::CLOSELY; BATCH] }
    }

    /// Notes a packet as the one after `count` others; returns how many these are.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "positions in a batch are below 64")]
    fn put_at(&mut self, count: usize, position: usize, address: [u8; N], plan: Plan) -> usize {
        let at = count % BATCH;
        (self.positions[at], self.addresses[at], self.plans[at]) = (position as u8, address, plan);
        count + 1
    }

    fn put(&mut self, position: usize, address: [u8; N]) {
        self.count = self.put_at(self.count, position, address, Plan::CLOSELY);
    }

    /// Looks the first `count` addresses up, which are there already.
    #[inline]
    pub(super) fn lookup_first(&mut self, count: usize, reader: &mut FibReader) {
        reader.view().lookup_batch(&self.addresses, &mut self.found, count);
    }

    #[inline]
    pub(super) fn lookup(&mut self, reader: &mut FibReader) {
        if self.count > 0 {
            self.lookup_first(self.count, reader);
        }
    }
}

/// The port by which the last packet came.
#[derive(Clone, Copy)]
struct Arrival<'a> {
    port: PortId,
    has_interfaces: bool,
    untagged: Option<&'a Interface>,
}

impl RouteState {
    /// Looks at the headers of those of `meant` that belong to one router, the first one's; returns it, and
    /// which are left for another.
    #[inline(never)]
    pub(super) fn sort(
        &mut self,
        batch: &mut Batch,
        meant: u64,
        routers: &Routers,
        context: &mut Context<'_>,
    ) -> (Option<RouterId>, u64) {
        let (mut router, mut others) = (None, 0);
        let mut arrival = Arrival { port: NO_PORT, has_interfaces: false, untagged: None };
        for (position, packet) in batch.iter_mut().enumerate() {
            if packet.ingress != arrival.port {
                let port = packet.ingress;
                arrival =
                    Arrival { port, has_interfaces: routers.has(port), untagged: routers.untagged(port) };
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
            let interface = match find(packet, routers) {
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

    /// Looks at a packet that is not plain, or the first one of its router.
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
    /// Looks up the routes to the sources of `v4`.
    pub(super) fn look_back(&mut self, batch: &Batch, reader: &mut FibReader) {
        let Self { v4, origins, .. } = self;
        for (source, &position) in origins.addresses.iter_mut().zip(&v4.positions).take(v4.count) {
            let packet = batch.get(usize::from(position));
            let field =
                packet.and_then(|packet| packet.bytes().get(usize::from(packet.network_offset) + 12..));
            *source = field.and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        }
        origins.lookup_first(v4.count, reader);
    }

    /// Notes a packet whose header needs no second look; whether that is so.
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

/// The interface by which a packet came.
fn find<'a>(packet: &Packet, routers: &'a Routers) -> Result<&'a Interface, DropReason> {
    let link = Link::parse(packet.bytes())?;
    let vlan = match (link.tag, link.inner_tag) {
        (None, _) => VlanId::PRIORITY,
        (Some(tag), None) => tag.id().ok_or(DropReason::NoInterface)?,
        (Some(_), Some(_)) => return Err(DropReason::NoInterface),
    };
    let station = link.ethernet.destination();
    routers.arrival(packet.ingress, vlan, station).ok_or(DropReason::NoInterface)
}

/// The same for a packet that was found before.
pub(super) fn arrival<'a>(packet: &Packet, routers: &'a Routers) -> Option<&'a Interface> {
    find(packet, routers).ok()
}

/// A closer look at a packet that came in by an interface.
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
        // What a short first frame does not hold is found missing below.
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
        let length = packet.len() - offset;
        let bytes = packet.bytes().get(offset..).unwrap_or_default();
        match kind {
            EtherType::ARP => return self.hear(packet, output, context),
            EtherType::IPV4 => match check_v4(bytes, length)? {
                Destination::To(_) if destination.is_multicast() => return Err(DropReason::GroupNotRouted),
                Destination::To(address) => work.v4.put(position, address.octets()),
                Destination::Group => return Err(DropReason::GroupNotRouted),
                Destination::OnLink(address) => return self.on_link(packet, address.into(), output, context),
            },
            EtherType::IPV6 => match check_v6(bytes, length)? {
                Destination::To(_) if destination.is_multicast() => return Err(DropReason::GroupNotRouted),
                Destination::To(address) => {
                    self.look_at_options(packet, (offset, length), output, context)?;
                    work.v6.put(position, address.octets());
                }
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

    /// Checks hop-by-hop options, and sends a message about errors in them.
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

    /// To an address that is valid on the link alone.
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
