//! Fast path of the routing stage: plain untagged packets that were received on one interface.
//!
//! Each packet is located in the batch once: pointers to the bytes that are written later are kept from the
//! header check on. Results of the loops are passed on, so that later loops need no second check.

use super::check::{is_plain_v4, is_plain_v6};
use super::local::HostInterfaces;
use super::lookups::{Lookups, Plan};
use super::onward::{Actions, LookupContext, Sent, Spot, Spots, finish, send, suspects};
use super::send::{ETHERNET, PLAIN_V4, PLAIN_V6, WORD_V4, WORD_V6, plan_v4, plan_v6};
use super::state::{Lane, RouteState};
use super::{FibReader, Interface, NextHopTable, Owner, Routers};
use crate::drops::Context;
use crate::sequence::is_marked;
use crate::wire::EtherType;
use polder_buffers::snapshot::Reader;
use polder_buffers::{BATCH, Batch, ChecksumState, NO_PORT, Packet};

/// MAC address of an interface, in the form that is compared with a frame's first eight bytes.
#[derive(Clone, Copy)]
pub(super) struct Station(u64);

impl Station {
    /// Matches no frame: compared values have zero in the low bits.
    const NONE: Self = Self(1);

    #[inline(always)]
    pub(super) const fn of(interface: &Interface) -> Self {
        if let Owner::Kernel { decides: true, .. } = interface.owner {
            return Self::NONE;
        }
        let [a, b, c, d, e, f] = interface.mac.0;
        Self(u64::from_le_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// True if a frame has this destination and EtherType.
    #[inline(always)]
    fn is_met(self, frame: &[u8; PLAIN_V4], kind: EtherType) -> bool {
        let first = u64::from_le_bytes(*frame.first_chunk().expect("a frame begins with two addresses"));
        first << 16 == self.0 && [frame[12], frame[13]] == kind.0.to_be_bytes()
    }
}

/// Destination and header rewrite of an untagged IPv4 packet for `station`; `None` if it needs the slow path.
/// `room` is the number of bytes after the link header.
#[inline(always)]
pub(super) fn look_v4(bytes: &[u8], room: usize, station: Station) -> Option<([u8; 4], Plan)> {
    let frame = bytes.first_chunk::<PLAIN_V4>().filter(|frame| station.is_met(frame, EtherType::IPV4))?;
    let header = frame.last_chunk().expect("a frame ends with an IPv4 header");
    let destination = *header.last_chunk().expect("a header ends with the destination");
    is_plain_v4(header, room).then(|| (destination, plan_v4(header)))
}

/// Destination and header rewrite of an untagged IPv6 packet for `station`; `None` if it needs the slow path.
/// `room` is the number of bytes after the link header.
#[inline(always)]
pub(super) fn look_v6(bytes: &[u8], room: usize, station: Station) -> Option<([u8; 16], Plan)> {
    let frame = bytes.first_chunk::<PLAIN_V6>()?;
    let start = frame.first_chunk().expect("a frame begins with one that is shorter");
    if !station.is_met(start, EtherType::IPV6) {
        return None;
    }
    let header = frame.last_chunk().expect("a frame ends with an IPv6 header");
    let destination = *header.last_chunk().expect("a header ends with the destination");
    is_plain_v6(header, room).then(|| (destination, plan_v6(header)))
}

/// Bit sets of packets from the header check.
struct Glance {
    /// Packets that need the slow path.
    left: u64,
    /// Packets with link-layer padding.
    padded: u64,
}

impl RouteState {
    /// Forwards the plain packets of the batch with the first packet's ingress interface. Returns the bit set
    /// of packets that are left; and, if all were forwarded, their egress ports.
    pub(super) fn pass_plain(
        &mut self,
        batch: &mut Batch,
        routers: &Routers,
        context: &mut Context<'_>,
    ) -> (u64, Option<Sent>) {
        let first = batch.first();
        let first =
            first.and_then(|packet| Some((packet, routers.untagged_like(packet.ingress, packet.bytes())?)));
        let Some((packet, interface)) = first else { return (u64::MAX, None) };
        let is_v6 = packet.bytes().get(ETHERNET).is_some_and(|first| first >> 4 == 6);
        let Self { lanes, work, moves, waiting, output, .. } = self;
        let Some(lane) = lanes.get_mut(usize::from(interface.router.0)) else { return (u64::MAX, None) };
        let Lane { v4, v6, next_hops, notices, .. } = lane;
        let mut pass = Pass {
            interface,
            routers,
            next_hops,
            actions: Actions { output, moves, host_interfaces: HostInterfaces { waiting, notices } },
            left: u64::MAX >> (BATCH - batch.len()),
            is_whole: true,
            sent: Sent::NONE,
        };
        for is_v6 in [is_v6, !is_v6] {
            if pass.left == 0 {
                break;
            }
            if is_v6 {
                pass.run::<16, WORD_V6>((&mut work.v6, &mut work.origins), v6, batch, look_v6, context);
            } else {
                pass.run::<4, WORD_V4>((&mut work.v4, &mut work.origins), v4, batch, look_v4, context);
            }
        }
        (pass.left, (pass.is_whole && pass.left == 0).then_some(pass.sent))
    }
}

/// Context of a pass over a batch, and its result.
struct Pass<'a> {
    interface: &'a Interface,
    routers: &'a Routers,
    next_hops: &'a mut Reader<NextHopTable>,
    actions: Actions<'a>,
    /// Packets that need the slow path.
    left: u64,
    /// True if all other packets were sent.
    is_whole: bool,
    sent: Sent,
}

impl Pass<'_> {
    /// Processes the packets of one family.
    #[inline(always)]
    fn run<const N: usize, const WORD: usize>(
        &mut self,
        (lookups, origins): (&mut Lookups<N>, &mut Lookups<4>),
        reader: &mut FibReader,
        batch: &mut Batch,
        read: impl Fn(&[u8], usize, Station) -> Option<([u8; N], Plan)>,
        context: &mut Context<'_>,
    ) {
        let (mut spots, count) = ([const { None }; BATCH], batch.len());
        let Glance { left, padded } = look(lookups, batch, &mut spots, self.interface, read);
        if left.count_ones() as usize == count {
            return;
        }
        lookups.lookup_first(count, reader);
        let looks_back = N == 4 && self.interface.sources.looks_up();
        if looks_back {
            let sources = spots.iter().map(|spot| spot.as_ref().map(Spot::source).unwrap_or_default());
            origins.addresses.iter_mut().zip(sources).for_each(|(to, source)| *to = source);
            origins.lookup_first(count, reader);
        }
        // After the look-ups: a next hop is published before a route that refers to it.
        self.next_hops.refresh();
        let next_hops = self.next_hops.get();
        let origins = looks_back.then_some(&origins.found);
        let lookup =
            LookupContext { routers: self.routers, router: self.interface.router, next_hops, origins };
        let arrival = self.interface;
        let suspects = if N == 4 { suspects(&spots, |_| Some(arrival), &lookup) } else { 0 };
        let unsent = send::<N, WORD>(lookups, (&mut spots, suspects), next_hops, &mut self.sent);
        let elsewhere = u64::from((left | unsent).count_ones());
        self.actions.output.counters.forwarded.add(count as u64 - elsewhere);
        if unsent | padded != 0 {
            finish((lookups, |place| place), batch, (unsent, padded), &lookup, &mut self.actions, context);
        }
        self.left &= left;
        self.is_whole &= unsent == 0;
    }
}

