//! A bare redirect between two interfaces: the least that a TCX program can do for a packet, to be measured beside.

use super::attach;
use super::error::{Hook, OpenError};
use super::program;
use crate::af_xdp;
use crate::af_xdp::link::{self, LinkInfo, Which};
use crate::bpf::sys::Side;
use std::os::fd::OwnedFd;

/// Redirects everything that comes in by `from` to the egress of `to`, until the link that is returned is closed. Both
/// are interfaces of the calling thread's network namespace.
///
/// # Errors
/// [`OpenError`] for an interface that is not there, and what the kernel refuses.
pub fn redirect(from: &str, to: &str) -> Result<OwnedFd, OpenError> {
    let (from, to) = (named(from)?, named(to)?);
    attach::to_tap((&from, from.index, Hook::Tcx), Side::Ingress, "polder_bare", &program::onward(to.index))
}

fn named(interface: &str) -> Result<LinkInfo, OpenError> {
    link::query(Which::Name(interface))
        .map_err(|_| af_xdp::OpenError::NoInterface(interface.to_owned()).into())
}
