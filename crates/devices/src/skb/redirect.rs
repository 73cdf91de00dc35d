//! TCX programs of tests and measurements: a bare redirect between two interfaces, which is the least work
//! per packet; a driver that gives all packets one hash; and a program that uses the control block itself.

use super::attach;
use super::error::{Hook, OpenError};
use super::program;
use crate::af_xdp;
use crate::af_xdp::link::{self, LinkInfo, Which};
use crate::bpf::assembler::{Assembler, Helper, Register, Width};
use crate::bpf::sys::Side;
use std::os::fd::OwnedFd;

/// Redirects all packets received by `from` to the egress of `to`, until the returned link is closed. Both
/// are interfaces of the calling thread's network namespace.
///
/// # Errors
/// [`OpenError`] for a missing interface, and for refusals of the kernel.
pub fn redirect(from: &str, to: &str) -> Result<OwnedFd, OpenError> {
    let (from, to) = (named(from)?, named(to)?);
    attach::to_tap((&from, from.index, Hook::Tcx), Side::Ingress, "polder_bare", &program::onward(to.index))
}

/// Gives each packet that `interface` receives the hash `hash`, as one of its addresses and ports, before all
/// existing programs; until the returned link is closed.
///
/// # Errors
/// As [`redirect`].
pub fn set_hash(interface: &str, hash: i32) -> Result<OwnedFd, OpenError> {
    let link = named(interface)?;
    let mut program = Assembler::new();
    program.set(Register::R2, hash);
    program.call(Helper::SetHash);
    program.set(Register::R0, program::NEXT);
    program.exit();
    attach::to_tap((&link, link.index, Hook::Tcx), Side::Ingress, "driver_hash", &program.finish())
}

/// Writes to the control block of each packet that `interface` receives, before all existing programs; until
/// the returned link is closed.
///
/// # Errors
/// As [`redirect`].
pub fn use_control_block(interface: &str) -> Result<OwnedFd, OpenError> {
    let link = named(interface)?;
    let mut program = Assembler::new();
    program.set(Register::R2, 1);
    program.store(Width::Word, Register::R1, program::CONTROL_BLOCK, Register::R2);
    program.set(Register::R0, program::NEXT);
    program.exit();
    attach::to_tap((&link, link.index, Hook::Tcx), Side::Ingress, "other_block", &program.finish())
}

fn named(interface: &str) -> Result<LinkInfo, OpenError> {
    link::query(Which::Name(interface))
        .map_err(|_| af_xdp::OpenError::NoInterface(interface.to_owned()).into())
}
