//! Schedule of a worker's time: turns, sleep, and its share of the core.

use polder_datapath::scheduler::{Contention, CpuTokenBucket, Mode, Options, PollMode, RunQueue};
use polder_datapath::units::Nanos;

/// Schedule of a worker: turns, sleep, and its share of the core.
#[derive(Debug)]
pub struct Schedule {
    pub(super) line: RunQueue,
    pub(super) pace: PollMode,
    /// Detects whether other threads want the core.
    pub(super) contention: Contention,
    /// True if the mode follows the packet rate.
    adapts: bool,
    pub(super) share: Option<Share>,
}

/// Limit on the CPU time of the worker and of the NAPI threads that receive for it.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) percent: u8,
    pub(super) token_bucket: CpuTokenBucket,
    /// CPU time of NAPI threads charged to the share, used outside of pauses.
    pub(super) others: Nanos,
    /// Total CPU time of the NAPI threads at the last reading.
    pub(super) others_then: Nanos,
    /// Time of the next reading of the CPU times.
    pub(super) look_at: Nanos,
}

impl Default for Schedule {
    fn default() -> Self {
        Self::new(Options::default(), None)
    }
}

impl Schedule {
    /// Creates a schedule with these options that uses at most `percent` percent of a core.
    pub fn new(options: Options, percent: Option<u8>) -> Self {
        let share = percent.filter(|&percent| percent < 100).map(|percent| Share {
            percent,
            token_bucket: CpuTokenBucket::new(u16::from(percent) * 10),
            others: Nanos::default(),
            others_then: Nanos::default(),
            look_at: Nanos::default(),
        });
        let (pace, contention) = (PollMode::default(), Contention::default());
        Self { line: RunQueue::new(options), pace, contention, adapts: options.balance, share }
    }

    /// Records a round that began at `now`. Returns the new mode if it changes.
    pub(super) fn note(&mut self, now: Nanos, packets: u32) -> Option<Mode> {
        if self.adapts { self.pace.cycle(now, packets) } else { None }
    }
}
