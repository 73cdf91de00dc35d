//! The lab: numbers that mean something, on the machine in front of you.

pub mod demo;

pub mod meters;
pub mod topology;
pub mod traffic;

pub mod clock;
pub mod command;
pub mod interrupt;
pub mod machine;
pub mod screen;
