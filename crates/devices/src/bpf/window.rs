//! Words that the program of a port and the receivers of its queues share: bytes and packets that wait.
//!
//! The bytes bound a TAP, which by itself bounds packets, of which each may have 64 KiB. An AF_XDP socket has a ring of
//! frames, so its packets have a charge without their length, and the window is as large as the frames that are posted.
//!
//! The interface's program adds each packet's charge to `admitted` of its queue; the receiver publishes the charges of
//! what it has read as `consumed`. What lies between is in flight. A receiver that found its queue empty knows that
//! all that was admitted before has come or was lost, and publishes that: what the two counted differently, because the
//! kernel has cut a packet or the TAP has dropped one, does not add up.
//!
//! The worker's scheduler may say that fewer are of use ([`Window::set_limit`]). The program keeps bulk below that, and below
//! three quarters of the window in any case; packets of control protocols may fill all of it, on credit: an eighth of
//! what was read, and never more than the other quarter. A limit holds while `consumed` moves: the program looks at it each
//! time that it would drop because of the limit, and takes a worker that has read nothing for [`STALE`] for one that stalls.
//! While another process takes over, up to [`DEEP_BYTES`] may wait ([`Windows::deepen`]).
//!
//! Packets are counted too, for programs that carry flows by themselves ([`flows`](crate::bpf::flows)): the program gives
//! each a number, and the receiver publishes the number up to which the worker is through with all of them. This number
//! must never be too high: a packet has its number a moment before it is in the TAP, so a queue found empty says nothing,
//! and packets that are missing are given up only after a time.

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
    /// The number of its first word.
    first: usize,
    consumed: u64,
    /// Packets read, and given up.
    read: u64,
    completed: u64,
    /// True while something of what was read waits in front of a device.
    held: bool,
    missing: Option<Missing>,
    /// Packets that the program had dropped when they were counted last: as in [`DROPS`].
    dropped: [u64; 3],
    /// Limit of bulk that was published last.
    limit: u64,
    /// Credit for control packets that was given so far.
    credit: u64,
    /// Moving average of a packet's charge.
    charge: u64,
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
    /// Empty windows of `bytes` bytes for `queues` queues.
    pub(crate) fn new(queues: u16, bytes: u32) -> Result<Self, Errno> {
        let words = SharedCounters::new("polder_windows", usize::from(queues) * WORDS)?;
        let (limit, credit) = (bulk_bytes(bytes), bytes - bulk_bytes(bytes));
        for first in (0..usize::from(queues)).map(|queue| queue * WORDS) {
            // Relaxed: nobody else knows the map yet.
            words.get(first + LIMIT).store(limit.into(), Ordering::Relaxed);
            words.get(first + CREDIT).store(credit.into(), Ordering::Relaxed);
        }
        Ok(Self { words: Arc::new(words), queues: queues.into(), bytes })
    }

    /// Windows that another process has made; its receivers are through with all that they have read.
    ///
    /// # Errors
    /// `INVAL` for another map.
    pub(crate) fn adopt(map: OwnedFd, queues: u16, bytes: u32) -> Result<Self, Errno> {
        let words = SharedCounters::adopt(map, usize::from(queues) * WORDS)?;
        Ok(Self { words: Arc::new(words), queues: queues.into(), bytes })
    }

    /// Has bulk wait for a receiver that is about to change, up to [`DEEP_BYTES`] whatever its limit is; or no more.
    pub(crate) fn deepen(&self, is_deep: bool) {
        let least = if is_deep { DEEP_BYTES.into() } else { 0 };
        for first in (0..self.queues).map(|queue| queue * WORDS) {
            // Relaxed: numbers that order nothing. The receiver computes its limit anew each turn.
            self.word(first + LEAST).store(least, Ordering::Relaxed);
            if is_deep {
                self.word(first + LIMIT).store(least, Ordering::Relaxed);
            }
        }
    }

    /// The window of one queue, as the last receiver has left it.
    pub(crate) fn of(&self, queue: usize) -> Window {
        let (all, first, charge) = (self.clone(), queue * WORDS, CHARGE.into());
        // Relaxed: no other receiver writes them any more.
        let word = |word| self.word(first + word).load(Ordering::Relaxed);
        let (consumed, completed) = (word(CONSUMED), word(COMPLETED));
        let (limit, credit, dropped) = (word(LIMIT), word(CREDIT), COUNTED.map(word));
        let (read, held, missing) = (completed, false, None);
        Window { all, first, consumed, read, completed, held, missing, dropped, limit, credit, charge }
    }

    /// Packets that user space had returned to the kernel and that the program knew again.
    pub(crate) fn recognized(&self) -> u64 {
        // Relaxed: a number that orders nothing.
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

/// Bytes of a window that bulk may fill.
pub(crate) fn bulk_bytes(window_bytes: u32) -> u32 {
    window_bytes / 4 * 3
}

impl AsFd for Windows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.words.as_fd()
    }
}

impl Window {
    /// Everything that was ever admitted.
    #[inline]
    pub(crate) fn admitted(&self) -> Admitted {
        // Acquire: pairs with the program's atomic additions, so that a look into the TAP comes after them.
        let word = |word| self.all.word(self.first + word).load(Ordering::Acquire);
        Admitted { charges: word(ADMITTED), packets: word(NUMBER) }
    }

    /// Counts `packets` packets with `bytes` bytes in all as read.
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

