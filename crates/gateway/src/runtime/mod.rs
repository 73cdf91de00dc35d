//! The running gateway: one control thread, and workers that forward.
//!
//! [`worker`] is the loop; [`gateway`] opens ports, starts workers and changes what they do; [`show`]
//! turns counters into the rows of `polder show`.

pub mod accounts;
pub mod clock;
pub mod gateway;
mod neighbour;
mod numbers;
pub mod ports;
pub mod run;
pub mod tables;
pub mod wake;
pub mod worker;
