//! Fragments an outer packet (RFC 791; RFC 8200, 4.5) if the tunnel's configuration allows it.
//!
//! An IPv6 packet first gets a fragment header after the destination options, as in Linux, so that every
//! fragment has the encapsulation limit. The rest is the same for both families.
//!
//! The first fragment keeps its frame. The remaining bytes are copied into new frames, once for each earlier
//! fragment; whole frames of a chain are moved. Because of this cost tunnels do not fragment by default (RFC
//! 4459, 3.1).

use super::{OPTIONS_BYTES, Tunnel, TunnelCounters, Tunnels};
use crate::drops::{Context, DropReason, is_dropped};
use crate::headroom;
use crate::wire::{IpProtocol, Ipv4, Ipv4Header, Ipv6, Ipv6Extension, Ipv6Fragment, Ipv6Mut};
use polder_buffers::{Batch, NoRoom, Packet};

/// Maximum length in bytes of the headers of a fragment: Ethernet, one tag, IPv6, options, fragment.
const LONGEST: usize = 18 + Ipv6::HEADER_BYTES + OPTIONS_BYTES as usize + Ipv6Extension::LEAST_BYTES;
const FRAGMENT_BYTES: u16 = 8;

/// Moves the batch into `expanded`; packets whose bit is set in `pieces` are fragmented.
#[cold]
pub(super) fn expand(
    batch: &mut Batch,
    pieces: u64,
    tunnels: &Tunnels,
    worker: usize,
    expanded: &mut Vec<Packet>,
    context: &mut Context<'_>,
) {
    for (position, packet) in batch.drain().enumerate() {
        match tunnels.get(packet.ingress) {
            Some(tunnel) if pieces >> position & 1 != 0 && !is_dropped(&packet) => {
                split(packet, tunnel, tunnel.state().worker(worker), expanded, context);
            }
            Some(_) | None => expanded.push(packet),
        }
    }
}

/// Appends the fragments of an outer packet to `expanded`.
///
/// If the pool is empty, all fragments are dropped: an incomplete datagram is useless.
fn split(
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
    let mut network = tunnel.options().network_bytes();
    if tunnel.options().ends.is_v6() {
        let identification = tunnel.draw_identification_v6();
        if let Err(reason) = insert(&mut packet, network, identification, context) {
            expanded.push(packet);
            return Err(reason);
        }
        network += FRAGMENT_BYTES;
    }
    let room = (tunnel.path_mtu() - network) & !7;
    let headers = packet.network_offset + network;
    let mut offset = 0;
    loop {
        let more = packet.len() > usize::from(headers) + usize::from(room);
        let rest = if more { Some(take_rest(&mut packet, headers, room, context)) } else { None };
        let result = finish(&mut packet, network, Part { offset, more });
        expanded.push(packet);
        result?;
        let Some(rest) = rest else { return Ok(()) };
        packet = rest.map_err(|_| DropReason::NoBuffer)?;
        offset += room;
    }
}

/// Splits the packet after `room` bytes of payload; the rest gets a copy of the headers.
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

/// Prepends a new, empty frame to `rest`: a rest that fills its frame has no headroom.
#[cold]
fn in_front_of(rest: Packet, context: &mut Context<'_>) -> Result<Packet, NoRoom> {
    let Some(frame) = context.pool.take() else {
        // The bytes after the split are lost, so the caller drops the whole datagram.
        context.pool.release_packet(rest);
        return Err(NoRoom::Back);
    };
    let mut packet = Packet::new(frame);
    packet.take_metadata_of(&rest);
    packet.join(rest);
    Ok(packet)
}

/// Offset of a fragment in bytes, and its "more fragments" flag.
#[derive(Clone, Copy)]
struct Part {
    offset: u16,
    more: bool,
}

/// Inserts a fragment header after `network` bytes of IPv6 and extension headers.
fn insert(
    packet: &mut Packet,
    network: u16,
    identification: u32,
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    let before = usize::from(packet.network_offset + network);
    if packet.headroom() < FRAGMENT_BYTES && !headroom::make(packet, context.pool) {
        return Err(DropReason::NoHeadroom);
    }
    packet.prepend(FRAGMENT_BYTES).map_err(|_| DropReason::NoHeadroom)?;
    packet.transport_offset += FRAGMENT_BYTES;
    let network_at = usize::from(packet.network_offset);
    let bytes = packet.bytes_mut().get_mut(..before + usize::from(FRAGMENT_BYTES));
    let bytes = bytes.ok_or(DropReason::NoHeadroom)?;
    bytes.copy_within(usize::from(FRAGMENT_BYTES).., 0);
    // Next-header field before the insertion: in the destination options, or in the IPv6 header.
    let has_options = usize::from(network) > Ipv6::HEADER_BYTES;
    let says_next = network_at + if has_options { Ipv6::HEADER_BYTES } else { NEXT_HEADER };
    let next = IpProtocol(core::mem::replace(&mut bytes[says_next], IpProtocol::FRAGMENT.0));
    let header = Ipv6Fragment { offset: 0, more: true, identification }.emit(next);
    bytes[before..].copy_from_slice(&header);
    Ok(())
}

/// Offset of the next header field in an IPv6 header.
const NEXT_HEADER: usize = 6;

/// Rewrites the IP header of a fragment; `header_bytes` includes extension headers.
fn finish(packet: &mut Packet, header_bytes: u16, part: Part) -> Result<(), DropReason> {
    let network = usize::from(packet.network_offset);
    let length = packet.len() - network;
    let bytes = packet.bytes_mut().get_mut(network..).ok_or(DropReason::NoHeadroom)?;
    if bytes.first().is_some_and(|first| first >> 4 == 6) {
        return finish_v6(bytes, usize::from(header_bytes), length, part);
    }
    let view = Ipv4::parse_head(bytes, usize::MAX).map_err(|_| DropReason::NoHeadroom)?;
    let header = Ipv4Header {
        traffic_class: view.traffic_class(),
        total_length: u16::try_from(length).map_err(|_| DropReason::TunnelTooBig)?,
        // The same identification in all fragments.
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

/// [`finish`] for IPv6, whose last extension header is the fragment header.
fn finish_v6(bytes: &mut [u8], headers: usize, length: usize, part: Part) -> Result<(), DropReason> {
    let payload_length = u16::try_from(length - Ipv6::HEADER_BYTES).map_err(|_| DropReason::TunnelTooBig)?;
    let mut view = Ipv6Mut::parse_head(bytes, usize::MAX).map_err(|_| DropReason::NoHeadroom)?;
    view.set_payload_length(payload_length);
    let at = headers - Ipv6Extension::LEAST_BYTES;
    let header = bytes.get_mut(at..headers).ok_or(DropReason::NoHeadroom)?;
    let old = Ipv6Extension::parse(IpProtocol::FRAGMENT, header, at).map_err(|_| DropReason::NoHeadroom)?;
    let Some(fragment) = old.fragment() else { return Err(DropReason::NoHeadroom) };
    let next = old.next_header;
    header.copy_from_slice(&Ipv6Fragment { offset: part.offset, more: part.more, ..fragment }.emit(next));
    Ok(())
}
