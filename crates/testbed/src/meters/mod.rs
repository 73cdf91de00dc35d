//! Measurements of traffic. Each meter has a test that gives it exactly 17 faults.

pub mod absence;
pub mod allocations;
pub mod cpu;
pub mod density;
pub mod frames;
pub mod sequence;
pub mod statistics;
pub mod stream;
