//! One packet after the other into the same tunnel.

mod label;
mod measure;
mod uncut;

use super::encapsulate::gather;
use super::inner::{Inner, clamp_mss};
use super::recursion::{has_port, is_recursive};
use super::template::{Fields, Template};
use super::{ETHERNET_BYTES, Encapsulation, Tunnel, TunnelCounters, TunnelOptions, Tunnels, bare, vxlan};
use crate::drops::{Context, DropReason};
use crate::flags::NEEDS_SEQUENCE;
use crate::headroom;
use crate::parse::HeaderSummary;
use crate::wire::IpProtocol;
use polder_buffers::{Packet, PortId, SegmentationKind};
use uncut::{put_checksum, segments};

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
    tunnel: &'a Tunnel,
    pub(super) counters: &'a TunnelCounters,
    template: Template,
    pub(super) is_known: bool,
    /// Frames up to this length fit in one piece, whatever tags they have; none does while the next hop
    /// is not known, nor where no frames are carried.
    fits: usize,
    /// The same of packets in a tunnel without Ethernet, with the header that they have here.
    pub(super) fits_bare: usize,
    is_bare: bool,
    flags: u8,
    /// Worker that draws their identifications, if outer packets have any.
    numbered: Option<usize>,
    is_v6: bool,
    /// True if the outer headers are UDP, whose source port is that of the flow inside.
    is_udp: bool,
    completion: Completion,
    /// Protocol other than GRE that may be a tunnel: UDP, where there are tunnels over it.
    suspect: IpProtocol,
    /// UDP destination port of tunnels, and true if there are others.
    suspect_port: u16,
    has_more_ports: bool,
    packets: u64,
    bytes: u64,
}

impl<'a> Lane<'a> {
    pub(super) fn new(tunnel: &'a Tunnel, tunnels: &Tunnels, worker: usize) -> Self {
        let options = tunnel.options();
        let next_hop = tunnel.state().next_hop.address();
        let fits = tunnel.carried_frame().min(tunnel.mtu().saturating_add(ETHERNET_BYTES));
        let is_bare = options.is_bare();
        let (suspect_port, other_ports) = tunnels.ports();
        Self {
            port: options.port,
            tunnel,
            counters: tunnel.state().worker(worker),
            template: next_hop.map_or(tunnel.template, |next_hop| tunnel.template.addressed(next_hop)),
            is_known: next_hop.is_some(),
            fits: if next_hop.is_some() && !is_bare { usize::from(fits) } else { 0 },
            fits_bare: usize::from(fits),
            is_bare,
            flags: if options.sequence { NEEDS_SEQUENCE } else { 0 },
            // RFC 6864, 4: only what may be fragmented needs one. In IPv6, only what is.
            numbered: (!options.dont_fragment && !options.ends.is_v6()).then_some(worker),
            is_v6: options.ends.is_v6(),
            is_udp: options.encapsulation != Encapsulation::Gre,
            completion: Completion::of(options),
            suspect: if tunnels.takes_udp() { IpProtocol::UDP } else { IpProtocol::GRE },
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
        Inner::of(packet, self.is_udp)
    }

    #[inline(always)]
    pub(super) fn decide(&self, packet: &Packet, inner: Inner, tunnels: &Tunnels) -> TunnelVerdict {
        let headers = inner.headers;
        let may_be_tunnelled = match inner.flow.is_known() {
            true => inner.flow.destination_port() == self.suspect_port || self.has_more_ports,
            false => headers.protocol() == IpProtocol::GRE || headers.protocol() == self.suspect,
        };
        if may_be_tunnelled && is_tunnelled(packet, headers, tunnels) {
            return TunnelVerdict::Recursion;
        }
        if packet.len() <= self.fits {
            TunnelVerdict::Send
        } else if self.is_bare {
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
        clamp_mss(packet, inner.headers, self.tunnel, self.counters);
        let count = if packet.segmentation.kind == SegmentationKind::None { 1 } else { segments(packet) };
        let identification =
            self.numbered.map_or(0, |worker| self.tunnel.draw_identifications(worker, count));
        let mut fields = self.template.fields((inner.class, inner.ttl), identification);
        let mut hash = 0;
        if inner.flow.is_known() {
            hash = inner.flow.hash();
            fields.set_source_port(vxlan::source_port(hash));
        } else if self.is_udp {
            hash = flow_hash(packet, self.tunnel);
            fields.set_source_port(vxlan::source_port(hash));
        }
        if self.is_v6 {
            let Some(label) = self.label(packet, inner.headers, hash) else {
                self.counters.recursion.add(1);
                context.discard(packet, DropReason::TunnelTooDeep);
                return;
            };
            fields.label = label;
        }
        let template = &self.template;
        if BARE && !bare::uncover(packet) {
            context.discard(packet, DropReason::NoHeadroom);
            return;
        }
        let bytes = packet.len() as u64;
        let mut is_written = template.write(packet, fields).is_ok();
        if !is_written {
            is_written = write_again(template, packet, fields, context);
        }
        if !is_written {
            context.discard(packet, DropReason::NoHeadroom);
            return;
        }
        if BARE {
            bare::put_protocol(packet, usize::from(template.transport()), inner.headers.network());
        }
        packet.network_offset = template.link();
        packet.transport_offset = template.transport();
        packet.checksum_start = packet.checksum_start.wrapping_add(template.len());
        if packet.segmentation.kind != SegmentationKind::None {
            self.describe(packet, inner.headers, count);
        }
        match self.completion {
            Completion::None => {}
            Completion::GreChecksum => put_checksum(packet),
            Completion::UdpChecksum => vxlan::put_checksum(packet, self.tunnel.options()),
        }
        self.packets += 1;
        self.bytes += bytes;
        packet.vlan = 0;
        packet.flags = self.flags;
        packet.ingress = self.port;
        packet.egress = self.tunnel.underlay().port;
    }
}

/// True if a packet is, or carries, an outer packet of one of our tunnels.
#[inline(never)]
fn is_tunnelled(packet: &Packet, headers: HeaderSummary, tunnels: &Tunnels) -> bool {
    let bytes = packet.bytes();
    let is_other_udp = headers.protocol() == IpProtocol::UDP && !has_port(bytes, headers, tunnels);
    !is_other_udp && is_recursive(bytes, tunnels)
}

/// Checksum behind the outer IP header, which is filled in once the packet is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completion {
    None,
    GreChecksum,
    UdpChecksum,
}

impl Completion {
    fn of(options: &TunnelOptions) -> Self {
        match options.encapsulation {
            Encapsulation::Gre if options.checksum => Self::GreChecksum,
            Encapsulation::Vxlan(_) if options.checksum => Self::UdpChecksum,
            Encapsulation::Gre | Encapsulation::Vxlan(_) => Self::None,
        }
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
fn write_again(template: &Template, packet: &mut Packet, fields: Fields, context: &mut Context<'_>) -> bool {
    headroom::make(packet, context.pool) && template.write(packet, fields).is_ok()
}

/// Hash of the flow inside, wherever its headers are.
#[inline(never)]
fn flow_hash(packet: &Packet, tunnel: &Tunnel) -> u32 {
    tunnel.labels.flow(packet, false).hash
}
