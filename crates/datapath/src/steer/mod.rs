//! Which worker a packet goes to (E2), and where the order of a flow is defined (E8).
//!
//! A port whose packets are steered has its flows hashed into buckets. A bucket is the work of one
//! worker, its home, or it is spread over all of them; then the order in which its packets came is
//! written down in tickets, and [`restore`](crate::restore) brings it back.

mod flow;
pub mod toeplitz;

pub use flow::{Flow, Hasher};
