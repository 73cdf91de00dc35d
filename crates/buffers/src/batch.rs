//! Up to [`BATCH`] packets, in order.

use crate::packet::Packet;
use core::mem::MaybeUninit;
use core::ops::{Deref, DerefMut};

/// Maximum number of packets in a batch: 4 KiB of packet metadata, an eighth of a first-level cache.
pub const BATCH: usize = 64;

/// Up to [`BATCH`] packets in order.
///
/// [`Batch::new`] allocates memory for all of them; later operations do not allocate.
#[derive(Debug)]
pub struct Batch {
    packets: Vec<Packet>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self { packets: Vec::with_capacity(BATCH) }
    }

    /// Number of packets that still fit.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH - self.packets.len()
    }

    /// Prefetches the packets and their first bytes, which another core has written.
    #[inline]
    pub fn fetch(&self) {
        // First the packets' own cache lines, all at once, then their data.
        self.packets.iter().for_each(crate::prefetch);
        self.packets.iter().for_each(Packet::prefetch);
    }

    /// Prefetches the memory of the empty batch for writing; another core has it in its cache.
    #[inline]
    pub fn fetch_to_fill(&mut self) {
        self.packets.spare_capacity_mut().iter().for_each(crate::prefetch::prefetch_to_write);
    }

    /// True if the batch is full.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.packets.len() == BATCH
    }

    /// Appends a packet.
    ///
    /// # Errors
    /// The packet itself if the batch is full.
    ///
    /// Cost: the packet is written in place, without a copy on the stack.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: a packet is written to where it stays")]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        let count = self.packets.len();
        // A call that may grow and panic would force the compiler to keep a copy of the packet.
        let Some(place) = self.packets.spare_capacity_mut().first_mut().filter(|_| count < BATCH) else {
            return Err(packet);
        };
        place.write(packet);
        // SAFETY: (1) the element at `count` was written above; (2) it is within the capacity, of which
        // it was the first spare one.
        unsafe { self.packets.set_len(count + 1) };
        Ok(())
    }

    /// Removes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop()
    }

    /// Removes the first `count` packets (or all, if there are fewer), in order.
    #[inline]
    pub fn drain_front(&mut self, count: usize) -> impl Iterator<Item = Packet> + '_ {
        let count = count.min(self.packets.len());
        self.packets.drain(..count)
    }

    /// Removes all packets, in order.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.packets.drain(..)
    }

    /// Empties the batch without dropping its packets; the caller has taken over their frames.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: elements are forgotten, not moved out one by one")]
    pub(crate) fn forget(&mut self) {
        // SAFETY: 0 is within the capacity, and of no elements all are initialised; what is not dropped is
        // forgotten, which is safe.
        unsafe { self.packets.set_len(0) };
    }

    /// Removes all packets, to be moved to other batches by index. The batch is empty from now on; packets
    /// that are not moved are forgotten, as by `core::mem::forget`.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: packets are moved from one vector to another, bytewise")]
    pub fn deal(&mut self) -> Deal<'_> {
        let count = self.packets.len();
        let left = if count < BATCH { (1 << count) - 1 } else { u64::MAX };
        // SAFETY: 0 is within the capacity, and of no elements all are initialised.
        unsafe { self.packets.set_len(0) };
        Deal { places: self.packets.spare_capacity_mut(), left }
    }

    /// Moves packets from the front of `other` to the end of this batch while there is room.
    #[inline]
    pub fn append(&mut self, other: &mut Self) {
        let count = self.room().min(other.packets.len());
        if count == other.packets.len() {
            self.packets.append(&mut other.packets);
        } else {
            self.packets.extend(other.packets.drain(..count));
        }
    }
}

/// Packets of a batch that are moved to other batches by index.
#[derive(Debug)]
pub struct Deal<'a> {
    /// Packets; an element is initialised if its bit in `left` is set.
    places: &'a mut [MaybeUninit<Packet>],
    left: u64,
}

impl Deal<'_> {
    /// Moves the packet at index `place` to the end of a batch; false, and nothing is moved, if it was moved
    /// before or that batch is full.
    ///
    /// Cost: a copy of 64 bytes, without a temporary copy.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: packets are moved from one vector to another, bytewise")]
    pub fn move_to(&mut self, place: usize, other: &mut Batch) -> bool {
        let length = other.packets.len();
        if place >= BATCH || self.left >> place & 1 == 0 || length >= BATCH {
            return false;
        }
        let Some(from) = self.places.get_mut(place) else { return false };
        let Some(free) = other.packets.spare_capacity_mut().first_mut() else { return false };
        self.left &= !(1 << place);
        *free = core::mem::replace(from, MaybeUninit::uninit());
        // SAFETY: (1) the element at `length` is the packet, which was initialised, because its bit was set; (2) it is
        // within the capacity, of which it was the first spare one; (3) where it came from, the vector has no elements
        // any more, and without its bit it is not moved again.
        unsafe { other.packets.set_len(length + 1) };
        true
    }
}

impl Default for Batch {
    /// An empty batch without memory, as a placeholder.
    fn default() -> Self {
        Self { packets: Vec::new() }
    }
}

impl Deref for Batch {
    type Target = [Packet];

    #[inline]
    fn deref(&self) -> &[Packet] {
        &self.packets
    }
}

impl DerefMut for Batch {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Packet] {
        &mut self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, Region, RegionOptions};

    fn fill(batch: &mut Batch, pool: &mut Pool, count: usize) {
        for number in 0..count {
            let byte = u8::try_from(number).expect("at most a batch");
            let packet = Packet::copy_from(&[byte; 60], pool).expect("memory");
            assert!(batch.push(packet).is_ok(), "room");
        }
    }

    fn firsts(batch: &Batch) -> Vec<u8> {
        batch.iter().map(|packet| packet.bytes()[0]).collect()
    }

    #[test]
    fn what_is_dealt_is_somewhere_once() {
        let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).expect("memory");
        let mut pool = region.pool();
        let (mut batch, mut others) = (Batch::new(), [Batch::new(), Batch::new()]);
        for count in [BATCH, 10, 1, 0] {
            fill(&mut batch, &mut pool, count);
            let mut deal = batch.deal();
            for place in (0..count).rev() {
                assert!(deal.move_to(place, &mut others[place % 2]));
                assert!(!deal.move_to(place, &mut others[0]), "it was moved");
            }
            assert!(!deal.move_to(count, &mut others[0]) && !deal.move_to(usize::MAX, &mut others[0]));
            assert!(batch.is_empty());
            let of = |rest: usize| (0..count).rev().filter(move |place| place % 2 == rest);
            for (rest, other) in others.iter_mut().enumerate() {
                assert!(firsts(other).into_iter().map(usize::from).eq(of(rest)));
                pool.release(other);
            }
        }
        // What has no room stays.
        fill(&mut others[1], &mut pool, BATCH);
        fill(&mut batch, &mut pool, 2);
        let mut deal = batch.deal();
        assert!(
            !deal.move_to(1, &mut others[1])
                && deal.move_to(1, &mut others[0])
                && deal.move_to(0, &mut others[0])
        );
        others.iter_mut().for_each(|other| pool.release(other));
    }
}
