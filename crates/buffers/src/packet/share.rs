//! Packets that share bytes: each has its own copy of the first bytes and references to the rest.

use super::{HEADROOM, Packet, Segment};
use crate::frame::table;
use crate::frame::{BufferAddress, Frame};
use crate::pool::Pool;

impl Packet {
    /// Creates a packet with the same bytes and metadata: the first `own` bytes are copied and writable, the
    /// rest is shared by reference. `None` if the pool has too few frames.
    ///
    /// Afterwards the head frames of both packets have at most `own` bytes (this packet's too, if its head
    /// was longer), with [`HEADROOM`] in front; the rest is read-only. Shared bytes are freed with the last
    /// packet, by any worker. If no alias is left ([`SHARED_FRAMES`](crate::SHARED_FRAMES)), they are copied.
    ///
    /// Cost: a small frame and `own` bytes for each new head, a few operations on shared cache lines per
    /// frame; independent of the length. Source: C1.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn share(&mut self, own: u16, pool: &mut Pool) -> Option<Self> {
        if self.length > own {
            self.move_to_rest(own, pool)?;
        }
        let mut other = self.head_copy(self.length, pool)?;
        let mut is_whole = true;
        for mut segment in self.take_rest() {
            let Segment { offset, length, .. } = segment;
            match segment.frame.share() {
                Some(frame) => other.push_segment(Segment { frame, offset, length }),
                None => {
                    let bytes = table::slot(&segment.frame, u32::from(offset), u32::from(length));
                    is_whole &= other.push_copy(bytes, pool).is_ok();
                }
            }
            self.push_segment(segment);
        }
        if is_whole {
            return Some(other);
        }
        other.into_segments().for_each(|segment| pool.release_frame(segment.frame));
        None
    }

    /// Moves all but the first `own` bytes of the head behind a new head.
    #[cfg_attr(debug_assertions, track_caller)]
    fn move_to_rest(&mut self, own: u16, pool: &mut Pool) -> Option<()> {
        let mut short = self.head_copy(own, pool)?;
        let (offset, length) = (self.offset + own, self.length - own);
        core::mem::swap(&mut self.head, &mut short.head);
        (self.offset, self.length) = (short.offset, short.length);
        let behind = self.take_rest();
        let frame = short.into_head();
        self.push_segment(Segment { frame, offset, length });
        behind.for_each(|segment| self.push_segment(segment));
        Some(())
    }

    /// Copies all metadata (not the bytes) from `other`.
    pub fn take_metadata_of(&mut self, other: &Self) {
        self.wire_packets = other.wire_packets;
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
        self.header_summary = other.header_summary;
    }

    /// Head frame of a packet; other frames are dropped.
    fn into_head(self) -> Frame {
        self.head
    }

    /// A packet with a copy of the first `length` bytes of the head, in the smallest available frame.
    #[cfg_attr(debug_assertions, track_caller)]
    fn head_copy(&self, length: u16, pool: &mut Pool) -> Option<Self> {
        let frame = match pool.take_for(u32::from(HEADROOM) + u32::from(length)) {
            Some(frame) => frame,
            None => pool.take()?,
        };
        let room = frame.slot_bytes().checked_sub(u32::from(length));
        let Some(room) = room else {
            pool.release_frame(frame);
            return None;
        };
        let offset = HEADROOM.min(u16::try_from(room).unwrap_or(HEADROOM));
        let mut copy = Self::from_segment(Segment { frame, offset, length });
        copy.bytes_mut().copy_from_slice(&self.bytes()[..usize::from(length)]);
        copy.take_metadata_of(self);
        Some(copy)
    }

    /// True if some of its bytes are shared with another packet.
    pub fn is_shared(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.places().any(BufferAddress::is_shared))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        FragmentMemory, FragmentOptions, HEADROOM, Packet, Pool, Region, RegionOptions, SHARED_FRAMES,
    };

    fn stand() -> (Region, FragmentMemory, Pool) {
        let region = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 }).expect("memory for a test");
        let options = FragmentOptions { blocks: 8, ..FragmentOptions::default() };
        let memory = FragmentMemory::new(options).expect("memory for a test");
        let pool = region.pool().with_fragments(memory.fragments());
        (region, memory, pool)
    }

    fn content(packet: &Packet) -> Vec<u8> {
        packet.segments().flatten().copied().collect()
    }

    #[test]
    fn headers_are_own_and_the_rest_is_there_once() {
        let (region, memory, mut pool) = stand();
        let bytes = (0..3000_u32).map(|byte| byte.to_le_bytes()[0]).collect::<Vec<_>>();
        let mut first = Packet::copy_from(&bytes, &mut pool).expect("64 slots");
        first.vlan = 7;
        assert!(first.lies_in(region.id()) && !first.is_shared());
        let before = (region.slots() as usize, pool.cached());
        let mut others = [0; 3].map(|_| first.share(60, &mut pool).expect("slots, blocks and names"));
        assert_eq!((region.slots() as usize, pool.cached()), before, "only fragments were taken");
        for (number, other) in others.iter_mut().enumerate() {
            assert_eq!((content(other), other.vlan, other.headroom()), (bytes.clone(), 7, HEADROOM));
            assert!(other.is_shared() && !other.is_contiguous());
            other.bytes_mut().fill(u8::try_from(number).expect("three"));
            other.prepend(38).expect("headroom").fill(9);
        }
        assert!(content(&first) == bytes && first.is_shared() && !first.lies_in(region.id()));
        let place = |packet: &Packet| packet.segments().nth(1).map(<[u8]>::as_ptr);
        assert!(others.iter().all(|other| place(other) == place(&first)));
        pool.release_packet(first);
        assert_eq!(content(&others[1])[98..], bytes[60..], "the bytes stay with those that are left");
        others.into_iter().for_each(|other| pool.release_packet(other));
        drop(pool);
        assert!(memory.is_home());
        assert_eq!((region.free_slots(), region.late_frees(), memory.late_frees()), (64, 0, 0));
    }

    #[test]
    fn the_last_name_may_write_again() {
        let (region, _memory, mut pool) = stand();
        let mut frame = pool.take().expect("64 slots");
        frame.slot_mut()[..4].copy_from_slice(b"once");
        let (slot, mut other) = (frame.index(), frame.share().expect("names"));
        let third = other.share().expect("names");
        assert_eq!((&third.slot()[..4], third.offset_in_region()), (&b"once"[..], u64::from(slot) << 11));
        assert!(other.index() != frame.index() && frame.index() >= region.slots());
        let frame = frame.into_own().expect_err("there are others");
        pool.release_frame(frame);
        pool.release_frame(third);
        let mut own = other.into_own().expect("it is the last one");
        own.slot_mut().fill(0);
        assert_eq!(own.index(), slot);
        pool.release_frame(own);
    }

    #[test]
    #[should_panic(expected = "shared")]
    fn nobody_writes_what_others_read() {
        let (_region, _memory, mut pool) = stand();
        let mut frame = pool.take().expect("64 slots");
        let _other = frame.share();
        frame.slot_mut()[0] = 1;
    }

    #[test]
    fn names_run_out_and_bytes_are_copied() {
        let (region, memory, mut pool) = stand();
        let mut first = Packet::copy_from(&[5; 1000], &mut pool).expect("64 slots");
        // Names for the 64 slots: one for the packet itself, and 63 for others.
        let others = (0..70).map(|_| first.share(40, &mut pool).expect("enough")).collect::<Vec<_>>();
        let shared = others.iter().filter(|other| other.is_shared()).count();
        assert_eq!(shared, 64.min(SHARED_FRAMES as usize) - 1);
        assert!(others.iter().all(|other| content(other) == [5; 1000]));
        drop(others);
        drop(first);
        drop(pool);
        assert!(memory.is_home() && region.free_slots() == 64, "dropped, but home");
    }
}
