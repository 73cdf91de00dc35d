//! Schedule of a worker's time: turns, rest, and its share of the core.

use polder_datapath::scheduler::{Contention, CpuTokenBucket, Mode, Options, Pace, RunQueue};
use polder_datapath::units::Nanos;

/// Schedule of a worker: turns, rest, and its share of the core.
#[derive(Debug)]
pub struct Schedule {
    pub(super) line: RunQueue,
    pub(super) pace: Pace,
    /// True if others want the core.
    pub(super) contention: Contention,
    /// True if the pace follows the arrivals.
    adapts: bool,
    pub(super) share: Option<Share>,
}

/// A share of the core, of the worker and of those that the kernel has receive for it.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) percent: u8,
    pub(super) token_bucket: CpuTokenBucket,
    /// CPU time of other threads that counts to the share, used while they did not stand back.
    pub(super) others: Nanos,
    /// Their time when they went on last.
    pub(super) others_then: Nanos,
    /// Time at which the thread's time is looked at next.
    pub(super) look_at: Nanos,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(Options::default(), None)
    }
}

impl Schedule {
    /// Schedule with these options, and at most `percent` percent of a core.
    pub fn new(options: Options, percent: Option<u8>) -> Self {
        let share = percent.filter(|&percent| percent < 100).map(|percent| Share {
            percent,
            token_bucket: CpuTokenBucket::new(u16::from(percent) * 10),
            others: Nanos::default(),
            others_then: Nanos::default(),
            look_at: Nanos::default(),
        });
        let (pace, contention) = (Pace::default(), Contention::default());
        Self { line: RunQueue::new(options), pace, contention, adapts: options.balance, share }
    }

    /// Takes note of a round that began at `now`. Answers how devices are to be driven when that changes.
    pub(super) fn note(&mut self, now: Nanos, packets: u32) -> Option<Mode> {
        if self.adapts { self.pace.cycle(now, packets) } else { None }
    }
}
