//! Windows: words that a port's program and the receivers of its queues share, to limit the waiting bytes and
//! packets.
//!
//! A TAP's own ring limits packets, of up to 64 KiB each; the window limits its bytes. An AF_XDP socket has a
//! ring of frames, so its packets are charged without their length, and the window is as large as the posted
//! frames.
//!
//! The interface's program adds each packet's charge to `admitted` of its queue; the receiver publishes the
//! charges of the read packets as `consumed`. The difference is in flight. If the receiver finds its queue
//! empty, all packets admitted before have arrived or were lost, and it publishes that number: differences
//! between the two counts, because the kernel has segmented a packet or the TAP has dropped one, do not add
//! up.
//!
//! The worker's scheduler may set a lower limit ([`Window::set_limit`]). The program keeps bulk below the
//! limit, and below three quarters of the window in any case; control packets may fill all of it, on credit:
//! an eighth of the charges read, at most the last quarter. A limit holds while `consumed` moves: each time
//! the limit would make it drop, the program checks `consumed`, and treats a worker that has read nothing for
//! [`STALE`] as stalled. While a successor process takes over, up to [`DEEP_BYTES`] may wait
//! ([`Windows::deepen`]).
//!
//! Packets are counted too, for programs that carry flows ([`flows`](crate::bpf::flows)): the program numbers
//! them, and the receiver publishes the number up to which the worker has completed all. This number must
//! never be too high. A packet has its number a moment before it is in the TAP, so an empty queue proves
//! nothing, and missing packets are given up only after a time.

use crate::bpf::sys::SharedCounters;
use core::sync::atomic::{AtomicU64, Ordering};
use polder_datapath::drops::DropReason;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The windows of all queues of a port.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    words: Arc<SharedCounters>,
    queues: usize,
    bytes: u32,
}

/// The receiver's end of one queue's window.
#[derive(Debug)]
pub(crate) struct Window {
    all: Windows,
    /// Index of its first word.
    first: usize,
    consumed: u64,
    /// Number of packets read or given up.
    read: u64,
    completed: u64,
    /// True while read packets wait in front of a device.
    held: bool,
    missing: Option<Missing>,
    /// Number of packets that the program had dropped at the last count, as in [`DROPS`].
    dropped: [u64; 3],
    /// Limit of bulk that was last published.
    limit: u64,
    /// Total credit for control packets so far.
    credit: u64,
    /// Moving average of a packet's charge.
    charge: u64,
}

/// Numbered packets that did not arrive, as seen each time that the queue was empty.
#[derive(Debug)]
struct Missing {
    /// Start, as time since boot.
    since: Duration,
    times: u32,
    least: u64,
}

impl Windows {
    /// Creates empty windows of `bytes` bytes for `queues` queues.
    pub(crate) fn new(queues: u16, bytes: u32) -> Result<Self, Errno> {
        let words = SharedCounters::new("polder_windows", usize::from(queues) * WORDS)?;
        let (limit, credit) = (bulk_bytes(bytes), bytes - bulk_bytes(bytes));
        for first in (0..usize::from(queues)).map(|queue| queue * WORDS) {
            // Relaxed: no other thread knows the map yet.
            words.get(first + LIMIT).store(limit.into(), Ordering::Relaxed);
            words.get(first + CREDIT).store(credit.into(), Ordering::Relaxed);
        }
        Ok(Self { words: Arc::new(words), queues: queues.into(), bytes })
    }

    /// Adopts the predecessor's windows; its receivers have completed all packets that they have read.
    ///
    /// # Errors
    /// `INVAL` for another map.
    pub(crate) fn adopt(map: OwnedFd, queues: u16, bytes: u32) -> Result<Self, Errno> {
        let words = SharedCounters::adopt(map, usize::from(queues) * WORDS)?;
        Ok(Self { words: Arc::new(words), queues: queues.into(), bytes })
    }

    /// Lets bulk wait up to [`DEEP_BYTES`], whatever the limit, during a change of the receiver; or restores
    /// the limit.
    pub(crate) fn deepen(&self, is_deep: bool) {
        let least = if is_deep { DEEP_BYTES.into() } else { 0 };
        for first in (0..self.queues).map(|queue| queue * WORDS) {
            // Relaxed: the numbers order nothing. The receiver computes its limit anew each turn.
            self.word(first + LEAST).store(least, Ordering::Relaxed);
            if is_deep {
                self.word(first + LIMIT).store(least, Ordering::Relaxed);
            }
        }
    }

    /// Returns the window of one queue, as the last receiver has left it.
    pub(crate) fn of(&self, queue: usize) -> Window {
        let (all, first, charge) = (self.clone(), queue * WORDS, CHARGE.into());
        // Relaxed: no other receiver writes them.
        let word = |word| self.word(first + word).load(Ordering::Relaxed);
        let (consumed, completed) = (word(CONSUMED), word(COMPLETED));
        let (limit, credit, dropped) = (word(LIMIT), word(CREDIT), COUNTED.map(word));
        let (read, held, missing) = (completed, false, None);
        Window { all, first, consumed, read, completed, held, missing, dropped, limit, credit, charge }
    }

