//! Stage `segment`: cuts super-packets into segments.
//!
//! In: packets with a [`Segmentation`] whose egress port does not take them. Those in a tunnel get the outer
//! headers before each segment. Out: segments with partial checksums, in order. Exits: `CannotSegment`,
//! `NoBuffer`. Cost: one set of headers per segment; the payload is moved if it is a whole frame with
//! headroom, as after [`coalesce`](crate::coalesce), and copied otherwise. Checksums of tunnels do not read
//! the payload. Source: A6; fields of a segment's header: RFC 9293, 3.1 (sequence number, PSH, FIN), RFC
//! 3168, 6.1.2 (CWR), RFC 6864 (identification).

mod headers;

use crate::wire::{Tcp, Udp};
use headers::{Headers, LONGEST_PACKET};
use polder_buffers::{
    ChecksumState, HEADROOM, NoRoom, Packet, Pool, Segment, Segmentation, SegmentationKind, Segments,
};

/// The packet contradicts its metadata, which its sender chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet cannot be segmented as its metadata describe")]
pub struct Unfit;

/// Headroom in bytes that is left for outer headers if the payload is not copied.
const SPARE: u16 = HEADROOM / 2;

/// Number and length of a super-packet's segments, from its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// Length of the headers of each segment in bytes.
    pub header_bytes: usize,
    /// Length of the longest segment's frame in bytes.
    pub longest_bytes: usize,
    /// Number of segments.
    pub count: usize,
}

impl Measure {
    /// Computes the measure from the packet's metadata; `None` without a segmentation, and for a packet that
    /// ends within its headers.
    #[inline]
    pub fn of(packet: &Packet) -> Option<Self> {
        let start = usize::from(packet.checksum_start);
        let transport_bytes = match packet.segmentation.kind {
            SegmentationKind::None => return None,
            SegmentationKind::Udp => Udp::HEADER_BYTES,
            SegmentationKind::Tcp4 | SegmentationKind::Tcp6 => {
                let mut byte = [0];
                (packet.copy_out(start + Tcp::DATA_OFFSET, &mut byte) == 1).then_some(())?;
                usize::from(byte[0] >> 4) * 4
            }
        };
        let header_bytes = start + transport_bytes;
        let payload = packet.len().checked_sub(header_bytes)?;
        let size = usize::from(packet.segmentation.size).max(1);
        let (longest_bytes, count) = (header_bytes + payload.min(size), payload.div_ceil(size).max(1));
        Some(Self { header_bytes, longest_bytes, count })
    }

    /// Marks a packet, whose checksum is described already, as super-packet; it counts as its number of
    /// segments. A packet that ends within its headers counts as one.
    pub fn describe(packet: &mut Packet, segmentation: Segmentation) {
        packet.segmentation = segmentation;
        packet.wire_packets =
            Self::of(packet).map_or(1, |measure| u16::try_from(measure.count).unwrap_or(u16::MAX));
    }

    /// Measure of a packet outside of tunnels whose headers agree with its segmentation; `None` otherwise.
    pub fn of_described(packet: &mut Packet) -> Option<Self> {
        let is_plain = !packet.segmentation.outer.is_some() && headers::are_described(packet);
        Self::of(packet).filter(|_| is_plain)
    }
}

/// Segmentation of one super-packet, segment by segment.
///
/// A packet may have as many segments as bytes, so they are not made at once.
#[derive(Debug)]
pub struct Cutting {
    source: Source,
    headers: Headers,
    /// Metadata of each segment.
    pattern: Metadata,
    size: usize,
    /// Bytes of payload not yet in a segment.
    left: usize,
    /// Number of segments made.
    made: u32,
    count: u32,
}

impl Cutting {
    /// Starts the segmentation of `packet`.
    ///
    /// # Errors
    /// [`Unfit`] and the packet if its headers contradict its segmentation or are too long.
    #[cold]
    pub fn new(packet: Packet, pool: &mut Pool) -> Result<Self, (Unfit, Packet)> {
        let Some(headers) = Headers::of(&packet) else { return Err((Unfit, packet)) };
        let size = usize::from(packet.segmentation.size);
        let left = packet.len() - headers.len();
        let longest = headers.network_bytes() + left.min(size);
        // A packet without payload has one segment, whose headers are rewritten.
        let count = u32::try_from(left.div_ceil(size.max(1)).max(1));
        let (Ok(count), true) = (count, size > 0 && longest <= LONGEST_PACKET) else {
            return Err((Unfit, packet));
        };
        let pattern = Metadata::of(&packet);
        let mut source = Source { frames: packet.into_segments(), current: None };
        source.skip(headers.len(), pool);
        Ok(Self { source, headers, pattern, size, left, made: 0, count })
    }

    /// Total number of segments.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Number of segments not made yet.
    pub fn remaining(&self) -> u32 {
        self.count - self.made
    }

