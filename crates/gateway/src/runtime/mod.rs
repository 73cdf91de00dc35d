//! The running gateway: one control thread, and workers that forward.
//!
//! [`worker`] is the loop; [`gateway`] opens ports, starts workers and changes what they do; [`show`]
//! turns counters into the rows of `polder show`.

pub mod accounts;
mod announce;
mod buffer_rows;
mod capture;
mod confined;
mod confirmation;
mod connections;
mod copies;
mod devices;
pub mod ending;
mod events;
pub mod filters;
pub mod gateway;
pub mod history;
pub mod hooks;
mod host_traffic;
mod links;
pub mod liveness;
mod manager;
pub mod memory;
mod metrics;
mod neighbour;
mod path;
mod patterns;
pub mod preflight;
pub mod routing;
pub mod run;
mod service;
pub mod shared;
pub mod sharing;
pub mod show;
mod signals;
pub mod tables;
mod threads;
pub mod trace;
mod tunnel_next_hops;
mod tunnels;
pub(crate) mod upgrade;
mod views;
pub mod wake;
pub mod worker;
