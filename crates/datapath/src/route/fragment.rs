//! Fragments an IPv4 packet that exceeds the MTU of its next hop (RFC 791, 3.2; RFC 1812, 5.2.3).
//!
//! In: an IPv4 packet without DF that is ready to be sent except for its size. Out: its fragments, each with
//! the packet's link header. The first fragment keeps its frame; later bytes are copied into new frames.
//! Exits: `TooBig` if the fragments exceed the room or would carry no payload; `NoBuffer`. Then all fragments
//! are dropped, because an incomplete datagram is useless.

use crate::drops::{Context, DropReason};
use crate::offload::complete_checksum;
use crate::wire::{Checksum, Ipv4};
use polder_buffers::{BATCH, NoRoom, Packet, PortId};

/// Maximum length in bytes of IP and link header: two tags, all options.
const LONGEST: usize = 14 + 8 + 60;
/// Bits of the fragment word: more fragments, and the offset.
const MORE: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// Appends the fragments of `packet` to `routed`; returns their number, 0 if they were dropped.
#[cold]
pub(super) fn split(
    mut packet: Packet,
    mtu: u16,
    routed: &mut Vec<Packet>,
    context: &mut Context<'_>,
) -> u64 {
    if complete_checksum(&mut packet).is_err() {
        context.discard(&mut packet, DropReason::DeviceError);
        routed.push(packet);
        return 0;
    }
    let start = routed.len();
    let egress = packet.egress;
    let result = cut(packet, mtu, routed, context);
    let fragments = &mut routed[start..];
    let count = fragments.len() as u64;
    context.ledger.split.add(count.saturating_sub(1));
    if let Err(reason) = result {
        fragments.iter_mut().for_each(|fragment| context.discard(fragment, reason));
        return 0;
    }
    debug_assert!(fragments.iter().all(|fragment: &Packet| is_to(fragment, egress)));
    count
}

fn is_to(packet: &Packet, egress: PortId) -> bool {
    packet.egress == egress
}

fn cut(
    mut packet: Packet,
    mtu: u16,
    routed: &mut Vec<Packet>,
    context: &mut Context<'_>,
) -> Result<(), DropReason> {
    // Room is left for the rest of the batch too.
    let most = routed.capacity().saturating_sub(routed.len() + BATCH);
    let whole = match Whole::of(&packet).and_then(|whole| whole.admit(&packet, mtu, most)) {
        Ok(whole) => whole,
        Err(reason) => {
            routed.push(packet);
            return Err(reason);
        }
    };
    // The first fragment has all options; later ones only the options that are to be copied.
    let (mut header, mut offset) = (usize::from(whole.header), whole.offset);
    loop {
        let room = usize::from(mtu).saturating_sub(header) & !7;
        let behind = whole.link + header + room;
        let is_last = packet.len() <= whole.link + usize::from(mtu);
        let rest = if is_last { None } else { Some(whole.take_rest(&mut packet, behind, context)) };
        let more = !is_last || whole.more;
        let finished = finish(&mut packet, whole.link, offset, more);
        routed.push(packet);
        finished?;
        let Some(rest) = rest else { return Ok(()) };
        packet = rest.map_err(|_| DropReason::NoBuffer)?;
        offset += u16::try_from(room / 8).map_err(|_| DropReason::Ipv4BadTotalLength)?;
        header = whole.later.1 - whole.link;
    }
}

/// Fields of the original packet that all fragments share.
struct Whole {
    /// Length of the link header in bytes.
    link: usize,
    /// Length of the IP header with options in bytes.
    header: u16,
    /// Fragment offset of the packet itself in units of eight bytes; and its "more fragments" flag in `more`.
    offset: u16,
    more: bool,
    /// Link and IP header of later fragments, and their length in bytes.
    later: ([u8; LONGEST], usize),
}

