//! The reader's end of a BPF ring buffer (`BPF_MAP_TYPE_RINGBUF`).
//!
//! The producer position moves when a program reserves room. Each record has a header of eight bytes with its
//! length and a busy bit, set until the record is written. The reader stops at a busy record, so records are
//! read in the order of their reservation. Source: Linux, Documentation/bpf/ringbuf.rst.

use super::sys::RingMemory;
use core::sync::atomic::{Ordering, fence};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The reader of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    memory: RingMemory,
    /// Position of the next record; positions grow without bound.
    position: usize,
}

impl Ring {
    /// Maps the ring of a map of `bytes` bytes.
    pub(super) fn new(map: BorrowedFd<'_>, bytes: usize) -> Result<Self, Errno> {
        Ok(Self { memory: RingMemory::map(map, bytes)?, position: 0 })
    }

    /// Copies the next record into `record`; returns `false` if there is none yet.
    pub(super) fn read(&mut self, record: &mut Vec<u8>) -> bool {
        // Relaxed, and the fence: pairs with the kernel's release of the position when it reserves, so that
        // the header is visible.
        while self.position != self.memory.produced().load(Ordering::Relaxed) {
            fence(Ordering::Acquire);
            let head = self.memory.head(self.position).load(Ordering::Relaxed);
            if head & BUSY != 0 {
                return false;
            }
            // Pairs with the kernel's exchange of the header when a program submits, so that the record is
            // visible.
            fence(Ordering::Acquire);
            let length = (head & !(BUSY | DISCARDED)) as usize;
            let is_there = head & DISCARDED == 0;
            if is_there {
                record.resize(length.min(self.memory.bytes()), 0);
                self.memory.copy(self.position.wrapping_add(HEAD), record);
            }
            self.position = self.position.wrapping_add((HEAD + length).next_multiple_of(HEAD));
            // Release: pairs with the kernel's acquire before it reserves, so that no record is overwritten
            // while it is read.
            self.memory.consumed().store(self.position, Ordering::Release);
            if is_there {
                return true;
            }
        }
        false
    }
}

/// Bytes of a record's header, and the alignment of records.
const HEAD: usize = 8;
/// `BPF_RINGBUF_BUSY_BIT` and `BPF_RINGBUF_DISCARD_BIT`.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4096;

    /// The kernel's end, in memory of this process.
    struct Producer(usize);

    impl Producer {
        fn reserve(&mut self, ring: &Ring, length: u32) -> usize {
            let at = self.0;
            ring.memory.head(at).store(length | BUSY, Ordering::Relaxed);
            self.0 += (HEAD + length as usize).next_multiple_of(HEAD);
            ring.memory.produced().store(self.0, Ordering::Release);
            at
        }

        fn submit(ring: &Ring, at: usize, record: &[u8]) {
            ring.memory.write(at + HEAD, record);
            ring.memory.head(at).store(u32::try_from(record.len()).expect("short"), Ordering::Release);
        }
    }

    fn ring() -> (Ring, Producer) {
        (Ring { memory: RingMemory::plain(BYTES).expect("memory for a test"), position: 0 }, Producer(0))
    }

    #[test]
    fn records_come_in_the_order_of_their_reservation() {
        let (mut ring, mut producer) = ring();
        let mut record = Vec::new();
        assert!(!ring.read(&mut record));
        let [first, second] = [3, 5].map(|length| producer.reserve(&ring, length));
        Producer::submit(&ring, second, b"later");
        assert!(!ring.read(&mut record), "the first is not written yet");
        Producer::submit(&ring, first, b"now");
        assert!(ring.read(&mut record) && record == b"now");
        assert!(ring.read(&mut record) && record == b"later");
        assert!(!ring.read(&mut record));
        assert_eq!(ring.memory.consumed().load(Ordering::Relaxed), 32);
    }

    #[test]
    fn what_is_discarded_is_skipped_and_its_room_given_back() {
        let (mut ring, mut producer) = ring();
        let [gone, there] = [100, 4].map(|length| producer.reserve(&ring, length));
        ring.memory.head(gone).store(100 | DISCARDED, Ordering::Relaxed);
        Producer::submit(&ring, there, b"next");
        let mut record = Vec::new();
        assert!(ring.read(&mut record) && record == b"next");
        assert_eq!(ring.memory.consumed().load(Ordering::Relaxed), producer.0);
        let last = producer.reserve(&ring, 8);
        ring.memory.head(last).store(8 | DISCARDED, Ordering::Relaxed);
        assert!(!ring.read(&mut record));
        assert_eq!(ring.memory.consumed().load(Ordering::Relaxed), producer.0);
    }

    #[test]
    fn records_go_round_the_end_of_the_memory() {
        let (mut ring, mut producer) = ring();
        let mut record = Vec::new();
        for number in 0..200_u32 {
            let length = 1 + number * 7 % 900;
            let sent = (0..length).map(|at| (at * 3 + number).to_le_bytes()[0]).collect::<Vec<_>>();
            let at = producer.reserve(&ring, length);
            Producer::submit(&ring, at, &sent);
            assert!(ring.read(&mut record));
            assert_eq!(record, sent);
        }
        assert!(producer.0 > 4 * BYTES);
    }
}
