//! A packet: a chain of frames and what is known of it.

use crate::frame::{Frame, Place};
use crate::pool::Pool;
use crate::table::{self, Link};
use std::sync::atomic::Ordering;

/// Bytes that a fresh packet leaves free in front of its data.
///
/// As many as XDP leaves (`XDP_PACKET_HEADROOM`): room for every stack of tunnels that a
/// configuration can describe.
pub const HEADROOM: u16 = 256;

/// A port of the gateway: devices first, then tunnels, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// The port of a packet that has not met its port yet.
pub const NO_PORT: PortId = PortId(u16::MAX);

/// What is known of a packet's transport checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChecksumState {
    /// Nothing: the field in the packet stands as it was received.
    #[default]
    Unknown,
    /// A device has verified it.
    Verified,
    /// Only the pseudo-header sum stands in the field; who sends the packet has to complete it
    /// from `checksum_start` into `checksum_offset`.
    Partial,
}

/// Into which protocol's segments a packet has to be cut. Two bytes, so that [`Segmentation`] has no
/// padding and a fresh packet is written in whole words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum SegmentationKind {
    /// The packet is one segment.
    #[default]
    None,
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over either.
    Udp,
}

/// How a packet larger than its link is cut into segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes a segment.
    pub size: u16,
    /// Protocol.
    pub kind: SegmentationKind,
}

/// A range that did not fit: where room was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The head frame has fewer free bytes in front.
    #[error("not enough headroom")]
    Front,
    /// The last frame has fewer free bytes behind, or no frame could be had.
    #[error("not enough tailroom")]
    Back,
    /// The packet has fewer bytes than that.
    #[error("the packet is shorter")]
    Short,
}

/// A chain of frames and its metadata; 64 bytes, moved by value.
///
/// Bytes are Ethernet frames without FCS unless a stage says otherwise. One frame is the fast
/// path; every method works on chains.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Packet {
    head: Frame,
    rest: Option<Chain>,
    offset: u16,
    length: u16,
    rest_length: u32,
    /// The port it came in by; a tunnel once it is decapsulated.
    pub ingress: PortId,
    /// The port it is to leave by.
    pub egress: PortId,
    /// Bytes from the start of the packet to the network header.
    pub network_offset: u16,
    /// Bytes from the start of the packet to the transport header; 0 when not known.
    pub transport_offset: u16,
    /// VLAN of the bridge it is in: 0 for none, else 1 to 4094.
    pub vlan: u16,
    /// Bytes from the start of the packet to where the transport checksum begins.
    pub checksum_start: u16,
    /// Bytes from `checksum_start` to the checksum field.
    pub checksum_offset: u16,
    /// Segments that it has to be cut into.
    pub segmentation: Segmentation,
    /// What is known of its transport checksum.
    pub checksum: ChecksumState,
    /// Use of the stages; cleared on receive.
    pub flags: u8,
    /// Hash of the flow; 0 when not computed.
    pub flow_hash: u32,
    /// When it was received, in nanoseconds of the gateway's clock.
    pub received_at: u64,
    /// Place in the order of its bucket, when its bucket is spread over workers.
    pub ticket: u32,
}

const _: () = assert!(size_of::<Packet>() == 64);

/// The frames after the head: the first of them, which links to the next.
#[derive(Debug)]
struct Chain(Frame);

/// One frame of a chain with the extent of its data.
#[derive(Debug)]
pub struct Segment {
    /// The slot.
    pub frame: Frame,
    /// Where the data starts in the slot, in bytes.
    pub offset: u16,
    /// Bytes of data.
    pub length: u16,
}

impl Packet {
    /// An empty packet with [`HEADROOM`] in front (or half the slot, if that is smaller).
    #[inline]
    pub fn new(frame: Frame) -> Self {
        let half = frame.slot_bytes() / 2;
        let offset = HEADROOM.min(u16::try_from(half).unwrap_or(u16::MAX));
        Self::from_segment(Segment { frame, offset, length: 0 })
    }

