//! Packets made to be measured.

pub mod pace;
pub mod probe;
pub mod search;
pub mod sockets;