    /// Makes the next segment, whose checksum is partial; `None` after the last.
    ///
    /// # Errors
    /// [`NoRoom`] if the pool is empty; the caller then calls [`Cutting::give_up`].
    pub fn next(&mut self, pool: &mut Pool) -> Result<Option<Packet>, NoRoom> {
        if self.made == self.count {
            return Ok(None);
        }
        let length = self.size.min(self.left);
        let mut packet = self.payload(length, pool)?;
        self.left -= length;
        let is_last = self.made + 1 == self.count;
        self.headers.write(&mut packet, self.made, self.size, is_last);
        self.pattern.give(&mut packet, &self.headers);
        self.made += 1;
        if is_last {
            self.source.release(pool);
        }
        Ok(Some(packet))
    }

    /// Releases the remaining payload; returns the number of missing segments.
    #[cold]
    pub fn give_up(mut self, pool: &mut Pool) -> u32 {
        self.source.release(pool);
        self.remaining()
    }

    /// A packet with room for the headers, then the next `length` bytes of payload.
    fn payload(&mut self, length: usize, pool: &mut Pool) -> Result<Packet, NoRoom> {
        let headers = u16::try_from(self.headers.len()).map_err(|_| NoRoom::Front)?;
        if let Some(segment) = self.source.whole(length, headers + SPARE) {
            let mut packet = Packet::from_segment(segment);
            packet.prepend(headers)?;
            return Ok(packet);
        }
        let mut packet = Packet::new(pool.take().ok_or(NoRoom::Back)?);
        let copied =
            packet.append(headers).map(drop).and_then(|()| self.source.copy(length, &mut packet, pool));
        if let Err(error) = copied {
            pool.release_packet(packet);
            return Err(error);
        }
        Ok(packet)
    }
}

/// Frames of the super-packet that are not used up; the first may be partly used.
#[derive(Debug)]
struct Source {
    frames: Segments,
    current: Option<Segment>,
}

impl Source {
    /// The frame with the next bytes; `None` if all are used up.
    fn front(&mut self) -> Option<&mut Segment> {
        if self.current.is_none() {
            self.current = self.frames.next();
        }
        self.current.as_mut()
    }

    /// Skips the headers.
    fn skip(&mut self, mut bytes: usize, pool: &mut Pool) {
        while let Some(front) = self.front() {
            let here = u16::try_from(bytes).unwrap_or(u16::MAX).min(front.length);
            front.offset += here;
            front.length -= here;
            bytes -= usize::from(here);
            if front.length > 0 {
                return;
            }
            if let Some(empty) = self.current.take() {
                pool.release_frame(empty.frame);
            }
        }
    }

    /// The next frame, if it holds exactly the next `length` bytes and has `room` bytes of headroom; `None`
    /// otherwise.
    fn whole(&mut self, length: usize, room: u16) -> Option<Segment> {
        let front = self.front()?;
        // A shared frame must not be written to.
        let fits = usize::from(front.length) == length && front.offset >= room && !front.frame.is_shared();
        if fits { self.current.take() } else { None }
    }

    /// Appends a copy of the next `length` bytes to `packet`.
    fn copy(&mut self, mut length: usize, packet: &mut Packet, pool: &mut Pool) -> Result<(), NoRoom> {
        while length > 0 {
            let front = self.front().ok_or(NoRoom::Short)?;
            let take = u16::try_from(length).unwrap_or(u16::MAX).min(front.length);
            let start = usize::from(front.offset);
            packet.extend_from(&front.frame.slot()[start..start + usize::from(take)], pool)?;
            front.offset += take;
            front.length -= take;
            length -= usize::from(take);
            if front.length == 0
                && let Some(empty) = self.current.take()
            {
                pool.release_frame(empty.frame);
            }
        }
        Ok(())
    }

    /// Releases all frames.
    fn release(&mut self, pool: &mut Pool) {
        for segment in self.current.take().into_iter().chain(&mut self.frames) {
            pool.release_frame(segment.frame);
        }
    }
}

/// Metadata of the super-packet that every segment gets.
#[derive(Debug)]
struct Metadata {
    ingress: polder_buffers::PortId,
    egress: polder_buffers::PortId,
    network_offset: u16,
    transport_offset: u16,
    vlan: u16,
    flags: u8,
    flow_hash: u32,
    received_at: u64,
    ticket: u32,
}

impl Metadata {
    fn of(packet: &Packet) -> Self {
        Self {
            ingress: packet.ingress,
            egress: packet.egress,
            network_offset: packet.network_offset,
            transport_offset: packet.transport_offset,
            vlan: packet.vlan,
            flags: packet.flags,
            flow_hash: packet.flow_hash,
            received_at: packet.received_at,
            ticket: packet.ticket,
        }
    }

    fn give(&self, packet: &mut Packet, headers: &Headers) {
        packet.ingress = self.ingress;
        packet.egress = self.egress;
        packet.network_offset = self.network_offset;
        packet.transport_offset = self.transport_offset;
        packet.vlan = self.vlan;
        packet.flags = self.flags;
        packet.flow_hash = self.flow_hash;
        packet.received_at = self.received_at;
        packet.ticket = self.ticket;
        packet.checksum = ChecksumState::Partial;
        (packet.checksum_start, packet.checksum_offset) = headers.checksum_field();
    }
}