    /// A packet of the bytes that a device left in `segment`.
    ///
    /// # Panics
    /// When the segment's data does not lie within its slot; drivers check what devices say first.
    #[inline]
    pub fn from_segment(segment: Segment) -> Self {
        let Segment { frame, offset, length } = segment;
        assert!(u32::from(offset) + u32::from(length) <= frame.slot_bytes(), "data beyond its slot");
        Self {
            head: frame,
            rest: None,
            offset,
            length,
            rest_length: 0,
            ingress: NO_PORT,
            egress: NO_PORT,
            network_offset: 0,
            transport_offset: 0,
            vlan: 0,
            checksum_start: 0,
            checksum_offset: 0,
            segmentation: Segmentation::default(),
            checksum: ChecksumState::Unknown,
            flags: 0,
            flow_hash: 0,
            received_at: 0,
            ticket: 0,
        }
    }

    /// A packet that holds a copy of `bytes`, over as many frames as it takes; `None` when the pool
    /// has too few.
    pub fn copy_from(bytes: &[u8], pool: &mut Pool) -> Option<Self> {
        let mut packet = Self::new(pool.take()?);
        if packet.extend_from(bytes, pool).is_err() {
            pool.release_packet(packet);
            return None;
        }
        Some(packet)
    }

    /// A copy of the packet's bytes and metadata in other frames; `None` when the pool has too few.
    pub fn duplicate(&self, pool: &mut Pool) -> Option<Self> {
        let mut copy = Self::new(pool.take()?);
        for segment in self.segments() {
            if copy.extend_from(segment, pool).is_err() {
                pool.release_packet(copy);
                return None;
            }
        }
        copy.take_metadata_of(self);
        Some(copy)
    }

    /// Sets all metadata (not the bytes) to those of `other`.
    pub fn take_metadata_of(&mut self, other: &Self) {
        self.ingress = other.ingress;
        self.egress = other.egress;
        self.network_offset = other.network_offset;
        self.transport_offset = other.transport_offset;
        self.vlan = other.vlan;
        self.checksum_start = other.checksum_start;
        self.checksum_offset = other.checksum_offset;
        self.segmentation = other.segmentation;
        self.checksum = other.checksum;
        self.flags = other.flags;
        self.flow_hash = other.flow_hash;
        self.received_at = other.received_at;
        self.ticket = other.ticket;
    }

    /// Length of the whole chain in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet is a datagram, not a collection")]
    pub fn len(&self) -> usize {
        usize::from(self.length) + self.rest_length as usize
    }

    /// Whether all bytes are in the head frame.
    #[inline(always)]
    pub fn is_contiguous(&self) -> bool {
        self.rest.is_none()
    }

