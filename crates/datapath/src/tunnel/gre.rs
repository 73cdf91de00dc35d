//! Declaration of GRE (RFC 2784, RFC 2890).
//!
//! A packet belongs to a tunnel by its addresses and its key. Checksum and sequence number are present if the
//! tunnel is configured so. The protocol type tells frames from packets, and the packets' family.

use super::decapsulate::Lane;
use super::encapsulation::{Carrier, Declaration, Expected, Header, TunnelId, TunnelLabel};
use super::keepalive::Payload;
use super::lane::Completion;
use super::options::TunnelOptions;
use super::outer::{Envelope, Opened, Refused};
use super::{ETHERNET_BYTES, Tunnels};
use crate::drops::DropReason;
use crate::offload::sum_as_completed;
use crate::parse::Network;
use crate::units::Nanos;
use crate::wire::{self, Checksum, Ecn, EtherType, GreHeader, Inside, IpProtocol, TooShort};
use polder_buffers::{OuterHeaders, Packet};

/// Time without packets after which an old sequence number is accepted: the remote endpoint has restarted.
/// RFC 2890 does not define this; without it, the tunnel would drop up to 2³¹ packets.
const RESYNCHRONISE_AFTER: Nanos = Nanos::SECOND;
/// Range of old sequence numbers: the last one and those before it (RFC 2890, 2.2).
const OLD: u32 = 0x7fff_ffff;
/// Length of the shortest header, and of each optional field, in bytes.
const FIELD_BYTES: u8 = 4;
/// Offset of the protocol type in the header, in bytes.
const PROTOCOL: usize = 2;
/// Flag: the header has a key.
const KEY: u8 = 0x20;

/// Declaration of GRE.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gre;

impl Declaration for Gre {
    fn carrier(&self) -> Carrier {
        Carrier::GRE
    }

    #[inline(always)]
    fn id(&self, options: &TunnelOptions) -> TunnelId {
        TunnelId::gre(options.key)
    }

    fn label(&self, options: &TunnelOptions) -> TunnelLabel {
        TunnelLabel::Gre(options.key)
    }

    fn header_bytes(&self, optional_fields: u8) -> u8 {
        FIELD_BYTES + FIELD_BYTES * optional_fields
    }

    fn emit<'b>(&self, options: &TunnelOptions, bytes: &'b mut [u8]) -> Result<&'b mut [u8], TooShort> {
        GreHeader {
            // A packet's own type is written per packet.
            protocol: if options.is_bare() { EtherType(0) } else { EtherType::TRANSPARENT_ETHERNET },
            checksum: options.checksum,
            key: options.key,
            sequence: options.sequence.then_some(0),
        }
        .emit(bytes)
    }

    fn completion(&self, options: &TunnelOptions) -> Completion {
        if options.checksum { Completion::GreChecksum } else { Completion::None }
    }

    fn names_protocol(&self) -> bool {
        true
    }

    fn uncut(&self, _: &TunnelOptions, inner_ip_bytes: usize) -> Option<OuterHeaders> {
        OuterHeaders::gre(inner_ip_bytes)
    }

    fn expected(&self, options: &TunnelOptions) -> Option<Expected> {
        const ALL: u8 = 0xff;
        let [high, low] = EtherType::TRANSPARENT_ETHERNET.0.to_be_bytes();
        let (first, bits) = match options.key.map(u32::to_be_bytes) {
            None => ([0, 0, high, low, 0, 0, 0, 0], [ALL, ALL, ALL, ALL, 0, 0, 0, 0]),
            Some([a, b, c, d]) => ([KEY, 0, high, low, a, b, c, d], [ALL; 8]),
        };
        Some(Expected { values: [first, [0; 8]], bits: [bits, [0; 8]] })
    }
}

/// Parses a header and the inner packet; `None` if the header is malformed.
pub(super) fn read(bytes: &[u8]) -> Option<Header<'_>> {
    let inside = Inside::of(IpProtocol::GRE, bytes)?;
    let key = wire::Gre::parse(bytes).ok()?.key();
    Some(Header { label: TunnelLabel::Gre(key), inside })
}

/// Parses the header after an outer IP header; sets `lane` to a run of the packet's tunnel.
#[inline(always)]
pub(super) fn decide<'a>(
    packet: &Packet,
    envelope: &Envelope<'_>,
    tunnels: &'a Tunnels,
    lane: &mut Option<Lane<'a>>,
    place: (usize, Nanos),
) -> Result<Opened, Refused> {
    let &Envelope { ref ends, start, end, ecn, payload } = envelope;
    let gre = wire::Gre::parse(payload)?;
    let lane = Lane::enter(lane, (ends, TunnelId::gre(gre.key())), tunnels, place)?;
    if u32::from(gre.protocol().0) != lane.protocol {
        return Err(decide_bare(packet, (start, end), (gre, ecn), lane));
    }
    let strip = start + gre.header_bytes();
    let sequence = lane.verify(packet, &gre, (start, end))?;
    if end < strip + usize::from(ETHERNET_BYTES) {
        return Err(Refused::Drop(DropReason::EthernetTruncated));
    }
    let strip = u16::try_from(strip).map_err(|_| Refused::Drop(DropReason::GreTruncated))?;
    Ok(Opened { strip, end, ecn, sequence })
}

