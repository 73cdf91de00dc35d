//! A packet: a chain of frames and what is known of it.

mod chain;
mod front;
mod offloads;
mod share;
mod tail;

pub use chain::Segments;
pub use front::Fronts;
pub use offloads::{ChecksumState, OuterHeaders, Segmentation, SegmentationKind};
pub use tail::Tail;

use crate::frame::table;
use crate::frame::{BufferAddress, Frame};
use core::num::NonZeroU16;

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
    rest_length: u16,
    /// Packets that it is on a link: 1, or of a super-packet its segments.
    pub wire_packets: u16,
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
    /// State of its transport checksum.
    pub checksum: ChecksumState,
    /// Use of the stages; cleared on receive.
    pub flags: u8,
    /// Hash of the flow; 0 when not computed.
    pub flow_hash: u32,
    /// Time at which it was received, in nanoseconds of the gateway's clock.
    pub received_at: u64,
    /// Place in the order of its bucket, when its bucket is spread over workers.
    pub ticket: u32,
    /// See [`Packet::header_summary`].
    header_summary: u32,
}

const _: () = assert!(size_of::<Packet>() == 64);

/// Packets that those of a batch, or of a part of one, are on a link.
#[inline]
pub fn wire_packets(packets: &[Packet]) -> u64 {
    packets.iter().map(|packet| u64::from(packet.wire_packets)).sum()
}

/// The frames after the head: the first of them, which links to the next.
#[derive(Debug)]
struct Chain(Frame);

/// One frame of a chain with the extent of its data.
#[derive(Debug)]
pub struct Segment {
    /// The slot.
    pub frame: Frame,
    /// Offset of the data in the slot, in bytes.
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
    /// When the segment's data does not lie within its slot (drivers check what devices say first), or
    /// when its frame is shared: the head is where stages write.
    #[inline]
    pub fn from_segment(segment: Segment) -> Self {
        let Segment { frame, offset, length } = segment;
        let end = i64::from(offset) + i64::from(length);
        assert!(end <= table::own_bytes(frame.place()), "data beyond its slot, or shared");
        Self {
            head: frame,
            rest: None,
            offset,
            length,
            rest_length: 0,
            wire_packets: 1,
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
            header_summary: 0,
        }
    }

    /// Kinds and lengths of the headers, as the datapath's parser has noted them; 0 when they are not known.
    ///
    /// Every method by which bytes may change, or the packet's start or end, forgets them.
    #[inline(always)]
    pub fn header_summary(&self) -> u32 {
        self.header_summary
    }

    /// Bytes in the head frame and the [header summary](Packet::header_summary), for the parser that notes it.
    #[inline(always)]
    pub fn bytes_and_header_summary(&mut self) -> (&[u8], &mut u32) {
        let bytes = table::slot(&self.head, u32::from(self.offset), u32::from(self.length));
        (bytes, &mut self.header_summary)
    }

    /// Notes kinds and lengths of the headers.
    #[inline(always)]
    pub fn set_header_summary(&mut self, summary: u32) {
        self.header_summary = summary;
    }

    #[inline(always)]
    fn forget_headers(&mut self) {
        self.header_summary = 0;
    }

    /// Length of the whole chain in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet is a datagram, not a collection")]
    pub fn len(&self) -> usize {
        usize::from(self.length) + usize::from(self.rest_length)
    }

    /// True if all bytes are in the head frame.
    #[inline(always)]
    pub fn is_contiguous(&self) -> bool {
        self.rest.is_none()
    }

    /// True if all its frames are whole slots of `region` and no other packet's, as devices need them
    /// that know the slots of one region.
    #[inline]
    pub fn lies_in(&self, region: NonZeroU16) -> bool {
        let is_slot = |place: BufferAddress| place.region() == region.get() && !place.is_shared();
        is_slot(self.head.place()) && self.rest.as_ref().is_none_or(|rest| rest.places().all(is_slot))
    }

