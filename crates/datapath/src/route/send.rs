//! To the next hop: time to live, checksum, link-layer addresses, tag.

use super::Hop;
use crate::drops::DropReason;
use crate::wire::checksum::update_u16;
use crate::wire::{EtherType, Ethernet, Ipv4, Ipv6, MacAddress, Vlan, VlanId};
use polder_buffers::{Packet, Pool};

/// Bytes of the header of an Ethernet frame without tags.
pub(super) const ETHERNET: usize = Ethernet::HEADER_BYTES;
/// The same and an IPv4 header without options.
pub(super) const PLAIN_V4: usize = ETHERNET + Ipv4::HEADER_BYTES;
/// The same and an IPv6 header.
pub(super) const PLAIN_V6: usize = ETHERNET + Ipv6::HEADER_BYTES;

/// Where an IPv4 header has its time to live and its checksum.
const TIME_TO_LIVE: usize = 8;
const CHECKSUM: usize = 10;
/// Where an IPv6 header has its hop limit.
const HOP_LIMIT: usize = 7;

/// Rewrites an untagged frame with an IPv4 packet that has time to live left.
#[inline(always)]
pub(super) fn rewrite_v4(frame: &mut [u8; PLAIN_V4], hop: &Hop, neighbour: MacAddress) {
    readdress(frame.first_chunk_mut().expect("a frame begins with an Ethernet header"), hop, neighbour);
    let header = frame.last_chunk_mut().expect("and ends with an IPv4 header");
    count_down_v4(header);
}

/// Rewrites an untagged frame with an IPv6 packet that has hops left.
#[inline(always)]
pub(super) fn rewrite_v6(frame: &mut [u8; PLAIN_V6], hop: &Hop, neighbour: MacAddress) {
    readdress(frame.first_chunk_mut().expect("a frame begins with an Ethernet header"), hop, neighbour);
    frame[ETHERNET + HOP_LIMIT] -= 1;
}

#[inline(always)]
fn readdress(link: &mut [u8; ETHERNET], hop: &Hop, neighbour: MacAddress) {
    link[0..6].copy_from_slice(&neighbour.0);
    link[6..12].copy_from_slice(&hop.source.0);
}

/// One router less to meet (RFC 1812, 5.3.1), and the checksum that goes with it (RFC 1624).
#[inline(always)]
fn count_down_v4(header: &mut [u8; Ipv4::HEADER_BYTES]) {
    let old = u16::from_be_bytes([header[TIME_TO_LIVE], header[TIME_TO_LIVE + 1]]);
    // The caller has seen that it is not zero, so this takes one off the upper byte.
    let new = old.wrapping_sub(0x0100);
    let checksum = u16::from_be_bytes([header[CHECKSUM], header[CHECKSUM + 1]]);
    header[TIME_TO_LIVE..TIME_TO_LIVE + 2].copy_from_slice(&new.to_be_bytes());
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&update_u16(checksum, old, new).to_be_bytes());
}

/// Rewrites a frame with any link header, options and all, that has time to live left: what
/// [`rewrite_v4`] and [`rewrite_v6`] do, and the tag of the hop's interface.
#[cold]
pub(super) fn rewrite(
    packet: &mut Packet,
    hop: &Hop,
    neighbour: MacAddress,
    pool: &mut Pool,
) -> Result<(), DropReason> {
    let before = usize::from(packet.network_offset);
    let Some(header) = packet.bytes_mut().get_mut(before..) else { return Err(DropReason::NoHeadroom) };
    let is_v4 = header.first().is_some_and(|first| first >> 4 == 4);
    if is_v4 {
        count_down_v4(header.first_chunk_mut().ok_or(DropReason::Ipv4Truncated)?);
    } else {
        let limit = header.get_mut(HOP_LIMIT).ok_or(DropReason::Ipv6Truncated)?;
        *limit = limit.saturating_sub(1);
    }
    let ether_type = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let link = relink(packet, hop.interface.vlan, ether_type, pool)?;
    readdress(link, hop, neighbour);
    Ok(())
}

/// Gives a packet the link header of a VLAN, addresses left as they come.
fn relink<'a>(
    packet: &'a mut Packet,
    vlan: VlanId,
    ether_type: EtherType,
    pool: &mut Pool,
) -> Result<&'a mut [u8; ETHERNET], DropReason> {
    let before = packet.network_offset;
    let bytes = if vlan == VlanId::PRIORITY { ETHERNET } else { ETHERNET + Vlan::HEADER_BYTES };
    let bytes = u16::try_from(bytes).map_err(|_| DropReason::NoHeadroom)?;
    if bytes <= before {
        packet.trim_front(before - bytes).map_err(|_| DropReason::NoHeadroom)?;
    } else {
        if packet.headroom() < bytes - before && !crate::headroom::make(packet, pool) {
            return Err(DropReason::NoBuffer);
        }
        packet.prepend(bytes - before).map_err(|_| DropReason::NoHeadroom)?;
    }
    let shift = |offset: u16| if offset == 0 { 0 } else { offset.wrapping_sub(before).wrapping_add(bytes) };
    packet.transport_offset = shift(packet.transport_offset);
    packet.checksum_start = shift(packet.checksum_start);
    packet.network_offset = bytes;
    let frame = packet.bytes_mut();
    let (kind, behind) = frame.get_mut(12..usize::from(bytes)).ok_or(DropReason::NoHeadroom)?.split_at_mut(2);
    if vlan == VlanId::PRIORITY {
        kind.copy_from_slice(&ether_type.0.to_be_bytes());
    } else {
        kind.copy_from_slice(&EtherType::VLAN.0.to_be_bytes());
        behind[..2].copy_from_slice(&vlan.get().to_be_bytes());
        behind[2..].copy_from_slice(&ether_type.0.to_be_bytes());
    }
    frame.first_chunk_mut().ok_or(DropReason::NoHeadroom)
}