/// Verdict on a packet whose protocol type is not that of frames; its GRE header begins at `start`. Arguments
/// are passed by value, so that the caller keeps them in registers for frames too.
#[inline(never)]
fn decide_bare(
    packet: &Packet,
    (start, end): (usize, usize),
    (gre, ecn): (wire::Gre<'_>, Ecn),
    lane: &mut Lane<'_>,
) -> Refused {
    let options = lane.tunnel.options();
    let Some(payload) = Payload::of(&gre, options).filter(|_| options.is_bare()) else {
        return Refused::Drop(DropReason::TunnelBadProtocol);
    };
    let sequence = match lane.verify(packet, &gre, (start, end)) {
        Ok(sequence) => sequence,
        Err(refused) => return refused,
    };
    // The outer IP header alone is longer than an Ethernet header, so no underflow.
    match u16::try_from(start + gre.header_bytes() - usize::from(ETHERNET_BYTES)) {
        Ok(strip) => {
            lane.bare = Some((Opened { strip, end, ecn, sequence }, payload));
            Refused::Bare
        }
        Err(_) => Refused::Drop(DropReason::GreTruncated),
    }
}

impl Lane<'_> {
    /// Checks the GRE header's checksum and sequence number; the GRE packet spans `start` to `end`.
    #[inline(always)]
    fn verify(
        &self,
        packet: &Packet,
        gre: &wire::Gre<'_>,
        (start, end): (usize, usize),
    ) -> Result<Option<u32>, Refused> {
        if gre.checksum().is_some() {
            if !sum_as_completed(Checksum::new(), packet, start, end - start).is_valid() {
                return Err(Refused::OfTunnel(DropReason::GreBadChecksum));
            }
        } else if self.tunnel.options.checksum {
            return Err(Refused::OfTunnel(DropReason::TunnelMissingChecksum));
        }
        if self.tunnel.options.sequence { self.check(gre.sequence()).map(Some) } else { Ok(None) }
    }

    /// Checks the order of sequence numbers (RFC 2890, 2.2). A gap is accepted at once: the missing packets
    /// are lost or late, and late packets are dropped.
    #[inline(always)]
    fn check(&self, sequence: Option<u32>) -> Result<u32, Refused> {
        let missing = Refused::OfTunnel(DropReason::TunnelMissingSequence);
        let sequence = sequence.ok_or(missing)?;
        let is_old = self.received.is_some_and(|received| received.wrapping_sub(sequence) <= OLD);
        if is_old && !self.was_silent() {
            return Err(Refused::OfTunnel(DropReason::TunnelOutOfSequence));
        }
        Ok(sequence)
    }

    /// True if no packet was accepted for so long that the remote endpoint may have restarted.
    #[cold]
    fn was_silent(&self) -> bool {
        let last = if self.packets > 0 { Some(self.now) } else { self.tunnel.state().last_received() };
        let silent = last.is_none_or(|last| self.now.since(last) >= RESYNCHRONISE_AFTER);
        self.counters.resynchronised.add(u64::from(silent));
        silent
    }
}

/// Writes the protocol type into the GRE header at offset `gre`.
#[inline(always)]
pub(super) fn put_protocol(packet: &mut Packet, gre: usize, network: Network) {
    let protocol = if network == Network::Ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let rest = packet.bytes_mut().get_mut(gre + PROTOCOL..);
    if let Some(field) = rest.and_then(|rest| rest.first_chunk_mut()) {
        *field = protocol.0.to_be_bytes();
    }
}

/// Writes the GRE checksum, zero so far; segments of a super-packet get theirs when they are cut.
pub(super) fn put_checksum(packet: &mut Packet) {
    if packet.segmentation.outer.is_some() {
        return;
    }
    let gre = usize::from(packet.transport_offset);
    let checksum = sum_as_completed(Checksum::new(), packet, gre, usize::MAX).finish();
    let field =
        packet.bytes_mut().get_mut(gre + wire::Gre::HEADER_BYTES..).and_then(|bytes| bytes.first_chunk_mut());
    if let Some(field) = field {
        *field = checksum.to_be_bytes();
    }
}
