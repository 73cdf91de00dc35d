//! The readers of `polder trace`.

pub use polder::trace::{pcap, spec};
