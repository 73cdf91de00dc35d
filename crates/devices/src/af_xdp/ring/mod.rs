//! Descriptors and cursors of a socket's four rings.
//!
//! A ring has one producer and one consumer; Polder is one of them, the kernel the other. Each end keeps its
//! own cursor and a copy of the other cursor, and reads the other cursor again only if the copy says that the
//! ring is empty: on a busy ring the two ends share a cache line once per batch. Cursors count up and wrap at
//! 2³²; their difference is the number of entries.
//!
//! Source: Linux, net/xdp/xsk_queue.h, "The structure of the shared state of the rings".

mod sys;

#[cfg(test)]
pub(super) use sys::HeapRing;
pub(super) use sys::RingMemory;

use core::sync::atomic::Ordering;

/// A packet or a part of one, as the kernel sees it (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Offset of the first byte in the region.
    pub(super) address: u64,
    /// Length in bytes.
    pub(super) length: u32,
    /// True if the next descriptor belongs to the same packet.
    pub(super) continues: bool,
}

/// Entry of a ring: a fixed number of 64-bit words.
pub(super) trait Entry: Copy {
    /// Number of words of an entry, a power of two.
    const WORDS: usize;
    fn read(word: impl Fn(usize) -> u64) -> Self;
    fn write(self, word: impl FnMut(usize, u64));
}

/// Fill and completion rings carry addresses.
#[expect(clippy::use_self, reason = "the words of a ring have 64 bits, whatever its entries are")]
impl Entry for u64 {
    const WORDS: usize = 1;

    #[inline(always)]
    fn read(word: impl Fn(usize) -> u64) -> Self {
        word(0)
    }

    #[inline(always)]
    fn write(self, mut word: impl FnMut(usize, u64)) {
        word(0, self);
    }
}

impl Entry for Descriptor {
    const WORDS: usize = 2;

    #[inline(always)]
    fn read(word: impl Fn(usize) -> u64) -> Self {
        let [l0, l1, l2, l3, o0, o1, o2, o3] = word(1).to_ne_bytes();
        let options = u32::from_ne_bytes([o0, o1, o2, o3]);
        Self {
            address: word(0),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            continues: options & libc::XDP_PKT_CONTD != 0,
        }
    }

    #[inline(always)]
    fn write(self, mut word: impl FnMut(usize, u64)) {
        let [l0, l1, l2, l3] = self.length.to_ne_bytes();
        let options = if self.continues { libc::XDP_PKT_CONTD } else { 0 };
        let [o0, o1, o2, o3] = options.to_ne_bytes();
        word(0, self.address);
        word(1, u64::from_ne_bytes([l0, l1, l2, l3, o0, o1, o2, o3]));
    }
}

/// The producing end of a ring.
#[derive(Debug)]
pub(super) struct Producer<E> {
    memory: RingMemory,
    mask: u32,
    written: u32,
    entries: core::marker::PhantomData<E>,
}

impl<E: Entry> Producer<E> {
    /// Creates the producing end of an unused ring.
    pub(super) fn new(memory: RingMemory) -> Self {
        let mask = mask::<E>(&memory);
        // Relaxed: only this end writes it.
        let written = memory.producer().load(Ordering::Relaxed);
        Self { memory, mask, written, entries: core::marker::PhantomData }
    }

    /// Appends an entry; the consumer sees it after [`Producer::publish`].
    ///
    /// The caller makes sure of room: it counts the frames in flight, and never has more than the ring has
    /// entries.
    #[inline(always)]
    pub(super) fn put(&mut self, entry: E) {
        let at = (self.written & self.mask) as usize * E::WORDS;
        let words = &self.memory.words()[at..at + E::WORDS];
        // Relaxed: ordered by the Release of `publish`.
        entry.write(|index, word| words[index].store(word, Ordering::Relaxed));
        self.written = self.written.wrapping_add(1);
    }

    /// Publishes new entries to the consumer.
    #[inline]
    pub(super) fn publish(&self) {
        // Release pairs with the Acquire load of the producer cursor in the kernel (`__xskq_cons_peek`), or
        // in `Consumer::ready`: the entries are visible before the cursor.
        self.memory.producer().store(self.written, Ordering::Release);
    }

    /// Returns the number of entries that the consumer has not taken.
    #[inline]
    pub(super) fn waiting(&self) -> u32 {
        // Relaxed: the result is a hint; no entry is accessed because of it.
        self.written.wrapping_sub(self.memory.consumer().load(Ordering::Relaxed))
    }

    /// Returns the entries that the consumer has not taken, first to last.
    pub(super) fn untaken(&self) -> impl Iterator<Item = E> + '_ {
        let waiting = self.waiting().min(self.mask + 1);
        (0..waiting).rev().map(|back| {
            let at = (self.written.wrapping_sub(back + 1) & self.mask) as usize * E::WORDS;
            // Relaxed: this end wrote these words itself.
            E::read(|index| self.memory.words()[at + index].load(Ordering::Relaxed))
        })
    }

    /// True if the kernel needs a system call to look at the ring.
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        // Relaxed: the kernel sets the flag before its last look at the ring.
        self.memory.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

#[cfg(test)]
impl<E> Consumer<E> {
    /// Requests calls from the other end from here on, as the kernel does in copy mode.
    pub(super) fn want_calls(&self) {
        self.memory.flags().store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    }
}