    /// The bytes in the head frame: all of them, unless the packet is a chain.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        table::slot(&self.head, u32::from(self.offset), u32::from(self.length))
    }

    /// The bytes in the head frame, for writing.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        table::slot_mut(&mut self.head, u32::from(self.offset), u32::from(self.length))
    }

    /// The head frame; its index tells whether two packets are the same memory.
    #[inline]
    pub fn head(&self) -> &Frame {
        &self.head
    }

    /// Free bytes in front of the data.
    #[inline]
    pub fn headroom(&self) -> u16 {
        self.offset
    }

    /// Free bytes behind the data of the head frame.
    #[inline]
    pub fn tailroom(&self) -> usize {
        self.head.slot_bytes() as usize - usize::from(self.offset) - usize::from(self.length)
    }

    /// Hints that the first bytes are going to be read.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::prefetch(self.bytes());
    }

    /// Hints that the first bytes are going to be written: another core may have them.
    #[inline(always)]
    pub fn prefetch_to_write(&self) {
        crate::prefetch::prefetch_to_write(self.bytes());
    }

    /// Puts `length` bytes in front and returns them; their content is undefined but initialised.
    ///
    /// # Errors
    /// [`NoRoom::Front`] when the headroom is smaller; nothing has changed then.
    ///
    /// Cost: an addition; no byte is copied. Source: E4.
    #[inline]
    pub fn prepend(&mut self, length: u16) -> Result<&mut [u8], NoRoom> {
        let offset = self.offset.checked_sub(length).ok_or(NoRoom::Front)?;
        let whole = self.length.checked_add(length).ok_or(NoRoom::Front)?;
        self.offset = offset;
        self.length = whole;
        Ok(table::slot_mut(&mut self.head, u32::from(offset), u32::from(length)))
    }

    /// Puts `length` bytes behind the data of a packet of one frame and returns them.
    ///
    /// # Errors
    /// [`NoRoom::Back`] when the tailroom is smaller or the packet is a chain.
    #[inline]
    pub fn append(&mut self, length: u16) -> Result<&mut [u8], NoRoom> {
        if self.rest.is_some() || usize::from(length) > self.tailroom() {
            return Err(NoRoom::Back);
        }
        let start = self.offset + self.length;
        self.length += length;
        Ok(table::slot_mut(&mut self.head, u32::from(start), u32::from(length)))
    }

    /// Puts a copy of `bytes` at the end, in new frames where the last one is full.
    ///
    /// # Errors
    /// [`NoRoom::Back`] when the pool has no frame; what fitted stays in the packet.
    pub fn extend_from(&mut self, mut bytes: &[u8], pool: &mut Pool) -> Result<(), NoRoom> {
        if self.rest.is_none() {
            let fits = bytes.len().min(self.tailroom());
            let (here, there) = bytes.split_at(fits);
            let length = u16::try_from(fits).map_err(|_| NoRoom::Back)?;
            self.append(length)?.copy_from_slice(here);
            bytes = there;
        }
        while !bytes.is_empty() {
            let mut frame = pool.take().ok_or(NoRoom::Back)?;
            let fits = bytes.len().min(frame.slot_bytes() as usize);
            let (here, there) = bytes.split_at(fits);
            frame.slot_mut()[..fits].copy_from_slice(here);
            let length = u16::try_from(fits).map_err(|_| NoRoom::Back)?;
            self.push_segment(Segment { frame, offset: 0, length });
            bytes = there;
        }
        Ok(())
    }

    /// Takes `length` bytes off the front.
    ///
    /// # Errors
    /// [`NoRoom::Short`] when the head frame holds fewer; nothing has changed then. A chain whose
    /// headers lie in several frames is brought into shape with [`Packet::gather`] first.
    #[inline]
    pub fn trim_front(&mut self, length: u16) -> Result<(), NoRoom> {
        self.length = self.length.checked_sub(length).ok_or(NoRoom::Short)?;
        self.offset += length;
        Ok(())
    }

    /// Cuts the packet to its first `length` bytes; frames that hold none of them go to `pool`.
    ///
    /// # Errors
    /// [`NoRoom::Short`] when the packet is shorter; nothing has changed then.
    pub fn truncate(&mut self, length: usize, pool: &mut Pool) -> Result<(), NoRoom> {
        if length > self.len() {
            return Err(NoRoom::Short);
        }
        if let Ok(head) = u16::try_from(length)
            && head <= self.length
        {
            self.length = head;
            self.release_rest(pool);
            return Ok(());
        }
        let kept = self.take_rest();
        let mut room = length - usize::from(self.length);
        for mut segment in kept {
            if room == 0 {
                pool.release_frame(segment.frame);
                continue;
            }
            segment.length = segment.length.min(u16::try_from(room).unwrap_or(u16::MAX));
            room -= usize::from(segment.length);
            self.push_segment(segment);
        }
        Ok(())
    }

    /// Makes the first `length` bytes contiguous in the head frame.
    ///
    /// # Errors
    /// [`NoRoom::Short`] when the packet is shorter, [`NoRoom::Back`] when the head frame has no
    /// room for them.
    ///
    /// Cost: nothing when they are already there; else a copy of what was missing.
    pub fn gather(&mut self, length: u16, pool: &mut Pool) -> Result<(), NoRoom> {
        if length <= self.length {
            return Ok(());
        }
        if usize::from(length) > self.len() {
            return Err(NoRoom::Short);
        }
        let mut missing = length - self.length;
        if usize::from(missing) > self.tailroom() {
            return Err(NoRoom::Back);
        }
        let rest = self.take_rest();
        for mut segment in rest {
            let moved = missing.min(segment.length);
            if moved > 0 {
                let source = table::slot(&segment.frame, u32::from(segment.offset), u32::from(moved));
                self.append(moved)?.copy_from_slice(source);
                missing -= moved;
                segment.offset += moved;
                segment.length -= moved;
            }
            if missing > 0 || segment.length == 0 {
                pool.release_frame(segment.frame);
            } else {
                self.push_segment(segment);
            }
        }
        Ok(())
    }

    /// Splits the packet at byte `at`: `self` keeps what is before, the result has what is after.
    ///
    /// Whole frames move; the part of a frame that is cut in two is copied into a new one.
    ///
    /// # Errors
    /// [`NoRoom::Short`] when the packet is shorter, [`NoRoom::Back`] when the pool has no frame;
    /// nothing has changed then.
    pub fn split_off(&mut self, at: usize, pool: &mut Pool) -> Result<Self, NoRoom> {
        if at > self.len() {
            return Err(NoRoom::Short);
        }
        let mut after = Self::new(pool.take().ok_or(NoRoom::Back)?);
        after.take_metadata_of(self);
        let mut position = usize::from(self.length);
        if at < position {
            let cut = u16::try_from(at).map_err(|_| NoRoom::Short)?;
            let (kept, moved) = (cut, self.length - cut);
            let room = after.head.slot_bytes() - u32::from(moved);
            after.offset = after.offset.min(u16::try_from(room).unwrap_or(u16::MAX));
            after.append(moved)?.copy_from_slice(&self.bytes()[usize::from(cut)..]);
            self.length = kept;
        }
        for segment in self.take_rest() {
            let end = position + usize::from(segment.length);
            if at >= end {
                self.push_segment(segment);
            } else if at <= position {
                after.push_segment(segment);
            } else {
                let kept = u16::try_from(at - position).map_err(|_| NoRoom::Short)?;
                let moved = segment.length - kept;
                let start = u32::from(segment.offset) + u32::from(kept);
                let room = after.head.slot_bytes() - u32::from(moved);
                after.offset = after.offset.min(u16::try_from(room).unwrap_or(u16::MAX));
                after.append(moved)?.copy_from_slice(table::slot(&segment.frame, start, u32::from(moved)));
                self.push_segment(Segment { length: kept, ..segment });
            }
            position = end;
        }
        Ok(after)
    }

    /// Puts the bytes of `other` at the end of this packet; no byte is copied.
    pub fn join(&mut self, other: Self) {
        for segment in other.into_segments() {
            self.push_segment(segment);
        }
    }

    /// Puts one more frame at the end of the chain.
    ///
    /// # Panics
    /// When the segment's data does not lie within its slot.
    ///
    /// Cost: a walk over the chain; chains are short.
    pub fn push_segment(&mut self, segment: Segment) {
        let Segment { frame, offset, length } = segment;
        assert!(u32::from(offset) + u32::from(length) <= frame.slot_bytes(), "data beyond its slot");
        let link = table::link(frame.place());
        link.next.store(0, Ordering::Relaxed);
        link.extent.store(u32::from(offset) << 16 | u32::from(length), Ordering::Relaxed);
        self.rest_length += u32::from(length);
        let Some(Chain(first)) = &self.rest else {
            self.rest = Some(Chain(frame));
            return;
        };
        let mut last = table::link(first.place());
        while let Some(next) = last.next() {
            last = table::link(next);
        }
        last.next.store(frame.into_place().into_word(), Ordering::Relaxed);
    }

    /// The data of each frame, in order.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        let first = self.rest.as_ref().map(|Chain(first)| first);
        let mut at = first.map(Frame::place);
        let rest = core::iter::from_fn(move || {
            let place = at?;
            let link = table::link(place);
            let (offset, length) = link.extent();
            at = link.next();
            Some(table::chained_slot(first?, place, offset, length))
        });
        core::iter::once(self.bytes()).chain(rest)
    }

    /// Number of frames.
    pub fn segment_count(&self) -> usize {
        self.segments().count()
    }

    /// Copies bytes from `offset` on into `target`; returns how many there were.
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> usize {
        let (mut skip, mut written) = (offset, 0);
        for segment in self.segments() {
            let from = skip.min(segment.len());
            skip -= from;
            let count = (segment.len() - from).min(target.len() - written);
            target[written..written + count].copy_from_slice(&segment[from..from + count]);
            written += count;
        }
        written
    }

    /// Takes the packet apart, frame by frame, in order.
    pub fn into_segments(self) -> impl Iterator<Item = Segment> {
        let Self { head, rest, offset, length, .. } = self;
        core::iter::once(Segment { frame: head, offset, length }).chain(Segments(rest))
    }

    /// The head frame of a packet of one frame with the extent of its data.
    ///
    /// # Errors
    /// The packet itself when it is a chain.
    #[inline]
    pub fn into_single(self) -> Result<Segment, Self> {
        if self.rest.is_some() {
            return Err(self);
        }
        Ok(Segment { frame: self.head, offset: self.offset, length: self.length })
    }

    /// Releases all frames after the head.
    fn release_rest(&mut self, pool: &mut Pool) {
        for segment in self.take_rest() {
            pool.release_frame(segment.frame);
        }
    }

    fn take_rest(&mut self) -> Segments {
        self.rest_length = 0;
        Segments(self.rest.take())
    }
}

