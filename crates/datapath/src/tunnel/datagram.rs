//! Fragments of one datagram, and the check of a further fragment.

use super::Ends;
use crate::drops::{Context, DropReason};
use crate::units::Nanos;
use crate::wire::{Ecn, IpProtocol, Ipv4, Ipv6, Ipv6Extension};
use polder_buffers::{Packet, wire_packets};
use std::net::Ipv4Addr;

/// Header fields of a fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct FragmentHeader {
    pub(super) key: Key,
    /// Length of the link header, and of the IP header with extension headers, in bytes.
    pub(super) link: usize,
    pub(super) header: usize,
    /// Offset of the payload in the datagram, and its length, in bytes.
    pub(super) offset: u16,
    pub(super) length: u16,
    pub(super) more: bool,
    pub(super) ecn: Ecn,
}

/// Key of a datagram, the same in all its fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Source and destination as remote and local address.
    pub(super) ends: Ends,
    /// Protocol of the datagram; GRE over IPv6, perhaps after destination options.
    pub(super) protocol: IpProtocol,
    identification: u32,
}

impl FragmentHeader {
    pub(super) fn v4(link: usize, ip: &Ipv4<'_>) -> Self {
        let ends = Ends::V4 { local: ip.destination(), remote: ip.source() };
        let header = ip.header_bytes();
        let length = usize::from(ip.total_length()).saturating_sub(header);
        Self {
            key: Key { ends, protocol: ip.protocol(), identification: u32::from(ip.identification()) },
            link,
            header,
            offset: ip.fragment_offset(),
            length: u16::try_from(length).unwrap_or(u16::MAX),
            more: ip.more_fragments(),
            ecn: ip.traffic_class().ecn(),
        }
    }

    /// Returns the header of an IPv6 fragment; `None` if `extension` is not a fragment header.
    pub(super) fn v6(link: usize, ip: &Ipv6<'_>, ends: Ends, extension: &Ipv6Extension<'_>) -> Option<Self> {
        let fragment = extension.fragment()?;
        let header = extension.end();
        let length = (Ipv6::HEADER_BYTES + usize::from(ip.payload_length())).saturating_sub(header);
        Some(Self {
            key: Key { ends, protocol: IpProtocol::GRE, identification: fragment.identification },
            link,
            header,
            offset: fragment.offset,
            length: u16::try_from(length).unwrap_or(u16::MAX),
            more: fragment.more,
            ecn: ip.traffic_class().ecn(),
        })
    }

    /// Offset of the payload's end in the datagram, in bytes.
    pub(super) fn end(&self) -> u32 {
        u32::from(self.offset) + u32::from(self.length)
    }

    /// True for an invalid fragment: empty, a middle one whose length is not a multiple of eight, or one that
    /// ends beyond the longest datagram.
    pub(super) fn is_impossible(&self) -> bool {
        let longest = u32::from(u16::MAX) - u32::try_from(self.header).unwrap_or(u32::MAX);
        self.length == 0 || (self.more && !self.length.is_multiple_of(8)) || self.end() > longest
    }
}

/// Placeholder for the endpoints of an unused datagram.
const NOWHERE: Ends = Ends::V4 { local: Ipv4Addr::UNSPECIFIED, remote: Ipv4Addr::UNSPECIFIED };

/// Received fragments of one datagram.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) key: Key,
    pub(super) deadline: Nanos,
    /// Fragments in order of their offsets, and the byte range of each in the payload.
    pub(super) packets: Vec<Packet>,
    pub(super) extents: Vec<(u32, u32)>,
    /// Bytes of payload received, and of the whole datagram once the last fragment has arrived.
    pub(super) received: u32,
    pub(super) total: Option<u32>,
    /// Packet memory held, in bytes.
    pub(super) memory: usize,
    /// Bit set of the ECN fields seen.
    pub(super) ecn: u8,
    /// Reason for which the whole datagram is dropped.
    pub(super) refused: Option<DropReason>,
}

/// Position of a further fragment in its datagram.
pub(super) enum Fit {
    /// At this index.
    At(usize),
    /// The same fragment has been received before.
    Duplicate,
    /// Invalid: the whole datagram is dropped.
    Refuse(DropReason),
}

impl Datagram {
    /// A datagram without fragments, with memory for `fragments`.
    pub(super) fn with_capacity(fragments: usize) -> Self {
        Self {
            key: Key { ends: NOWHERE, protocol: IpProtocol::GRE, identification: 0 },
            deadline: Nanos::default(),
            packets: Vec::with_capacity(fragments),
            extents: Vec::with_capacity(fragments),
            received: 0,
            total: None,
            memory: 0,
            ecn: 0,
            refused: None,
        }
    }

