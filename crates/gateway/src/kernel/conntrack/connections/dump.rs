//! State of a dump, and of the events around it.

use polder_datapath::units::Nanos;
use std::collections::HashSet;

/// State of the dump.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) phase: Phase,
    /// True if connections of this dump may be older than the events.
    pub(super) is_of_older: bool,
    /// Connections that events have told since the socket is there, since events were lost, or since it was asked for.
    pub(super) told: HashSet<u64>,
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
    /// It has ended, and the next one is due at that time.
    Complete(Nanos),
}

impl Dump {
    /// The first one, which is due.
    pub(super) fn first(is_of_older: bool) -> Self {
        Self {
            phase: Phase::Due(Nanos(0)),
            is_of_older,
            told: HashSet::new(),
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
            Phase::Due(at) | Phase::Complete(at) => Some(at),
            Phase::Running(_) => None,
        }
    }

    /// The dump was asked for.
    pub(super) fn begin(&mut self, sequence: u32) {
        self.phase = Phase::Running(sequence);
        self.brought.clear();
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Complete(_))
    }

    /// An event has told of a connection.
    pub(super) fn tell(&mut self, key: u64) {
        self.is_overfull |= self.told.len() >= TOLD;
        if !self.is_overfull {
            self.told.insert(key);
        }
    }
}

/// Maximum number of connections that events tell during a dump.
const TOLD: usize = 1 << 18;
/// Time between two dumps: connections that another program has entered, as conntrackd does, are told by no event.
pub(super) const EVERY: Nanos = Nanos::from_seconds(300);
/// Time after which a dump that failed is repeated.
pub(super) const AGAIN_AFTER: Nanos = Nanos::SECOND;
