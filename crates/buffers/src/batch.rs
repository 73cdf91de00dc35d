//! Up to [`BATCH`] packets, in order.

use crate::packet::Packet;
use core::ops::{Deref, DerefMut};

/// Packets that one batch holds at most: 4 KiB of packet metadata, an eighth of a first-level cache.
pub const BATCH: usize = 64;

/// Up to [`BATCH`] packets, in the order in which they came.
///
/// Memory for all of them is taken by [`Batch::new`]; from then on a batch does not allocate.
#[derive(Debug)]
pub struct Batch {
    packets: Vec<Packet>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self { packets: Vec::with_capacity(BATCH) }
    }

    /// Packets that can still be put in.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH - self.packets.len()
    }

    /// Hints that packets and the first bytes of each are going to be read: another core has them.
    #[inline]
    pub fn fetch(&self) {
        // The packets' own lines first, all at once, then what they lead to.
        self.packets.iter().for_each(crate::prefetch);
        self.packets.iter().for_each(Packet::prefetch);
    }

    /// Hints that the batch, which is empty, is going to be filled: another core has its memory.
    #[inline]
    pub fn fetch_to_fill(&mut self) {
        self.packets.spare_capacity_mut().iter().for_each(crate::prefetch::prefetch_to_write);
    }

    /// True if nothing more can be put in.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.packets.len() == BATCH
    }

    /// Puts a packet at the end.
    ///
    /// # Errors
    /// The packet itself when the batch is full.
    ///
    /// Cost: the packet is written where it stays, also one that is made in the call: no copy.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: a packet is written to where it stays")]
    pub fn push(&mut self, packet: Packet) -> Result<(), Packet> {
        let count = self.packets.len();
        // With a call that may grow and panic in between, the packet would be kept aside to be dropped.
        let Some(place) = self.packets.spare_capacity_mut().first_mut().filter(|_| count < BATCH) else {
            return Err(packet);
        };
        place.write(packet);
        // SAFETY: (1) the element at `count` was written above; (2) it is within the capacity, of which
        // it was the first spare one.
        unsafe { self.packets.set_len(count + 1) };
        Ok(())
    }

    /// Takes the last packet.
    #[inline]
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop()
    }

    /// Takes the first `count` packets (or all, if there are fewer), in order.
    #[inline]
    pub fn drain_front(&mut self, count: usize) -> impl Iterator<Item = Packet> + '_ {
        let count = count.min(self.packets.len());
        self.packets.drain(..count)
    }

    /// Takes all packets, in order.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Packet> + '_ {
        self.packets.drain(..)
    }

    /// Empties the batch without ending its packets; the caller has taken over what they name.
    #[inline(always)]
    #[expect(unsafe_code, reason = "UNSAFETY: elements are forgotten, not moved out one by one")]
    pub(crate) fn forget(&mut self) {
        // SAFETY: 0 is within the capacity, and of no elements all are initialised; what is not dropped is
        // forgotten, which is safe.
        unsafe { self.packets.set_len(0) };
    }

    /// Moves each packet, in order, to the end of that of `others` which `choose` names. What it names none
    /// for, or one that is full, goes to `refuse`.
    ///
    /// Cost: a copy of 64 bytes a packet, without a stop in registers or on the stack.
    #[inline]
    #[expect(unsafe_code, reason = "UNSAFETY: packets are moved from one vector to another, bytewise")]
    pub fn scatter(
        &mut self,
        others: &mut [Self],
        choose: impl Fn(&Packet) -> usize,
        mut refuse: impl FnMut(Packet),
    ) {
        let count = self.packets.len();
        // SAFETY: 0 is within the capacity, and of no elements all are initialised. Should a closure panic,
        // packets that are left are forgotten, and none is there twice.
        unsafe { self.packets.set_len(0) };
        let packets = self.packets.spare_capacity_mut();
        for place in packets.iter_mut().take(count) {
            // SAFETY: the first `count` elements were initialised when they were the vector's; this loop
            // comes by each of them once, and moves it out after this borrow has ended.
            let packet = unsafe { place.assume_init_ref() };
            if let Some(other) = others.get_mut(choose(packet))
                && let length = other.packets.len()
                && length < BATCH
                && let Some(free) = other.packets.spare_capacity_mut().first_mut()
            {
                *free = core::mem::replace(place, core::mem::MaybeUninit::uninit());
                // SAFETY: (1) the element at `length` is the packet, which was initialised; (2) it is within
                // the capacity, of which it was the first spare one; (3) where it came from, the vector has
                // no elements any more.
                unsafe { other.packets.set_len(length + 1) };
                continue;
            }
            // SAFETY: as above; nothing else reads this element again.
            refuse(unsafe { place.assume_init_read() });
        }
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

impl Default for Batch {
    /// An empty batch without memory, to stand where another one was taken away.
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
    fn what_is_scattered_is_somewhere_once_and_in_order() {
        let region = Region::new(RegionOptions { slots: 512, slot_bytes: 2048 }).expect("memory");
        let mut pool = region.pool();
        let (mut batch, mut refused) = (Batch::new(), Batch::new());
        let mut others = [Batch::new(), Batch::new()];
        // Room for ten more in the second, and for nobody in the third, which is not there.
        fill(&mut others[1], &mut pool, BATCH - 10);
        fill(&mut batch, &mut pool, BATCH);
        let which = |packet: &Packet| usize::from(packet.bytes()[0] % 3);
        batch.scatter(&mut others, which, |packet| {
            assert!(refused.push(packet).is_ok(), "room");
        });
        assert!(batch.is_empty());
        let of = |rest: u8| (0..64).filter(move |number| number % 3 == rest).collect::<Vec<u8>>();
        assert_eq!(firsts(&others[0]), of(0));
        assert_eq!(firsts(&others[1])[BATCH - 10..], of(1)[..10]);
        let mut left = of(1)[10..].iter().chain(&of(2)).copied().collect::<Vec<_>>();
        left.sort_unstable();
        assert_eq!(firsts(&refused), left);
        for batch in others.iter_mut().chain([&mut refused, &mut batch]) {
            pool.release(batch);
        }
    }
}
