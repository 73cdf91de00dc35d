//! The ground of demonstration, judges and measurements: namespaces, gateways in them, guests, traffic, peers.

pub mod guest;
pub mod peers;
pub mod services;
pub mod topology;
pub mod traffic;
pub mod upgrade;

pub mod machine;
pub mod meters;

pub mod clock;
pub mod command;
pub mod interrupt;
pub mod screen;
pub mod skip;
