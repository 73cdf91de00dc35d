//! Reassembles outer fragments (RFC 791; RFC 8200, 4.5) into a chain of frames, without copying the payload.
//!
//! Everything is bounded: datagrams, fragments per datagram, memory and time. At a limit, the oldest datagram
//! is dropped: fragments of one packet arrive together, so an old datagram is most likely incomplete for
//! good, and a sender of incomplete datagrams cannot displace complete ones.
//!
//! Overlapping fragments are dropped with their whole datagram and its later fragments (RFC 5722, 4, which is
//! about IPv6; the reasons hold for IPv4 as well). An exact duplicate is dropped alone: networks duplicate
//! packets.

use super::datagram::{Datagram, Fit, FragmentHeader, Key, count_held, end, release_held};
use super::decapsulate::REASSEMBLED;
use super::encapsulate::LOOKED_AT;
use crate::drops::{Context, DropReason};
use crate::units::Nanos;
use crate::wire::{Checksum, Ecn, IpProtocol, Ipv4, Ipv6, Ipv6Extension};
use polder_buffers::{Packet, wire_packets};

/// Limits of one worker's reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Maximum number of incomplete datagrams.
    pub datagrams: usize,
    /// Maximum number of fragments per datagram.
    pub fragments: usize,
    /// Maximum memory of incomplete datagrams in bytes; whole slots count.
    pub memory: usize,
    /// Maximum time from a datagram's first fragment to its last.
    ///
    /// Much shorter than the 15 s of RFC 791: at 1 Gbit/s the 16-bit identification wraps in 0.8 s, and a
    /// late fragment would join the wrong datagram (RFC 4963).
    pub timeout: Nanos,
}

impl Default for ReassemblyLimits {
    /// 64 datagrams of 64 fragments in 1 MiB, for 250 ms.
    fn default() -> Self {
        Self { datagrams: 64, fragments: 64, memory: 1 << 20, timeout: Nanos::from_millis(250) }
    }
}

/// Incomplete datagrams, oldest first.
#[derive(Debug)]
pub(super) struct Reassembler {
    limits: ReassemblyLimits,
    datagrams: Vec<Datagram>,
    /// Unused datagrams, kept for their allocations.
    idle: Vec<Datagram>,
    memory: usize,
}

impl Reassembler {
    pub(super) fn new(limits: ReassemblyLimits) -> Self {
        let datagram = || Datagram::with_capacity(limits.fragments);
        let count = limits.datagrams.max(1);
        Self {
            limits,
            datagrams: Vec::with_capacity(count),
            idle: core::iter::repeat_with(datagram).take(count).collect(),
            memory: 0,
        }
    }

