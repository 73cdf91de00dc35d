//! Packets without Ethernet inside: what differs from frames.
//!
//! Inside the gateway they have an Ethernet header, whose addresses are those of the tunnel's [`Stations`]: every
//! stage between device and device reads packets of one kind. It is written over the last bytes of the outer
//! headers when these have been read, and taken off before others are written.

use super::decapsulate::Lane;
use super::inner::Inner;
use super::keepalive::{self, Payload};
use super::options::{Carries, Stations};
use super::outer::{Opened, Refused};
use super::{ETHERNET_BYTES, lane};
use crate::drops::{Context, DropReason};
use crate::offload::complete_checksum;
use crate::parse::{HeaderSummary, Network};
use crate::wire::{Ecn, EtherType, Gre};
use polder_buffers::Packet;

/// Bytes of an Ethernet header.
const ETHERNET: usize = ETHERNET_BYTES as usize;
/// Offset of the protocol type in a GRE header.
const PROTOCOL: usize = 2;

/// Verdict on a packet whose protocol type is not that of frames. Its GRE header is from `start` on, and
/// comes by value: what is lent would have to be in memory for frames, too.
#[inline(never)]
pub(super) fn accept(
    packet: &Packet,
    (start, end): (usize, usize),
    (gre, ecn): (Gre<'_>, Ecn),
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
    // The outer IP header alone is longer than an Ethernet header.
    match u16::try_from(start + gre.header_bytes() - ETHERNET) {
        Ok(strip) => {
            lane.bare = Some((Opened { strip, end, ecn, sequence }, payload));
            Refused::Bare
        }
        Err(_) => Refused::Drop(DropReason::GreTruncated),
    }
}

impl Lane<'_> {
    /// Takes the outer headers off a packet, and puts an Ethernet header in their place.
    #[inline(never)]
    pub(super) fn open_bare(
        &mut self,
        packet: &mut Packet,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let Carries::Packets(Stations { near, far }) = self.tunnel.options().carries else {
            return Err(DropReason::TunnelBadProtocol);
        };
        let (opened, payload) = self.bare.take().ok_or(DropReason::TunnelBadProtocol)?;
        let protocol = match payload {
            Payload::Packet(protocol) => protocol,
            Payload::Keepalive(length) => {
                return keepalive::send_back(self, packet, (&opened, length), context);
            }
            Payload::Answer => {
                keepalive::take(self, packet, context);
                return Ok(());
            }
        };
        let rest = packet.bytes_mut().get_mut(usize::from(opened.strip)..);
        let room =
            rest.and_then(|rest| rest.first_chunk_mut::<ETHERNET>()).ok_or(DropReason::GreTruncated)?;
        room[..6].copy_from_slice(&near.0);
        room[6..12].copy_from_slice(&far.0);
        room[12..].copy_from_slice(&protocol.0.to_be_bytes());
        self.open(packet, opened, context)?;
        self.bytes -= u64::from(ETHERNET_BYTES);
        Ok(())
    }
}

impl lane::Lane<'_> {
    /// Verdict on a packet for a tunnel without Ethernet.
    #[inline(never)]
    pub(super) fn decide_bare(&self, packet: &Packet, headers: HeaderSummary) -> lane::TunnelVerdict {
        if headers.network() == Network::Other || headers.network_offset() != ETHERNET {
            return lane::TunnelVerdict::NotIp;
        }
        if self.is_known && packet.len() <= self.fits_bare {
            return lane::TunnelVerdict::SendBare { split: false };
        }
        match self.measure(packet, headers) {
            lane::TunnelVerdict::Send => lane::TunnelVerdict::SendBare { split: false },
            lane::TunnelVerdict::Split => lane::TunnelVerdict::SendBare { split: true },
            other @ (lane::TunnelVerdict::TooBig(_)
            | lane::TunnelVerdict::NoNeighbour
            | lane::TunnelVerdict::Recursion
            | lane::TunnelVerdict::NotIp
            | lane::TunnelVerdict::SendBare { .. }) => other,
        }
    }

    /// Writes the outer headers in the place of the Ethernet header; with `split`, it is then cut.
    #[inline(never)]
    pub(super) fn send_bare(
        &mut self,
        packet: &mut Packet,
        inner: Inner,
        split: bool,
        context: &mut Context<'_>,
    ) {
        if split && complete_checksum(packet).is_err() {
            return context.discard(packet, DropReason::DeviceError);
        }
        self.send_as::<true>(packet, inner, context);
    }
}

/// Takes the Ethernet header off.
#[inline(always)]
pub(super) fn uncover(packet: &mut Packet) -> bool {
    packet.checksum_start = packet.checksum_start.wrapping_sub(ETHERNET_BYTES);
    packet.trim_front(ETHERNET_BYTES).is_ok()
}

/// Writes the protocol of the payload into the GRE header at `gre`.
#[inline(always)]
pub(super) fn put_protocol(packet: &mut Packet, gre: usize, network: Network) {
    let protocol = if network == Network::Ipv6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let rest = packet.bytes_mut().get_mut(gre + PROTOCOL..);
    if let Some(field) = rest.and_then(|rest| rest.first_chunk_mut()) {
        *field = protocol.0.to_be_bytes();
    }
}
