//! Encapsulation of consecutive packets of one tunnel.

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

/// Verdict on a packet that enters a tunnel.
pub(super) enum TunnelVerdict {
    /// Encapsulate in one piece.
    Send,
    /// Encapsulate, then fragment.
    Split,
    /// Drop: longer than this limit in bytes, Ethernet header and tags excluded.
    TooBig(u16),
    /// Drop: the next hop is unresolved.
    NoNeighbour,
    /// Drop: the packet is an outer packet already.
    Recursion,
    /// Drop: a tunnel without inner Ethernet carries IP only.
    NotIp,
    /// Encapsulate without inner Ethernet header.
    SendBare {
        /// True if the packet is then fragmented.
        split: bool,
    },
}

/// A run of packets for one tunnel; dropping it updates the tunnel's counters.
pub(super) struct Lane<'a> {
    pub(super) port: PortId,
    pub(super) tunnel: &'a Tunnel,
    pub(super) counters: &'a TunnelCounters,
    /// Number of the worker, whose identifications are used.
    worker: usize,
    /// First bytes of the outer headers; meaningless while the next hop is unresolved.
    start: Start,
    pub(super) is_known: bool,
    /// Maximum length in bytes of frames that fit in one piece regardless of tags; 0 while the next hop is
    /// unresolved and in a tunnel of packets.
    fits: usize,
    /// Maximum length in bytes of bare packets that fit in one piece, gateway-internal Ethernet header
    /// included.
    pub(super) fits_bare: usize,
    /// Protocols of possible outer packets: [`Tunnels::suspects`].
    suspects: u64,
    /// UDP destination port of tunnels, and true if tunnels use further ports.
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

    /// Reads fields of the inner packet, after gathering its headers into the head frame.
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
            // `is_tunnelled` excludes protocols with the same lower six bits.
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

    /// Writes the outer headers of a frame, or of a bare packet if `BARE`.
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

/// Makes headroom, and writes the headers again.
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
