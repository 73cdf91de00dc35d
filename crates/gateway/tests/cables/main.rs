//! Gateways between in-memory cables: what stands in front of a port, and what is found out about flows.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

mod bench;
mod cable;

mod auto;
mod fixed;
mod queue;
mod shaper;
mod weight;
mod workers;
