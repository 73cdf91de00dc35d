//! Capture: programs against an interpreter that takes one packet at a time, and taps.

#![expect(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "numbers are cut on purpose, and what cannot be is a failed test"
)]

#[expect(dead_code, reason = "the property tests take the reference alone")]
#[path = "../oracle/bpf.rs"]
mod bpf;

mod programs;
mod taps;
