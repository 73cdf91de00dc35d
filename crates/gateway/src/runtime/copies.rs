//! Copies of the packets of a port that the kernel carries, on their way into the file of a capture.

use crate::capture::pcapng::Totals;
use polder_buffers::BATCH;
use polder_datapath::capture::{Program, Runner, View, Where};
use polder_devices::skb::{Copies, Copy};
use std::io;
use std::sync::Arc;

/// Copies taken at a time: drops of stages are to come into the file, too.
const MOST: usize = 512;

/// Reader of copies.
pub(super) struct CopyReader {
    copies: Copies,
    program: Arc<Program>,
    runner: Runner,
    places: Where,
    matched: u64,
    has_ended: bool,
}

impl CopyReader {
    pub(super) fn new(copies: Copies, program: Arc<Program>, places: Where) -> Self {
        let mut runner = Runner::new();
        runner.prepare(&program);
        Self { copies, program, runner, places, matched: 0, has_ended: false }
    }

    /// Hands each copy that matches to `take`. Returns the number of copies that have come.
    ///
    /// # Errors
    /// The first error of `take`.
    pub(super) fn read(&mut self, mut take: impl FnMut(&Copy<'_>) -> io::Result<()>) -> io::Result<usize> {
        let Self { copies, program, runner, places, matched, has_ended } = self;
        for count in 0..MOST {
            let copy = match copies.receive() {
                Ok(Some(copy)) => copy,
                Ok(None) => return Ok(count),
                Err(_) => {
                    *has_ended = true;
                    return Ok(count);
                }
            };
            let is_wanted = if copy.sent { places.tx } else { places.rx };
            if is_wanted && (copy.matches || matches(&copy, program, runner)) {
                *matched += 1;
                take(&copy)?;
            }
        }
        Ok(MOST)
    }

    /// True if no copies come any more: the interface was switched off or is gone.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Packet counts so far.
    pub(super) fn totals(&mut self) -> Totals {
        let [asked, lost] = self.copies.counts().unwrap_or_default();
        Totals { asked, matched: self.matched + lost, lost }
    }
}

fn matches(copy: &Copy<'_>, program: &Program, runner: &mut Runner) -> bool {
    let mut views = [View::default(); BATCH];
    views[0] = View { bytes: copy.bytes, length: copy.length };
    runner.run(program, &views, 1) != 0
}
