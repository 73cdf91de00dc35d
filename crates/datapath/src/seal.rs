//! Fills in what has to be in order: GRE sequence numbers (RFC 2890) and IPv4 identifications
//! (RFC 6864).
//!
//! In: outer packets that `encapsulate` has marked; all others pass untouched. Out: packets as they
//! go onto the wire. Exits: `PortDown`, when a reload has taken the tunnel away in between.
//!
//! Numbers are drawn once for all packets of a tunnel in a batch, so workers that share a tunnel meet
//! once a batch. The order on the wire is that of the batches on their way to the device: a tunnel
//! with sequence numbers should leave by one transmit queue.
//!
//! Cost: a test a packet where nothing is marked; else two passes and an incremental checksum.

use crate::drops::{Context, DropReason, is_dropped};
use crate::tunnel::{SEAL_IDENTIFICATION, SEAL_SEQUENCE, Tunnel, Tunnels};
use crate::wire::checksum::update_u32;
use crate::wire::{Gre, Ipv4Mut};
use polder_buffers::{BATCH, Batch, Packet, PortId};

const MARKED: u8 = SEAL_SEQUENCE | SEAL_IDENTIFICATION;

/// What one worker keeps between batches: nothing but room.
#[derive(Debug)]
pub struct SealState {
    draws: Vec<Draw>,
}

impl SealState {
    /// Room for the tunnels of a batch.
    pub fn new() -> Self {
        Self { draws: Vec::with_capacity(BATCH) }
    }
}

impl Default for SealState {
    fn default() -> Self {
        Self::new()
    }
}

/// The numbers of one tunnel's packets in a batch: first how many, then which is next.
#[derive(Clone, Copy, Debug)]
struct Draw {
    tunnel: PortId,
    sequence: u32,
    identification: u16,
}

/// Fills in the numbers of all marked packets.
pub fn seal(batch: &mut Batch, tunnels: &Tunnels, state: &mut SealState, context: &Context<'_>) {
    if batch.iter().all(|packet| packet.flags & MARKED == 0) {
        return;
    }
    state.draws.clear();
    for packet in batch.iter_mut().filter(|packet| is_marked(packet)) {
        if tunnels.get(packet.ingress).is_none() {
            context.discard(packet, DropReason::PortDown);
            continue;
        }
        let draw = draw_of(&mut state.draws, packet.ingress);
        draw.sequence += u32::from(packet.flags & SEAL_SEQUENCE != 0);
        draw.identification += u16::from(packet.flags & SEAL_IDENTIFICATION != 0);
    }
    for draw in &mut state.draws {
        if let Some(tunnel) = tunnels.get(draw.tunnel) {
            draw.start(tunnel);
        }
    }
    for packet in batch.iter_mut().filter(|packet| is_marked(packet)) {
        let draw = draw_of(&mut state.draws, packet.ingress);
        if packet.flags & SEAL_SEQUENCE != 0 {
            put_sequence(packet, draw.sequence);
            draw.sequence = draw.sequence.wrapping_add(1);
        }
        if packet.flags & SEAL_IDENTIFICATION != 0 {
            put_identification(packet, draw.identification);
            draw.identification = draw.identification.wrapping_add(1);
        }
        packet.flags &= !MARKED;
    }
}

impl Draw {
    /// Draws as many numbers as were counted.
    fn start(&mut self, tunnel: &Tunnel) {
        if self.sequence > 0 {
            self.sequence = tunnel.state().sequence.draw(self.sequence);
        }
        if self.identification > 0 {
            self.identification = tunnel.draw_identification(self.identification);
        }
    }
}

#[inline]
fn is_marked(packet: &Packet) -> bool {
    packet.flags & MARKED != 0 && !is_dropped(packet)
}

/// The entry of a tunnel; most batches have one.
#[inline]
fn draw_of(draws: &mut Vec<Draw>, tunnel: PortId) -> &mut Draw {
    let position = draws.iter().position(|draw| draw.tunnel == tunnel).unwrap_or_else(|| {
        draws.push(Draw { tunnel, sequence: 0, identification: 0 });
        draws.len() - 1
    });
    &mut draws[position]
}

/// Writes the sequence number, which is zero so far, and corrects the checksum, if there is one.
///
/// The header tells where, not the configuration: that may have changed in between.
#[inline]
fn put_sequence(packet: &mut Packet, sequence: u32) {
    let at = usize::from(packet.transport_offset);
    let Some(bytes) = packet.bytes_mut().get_mut(at..) else { return };
    let Ok(gre) = Gre::parse(bytes) else { return };
    let (checksum, length, numbered) = (gre.checksum(), gre.header_bytes(), gre.sequence().is_some());
    let Some(header) = bytes.get_mut(..length).filter(|_| numbered) else { return };
    if let Some(field) = header.last_chunk_mut() {
        *field = sequence.to_be_bytes();
    }
    if let Some(old) = checksum
        && let Some(field) = header.get_mut(Gre::HEADER_BYTES..).and_then(|bytes| bytes.first_chunk_mut())
    {
        *field = update_u32(old, 0, sequence).to_be_bytes();
    }
}

/// Writes the identification and corrects the header's checksum.
#[inline]
fn put_identification(packet: &mut Packet, identification: u16) {
    let (at, length) = (usize::from(packet.network_offset), packet.len());
    let Some(bytes) = packet.bytes_mut().get_mut(at..) else { return };
    if let Ok(mut header) = Ipv4Mut::parse_head(bytes, length - at) {
        header.set_identification(identification);
    }
}
