//! Events of a running gateway, for `polder events` and the log.
//!
//! The control thread creates them from state that it reads anyway, once a second or when it acts; workers
//! are not involved. [`Events`] keeps the latest ones in a ring. A reader names the next event it wants, so
//! the gateway stores no state for it, and a slow reader is told how many events it has lost. Events are a
//! stable interface like the rows of [`show`](crate::show): fields may be added.

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
    /// Sequence number, from 0 on since the start of the gateway.
    pub number: u64,
    /// Unix time in nanoseconds.
    pub unix_nanos: u64,
    /// Log level.
    pub level: Level,
    /// The event as text.
    pub text: String,
    /// Kind, with its fields.
    #[serde(flatten)]
    pub kind: EventKind,
}
