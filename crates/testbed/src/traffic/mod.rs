//! Packets made to be measured.

pub mod packet;
pub mod sizes;

pub mod iperf3;
pub mod memory;
pub mod mlrsearch;
pub mod pace;
pub mod probe;
pub mod raw;
pub mod search;
pub mod sockets;
pub mod vary;