    /// Time at which the oldest datagram expires.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.datagrams.first().map(|datagram| datagram.deadline)
    }

    /// Stores or drops a fragment; returns the reassembled packet once its datagram is complete.
    pub(super) fn insert(
        &mut self,
        mut packet: Packet,
        place: &FragmentHeader,
        context: &mut Context<'_>,
    ) -> Option<Packet> {
        if place.is_impossible() {
            end(packet, DropReason::FragmentBad, context);
            return None;
        }
        let index = self.find(place, context);
        let datagram = &mut self.datagrams[index];
        let fit = match datagram.refused {
            Some(reason) => Err(reason),
            None => match datagram.fit(place, self.limits.fragments) {
                Fit::At(position) => Ok(position),
                Fit::Duplicate => Err(DropReason::FragmentDuplicate),
                Fit::Refuse(reason) => {
                    self.refuse(index, reason, context);
                    Err(reason)
                }
            },
        };
        let position = match fit.and_then(|position| trim(&mut packet, place, context).map(|()| position)) {
            Ok(position) => position,
            Err(reason) => {
                end(packet, reason, context);
                return None;
            }
        };
        self.put(index, position, packet, place, context);
        if self.datagrams.get(index).is_some_and(Datagram::is_complete) {
            return self.join(index, context);
        }
        self.make_room(place.key, context);
        None
    }

    /// Drops datagrams whose reassembly timed out.
    #[cold]
    pub(super) fn expire(&mut self, context: &mut Context<'_>) {
        while self.next_deadline().is_some_and(|deadline| deadline <= context.now) {
            self.remove(0, DropReason::FragmentTimeout, context);
        }
    }

    /// Drops all datagrams.
    #[cold]
    pub(super) fn clear(&mut self, context: &mut Context<'_>) {
        while !self.datagrams.is_empty() {
            self.remove(0, DropReason::FragmentTimeout, context);
        }
    }

    /// Index of the fragment's datagram, created if necessary.
    fn find(&mut self, place: &FragmentHeader, context: &mut Context<'_>) -> usize {
        let found = self.datagrams.iter().position(|datagram| datagram.key == place.key);
        if let Some(index) = found {
            return index;
        }
        if self.idle.is_empty() {
            self.remove(0, DropReason::FragmentLimit, context);
        }
        let mut datagram = self.idle.pop().expect("a datagram that has been removed is idle");
        datagram.key = place.key;
        datagram.deadline = context.now + self.limits.timeout;
        self.datagrams.push(datagram);
        self.datagrams.len() - 1
    }

    fn put(
        &mut self,
        index: usize,
        position: usize,
        packet: Packet,
        place: &FragmentHeader,
        context: &Context<'_>,
    ) {
        let datagram = &mut self.datagrams[index];
        let memory = memory_of(&packet);
        count_held(&packet, context);
        datagram.packets.insert(position, packet);
        datagram.extents.insert(position, (u32::from(place.offset), place.end()));
        datagram.received += u32::from(place.length);
        datagram.ecn |= 1 << place.ecn.bits();
        datagram.memory += memory;
        self.memory += memory;
        if !place.more {
            datagram.total = Some(place.end());
        }
    }

    /// Joins the fragments of a complete datagram into one packet.
    fn join(&mut self, index: usize, context: &mut Context<'_>) -> Option<Packet> {
        let mut datagram = self.datagrams.remove(index);
        let count = wire_packets(&datagram.packets);
        let ecn = merged_ecn(datagram.ecn);
        release_held(&datagram.packets, context);
        let mut packets = datagram.packets.drain(..);
        let mut whole = packets.next().expect("a complete datagram has a first fragment");
        packets.by_ref().for_each(|packet| whole.join(packet));
        drop(packets);
        context.ledger.merged.add(count - u64::from(whole.wire_packets));
        self.retire(datagram);
        match ecn.and_then(|ecn| finish(&mut whole, ecn, context)) {
            Ok(()) => Some(whole),
            Err(reason) => {
                end(whole, reason, context);
                None
            }
        }
    }

    /// Drops the oldest datagrams while the memory limit is exceeded; the one with this key last.
    fn make_room(&mut self, key: Key, context: &mut Context<'_>) {
        while self.memory > self.limits.memory {
            let other = self.datagrams.iter().position(|other| other.memory > 0 && other.key != key);
            let own = || self.datagrams.iter().position(|other| other.memory > 0);
            let Some(index) = other.or_else(own) else { return };
            self.remove(index, DropReason::FragmentLimit, context);
        }
    }

    /// Drops the fragments of a datagram, and refuses further ones until it expires.
    #[cold]
    fn refuse(&mut self, index: usize, reason: DropReason, context: &mut Context<'_>) {
        let datagram = &mut self.datagrams[index];
        datagram.refused = Some(reason);
        self.memory -= datagram.memory;
        datagram.drop_all(reason, context);
    }

    /// Drops a datagram.
    fn remove(&mut self, index: usize, reason: DropReason, context: &mut Context<'_>) {
        let mut datagram = self.datagrams.remove(index);
        let memory = datagram.memory;
        datagram.drop_all(reason, context);
        datagram.memory = memory;
        self.retire(datagram);
    }

    fn retire(&mut self, mut datagram: Datagram) {
        self.memory -= datagram.memory;
        datagram.reset();
        datagram.refused = None;
        self.idle.push(datagram);
    }
}

/// Memory that a packet holds, in bytes.
fn memory_of(packet: &Packet) -> usize {
    packet.segment_count() * packet.head().slot_bytes() as usize
}

/// Trims link-layer padding, and the headers of all fragments but the first.
fn trim(packet: &mut Packet, place: &FragmentHeader, context: &mut Context<'_>) -> Result<(), DropReason> {
    let headers = place.link + place.header;
    let length = headers + usize::from(place.length);
    packet.truncate(length, context.pool).map_err(|_| DropReason::FragmentBad)?;
    if place.offset > 0 {
        let headers = u16::try_from(headers).map_err(|_| DropReason::FragmentBad)?;
        packet.trim_front(headers).map_err(|_| DropReason::FragmentBad)?;
    } else {
        packet.network_offset = u16::try_from(place.link).map_err(|_| DropReason::FragmentBad)?;
    }
    Ok(())
}

