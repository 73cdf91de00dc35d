//! Filters: against a naive first match, and what the rejected are told.

#![expect(
    clippy::cast_possible_truncation,
    clippy::panic,
    clippy::unwrap_used,
    reason = "numbers are cut on purpose, and what cannot be is a failed test"
)]

mod oracle;
mod reject;
mod rules;
