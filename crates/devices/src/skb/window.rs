//! Limit of the bytes that wait in the TAP: a TAP of its own bounds packets, of which each may have 64 KiB.
//!
//! The interface's program adds each packet's charge to `admitted` of its queue; the receiver publishes the charges of
//! what it has read as `consumed`. What lies between is in flight. A receiver that found its queue empty knows that
//! all that was admitted before has come or was lost, and publishes that: what the two counted differently, because the
//! kernel has cut a packet or the TAP has dropped one, does not add up.

use crate::bpf::sys::SharedCounters;
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The windows of all queues of a port.
#[derive(Clone, Debug)]
pub(super) struct Windows(Arc<SharedCounters>);

/// The receiver's end of one queue's window.
#[derive(Debug)]
pub(super) struct Window {
    all: Windows,
    /// The number of its first word.
    first: usize,
    consumed: u64,
    /// Packets that the program had dropped when they were counted last.
    overruns: u64,
}

impl Windows {
    /// Empty windows of `queues` queues.
    pub(super) fn new(queues: u16) -> Result<Self, Errno> {
        SharedCounters::new("polder_windows", usize::from(queues) * WORDS).map(|words| Self(Arc::new(words)))
    }

    /// The window of one queue.
    pub(super) fn of(&self, queue: usize) -> Window {
        Window { all: self.clone(), first: queue * WORDS, consumed: 0, overruns: 0 }
    }
}

impl AsFd for Windows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Window {
    /// Charges of all that was ever admitted.
    #[inline]
    pub(super) fn admitted(&self) -> u64 {
        // Acquire: pairs with the program's atomic addition, so that a look into the TAP comes after it.
        self.all.0.get(self.first + ADMITTED).load(Ordering::Acquire)
    }

    /// Counts `packets` packets with `bytes` bytes in all as read.
    #[inline]
    pub(super) fn consume(&mut self, packets: u64, bytes: u64) {
        self.publish(self.consumed.wrapping_add(bytes + packets * u64::from(CHARGE)));
    }

    /// Takes everything `admitted` as read or lost: the queue was found empty after that number was read.
    #[inline]
    pub(super) fn empty(&mut self, admitted: u64) {
        if self.consumed != admitted {
            self.publish(admitted);
        }
    }

    fn publish(&mut self, consumed: u64) {
        self.consumed = consumed;
        // Relaxed: a number that orders nothing; the program bounds by whatever it finds.
        self.all.0.get(self.first + CONSUMED).store(consumed, Ordering::Relaxed);
    }

    /// Packets that the program has dropped since this was asked last.
    #[inline]
    pub(super) fn overruns(&mut self) -> u64 {
        // Relaxed: a number that orders nothing.
        let now = self.all.0.get(self.first + OVERRUNS).load(Ordering::Relaxed);
        now.wrapping_sub(core::mem::replace(&mut self.overruns, now))
    }
}

/// Words of one queue: what the program writes on one pair of cache lines, what the receiver writes on the next.
const WORDS: usize = 32;
/// The logarithm of a queue's bytes.
pub(super) const QUEUE_SHIFT: i32 = 8;
const ADMITTED: usize = 0;
const OVERRUNS: usize = 1;
const CONSUMED: usize = 16;
/// The same in bytes.
pub(super) const ADMITTED_AT: i16 = 0;
pub(super) const OVERRUNS_AT: i16 = 8;
pub(super) const CONSUMED_AT: i16 = 128;
/// Bytes that each packet is charged beyond its length: what the kernel keeps with it.
pub(super) const CHARGE: u16 = 1024;
const _: () = assert!(WORDS * 8 == 1 << QUEUE_SHIFT && CONSUMED * 8 == CONSUMED_AT as usize);

#[cfg(test)]
mod tests {
    use super::*;

    fn windows() -> Option<Windows> {
        // Without the right to make maps there is nothing to look at; the namespace tests say so.
        Windows::new(2).ok()
    }

    #[test]
    fn an_empty_queue_ends_what_was_counted_differently() {
        let Some(windows) = windows() else { return };
        let (mut window, other) = (windows.of(1), windows.of(0));
        windows.0.get(WORDS + ADMITTED).store(5000, Ordering::Relaxed);
        assert_eq!((window.admitted(), other.admitted()), (5000, 0));
        window.consume(2, 100);
        let consumed = || windows.0.get(WORDS + CONSUMED).load(Ordering::Relaxed);
        assert_eq!(consumed(), 2 * 1024 + 100);
        window.empty(5000);
        assert_eq!(consumed(), 5000);
    }

    #[test]
    fn each_overrun_is_counted_once() {
        let Some(windows) = windows() else { return };
        let mut window = windows.of(0);
        windows.0.get(OVERRUNS).store(17, Ordering::Relaxed);
        assert_eq!((window.overruns(), window.overruns()), (17, 0));
    }
}
