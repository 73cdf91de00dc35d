//! Header rewrite for the next hop: TTL, checksum, MAC addresses, tag.

use super::Hop;
use super::lookups::Plan;
use crate::drops::DropReason;
use crate::wire::{EtherType, Ethernet, Ipv4, Ipv6, MacAddress, Vlan, VlanId};
use polder_buffers::{Packet, Pool};

/// Length of an Ethernet header without tags, in bytes.
pub(super) const ETHERNET: usize = Ethernet::HEADER_BYTES;
/// Length of an Ethernet header and an IPv4 header without options, in bytes.
pub(super) const PLAIN_V4: usize = ETHERNET + Ipv4::HEADER_BYTES;
/// Length of an Ethernet header and an IPv6 header, in bytes.
pub(super) const PLAIN_V6: usize = ETHERNET + Ipv6::HEADER_BYTES;

/// Offset of the TTL in an IPv4 header; protocol and checksum follow.
const TIME_TO_LIVE: usize = 8;
/// Offset of the payload length in an IPv6 header; next header and hop limit follow.
const PAYLOAD_LENGTH: usize = 4;
/// Offset of the hop limit in an IPv6 header.
const HOP_LIMIT: usize = 7;
/// Offset in untagged frames of the four bytes with the TTL, and with the hop limit.
pub(super) const WORD_V4: usize = ETHERNET + TIME_TO_LIVE;
pub(super) const WORD_V6: usize = ETHERNET + PAYLOAD_LENGTH;
/// Offset of the IPv4 source address in untagged frames.
pub(super) const SOURCE_V4: usize = ETHERNET + 12;

/// Header rewrite of an IPv4 packet whose TTL is above 1.
#[inline(always)]
pub(super) fn plan_v4(header: &[u8; Ipv4::HEADER_BYTES]) -> Plan {
    let word = [header[8], header[9], header[10], header[11]];
    let total = u16::from_be_bytes([header[2], header[3]]);
    Plan { word: count_down_v4(word), total: u32::from(total) }
}

/// Header rewrite of an IPv6 packet whose hop limit is above 1.
#[inline(always)]
pub(super) fn plan_v6(header: &[u8; Ipv6::HEADER_BYTES]) -> Plan {
    let payload = u16::from_be_bytes([header[4], header[5]]);
    let word = [header[4], header[5], header[6], header[HOP_LIMIT].wrapping_sub(1)];
    Plan { word, total: 40 + u32::from(payload) }
}

/// Rewrites an untagged frame with a plain IP packet.
#[inline(always)]
pub(super) fn rewrite_plain<const WORD: usize>(
    frame: &mut [u8; PLAIN_V4],
    hop: &Hop,
    neighbour: MacAddress,
    word: [u8; 4],
) {
    const { assert!(WORD + 4 <= PLAIN_V4, "in the part of the frame that both have") };
    readdress(frame.first_chunk_mut().expect("a frame begins with an Ethernet header"), hop, neighbour);
    frame[WORD..WORD + 4].copy_from_slice(&word);
}

#[inline(always)]
fn readdress(link: &mut [u8; ETHERNET], hop: &Hop, neighbour: MacAddress) {
    link[0..6].copy_from_slice(&neighbour.0);
    link[6..12].copy_from_slice(&hop.source.0);
}

/// Decrements the TTL and updates the checksum (RFC 1812, 5.3.1) in the four bytes TTL, protocol, checksum;
/// the TTL must not be 0.
///
/// Decrementing an upper byte equals incrementing the checksum's upper byte with end-around carry (equal to
/// RFC 1624, equation 3, for every checksum). The sum may be computed with bytes swapped (RFC 1071, 2), so
/// the four bytes are used in memory order.
#[inline(always)]
const fn count_down_v4(word: [u8; 4]) -> [u8; 4] {
    let word = u32::from_le_bytes(word);
    let carry = (word >= 0xfffe_0000) as u32;
    word.wrapping_add(0x0000_ffff).wrapping_add(carry << 16).to_le_bytes()
}

/// Rewrites a frame with any link header and options whose TTL is above 1, and sets the tag of the hop's
/// interface.
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
        let header: &mut [u8; Ipv4::HEADER_BYTES] =
            header.first_chunk_mut().ok_or(DropReason::Ipv4Truncated)?;
        let word = plan_v4(header).word;
        header[TIME_TO_LIVE..TIME_TO_LIVE + 4].copy_from_slice(&word);
    } else {
        let limit = header.get_mut(HOP_LIMIT).ok_or(DropReason::Ipv6Truncated)?;
        *limit = limit.saturating_sub(1);
    }
    let ether_type = if is_v4 { EtherType::IPV4 } else { EtherType::IPV6 };
    let link = relink(packet, hop.interface.vlan, ether_type, pool)?;
    readdress(link, hop, neighbour);
    Ok(())
}

/// Replaces the link header by that of a VLAN; the MAC addresses are left undefined.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::checksum::update_u16;

    #[test]
    fn counting_down_is_an_incremental_update_of_the_checksum() {
        for (time_to_live, checksum) in
            (1..=u8::MAX).flat_map(|ttl| (0..=u16::MAX).map(move |sum| (ttl, sum)))
        {
            let before = u16::from_be_bytes([time_to_live, 17]);
            let after = u16::from_be_bytes([time_to_live - 1, 17]);
            let word = |first: u16, sum: u16| (u32::from(first) << 16 | u32::from(sum)).to_be_bytes();
            let expected = word(after, update_u16(checksum, before, after));
            assert_eq!(count_down_v4(word(before, checksum)), expected, "{time_to_live} {checksum:#x}");
        }
    }
}