/// The consuming end of a ring.
#[derive(Debug)]
pub(super) struct Consumer<E> {
    memory: RingMemory,
    mask: u32,
    read: u32,
    /// The producer cursor when last read.
    seen: u32,
    entries: core::marker::PhantomData<E>,
}

impl<E: Entry> Consumer<E> {
    /// Creates the consuming end of an unused ring.
    pub(super) fn new(memory: RingMemory) -> Self {
        let mask = mask::<E>(&memory);
        // Relaxed: only this end writes it.
        let read = memory.consumer().load(Ordering::Relaxed);
        Self { memory, mask, read, seen: read, entries: core::marker::PhantomData }
    }

    /// True if there is an entry to take.
    #[inline(always)]
    pub(super) fn ready(&mut self) -> bool {
        self.seen != self.read || self.look() != 0
    }

    /// Returns the number of entries to take.
    pub(super) fn available(&mut self) -> u32 {
        self.look()
    }

    /// Reads the producer cursor; returns how far it is ahead.
    #[inline(always)]
    fn look(&mut self) -> u32 {
        // Acquire pairs with the Release store of the producer cursor in the kernel (`__xskq_prod_submit`),
        // or in `Producer::publish`.
        let seen = self.memory.producer().load(Ordering::Acquire);
        // A cursor more than the ring's length ahead is invalid; clamping it keeps reads within the ring, and
        // each entry is checked anyway.
        let ahead = seen.wrapping_sub(self.read).min(self.mask + 1);
        self.seen = self.read.wrapping_add(ahead);
        ahead
    }

    /// Takes the next entry; the producer may reuse its place after [`Consumer::release`].
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<E> {
        if !self.ready() {
            return None;
        }
        let at = (self.read & self.mask) as usize * E::WORDS;
        let words = &self.memory.words()[at..at + E::WORDS];
        self.read = self.read.wrapping_add(1);
        // Relaxed: ordered by the Acquire of `ready`. Read once: the checked value is the used value.
        Some(E::read(|index| words[index].load(Ordering::Relaxed)))
    }

    /// Returns the places of taken entries to the producer.
    #[inline]
    pub(super) fn release(&self) {
        // Release pairs with the Acquire load of the consumer cursor in the kernel (`xskq_prod_nb_free`): our
        // reads of the entries precede the next writes to their places.
        self.memory.consumer().store(self.read, Ordering::Release);
    }
}

fn mask<E: Entry>(memory: &RingMemory) -> u32 {
    let entries = memory.words().len() / E::WORDS;
    debug_assert!(entries.is_power_of_two(), "rings have a power of two of places");
    u32::try_from(entries).map_or(0, |entries| entries - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn ring<E: Entry>(entries: usize) -> (Producer<E>, Consumer<E>) {
        let ring = HeapRing::new(entries * E::WORDS);
        (Producer::new(RingMemory::heap(&ring)), Consumer::new(RingMemory::heap(&ring)))
    }

    #[test]
    fn a_descriptor_crosses_whole() {
        let (mut producer, mut consumer) = ring::<Descriptor>(4);
        let sent = Descriptor { address: 0x1_2345_6789, length: 1514, continues: true };
        producer.put(sent);
        assert_eq!(consumer.take(), None, "nothing is seen before it is published");
        producer.publish();
        assert_eq!(consumer.take(), Some(sent));
        assert_eq!(producer.waiting(), 1, "the place is taken until it is released");
        consumer.release();
        assert_eq!(producer.waiting(), 0);
    }

    #[test]
    fn a_cursor_that_lies_never_leads_beyond_the_ring() {
        let memory = HeapRing::new(4);
        let mut consumer = Consumer::<u64>::new(RingMemory::heap(&memory));
        RingMemory::heap(&memory).producer().store(u32::MAX, Ordering::Release);
        let taken = core::iter::from_fn(|| consumer.take()).take(4).count();
        assert_eq!(taken, 4);
    }

    fn spin_until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            match look() {
                Some(found) => return found,
                None => core::hint::spin_loop(),
            }
        }
    }

    #[test]
    fn two_threads_see_every_entry_once_and_in_order() {
        let (mut producer, mut consumer) = ring::<u64>(8);
        let thread = std::thread::spawn(move || {
            for value in 0..20_000_u64 {
                spin_until(|| (producer.waiting() < 8).then_some(()));
                producer.put(value);
                producer.publish();
            }
        });
        for value in 0..20_000 {
            let taken = spin_until(|| consumer.take());
            consumer.release();
            assert_eq!(taken, value);
        }
        thread.join().expect("the producer ends");
    }

    proptest! {
        /// Any history of puts, publishes, takes and releases is that of a bounded queue.
        #[test]
        fn a_ring_is_a_queue(steps in proptest::collection::vec((0..5_u8, any::<u64>()), 1..400)) {
            let (mut producer, mut consumer) = ring::<u64>(8);
            let (mut unseen, mut queue) = (VecDeque::new(), VecDeque::new());
            for (step, value) in steps {
                match step {
                    0 if producer.written.wrapping_sub(producer.memory.consumer().load(Ordering::Relaxed)) < 8 => {
                        producer.put(value);
                        unseen.push_back(value);
                    }
                    1 => {
                        producer.publish();
                        queue.append(&mut unseen);
                    }
                    2 => prop_assert_eq!(consumer.take(), queue.pop_front()),
                    3 => prop_assert_eq!(consumer.available() as usize, queue.len()),
                    _ => consumer.release(),
                }
            }
        }
    }
}
