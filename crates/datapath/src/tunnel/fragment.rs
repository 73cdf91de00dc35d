//! Cuts an outer packet into IPv4 fragments (RFC 791), where the tunnel's configuration allows it.
//!
//! The first fragment keeps the frame. What lies behind it is copied into new frames, one copy of
//! each byte for each fragment before it; whole frames of a chain are moved. That is why tunnels do
//! not fragment by default (RFC 4459, 3.1).

use super::{IPV4_BYTES, Tunnel, TunnelCounters};
use crate::drops::{Context, DropReason};
use crate::wire::{Ipv4, Ipv4Header};
use polder_buffers::{NoRoom, Packet};

/// The longest headers that each fragment starts with: Ethernet, one tag, IPv4.
const LONGEST: usize = 38;

/// Puts the fragments of an outer packet at the end of `expanded`.
///
/// When memory runs out, all of them are dropped: a datagram with a hole is of no use.
pub(super) fn split(
    packet: Packet,
    tunnel: &Tunnel,
    counters: &TunnelCounters,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    let start = expanded.len();
    let result = cut(packet, tunnel, expanded, context);
    let fragments = &mut expanded[start..];
    let count = fragments.len() as u64;
    context.ledger.split.add(count.saturating_sub(1));
    if let Err(reason) = result {
        fragments.iter_mut().for_each(|fragment| context.discard(fragment, reason));
        return;
    }
    counters.fragmented.add(1);
    counters.fragments.add(count);
}

fn cut(
    mut packet: Packet,
    tunnel: &Tunnel,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    let room = (tunnel.path_mtu() - IPV4_BYTES) & !7;
    let headers = packet.network_offset + IPV4_BYTES;
    let mut offset = 0;
    loop {
        let more = packet.len() > usize::from(headers) + usize::from(room);
        let rest = if more { Some(take_rest(&mut packet, headers, room, context)) } else { None };
        let result = finish(&mut packet, Part { offset, more });
        expanded.push(packet);
        result?;
        let Some(rest) = rest else { return Ok(()) };
        packet = rest.map_err(|_| DropReason::NoBuffer)?;
        offset += room;
    }
}

/// Cuts the packet behind `room` bytes of payload; the rest gets the same headers.
fn take_rest(
    packet: &mut Packet,
    headers: u16,
    room: u16,
    context: &mut Context<'_>,
) -> Result<Packet, NoRoom> {
    let mut copy = [0; LONGEST];
    let copy = copy.get_mut(..usize::from(headers)).ok_or(NoRoom::Front)?;
    copy.copy_from_slice(packet.bytes().get(..usize::from(headers)).ok_or(NoRoom::Short)?);
    let mut rest = packet.split_off(usize::from(headers) + usize::from(room), context.pool)?;
    rest.transport_offset = 0;
    rest.flags = 0;
    if rest.headroom() < headers {
        rest = in_front_of(rest, context)?;
    }
    rest.prepend(headers)?.copy_from_slice(copy);
    Ok(rest)
}

/// The same bytes behind a new frame, which is empty: what was cut off a full frame of a chain fills
/// the frame that it was copied into.
#[cold]
fn in_front_of(rest: Packet, context: &mut Context<'_>) -> Result<Packet, NoRoom> {
    let Some(frame) = context.pool.take() else {
        // The bytes behind the cut are lost, so the caller gives up the whole datagram.
        context.pool.release_packet(rest);
        return Err(NoRoom::Back);
    };
    let mut packet = Packet::new(frame);
    packet.take_metadata_of(&rest);
    packet.join(rest);
    Ok(packet)
}

/// A fragment's place in its datagram.
#[derive(Clone, Copy)]
struct Part {
    offset: u16,
    more: bool,
}

/// Rewrites the IPv4 header for the part.
fn finish(packet: &mut Packet, part: Part) -> Result<(), DropReason> {
    let network = usize::from(packet.network_offset);
    let length = packet.len() - network;
    let bytes = packet.bytes_mut().get_mut(network..).ok_or(DropReason::NoHeadroom)?;
    let view = Ipv4::parse_head(bytes, usize::MAX).map_err(|_| DropReason::NoHeadroom)?;
    let header = Ipv4Header {
        traffic_class: view.traffic_class(),
        total_length: u16::try_from(length).map_err(|_| DropReason::TunnelTooBig)?,
        // That of the whole.
        identification: view.identification(),
        dont_fragment: false,
        more_fragments: part.more,
        fragment_offset: part.offset,
        time_to_live: view.time_to_live(),
        protocol: view.protocol(),
        source: view.source(),
        destination: view.destination(),
    };
    header.emit(bytes).map(|_| ()).map_err(|_| DropReason::NoHeadroom)
}
