//! Tunnels of packets without inner Ethernet header (*bare* packets).
//!
//! Inside the gateway, bare packets have an Ethernet header with the addresses of the tunnel's [`Stations`],
//! so that all stages process packets of one format. It is written over the last bytes of the outer headers
//! after their check, and removed before outer headers are written.

use super::decapsulate::Lane;
use super::inner::Inner;
use super::keepalive::{self, Payload};
use super::options::{Carries, Stations};
use super::{ETHERNET_BYTES, lane};
use crate::drops::{Context, DropReason};
use crate::offload::complete_checksum;
use crate::parse::{HeaderSummary, Network};
use polder_buffers::Packet;

/// Length of an Ethernet header in bytes.
const ETHERNET: usize = ETHERNET_BYTES as usize;

impl Lane<'_> {
    /// Replaces the outer headers of a packet by an Ethernet header.
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
    /// Verdict on a packet for a tunnel without inner Ethernet header.
    #[inline(never)]
    pub(super) fn decide_bare(&self, packet: &Packet, headers: HeaderSummary) -> lane::TunnelVerdict {
        if headers.network() == Network::Other || headers.network_offset() != ETHERNET {
            return lane::TunnelVerdict::NotIp;
        }
        if let Err(refused) = self.tunnel.options().admits(headers, packet.bytes()) {
            return refused;
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

    /// Replaces the Ethernet header by the outer headers; `split`: the packet is fragmented afterwards.
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

/// Removes the Ethernet header; false if the packet is too short.
#[inline(always)]
pub(super) fn uncover(packet: &mut Packet) -> bool {
    packet.checksum_start = packet.checksum_start.wrapping_sub(ETHERNET_BYTES);
    packet.trim_front(ETHERNET_BYTES).is_ok()
}