/// Owned frames of a chain, first to last.
struct Segments(Option<Chain>);

impl Iterator for Segments {
    type Item = Segment;

    fn next(&mut self) -> Option<Segment> {
        let frame = self.0.take()?.into_first();
        let link = table::link(frame.place());
        let (offset, length) = link.extent();
        self.0 = link.next().map(|place| Chain(Frame::from_place(place)));
        Some(Segment { frame, offset, length })
    }
}

impl Chain {
    /// The first frame alone; the caller goes on with its link.
    fn into_first(self) -> Frame {
        let place = self.0.place();
        core::mem::forget(self);
        Frame::from_place(place)
    }
}

impl Drop for Chain {
    #[cold]
    fn drop(&mut self) {
        // The first frame goes home by itself; those behind it are reachable by links alone.
        let mut next = table::link(self.0.place()).next();
        while let Some(place) = next {
            next = table::link(place).next();
            drop(Frame::from_place(place));
        }
    }
}

impl Link {
    fn next(&self) -> Option<Place> {
        Place::from_word(self.next.load(Ordering::Relaxed))
    }

    fn extent(&self) -> (u16, u16) {
        let [a, b, c, d] = self.extent.load(Ordering::Relaxed).to_be_bytes();
        (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Region, RegionOptions};

    fn region() -> Region {
        Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test")
    }

    #[test]
    fn a_dropped_chain_comes_home_and_is_counted() {
        let region = region();
        let mut pool = region.pool();
        let packet = Packet::copy_from(&[7; 2000], &mut pool).expect("64 slots");
        assert_eq!(packet.segment_count(), 5);
        drop(packet);
        drop(pool);
        assert_eq!((region.home(), region.strays()), (64, 5));
    }

    #[test]
    fn bytes_outlive_their_region() {
        let region = region();
        let packet = Packet::copy_from(b"still here", &mut region.pool()).expect("64 slots");
        drop(region);
        assert_eq!(packet.bytes(), b"still here");
    }

    #[test]
    fn prepend_stops_at_the_slot() {
        let region = region();
        let mut packet = Packet::new(region.pool().take().expect("64 slots"));
        assert_eq!(packet.prepend(257).err(), Some(NoRoom::Front));
        assert!(packet.prepend(256).is_ok());
        assert_eq!(packet.prepend(1).err(), Some(NoRoom::Front));
    }
}