    /// Number of bytes that are in the head frame.
    #[inline(always)]
    pub fn head_len(&self) -> usize {
        usize::from(self.length)
    }

    /// The bytes in the head frame: all of them, unless the packet is a chain.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        table::slot(&self.head, u32::from(self.offset), u32::from(self.length))
    }

    /// Bytes in the head frame, for writing; the [header summary](Packet::header_summary) is forgotten.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.forget_headers();
        table::slot_mut(&mut self.head, u32::from(self.offset), u32::from(self.length))
    }

    /// Bytes in the head frame and the egress port, for stages that write both.
    ///
    /// The [header summary](Packet::header_summary) stays: the kinds and lengths of headers are not to be changed.
    #[inline(always)]
    pub fn bytes_and_egress(&mut self) -> (&mut [u8], &mut PortId) {
        let bytes = table::slot_mut(&mut self.head, u32::from(self.offset), u32::from(self.length));
        (bytes, &mut self.egress)
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
        self.forget_headers();
        Ok(table::slot_mut(&mut self.head, u32::from(offset), u32::from(length)))
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
        self.forget_headers();
        Ok(())
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, Region, RegionOptions};

    fn region() -> Region {
        Region::new(RegionOptions { slots: 64, slot_bytes: 512 }).expect("memory for a test")
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

    /// A method that a test calls, and its name.
    type Change = (&'static str, fn(&mut Packet, &mut Pool));

    /// Methods that may change bytes, or the packet's start or end, forget the headers; copies keep them.
    #[test]
    fn a_header_summary_is_no_older_than_the_bytes() {
        let region = region();
        let mut pool = region.pool();
        let changes: [Change; 11] = [
            ("bytes_mut", |packet, _| {
                packet.bytes_mut();
            }),
            ("prepend", |packet, _| {
                packet.prepend(4).expect("headroom");
            }),
            ("append", |packet, _| {
                packet.append(4).expect("tailroom");
            }),
            ("trim_front", |packet, _| packet.trim_front(4).expect("longer")),
            ("truncate", |packet, pool| packet.truncate(60, pool).expect("longer")),
            ("extend_from", |packet, pool| packet.extend_from(&[1; 600], pool).expect("64 slots")),
            ("push_segment", |packet, pool| {
                let frame = pool.take().expect("64 slots");
                packet.push_segment(Segment { frame, offset: 0, length: 9 });
            }),
            ("attach", |packet, pool| {
                let mut tail = Tail::default();
                tail.prepend(Packet::copy_from(&[2; 9], pool).expect("64 slots"));
                packet.attach(tail);
            }),
            ("split_off", |packet, pool| {
                let rest = packet.split_off(50, pool).expect("64 slots");
                assert_eq!(rest.header_summary(), 0, "what is behind begins with something else");
                pool.release_packet(rest);
            }),
            ("gather", |packet, pool| {
                packet.join(Packet::copy_from(&[2; 9], pool).expect("64 slots"));
                packet.set_header_summary(7);
                packet.gather(105, pool).expect("room");
            }),
            ("share", |packet, pool| {
                let copy = packet.share(32, pool).expect("64 slots");
                assert_eq!(copy.header_summary(), 0, "its head is shorter");
                pool.release_packet(copy);
            }),
        ];
        for (name, change) in changes {
            let mut packet = Packet::copy_from(&[0; 100], &mut pool).expect("64 slots");
            assert_eq!(packet.header_summary(), 0);
            packet.set_header_summary(7);
            let copy = packet.duplicate(&mut pool).expect("64 slots");
            assert_eq!((copy.header_summary(), packet.bytes_and_egress().0.len()), (7, 100));
            pool.release_packet(copy);
            assert_eq!(packet.header_summary(), 7);
            change(&mut packet, &mut pool);
            assert_eq!(packet.header_summary(), 0, "{name}");
            pool.release_packet(packet);
        }
    }
}
