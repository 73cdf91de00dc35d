//! Limit of the bytes that wait in the TAP: a TAP of its own bounds packets, of which each may have 64 KiB.
//!
//! The interface's program adds each packet's charge to `admitted` of its queue; the receiver publishes the charges of
//! what it has read as `consumed`. What lies between is in flight. A receiver that found its queue empty knows that
//! all that was admitted before has come or was lost, and publishes that: what the two counted differently, because the
//! kernel has cut a packet or the TAP has dropped one, does not add up.
//!
//! Packets are counted too, for programs that carry flows by themselves ([`flows`](crate::bpf::flows)): the program gives
//! each a number, and the receiver publishes the number up to which the worker is through with all of them. This number
//! must never be too high: a packet has its number a moment before it is in the TAP, so a queue found empty says nothing,
//! and packets that are missing are given up only after a time.

use crate::bpf::sys::SharedCounters;
use core::sync::atomic::Ordering;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

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
    /// Packets read, and given up.
    read: u64,
    completed: u64,
    missing: Option<Missing>,
    /// Packets that the program had dropped when they were counted last: because the window was full, and to make a gap.
    dropped: [u64; 2],
}

/// Packets that have a number and did not come, each time that the queue was found empty.
#[derive(Debug)]
struct Missing {
    /// Time since the machine started.
    since: Duration,
    times: u32,
    least: u64,
}

impl Windows {
    /// Empty windows of `queues` queues.
    pub(super) fn new(queues: u16) -> Result<Self, Errno> {
        SharedCounters::new("polder_windows", usize::from(queues) * WORDS).map(|words| Self(Arc::new(words)))
    }

    /// The window of one queue.
    pub(super) fn of(&self, queue: usize) -> Window {
        let (consumed, read, completed, missing, dropped) = (0, 0, 0, None, [0; 2]);
        Window { all: self.clone(), first: queue * WORDS, consumed, read, completed, missing, dropped }
    }
}

impl AsFd for Windows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Window {
    /// Everything that was ever admitted.
    #[inline]
    pub(super) fn admitted(&self) -> Admitted {
        // Acquire: pairs with the program's atomic additions, so that a look into the TAP comes after them.
        let word = |word| self.all.0.get(self.first + word).load(Ordering::Acquire);
        Admitted { charges: word(ADMITTED), packets: word(NUMBER) }
    }

    /// Counts `packets` packets with `bytes` bytes in all as read.
    #[inline]
    pub(super) fn consume(&mut self, packets: u64, bytes: u64) {
        self.read = self.read.wrapping_add(packets);
        self.publish(self.consumed.wrapping_add(bytes + packets * u64::from(CHARGE)));
    }

    /// Takes the charges of everything `admitted` as read or lost: the queue was found empty after that was read.
    #[inline]
    pub(super) fn empty(&mut self, admitted: Admitted) {
        if self.consumed != admitted.charges {
            self.publish(admitted.charges);
        }
        let missing = admitted.packets.wrapping_sub(self.read);
        if missing == 0 {
            self.missing = None;
        } else if missing.cast_signed() < 0 {
            // The kernel has cut packets.
            self.read = admitted.packets;
        } else {
            self.miss(missing);
        }
    }

    /// Gives packets up that are missing for long.
    #[cold]
    fn miss(&mut self, packets: u64) {
        let new = || Missing { since: now(), times: 0, least: u64::MAX };
        let missing = self.missing.get_or_insert_with(new);
        missing.times += 1;
        missing.least = missing.least.min(packets);
        if missing.times >= LOST_TIMES && now().saturating_sub(missing.since) >= LOST_AFTER {
            self.read = self.read.wrapping_add(missing.least);
            self.missing = None;
        }
    }

    /// The worker is through with everything that was read.
    #[inline]
    pub(super) fn complete(&mut self) {
        if self.completed != self.read {
            self.completed = self.read;
            // Release: what the worker has sent was sent before.
            self.all.0.get(self.first + COMPLETED).store(self.completed, Ordering::Release);
        }
    }