    /// Returns the number of punted packets that the program recognised.
    pub(crate) fn recognized(&self) -> u64 {
        // Relaxed: the number orders nothing.
        self.word(RECOGNIZED).load(Ordering::Relaxed)
    }

    /// The word of the first queue at an offset of the program's.
    #[cfg(test)]
    pub(crate) fn at(&self, offset: i16) -> &AtomicU64 {
        self.word(usize::from(offset.cast_unsigned()) / 8)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.words.get(index)
    }
}

/// Returns the bytes of a window that bulk may fill.
pub(crate) fn bulk_bytes(window_bytes: u32) -> u32 {
    window_bytes / 4 * 3
}

impl AsFd for Windows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

impl Window {
    /// Returns the number and charges of all packets ever admitted.
    #[inline]
    pub(crate) fn admitted(&self) -> Admitted {
        // Acquire: pairs with the program's atomic additions, so that a check of the TAP comes after them.
        let word = |word| self.all.word(self.first + word).load(Ordering::Acquire);
        Admitted { charges: word(ADMITTED), packets: word(NUMBER) }
    }

    /// Counts `packets` packets with `bytes` bytes in total as read.
    #[inline]
    pub(crate) fn consume(&mut self, packets: u64, bytes: u64) {
        self.read = self.read.wrapping_add(packets);
        let charges = bytes + packets * u64::from(CHARGE);
        self.publish(self.consumed.wrapping_add(charges));
        self.lend(charges);
        if let Some(charge) = charges.checked_div(packets) {
            self.charge = (self.charge * 7 + charge) / 8;
        }
    }

    /// Adds credit for control packets: a part of the charges read, at most the reserve.
    fn lend(&mut self, charges: u64) {
        // Relaxed: the numbers order nothing; used credit that is not seen yet is missing for a turn.
        let used = self.all.word(self.first + USED).load(Ordering::Relaxed);
        let reserve = self.all.bytes - bulk_bytes(self.all.bytes);
        let credit = (self.credit + charges / CREDIT_PART).min(used + u64::from(reserve));
        if self.credit != credit {
            self.credit = credit;
            self.all.word(self.first + CREDIT).store(credit, Ordering::Relaxed);
        }
    }

    /// Limits bulk to `packets` packets in the window, by the recent average charge; `None` for the window's
    /// own limit.
    #[inline]
    pub(crate) fn set_limit(&mut self, packets: Option<u32>) {
        let most = u64::from(bulk_bytes(self.all.bytes));
        // Relaxed: as in `deepen`.
        let least = self.all.word(self.first + LEAST).load(Ordering::Relaxed);
        let limit = packets.map_or(most, |packets| most.min(u64::from(packets) * self.charge)).max(least);
        if self.limit != limit {
            self.limit = limit;
            // Relaxed: as `consumed`.
            self.all.word(self.first + LIMIT).store(limit, Ordering::Relaxed);
        }
    }

    /// Counts the charges of everything `admitted` as read or lost: the queue was found empty after that
    /// number was read.
    #[inline]
    pub(crate) fn drained(&mut self, admitted: Admitted) {
        if self.consumed != admitted.charges {
            self.publish(admitted.charges);
        }
    }

    /// Counts the charges of packets as read that were lost after the program; each was charged without its
    /// length.
    pub(crate) fn lose(&mut self, packets: u64) {
        self.publish(self.consumed.wrapping_add(packets.wrapping_mul(CHARGE.into())));
    }

    /// Like [`drained`](Self::drained), and counts packets as read that are missing for long.
    #[inline]
    pub(crate) fn empty(&mut self, admitted: Admitted) {
        self.drained(admitted);
        let missing = admitted.packets.wrapping_sub(self.read);
        if missing == 0 {
            self.missing = None;
        } else if missing.cast_signed() < 0 {
            // The kernel has segmented packets.
            self.read = admitted.packets;
        } else {
            self.miss(missing);
        }
    }

    /// Like [`empty`](Self::empty), but `lost` numbered packets are known to be lost, and count as read if no
    /// other packet is missing. Returns true if they do, or were given up.
    #[inline]
    pub(crate) fn empty_but(&mut self, admitted: Admitted, lost: u64) -> bool {
        let missing = admitted.packets.wrapping_sub(self.read);
        if missing == lost {
            self.read = admitted.packets;
            self.missing = None;
            return true;
        }
        missing.cast_signed() > 0 && self.miss(missing)
    }

