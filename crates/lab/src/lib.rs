//! The lab: numbers that mean something, on the machine in front of you.

pub mod demo;
pub mod scenarios;

pub mod cni;
pub mod detect;
pub mod differential;
pub mod e1000;
pub mod guest;
pub mod hold;
pub mod hosts;
pub mod hot;
pub mod lan78xx;
pub mod packages;
pub mod pages;
pub mod peers;
pub mod replay;
pub mod restart;
pub mod selftests;
pub mod services;
pub mod topology;
pub mod traffic;
pub mod tunnels;
pub mod upgrade;
pub mod usb;
pub mod vxlan;
pub mod yielding;

pub mod machine;
pub mod meters;
pub mod publish;
pub mod report;

pub mod clock;
pub mod command;
pub mod interrupt;
pub mod screen;
pub mod skip;
