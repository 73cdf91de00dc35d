//! Copies of the packets that the kernel forwards by a port, written to a capture's file.

use crate::capture::pcapng::Totals;
use polder_devices::skb::{Copies, Copy};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Maximum number of copies for each call, so that drops of stages also reach the file.
const MOST: usize = 512;

/// Reader of a port's packet copies.
pub(super) struct CopyReader {
    copies: Copies,
    /// Difference between the monotonic clock and Unix time, in nanoseconds.
    offset: u64,
    read: u64,
    has_ended: bool,
}

impl CopyReader {
    pub(super) fn new(copies: Copies) -> Self {
        let offset = nanos(ClockId::Realtime).saturating_sub(nanos(ClockId::Monotonic));
        Self { copies, offset, read: 0, has_ended: false }
    }

    /// Passes copies to `take`, with Unix timestamps. Returns their number.
    ///
    /// # Errors
    /// The first error of `take`.
    pub(super) fn read(&mut self, mut take: impl FnMut(&Copy<'_>) -> io::Result<()>) -> io::Result<usize> {
        for count in 0..MOST {
            match self.copies.receive() {
                Ok(Some(copy)) => {
                    self.read += 1;
                    take(&Copy { at: copy.at.saturating_add(self.offset), ..copy })?;
                }
                Ok(None) => return Ok(count),
                Err(_) => {
                    self.has_ended = true;
                    return Ok(count);
                }
            }
        }
        Ok(MOST)
    }

    /// True if no more copies follow: the interface is down or was removed.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Stops the copying.
    pub(super) fn stop(&mut self) {
        self.copies.stop();
    }

    /// Packet counts so far.
    pub(super) fn totals(&self) -> Totals {
        let [asked, lost] = self.copies.counts();
        Totals { asked, matched: self.read + lost, lost }
    }
}

impl AsFd for CopyReader {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.copies.as_fd()
    }
}

fn nanos(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let [seconds, nanos] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}
