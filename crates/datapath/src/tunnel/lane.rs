//! One packet after the other into the same tunnel.

mod label;
mod measure;
mod options;
mod uncut;

pub(super) use options::{Completion, LaneOptions};

use super::encapsulate::gather;
use super::inner::{Inner, clamp_mss};
use super::recursion::is_tunnelled;
use super::template::{Fields, Start, Template};
use super::{ETHERNET_BYTES, Tunnel, TunnelCounters, Tunnels, bare, gre, vxlan};
use crate::drops::{Context, DropReason};
use crate::headroom;
use crate::wire::MacAddress;
use label::flow_hash;
use polder_buffers::{Packet, PortId, SegmentationKind};

/// Verdict on a packet.
pub(super) enum TunnelVerdict {
    /// Into the tunnel in one piece.
    Send,
    /// Into the tunnel, then into fragments.
    Split,
    /// Larger than this limit, in bytes, Ethernet header and tags excluded.
    TooBig(u16),
    /// Nowhere: the next hop is not known.
    NoNeighbour,
    /// Nowhere: it is an outer packet already.
    Recursion,
    /// Nowhere: a tunnel without Ethernet carries IP alone.
    NotIp,
    /// Into a tunnel without Ethernet, in one piece or then into fragments.
    SendBare {
        /// True if into fragments.
        split: bool,
    },
}

/// A run of packets for one tunnel; its counters are written when it ends.
pub(super) struct Lane<'a> {
    pub(super) port: PortId,
    pub(super) tunnel: &'a Tunnel,
    pub(super) counters: &'a TunnelCounters,
    /// Number of the worker, which draws identifications.
    worker: usize,
    /// First bytes of the outer headers; without a meaning while the next hop is not known.
    start: Start,
    pub(super) is_known: bool,
    /// Frames up to this length fit in one piece, whatever tags they have; none does while the next hop
    /// is not known, nor where no frames are carried.
    fits: usize,
    /// The same of packets in a tunnel without Ethernet, with the header that they have here.
    pub(super) fits_bare: usize,
    /// Protocols of packets that may be in a tunnel already: [`Tunnels::suspects`].
    suspects: u64,
    /// UDP destination port of tunnels, and true if there are others.
    suspect_port: u16,
    has_more_ports: bool,
    packets: u64,
    bytes: u64,
}

impl<'a> Lane<'a> {
    pub(super) fn new(tunnel: &'a Tunnel, tunnels: &Tunnels, worker: usize) -> Self {
        let state = tunnel.state();
        let next_hop = state.next_hop.address();
        let fits = usize::from(match state.next_hop.path_mtu() {
            None => tunnel.lane.fits,
            Some(_) => tunnel.carried_frame().min(tunnel.mtu().saturating_add(ETHERNET_BYTES)),
        });
        let (suspect_port, other_ports) = tunnels.ports();
        Self {
            port: tunnel.lane.port,
            tunnel,
            counters: state.worker(worker),
            worker,
            start: tunnel.template.start(next_hop.unwrap_or(MacAddress::ZERO)),
            is_known: next_hop.is_some(),
            fits: if next_hop.is_some() && !tunnel.lane.is_bare { fits } else { 0 },
            fits_bare: fits,
            suspects: tunnels.suspects(),
            suspect_port,
            has_more_ports: !other_ports.is_empty(),
            packets: 0,
            bytes: 0,
        }
    }

    /// Fields of the inner frame, whose headers are gathered in one place.
    #[inline(always)]
    pub(super) fn look(&self, packet: &mut Packet, context: &mut Context<'_>) -> Inner {
        if !packet.is_contiguous() {
            gather(packet, context);
        }
        Inner::of(packet, self.tunnel.lane.is_udp)
    }

    #[inline(always)]
    pub(super) fn decide(&self, packet: &Packet, inner: Inner, tunnels: &Tunnels) -> TunnelVerdict {
        let headers = inner.headers;
        let may_be_tunnelled = match inner.flow.is_known() {
            true => inner.flow.destination_port() == self.suspect_port || self.has_more_ports,
            // Others with the same last bits are told apart by `is_tunnelled`.
            false => self.suspects >> (headers.protocol().0 & 63) & 1 != 0,
        };
        if may_be_tunnelled && is_tunnelled(packet, headers, tunnels) {
            return TunnelVerdict::Recursion;
        }
        if packet.len() <= self.fits {
            TunnelVerdict::Send
        } else if self.tunnel.lane.is_bare {
            self.decide_bare(packet, headers)
        } else {
            self.measure(packet, headers)
        }
    }

    /// Writes the outer headers.
    #[inline(always)]
    pub(super) fn send(&mut self, packet: &mut Packet, inner: Inner, context: &mut Context<'_>) {
        self.send_as::<false>(packet, inner, context);
    }

    /// The same for a frame, or for a packet with `BARE`.
    #[inline(always)]
    pub(super) fn send_as<const BARE: bool>(
        &mut self,
        packet: &mut Packet,
        inner: Inner,
        context: &mut Context<'_>,
    ) {
        let Self { tunnel, .. } = *self;
        let (options, template) = (&tunnel.lane, &tunnel.template);
        clamp_mss(packet, inner.headers, tunnel, self.counters);
        let count = packet.wire_packets;
        let identification =
            if options.is_numbered { tunnel.draw_identifications(self.worker, count) } else { 0 };
        let mut fields = template.fields((inner.class, inner.ttl), identification);
        let mut hash = 0;
        if inner.flow.is_known() {
            hash = inner.flow.hash();
            fields.set_source_port(vxlan::source_port(hash));
        } else if options.is_udp {
            hash = flow_hash(packet, tunnel);
            fields.set_source_port(vxlan::source_port(hash));
        }
        if options.is_v6 {
            let Some(label) = self.label(packet, inner.headers, hash) else {
                self.counters.recursion.add(1);
                context.discard(packet, DropReason::TunnelTooDeep);
                return;
            };
            fields.label = label;
        }
        if BARE && !bare::uncover(packet) {
            context.discard(packet, DropReason::NoHeadroom);
            return;
        }
        let bytes = packet.len() as u64;
        let mut is_written = template.write(packet, self.start, fields).is_ok();
        if !is_written {
            is_written = write_again(template, packet, (self.start, fields), context);
        }
        if !is_written {
            context.discard(packet, DropReason::NoHeadroom);
            return;
        }
        if BARE && options.names_protocol {
            gre::put_protocol(packet, usize::from(template.transport()), inner.headers.network());
        }
        packet.network_offset = template.link();
        packet.transport_offset = template.transport();
        packet.checksum_start = packet.checksum_start.wrapping_add(template.len());
        if packet.segmentation.kind != SegmentationKind::None {
            self.describe(packet, inner.headers, count);
        }
        match options.completion {
            Completion::None => {}
            Completion::GreChecksum => gre::put_checksum(packet),
            Completion::UdpChecksum => vxlan::put_checksum(packet, tunnel.options()),
        }
        self.packets += u64::from(packet.wire_packets);
        self.bytes += bytes;
        packet.vlan = 0;
        packet.flags = options.flags;
        packet.ingress = options.port;
        packet.egress = options.underlay;
    }
}

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.counters.sent.add(self.packets);
        self.counters.sent_bytes.add(self.bytes);
    }
}

/// Makes headroom where it was missing, and writes the headers there.
#[cold]
#[inline(never)]
fn write_again(
    template: &Template,
    packet: &mut Packet,
    (start, fields): (Start, Fields),
    context: &mut Context<'_>,
) -> bool {
    headroom::make(packet, context.pool) && template.write(packet, start, fields).is_ok()
}
