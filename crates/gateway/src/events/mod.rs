//! Events of a running gateway: what `polder events` follows and the log tells.
//!
//! The control thread derives them from what it sees anyway, once a second or when it acts; a worker knows nothing of
//! them. [`Events`] keeps the last of them in a ring. A reader says which one it has seen last, so it needs no state in
//! the gateway, and one that is too slow is told how many it has lost. Events are a contract like the rows of
//! [`show`](crate::show): a field may be added without notice.

mod kind;
mod ring;
mod words;

pub use kind::{EventKind, Level, LinkState};
pub use ring::{Events, HandedEvents, MOST, Read};
pub use words::program_in_front;

use serde::{Deserialize, Serialize};

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, from 0 on, since the start of the gateway.
    pub number: u64,
    /// Time of day, in nanoseconds since 1970-01-01 00:00 UTC.
    pub unix_nanos: u64,
    /// Its weight.
    pub level: Level,
    /// In words.
    pub text: String,
    /// Kind, with what belongs to it.
    #[serde(flatten)]
    pub kind: EventKind,
}
