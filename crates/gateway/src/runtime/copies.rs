//! Copies of the packets of a port that the kernel carries, on their way into the file of a capture.

use crate::capture::pcapng::Totals;
use polder_devices::skb::{Copies, Copy};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Copies taken at a time: drops of stages are to come into the file, too.
const MOST: usize = 512;

/// Reader of copies.
pub(super) struct CopyReader {
    copies: Copies,
    /// From the monotonic clock to the time since 1970, in nanoseconds.
    offset: u64,
    read: u64,
    has_ended: bool,
}

impl CopyReader {
    pub(super) fn new(copies: Copies) -> Self {
        let offset = nanos(ClockId::Realtime).saturating_sub(nanos(ClockId::Monotonic));
        Self { copies, offset, read: 0, has_ended: false }
    }

    /// Hands copies to `take`, with their time since 1970. Returns their number.
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

    /// True if no copies come any more: the interface was switched off or is gone.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Has no more copies made.
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