    /// Gives credit for control packets: a part of what was read, and never more than the reserve.
    fn lend(&mut self, charges: u64) {
        // Relaxed: numbers that order nothing; used credit that is not seen yet is missing for a turn.
        let used = self.all.word(self.first + USED).load(Ordering::Relaxed);
        let reserve = self.all.bytes - bulk_bytes(self.all.bytes);
        let credit = (self.credit + charges / CREDIT_PART).min(used + u64::from(reserve));
        if self.credit != credit {
            self.credit = credit;
            self.all.word(self.first + CREDIT).store(credit, Ordering::Relaxed);
        }
    }

    /// Lets bulk have no more than so many packets in the window, by the charge that packets had lately; `None` for as many as
    /// it has room for.
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

    /// Takes the charges of everything `admitted` as read or lost: the queue was found empty after that was read.
    #[inline]
    pub(crate) fn drained(&mut self, admitted: Admitted) {
        if self.consumed != admitted.charges {
            self.publish(admitted.charges);
        }
    }

    /// Takes the charges of packets as read that were lost behind the program; each was charged without its length.
    pub(crate) fn lose(&mut self, packets: u64) {
        self.publish(self.consumed.wrapping_add(packets.wrapping_mul(CHARGE.into())));
    }

    /// The same as [`drained`](Self::drained), and takes numbers of packets as read that are missing for long.
    #[inline]
    pub(crate) fn empty(&mut self, admitted: Admitted) {
        self.drained(admitted);
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

    /// The same where `lost` packets of those that have a number are known to be lost, and count as read if nothing else is
    /// missing. True if they do, or were given up.
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

    /// Gives packets up that are missing for long; true if it has.
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

    /// Takes nothing for completed while `held`: some of what the worker has sent waits in front of a device.
    pub(crate) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// The worker is through with everything that was read, unless that is held.
    #[inline]
    pub(crate) fn complete(&mut self) {
        if self.completed != self.read && !self.held {
            self.completed = self.read;
            // Release: what the worker has sent was sent before.
            self.all.word(self.first + COMPLETED).store(self.completed, Ordering::Release);
        }
    }

    /// Notes the drops that are counted, for a receiver that goes on with the window.
    #[cold]
    fn note_counted(&self) {
        for (word, dropped) in COUNTED.into_iter().zip(self.dropped) {
            self.all.word(self.first + word).store(dropped, Ordering::Relaxed);
        }
    }

    fn publish(&mut self, consumed: u64) {
        self.consumed = consumed;
        // Relaxed: a number that orders nothing; the program bounds by whatever it finds.
        self.all.word(self.first + CONSUMED).store(consumed, Ordering::Relaxed);
    }

    /// Packets that the program has dropped since this was asked last, as in [`DROPS`].
    #[inline]
    pub(crate) fn dropped(&mut self) -> [u64; 3] {
        // Relaxed: numbers that order nothing.
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

/// Time since the machine started; asked for while packets are missing alone.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Everything that a queue's program has ever admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    charges: u64,
    packets: u64,
}

/// Words of one queue: what the program writes on one pair of cache lines, what the receiver writes on the next.
const WORDS: usize = 32;
/// The logarithm of a queue's bytes.
pub(crate) const QUEUE_SHIFT: i32 = 8;
const ADMITTED: usize = 0;
const OVERRUNS: usize = 1;
const NUMBER: usize = 2;
const FENCED: usize = 3;
const OVERRUNS_CONTROL: usize = 4;
/// Credit that control packets have used.
const USED: usize = 5;
/// Of the first queue alone.
const RECOGNIZED: usize = 8;
const CONSUMED: usize = 16;
const COMPLETED: usize = 17;
const LIMIT: usize = 18;
const CREDIT: usize = 19;
/// Least limit of bulk.
const LEAST: usize = 23;
/// Drops that the receiver has counted, as in [`DROPS`].
const COUNTED: [usize; 3] = [20, 21, 22];
/// The same in bytes.
pub(crate) const ADMITTED_AT: i16 = 0;
pub(crate) const OVERRUNS_AT: i16 = 8;
pub(crate) const NUMBER_AT: i16 = 16;
pub(crate) const FENCED_AT: i16 = 24;
pub(crate) const OVERRUNS_CONTROL_AT: i16 = 32;
pub(crate) const USED_AT: i16 = 40;
/// `consumed` as the program has seen it last, and the time at which it had changed.
pub(crate) const SEEN_AT: i16 = 48;
pub(crate) const SEEN_TIME_AT: i16 = 56;
pub(crate) const RECOGNIZED_AT: i16 = 64;
pub(crate) const CONSUMED_AT: i16 = 128;
pub(crate) const COMPLETED_AT: i16 = 136;
pub(crate) const LIMIT_AT: i16 = 144;
pub(crate) const CREDIT_AT: i16 = 152;
/// Time after which a limit does not hold any more if nothing was read.
pub(crate) const STALE: Duration = Duration::from_millis(100);
/// Divisor of what was read, for the credit of control packets.
const CREDIT_PART: u64 = 8;
/// Packets are given up that are missing for so long, and each time of so many that the queue was found empty.
const LOST_AFTER: Duration = Duration::from_millis(100);
const LOST_TIMES: u32 = 16;
/// Charges that may wait while an upgrade has no receiver: 50 ms of 300 000 short packets a second.
pub(crate) const DEEP_BYTES: u32 = 16 << 20;
/// Bytes that each packet is charged beyond its length: what the kernel keeps with it.
pub(crate) const CHARGE: u16 = 1024;
const _: () = assert!(WORDS * 8 == 1 << QUEUE_SHIFT && CONSUMED * 8 == CONSUMED_AT as usize);

#[cfg(test)]
mod tests;
