//! The gateway: configuration, workers, control socket, command line.

pub mod clock;
mod hash;
pub mod journal;
mod secret;
pub mod shutdown;
pub mod supervise;

pub mod bfd;
pub mod config;
pub mod device;
pub mod keepalive;
pub mod kernel;
pub mod runtime;
pub mod sandbox;

pub mod capture;
pub mod control;
pub mod doctor;
pub mod events;
pub mod metrics;
pub mod show;
pub mod trace;

pub mod cli;
pub mod cni;
