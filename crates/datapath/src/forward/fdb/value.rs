//! Value of an entry: port, time in seconds at which the address was last seen, and state.

use crate::units::Nanos;
use polder_buffers::PortId;

/// Time of a look-up, and the ageing time.
#[derive(Clone, Copy, Debug)]
pub struct FdbTime {
    /// Time in seconds of the gateway's clock.
    pub second: u32,
    /// Ageing time: seconds from the last frame until a learned address expires.
    pub ageing: u32,
}

impl FdbTime {
    /// Time of `now` in whole seconds, with this ageing time.
    pub fn new(now: Nanos, ageing: u32) -> Self {
        let second = u32::try_from(now.0 / Nanos::SECOND.0).unwrap_or(u32::MAX);
        Self { second, ageing }
    }
}

/// Port, time and state of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Value(pub(super) u64);

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum State {
    Claimed = 1,
    Live = 2,
    Static = 6,
}

impl Value {
    #[inline(always)]
    pub(super) fn is_live(self) -> bool {
        self.0 & State::Live as u64 != 0
    }

    #[inline(always)]
    pub(super) fn is_static(self) -> bool {
        self.0 & State::Static as u64 == State::Static as u64
    }

    /// True if a frame received on `port` in `second` would not change the entry.
    #[inline(always)]
    pub(super) fn was_seen(self, port: PortId, second: u32) -> bool {
        self.0 >> 16 == u64::from(port.0) << 32 | u64::from(second)
            || self.port() == port && (self.is_static() || self.seen() > second)
    }

    #[inline(always)]
    pub(super) fn is_expired(self, time: FdbTime) -> bool {
        time.second.saturating_sub(self.seen()) > time.ageing && !self.is_static()
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the field is 32 bits wide")]
    pub(super) fn seen(self) -> u32 {
        (self.0 >> 16) as u32
    }

    #[inline(always)]
    pub(super) fn port(self) -> PortId {
        PortId((self.0 >> 48) as u16)
    }
}
