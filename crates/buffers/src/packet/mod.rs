//! Packet: a chain of frames with metadata.

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

/// Headroom of a new packet in bytes.
///
/// The same as XDP's (`XDP_PACKET_HEADROOM`): room for every stack of tunnels that a configuration can
/// describe.
pub const HEADROOM: u16 = 256;

/// Number of a port: devices first, then tunnels, in the order of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u16);

/// Port of a packet whose port is not decided yet.
pub const NO_PORT: PortId = PortId(u16::MAX);

/// Reason why bytes do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The headroom of the head frame is too small.
    #[error("the packet has too little headroom")]
    Front,
    /// The tailroom of the last frame is too small, or the pool is empty.
    #[error("the packet has too little tailroom, or no buffer is free")]
    Back,
    /// The packet is too short.
    #[error("the packet has fewer bytes than the operation needs")]
    Short,
}

/// A chain of frames with metadata; 64 bytes, moved by value.
///
/// Bytes are Ethernet frames without FCS unless a stage says otherwise. Packets of one frame are the fast
/// path; every method also works on chains.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Packet {
    head: Frame,
    rest: Option<Chain>,
    offset: u16,
    length: u16,
    rest_length: u16,
    /// Number of packets on the wire: 1, or the number of segments of a super-packet.
    pub wire_packets: u16,
    /// Ingress port; the tunnel once the packet is decapsulated.
    pub ingress: PortId,
    /// Egress port.
    pub egress: PortId,
    /// Offset of the network header in bytes.
    pub network_offset: u16,
    /// Offset of the transport header in bytes; 0 if unknown.
    pub transport_offset: u16,
    /// VLAN of the bridge: 1 to 4094, or 0 for none.
    pub vlan: u16,
    /// Offset in bytes of the range of the transport checksum.
    pub checksum_start: u16,
    /// Offset of the checksum field from `checksum_start`, in bytes.
    pub checksum_offset: u16,
    /// Segmentation of a super-packet.
    pub segmentation: Segmentation,
    /// State of the transport checksum.
    pub checksum: ChecksumState,
    /// Flags of the stages; cleared on receive.
    pub flags: u8,
    /// Hash of the flow; 0 if not computed.
    pub flow_hash: u32,
    /// Time of reception, in nanoseconds of the gateway's clock.
    pub received_at: u64,
    /// Ticket number plus one if the packet's bucket is spread over workers; 0 otherwise.
    pub ticket: u32,
    /// See [`Packet::header_summary`].
    header_summary: u32,
}

const _: () = assert!(size_of::<Packet>() == 64);

/// Number of packets on the wire that the packets represent.
#[inline]
pub fn wire_packets(packets: &[Packet]) -> u64 {
    packets.iter().map(|packet| u64::from(packet.wire_packets)).sum()
}

/// Frames after the head: the first one, linked to the next.
#[derive(Debug)]
struct Chain(Frame);

/// One frame of a chain, with the range of its data.
#[derive(Debug)]
pub struct Segment {
    /// The frame.
    pub frame: Frame,
    /// Offset of the data in the slot, in bytes.
    pub offset: u16,
    /// Length of the data in bytes.
    pub length: u16,
}

impl Packet {
    /// An empty packet with [`HEADROOM`] bytes of headroom (or half of the slot, if that is smaller).
    #[inline]
    pub fn new(frame: Frame) -> Self {
        let half = frame.slot_bytes() / 2;
        let offset = HEADROOM.min(u16::try_from(half).unwrap_or(u16::MAX));
        Self::from_segment(Segment { frame, offset, length: 0 })
    }

    /// Creates a packet from the bytes that a device wrote to `segment`.
    ///
    /// # Panics
    /// If the segment exceeds its slot (drivers check descriptors before), or if its frame is shared, since
    /// stages write to the head frame.
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

    /// Header summary, as stored by the datapath's parser; 0 if unknown.
    ///
    /// Every method that may change bytes, start or end of the packet clears it.
    #[inline(always)]
    pub fn header_summary(&self) -> u32 {
        self.header_summary
    }

    /// Bytes in the head frame and the [header summary](Packet::header_summary), for the parser.
    #[inline(always)]
    pub fn bytes_and_header_summary(&mut self) -> (&[u8], &mut u32) {
        let bytes = table::slot(&self.head, u32::from(self.offset), u32::from(self.length));
        (bytes, &mut self.header_summary)
    }

    /// Stores the header summary.
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

    /// True if all frames are unshared slots of `region`, as devices need that know one region only.
    #[inline]
    pub fn lies_in(&self, region: NonZeroU16) -> bool {
        let is_slot = |place: BufferAddress| place.region() == region.get() && !place.is_shared();
        is_slot(self.head.place()) && self.rest.as_ref().is_none_or(|rest| rest.places().all(is_slot))
    }

    /// Number of bytes in the head frame.
    #[inline(always)]
    pub fn head_len(&self) -> usize {
        usize::from(self.length)
    }

    /// Bytes in the head frame: the whole packet unless it is a chain.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        table::slot(&self.head, u32::from(self.offset), u32::from(self.length))
    }

    /// Bytes in the head frame, for writing; clears the [header summary](Packet::header_summary).
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.forget_headers();
        table::slot_mut(&mut self.head, u32::from(self.offset), u32::from(self.length))
    }

    /// Bytes in the head frame and the egress port, for stages that write both.
    ///
    /// Keeps the [header summary](Packet::header_summary): the caller must not change types and lengths of
    /// headers.
    #[inline(always)]
    pub fn bytes_and_egress(&mut self) -> (&mut [u8], &mut PortId) {
        let bytes = table::slot_mut(&mut self.head, u32::from(self.offset), u32::from(self.length));
        (bytes, &mut self.egress)
    }

    /// Head frame; equal indices mean that two packets share memory.
    #[inline]
    pub fn head(&self) -> &Frame {
        &self.head
    }

    /// Headroom in bytes.
    #[inline]
    pub fn headroom(&self) -> u16 {
        self.offset
    }

    /// Prefetches the first bytes for reading.
    #[inline(always)]
    pub fn prefetch(&self) {
        crate::prefetch(self.bytes());
    }

    /// Prefetches the first bytes for writing; another core may have them in its cache.
    #[inline(always)]
    pub fn prefetch_to_write(&self) {
        crate::prefetch::prefetch_to_write(self.bytes());
    }

    /// Prepends `length` bytes and returns them; their content is arbitrary but initialised.
    ///
    /// # Errors
    /// [`NoRoom::Front`] if the headroom is too small; nothing is changed then.
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

    /// Removes `length` bytes from the front.
    ///
    /// # Errors
    /// [`NoRoom::Short`] if the head frame has fewer; nothing is changed then. For a chain with headers in
    /// several frames, call [`Packet::gather`] first.
    #[inline]
    pub fn trim_front(&mut self, length: u16) -> Result<(), NoRoom> {
        self.length = self.length.checked_sub(length).ok_or(NoRoom::Short)?;
        self.offset += length;
        self.forget_headers();
        Ok(())
    }

    /// Returns the head frame and data range of a packet of one frame.
    ///
    /// # Errors
    /// The packet itself if it is a chain.
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
