//! The lab: numbers that mean something, on the machine in front of you.

pub mod scenarios;

pub mod detect;
pub mod hold;
pub mod packages;
pub mod restart;
pub mod yielding;

pub mod publish;
pub mod report;