/// ECN field of a datagram from the ECN fields of its fragments (RFC 3168, 5.3): CE if one fragment has CE,
/// and an error if another one is not ECN-capable. `None` leaves the first fragment's field unchanged.
fn merged_ecn(seen: u8) -> Result<Option<Ecn>, DropReason> {
    const CONGESTION: u8 = 1 << Ecn::Congestion.bits();
    const NOT_CAPABLE: u8 = 1 << Ecn::NotCapable.bits();
    if seen & CONGESTION == 0 {
        return Ok(None);
    }
    if seen & NOT_CAPABLE == 0 { Ok(Some(Ecn::Congestion)) } else { Err(DropReason::EcnNotCapable) }
}

/// Converts the first fragment's header to that of the datagram, and gathers the inner headers into the head
/// frame.
fn finish(packet: &mut Packet, ecn: Option<Ecn>, context: &mut Context<'_>) -> Result<(), DropReason> {
    let link = usize::from(packet.network_offset);
    let length = packet.len() - link;
    let header = packet.bytes_mut().get_mut(link..).ok_or(DropReason::FragmentBad)?;
    let is_v6 = header.first().is_some_and(|first| first >> 4 == 6);
    let header_bytes = if is_v6 { finish_v6(packet, length, ecn) } else { finish_v4(header, length, ecn) }
        .ok_or(DropReason::FragmentBad)?;
    packet.flags |= REASSEMBLED;
    let looked_at = u16::try_from(link + header_bytes).unwrap_or(u16::MAX).saturating_add(LOOKED_AT);
    let looked_at = looked_at.min(u16::try_from(packet.len()).unwrap_or(u16::MAX));
    packet.gather(looked_at, context.pool).map_err(|_| DropReason::NoBuffer)
}

/// Rewrites an IPv4 header for the whole datagram; returns its length in bytes.
fn finish_v4(header: &mut [u8], length: usize, ecn: Option<Ecn>) -> Option<usize> {
    let view = Ipv4::parse_head(header, usize::MAX).ok()?;
    let (header_bytes, class) = (view.header_bytes(), view.traffic_class());
    let header = header.get_mut(..header_bytes)?;
    header[1] = ecn.map_or(class, |ecn| class.with_ecn(ecn)).0;
    header[2..4].copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
    header[6..8].copy_from_slice(&[0, 0]);
    header[10..12].copy_from_slice(&[0, 0]);
    let checksum = Checksum::of(header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(header_bytes)
}

/// Rewrites an IPv6 header for the whole datagram and removes the fragment header (RFC 8200, 4.5); returns
/// the length of the remaining headers in bytes. `length` is the datagram's length before that.
fn finish_v6(packet: &mut Packet, length: usize, ecn: Option<Ecn>) -> Option<usize> {
    const GONE: usize = Ipv6Extension::LEAST_BYTES;
    let link = usize::from(packet.network_offset);
    let header = packet.bytes_mut().get_mut(link..)?;
    let view = Ipv6::parse_head(header, usize::MAX).ok()?;
    let (class, mut before) = (view.traffic_class(), None);
    // Offset of the next-header field before the fragment header: in the IPv6 header or an extension header.
    let mut says_next = 6;
    for extension in view.extensions() {
        if extension.kind == IpProtocol::FRAGMENT {
            before = Some((extension.offset, extension.next_header));
            break;
        }
        says_next = extension.offset;
    }
    let (offset, next_header) = before?;
    let payload_length = u16::try_from(length - Ipv6::HEADER_BYTES - GONE).ok()?;
    let mut view = crate::wire::Ipv6Mut::parse_head(header, usize::MAX).ok()?;
    view.set_traffic_class(ecn.map_or(class, |ecn| class.with_ecn(ecn)));
    view.set_payload_length(payload_length);
    *header.get_mut(says_next)? = next_header.0;
    packet.bytes_mut().get_mut(..link + offset + GONE)?.copy_within(..link + offset, GONE);
    packet.trim_front(u16::try_from(GONE).ok()?).ok()?;
    Some(offset)
}
