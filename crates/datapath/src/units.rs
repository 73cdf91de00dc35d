//! Quantities with their unit in the type.

use core::ops::{Add, Sub};

/// Time of the gateway's monotonic clock, or a duration, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// Duration of `millis` milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    /// Duration of `seconds` seconds.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds * 1_000_000_000)
    }

    /// Duration from `earlier` to this time; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.since(other)
    }
}

/// Rate in bytes per second, Ethernet header included, FCS excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BytesPerSecond(pub u64);

impl BytesPerSecond {
    /// Rate of `kilobits` kilobits (1000 bits) per second.
    pub const fn from_kilobits(kilobits: u64) -> Self {
        Self(kilobits * 125)
    }

    /// Duration of `bytes` bytes, rounded up; `u64::MAX` at a rate of 0.
    #[must_use]
    pub const fn time_of(self, bytes: u64) -> Nanos {
        match bytes.saturating_mul(Nanos::SECOND.0).checked_add(self.0.saturating_sub(1)) {
            Some(product) if self.0 > 0 => Nanos(product / self.0),
            _ => Nanos(u64::MAX),
        }
    }
}