impl Whole {
    fn of(packet: &Packet) -> Result<Self, DropReason> {
        let link = usize::from(packet.network_offset);
        let bytes = packet.bytes().get(link..).ok_or(DropReason::Ipv4Truncated)?;
        let ip = Ipv4::parse_head(bytes, packet.len() - link)?;
        let header = u16::try_from(ip.header_bytes()).map_err(|_| DropReason::Ipv4BadHeaderLength)?;
        let mut later = [0; LONGEST];
        let fixed = link + Ipv4::HEADER_BYTES;
        later
            .get_mut(..fixed)
            .zip(packet.bytes().get(..fixed))
            .map(|(to, from)| to.copy_from_slice(from))
            .ok_or(DropReason::Ipv4Truncated)?;
        let options = copied_options(ip.options(), &mut later[fixed..]);
        let end = fixed + options;
        let words = u8::try_from((end - link) / 4).map_err(|_| DropReason::Ipv4BadHeaderLength)?;
        later[link] = 0x40 | words;
        let (offset, more) = (ip.fragment_offset() / 8, ip.more_fragments());
        Ok(Self { link, header, offset, more, later: (later, end) })
    }

    /// Returns itself if at most `most` fragments of size `mtu` hold the packet; an error otherwise.
    fn admit(self, packet: &Packet, mtu: u16, most: usize) -> Result<Self, DropReason> {
        let (header, later) = (usize::from(self.header), self.later.1 - self.link);
        let [first, room] = [header, later].map(|header| usize::from(mtu).saturating_sub(header) & !7);
        let payload = packet.len().saturating_sub(self.link + header);
        let is_few = first > 0 && room > 0 && payload.saturating_sub(first).div_ceil(room) < most;
        is_few.then_some(self).ok_or(DropReason::TooBig)
    }

    /// Splits the packet at `at`; the rest gets the headers of later fragments.
    fn take_rest(&self, packet: &mut Packet, at: usize, context: &mut Context<'_>) -> Result<Packet, NoRoom> {
        let mut rest = packet.split_off(at, context.pool)?;
        rest.transport_offset = 0;
        let headers = u16::try_from(self.later.1).map_err(|_| NoRoom::Front)?;
        if rest.headroom() < headers {
            rest = in_front_of(rest, context)?;
        }
        rest.prepend(headers)?.copy_from_slice(&self.later.0[..self.later.1]);
        Ok(rest)
    }
}

/// Prepends a new, empty frame to `rest`.
fn in_front_of(rest: Packet, context: &mut Context<'_>) -> Result<Packet, NoRoom> {
    let Some(frame) = context.pool.take() else {
        context.pool.release_packet(rest);
        return Err(NoRoom::Back);
    };
    let mut packet = Packet::new(frame);
    packet.take_metadata_of(&rest);
    packet.join(rest);
    Ok(packet)
}

/// Copies the options that every fragment must have (RFC 791, 3.1: highest bit of the type), padded to whole
/// words; returns their length in bytes.
fn copied_options(mut options: &[u8], to: &mut [u8]) -> usize {
    let mut written = 0;
    while let Some((&kind, rest)) = options.split_first() {
        let length = match kind {
            0 => break,
            1 => 1,
            _ => rest.first().map_or(0, |&length| usize::from(length)),
        };
        let Some((option, behind)) = options.split_at_checked(length).filter(|_| length > 0) else { break };
        if kind & 0x80 != 0
            && let Some(place) = to.get_mut(written..written + length)
        {
            place.copy_from_slice(option);
            written += length;
        }
        options = behind;
    }
    written.next_multiple_of(4).min(40)
}

/// Writes length, fragment word and checksum into a fragment's header.
fn finish(packet: &mut Packet, link: usize, offset: u16, more: bool) -> Result<(), DropReason> {
    let total = u16::try_from(packet.len() - link).map_err(|_| DropReason::Ipv4BadTotalLength)?;
    let header = packet.bytes_mut().get_mut(link..).ok_or(DropReason::Ipv4Truncated)?;
    let bytes = usize::from(header.first().copied().unwrap_or(0) & 0x0f) * 4;
    let header = header.get_mut(..bytes).filter(|header| header.len() >= Ipv4::HEADER_BYTES);
    let header = header.ok_or(DropReason::Ipv4Truncated)?;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    let word = (offset & OFFSET) | if more { MORE } else { 0 };
    header[6..8].copy_from_slice(&word.to_be_bytes());
    header[10..12].fill(0);
    let checksum = Checksum::of(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}