    /// Gives up packets that are missing for long; returns true if so.
    #[cold]
    fn miss(&mut self, packets: u64) -> bool {
        let new = || Missing { since: now(), times: 0, least: u64::MAX };
        let missing = self.missing.get_or_insert_with(new);
        missing.times += 1;
        missing.least = missing.least.min(packets);
        let is_lost = missing.times >= LOST_TIMES && now().saturating_sub(missing.since) >= LOST_AFTER;
        if is_lost {
            self.read = self.read.wrapping_add(missing.least);
            self.missing = None;
        }
        is_lost
    }

    /// Completes no packet while `held`: packets that the worker has sent wait in front of a device.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Marks all read packets as completed, unless they are held.
    #[inline]
    pub(crate) fn complete(&mut self) {
        if self.completed != self.read && !self.held {
            self.completed = self.read;
            // Release: the worker's sends come before.
            self.all.word(self.first + COMPLETED).store(self.completed, Ordering::Release);
        }
    }

    /// Records the counted drops, for a receiver that continues with the window.
    #[cold]
    fn note_counted(&self) {
        for (word, dropped) in COUNTED.into_iter().zip(self.dropped) {
            self.all.word(self.first + word).store(dropped, Ordering::Relaxed);
        }
    }

    fn publish(&mut self, consumed: u64) {
        self.consumed = consumed;
        // Relaxed: the number orders nothing; the program limits by any value that it reads.
        self.all.word(self.first + CONSUMED).store(consumed, Ordering::Relaxed);
    }

    /// Returns the number of packets that the program has dropped since the last call, as in [`DROPS`].
    #[inline]
    pub(crate) fn dropped(&mut self) -> [u64; 3] {
        // Relaxed: the numbers order nothing.
        let now = DROPS.map(|(word, _)| self.all.word(self.first + word).load(Ordering::Relaxed));
        let before = core::mem::replace(&mut self.dropped, now);
        if now != before {
            self.note_counted();
        }
        core::array::from_fn(|at| now[at].wrapping_sub(before[at]))
    }
}

/// Words in which the program counts drops, and the reason of each.
pub(crate) const DROPS: [(usize, DropReason); 3] = [
    (OVERRUNS, DropReason::RxOverrun),
    (OVERRUNS_CONTROL, DropReason::RxOverrunControl),
    (FENCED, DropReason::Fence),
];

/// Returns the time since boot; called only while packets are missing.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Number and charges of all packets that a queue's program has ever admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    charges: u64,
    packets: u64,
}

/// Number of words of one queue: the program's words on one pair of cache lines, the receiver's on the next.
const WORDS: usize = 32;
/// Binary logarithm of the bytes of one queue's words.
pub(crate) const QUEUE_SHIFT: i32 = 8;
const ADMITTED: usize = 0;
const OVERRUNS: usize = 1;
const NUMBER: usize = 2;
const FENCED: usize = 3;
const OVERRUNS_CONTROL: usize = 4;
/// Credit that control packets have used.
const USED: usize = 5;
/// Used in the first queue only.
const RECOGNIZED: usize = 8;
const CONSUMED: usize = 16;
const COMPLETED: usize = 17;
const LIMIT: usize = 18;
const CREDIT: usize = 19;
/// Minimum limit of bulk.
const LEAST: usize = 23;
/// Drops that the receiver has counted, as in [`DROPS`].
const COUNTED: [usize; 3] = [20, 21, 22];
/// The same words as byte offsets.
pub(crate) const ADMITTED_AT: i16 = 0;
pub(crate) const OVERRUNS_AT: i16 = 8;
pub(crate) const NUMBER_AT: i16 = 16;
pub(crate) const FENCED_AT: i16 = 24;
pub(crate) const OVERRUNS_CONTROL_AT: i16 = 32;
pub(crate) const USED_AT: i16 = 40;
/// `consumed` as the program last saw it, and the time of its last change.
pub(crate) const SEEN_AT: i16 = 48;
pub(crate) const SEEN_TIME_AT: i16 = 56;
pub(crate) const RECOGNIZED_AT: i16 = 64;
pub(crate) const CONSUMED_AT: i16 = 128;
pub(crate) const COMPLETED_AT: i16 = 136;
pub(crate) const LIMIT_AT: i16 = 144;
pub(crate) const CREDIT_AT: i16 = 152;
/// Time without a read after which a limit is ignored.
pub(crate) const STALE: Duration = Duration::from_millis(100);
/// Divisor of the charges read, for the credit of control packets.
const CREDIT_PART: u64 = 8;
/// Time, and number of empty queues found, after which missing packets are given up.
const LOST_AFTER: Duration = Duration::from_millis(100);
const LOST_TIMES: u32 = 16;
/// Bytes that may wait while an upgrade has no receiver: 50 ms of 300 000 short packets per second.
pub(crate) const DEEP_BYTES: u32 = 16 << 20;
/// Charge of each packet beyond its length: the kernel's overhead.
pub(crate) const CHARGE: u16 = 1024;
const _: () = assert!(WORDS * 8 == 1 << QUEUE_SHIFT && CONSUMED * 8 == CONSUMED_AT as usize);

#[cfg(test)]
mod tests;