/// Checks the headers of a batch and stores the addresses of plain packets.
#[inline(never)]
#[expect(
    clippy::needless_range_loop,
    reason = "zipped iterators whose count is checked hand items over in memory"
)]
fn look<'a, const N: usize>(
    lookups: &mut Lookups<N>,
    batch: &'a mut Batch,
    spots: &mut Spots<'a>,
    interface: &Interface,
    read: impl Fn(&[u8], usize, Station) -> Option<([u8; N], Plan)>,
) -> Glance {
    let (port, station) = (interface.id.port, Station::of(interface));
    let (mut left, mut padded, mut packets) = (0, 0, batch.iter_mut());
    for position in 0..BATCH {
        let Some(packet) = packets.next() else { break };
        // Packets of the other family have an egress by now; packets that need other work are left.
        let is_meant = packet.ingress == port && packet.egress == NO_PORT && is_ready(packet);
        let room = packet.len().wrapping_sub(ETHERNET);
        let (bytes, egress) = packet.bytes_and_egress();
        let seen = if is_meant { read(bytes, room, station) } else { None };
        let Some(((address, plan), frame)) = seen.zip(bytes.first_chunk_mut()) else {
            left |= 1 << position;
            // It is looked up too; skipping it would cost more.
            lookups.addresses[position] = [0; N];
            continue;
        };
        if room != plan.total as usize {
            padded |= 1 << position;
        }
        spots[position] = Some(Spot { frame, egress });
        lookups.addresses[position] = address;
        lookups.plans[position] = plan;
    }
    Glance { left, padded }
}

/// True if a packet can be sent without further work.
#[inline(always)]
fn is_ready(packet: &Packet) -> bool {
    !is_marked(packet) && packet.checksum != ChecksumState::Partial
}
