//! Judges of Polder from outside: drivers, kernels, daemons and captures that others wrote, each with faults that it finds.

mod examination;
mod router;

pub mod cni;
pub mod connections;
pub mod differential;
pub mod e1000;
pub mod hosts;
pub mod hot;
pub mod lacking;
pub mod lan78xx;
pub mod pages;
pub mod replay;
pub mod selftests;
pub mod tunnels;
pub mod usb;

pub use examination::Verdict;