    /// Returns the position of a fragment; `most` is the maximum number of fragments per datagram.
    pub(super) fn fit(&self, place: &FragmentHeader, most: usize) -> Fit {
        let (start, end) = (u32::from(place.offset), place.end());
        let position = self.extents.partition_point(|&(other, _)| other < start);
        if self.extents.get(position) == Some(&(start, end)) {
            return Fit::Duplicate;
        }
        let before = position.checked_sub(1).and_then(|before| self.extents.get(before));
        let overlaps = before.is_some_and(|&(_, other)| other > start)
            || self.extents.get(position).is_some_and(|&(other, _)| other < end);
        if overlaps {
            return Fit::Refuse(DropReason::FragmentOverlap);
        }
        let last = self.extents.last().map_or(0, |&(_, end)| end);
        let contradicts = match self.total {
            Some(total) => !place.more || end >= total,
            None => !place.more && last > end,
        };
        if contradicts {
            return Fit::Refuse(DropReason::FragmentBad);
        }
        if self.packets.len() >= most { Fit::Refuse(DropReason::FragmentLimit) } else { Fit::At(position) }
    }

    /// True if all fragments have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.total == Some(self.received)
    }

    /// Drops all fragments.
    pub(super) fn drop_all(&mut self, reason: DropReason, context: &mut Context<'_>) {
        release_held(&self.packets, context);
        for packet in self.packets.drain(..) {
            end(packet, reason, context);
        }
        self.reset();
    }

    /// Clears the datagram, whose fragments have been moved out.
    pub(super) fn reset(&mut self) {
        debug_assert!(self.packets.is_empty(), "packets are moved out or dropped first");
        self.extents.clear();
        self.received = 0;
        self.total = None;
        self.memory = 0;
        self.ecn = 0;
    }
}

/// Adds a packet to the gauges `held` and `held_slots`, which other stages may share.
pub(super) fn count_held(packet: &Packet, context: &Context<'_>) {
    context.ledger.held.add(packet.wire_packets.into());
    context.ledger.held_slots.add(packet.slots_of(context.pool.region().id()));
}

/// Subtracts packets from the gauges.
pub(super) fn release_held(packets: &[Packet], context: &Context<'_>) {
    let (held, slots) = (&context.ledger.held, &context.ledger.held_slots);
    held.set(held.get().wrapping_sub(wire_packets(packets)));
    let region = context.pool.region().id();
    let gone = packets.iter().map(|packet| packet.slots_of(region)).sum::<u64>();
    slots.set(slots.get().wrapping_sub(gone));
}

/// Counts and releases a packet that is in no batch.
pub(super) fn end(packet: Packet, reason: DropReason, context: &mut Context<'_>) {
    context.drops.count(reason, packet.wire_packets.into());
    context.pool.release_packet(packet);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset: u16, length: u16, more: bool) -> FragmentHeader {
        let key = Datagram::with_capacity(0).key;
        FragmentHeader { key, link: 14, header: 20, offset, length, more, ecn: Ecn::NotCapable }
    }

    /// A datagram that has these extents and perhaps knows its end.
    fn datagram(extents: &[(u32, u32)], total: Option<u32>) -> Datagram {
        let mut datagram = Datagram::with_capacity(0);
        datagram.extents.extend(extents);
        datagram.total = total;
        datagram.received = extents.iter().map(|(start, end)| end - start).sum();
        datagram
    }

    fn fit(datagram: &Datagram, offset: u16, length: u16, more: bool) -> Result<usize, &'static str> {
        match datagram.fit(&place(offset, length, more), 64) {
            Fit::At(position) => Ok(position),
            Fit::Duplicate => Err("duplicate"),
            Fit::Refuse(reason) => Err(reason.name()),
        }
    }

    #[test]
    fn gaps_are_filled_in_place() {
        let some = datagram(&[(16, 24), (40, 48)], None);
        assert_eq!(fit(&some, 0, 16, true), Ok(0));
        assert_eq!(fit(&some, 24, 16, true), Ok(1));
        assert_eq!(fit(&some, 48, 5, false), Ok(2));
        assert!(!some.is_complete());
        assert!(datagram(&[(0, 8), (8, 13)], Some(13)).is_complete());
        assert!(!datagram(&[(0, 8), (16, 21)], Some(21)).is_complete());
    }

    #[test]
    fn what_overlaps() {
        let some = datagram(&[(16, 24), (40, 48)], None);
        assert_eq!(fit(&some, 16, 8, true), Err("duplicate"));
        let overlaps = [(8, 16), (16, 16), (8, 24), (16, 4), (20, 8), (0, 100), (24, 24), (46, 8), (32, 9)];
        for (offset, length) in overlaps {
            assert_eq!(fit(&some, offset, length, true), Err("fragment-overlap"), "{length} at {offset}");
        }
    }

    #[test]
    fn ends_that_contradict() {
        let open = datagram(&[(40, 48)], None);
        assert_eq!(fit(&open, 16, 8, false), Err("fragment-bad"), "the end before a part");
        let closed = datagram(&[(40, 48)], Some(48));
        assert_eq!(fit(&closed, 48, 8, true), Err("fragment-bad"), "a part behind the end");
        assert_eq!(fit(&closed, 56, 8, false), Err("fragment-bad"), "a second end");
        assert_eq!(fit(&closed, 16, 8, false), Err("fragment-bad"), "a second end in front");
        assert_eq!(fit(&closed, 32, 8, true), Ok(0));
    }

    #[test]
    fn impossible_places() {
        assert!(place(0, 0, true).is_impossible());
        assert!(place(0, 9, true).is_impossible());
        assert!(!place(0, 9, false).is_impossible());
        assert!(!place(65_504, 11, false).is_impossible());
        assert!(place(65_504, 12, false).is_impossible());
    }
}