    fn publish(&mut self, consumed: u64) {
        self.consumed = consumed;
        // Relaxed: a number that orders nothing; the program bounds by whatever it finds.
        self.all.0.get(self.first + CONSUMED).store(consumed, Ordering::Relaxed);
    }

    /// Packets that the program has dropped since this was asked last: because the window was full, and to make a gap.
    #[inline]
    pub(super) fn dropped(&mut self) -> [u64; 2] {
        // Relaxed: numbers that order nothing.
        let now = [OVERRUNS, FENCED].map(|word| self.all.0.get(self.first + word).load(Ordering::Relaxed));
        let before = core::mem::replace(&mut self.dropped, now);
        [now[0].wrapping_sub(before[0]), now[1].wrapping_sub(before[1])]
    }
}

/// Time since the machine started; asked for while packets are missing alone.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Everything that a queue's program has ever admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    charges: u64,
    packets: u64,
}

/// Words of one queue: what the program writes on one pair of cache lines, what the receiver writes on the next.
const WORDS: usize = 32;
/// The logarithm of a queue's bytes.
pub(super) const QUEUE_SHIFT: i32 = 8;
const ADMITTED: usize = 0;
const OVERRUNS: usize = 1;
const NUMBER: usize = 2;
const FENCED: usize = 3;
const CONSUMED: usize = 16;
const COMPLETED: usize = 17;
/// The same in bytes.
pub(super) const ADMITTED_AT: i16 = 0;
pub(super) const OVERRUNS_AT: i16 = 8;
pub(super) const NUMBER_AT: i16 = 16;
pub(super) const FENCED_AT: i16 = 24;
pub(super) const CONSUMED_AT: i16 = 128;
pub(super) const COMPLETED_AT: i16 = 136;
/// Packets are given up that are missing for so long, and each time of so many that the queue was found empty.
const LOST_AFTER: Duration = Duration::from_millis(100);
const LOST_TIMES: u32 = 16;
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
        let admitted = |charges, packets| Admitted { charges, packets };
        assert_eq!((window.admitted(), other.admitted()), (admitted(5000, 0), admitted(0, 0)));
        window.consume(2, 100);
        let consumed = || windows.0.get(WORDS + CONSUMED).load(Ordering::Relaxed);
        assert_eq!(consumed(), 2 * 1024 + 100);
        window.empty(admitted(5000, 2));
        assert_eq!(consumed(), 5000);
    }

    #[test]
    fn the_worker_is_through_with_what_it_has_read_and_with_nothing_else() {
        let Some(windows) = windows() else { return };
        let mut window = windows.of(0);
        let completed = || windows.0.get(COMPLETED).load(Ordering::Relaxed);
        let admitted = |packets| Admitted { charges: 0, packets };
        window.consume(3, 0);
        assert_eq!(completed(), 0, "they are being sent");
        window.complete();
        assert_eq!(completed(), 3);
        // One has its number, and is not in the TAP yet.
        window.empty(admitted(4));
        window.complete();
        assert_eq!(completed(), 3);
        // The kernel has made two of one.
        window.consume(2, 0);
        window.empty(admitted(4));
        window.complete();
        assert_eq!(completed(), 4);
        // One is lost.
        for _ in 1..LOST_TIMES {
            window.empty(admitted(5));
        }
        std::thread::sleep(LOST_AFTER);
        window.complete();
        assert_eq!(completed(), 4);
        window.empty(admitted(5));
        window.complete();
        assert_eq!(completed(), 5);
    }

    #[test]
    fn each_drop_is_counted_once() {
        let Some(windows) = windows() else { return };
        let mut window = windows.of(0);
        windows.0.get(OVERRUNS).store(17, Ordering::Relaxed);
        windows.0.get(FENCED).store(3, Ordering::Relaxed);
        assert_eq!((window.dropped(), window.dropped()), ([17, 3], [0, 0]));
    }
}
