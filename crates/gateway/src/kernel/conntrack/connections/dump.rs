//! State of a dump, and of the events around it.

use polder_datapath::units::Nanos;
use std::collections::{HashMap, HashSet};

/// State of the dump.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) phase: Phase,
    /// True if connections of this dump may be older than the events.
    pub(super) is_of_older: bool,
    /// Connections that events have told since the socket is there: true for new ones.
    pub(super) told: HashMap<u64, bool>,
    /// Connections that the dump has brought.
    pub(super) brought: HashSet<u64>,
    /// True if `told` is not complete.
    pub(super) is_overfull: bool,
}

/// Progress of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is due at that time.
    Due(Nanos),
    /// The request with that number is answered.
    Running(u32),
    /// It has ended.
    Complete,
}

impl Dump {
    /// The first one, which is due.
    pub(super) fn first(is_of_older: bool) -> Self {
        Self {
            phase: Phase::Due(Nanos(0)),
            is_of_older,
            told: HashMap::new(),
            brought: HashSet::new(),
            is_overfull: false,
        }
    }

    /// Starts again, because events were lost.
    pub(super) fn restart(&mut self, now: Nanos) {
        *self = Self { phase: Phase::Due(now), ..Self::first(self.is_of_older) };
    }

    /// Time at which a dump is due.
    pub(super) fn due(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Due(at) => Some(at),
            Phase::Running(_) | Phase::Complete => None,
        }
    }

    /// The dump was asked for.
    pub(super) fn begin(&mut self, sequence: u32) {
        self.phase = Phase::Running(sequence);
        self.brought.clear();
    }

    pub(super) fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }

    /// An event has told of a connection. Returns true if this or an earlier one has told it as new.
    pub(super) fn tell(&mut self, key: u64, is_new: bool) -> bool {
        if self.is_complete() {
            return is_new;
        }
        self.is_overfull |= self.told.len() >= TOLD;
        if self.is_overfull {
            return is_new;
        }
        let told = self.told.entry(key).or_default();
        *told |= is_new;
        *told
    }
}

/// Maximum number of connections that events tell during a dump.
const TOLD: usize = 1 << 18;
/// Time after which a dump is repeated.
pub(super) const AGAIN_AFTER: Nanos = Nanos::SECOND;
