//! Checks of the programs that carry flows: which exist, and whether a program that is built has one.
//!
//! All programs have all checks. A judge that finds nothing wrong with them has shown something only if it finds a program that
//! lacks one; `mutants`, which is behind the feature `models`, has such programs built. Nothing else writes the word that
//! is read here, and it is read while a program is built, never while one runs.

use core::sync::atomic::{AtomicU8, Ordering};

/// Check of a program that carries flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Check {
    /// A flow is carried when none of its packets is in user space any more.
    Fence = 1,
}

impl Check {
    /// All checks.
    pub const ALL: [Self; 1] = [Self::Fence];

    /// Name of the check.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fence => "fence",
        }
    }

    /// The check of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|check| check.name() == name)
    }

    /// True if programs that are built have this check.
    pub(crate) fn is_made(self) -> bool {
        // Relaxed: the word is written before the first program is built, by the thread that starts all others.
        OMITTED.load(Ordering::Relaxed) != self as u8
    }
}

/// The check that programs lack; 0 for none.
pub(crate) static OMITTED: AtomicU8 = AtomicU8::new(0);
