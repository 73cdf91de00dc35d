//! A TAP created in advance for the next port.
//!
//! The kernel waits for a grace period each time a program is attached, 8 to 16 ms with a tick of 4 ms, and
//! holds the RTNL lock meanwhile. Replacing an attached program needs no grace period. So the two programs of
//! a spare TAP drop every packet until a port takes the TAP.
//!
//! Source: Linux, kernel/bpf/tcx.c (`tcx_link_attach`, `tcx_link_update`).

use super::error::{Hook, OpenError};
use super::init::{find, new_tap, tap_options, tap_programs};
use super::options::Options;
use super::program;
use super::{attach, preflight, settings};
use crate::af_xdp::link::LinkInfo;
use crate::bpf::sys::{self, ProgramKind};
use crate::tap::{self, Tap};
use polder_buffers::Region;
use std::os::fd::{AsFd as _, OwnedFd};

/// A TAP with attached programs, for a future port.
#[derive(Debug)]
pub struct Spare {
    tap: Tap,
    programs: [OwnedFd; 2],
    options: tap::Options,
    window_bytes: u32,
}

impl Spare {
    /// Creates a TAP for a port with the same options as an open one; `None` if programs are attached by
    /// clsact.
    ///
    /// # Errors
    /// As [`open`](super::open).
    pub fn like(options: &Options, region: &Region) -> Result<Option<Self>, OpenError> {
        let link = find(options)?;
        if preflight::hook(&link, options) != Hook::Tcx {
            return Ok(None);
        }
        let tap = new_tap(&link, options, region, &mut Vec::new())?;
        let index = tap.interface.index;
        settings::rename(index, "the next port")
            .map_err(|errno| attach::step(&link, "set up the TAP", errno))?;
        // No packet reaches a TAP by itself.
        let programs = tap_programs(&link, (index, index), Hook::Tcx)?;
        let (options, window_bytes) = (tap_options(options, options.queues), options.window_bytes);
        Ok(Some(Self { tap, programs, options, window_bytes }))
    }

    /// True if a port of `options` would create the same TAP.
    pub(super) fn fits(&self, options: &Options, hook: Hook) -> bool {
        hook == Hook::Tcx
            && self.tap.queues.len() == usize::from(options.queues)
            && self.options == tap_options(options, options.queues)
            && self.window_bytes == options.window_bytes
    }

    /// Gives the TAP and its programs to the port of `link`.
    pub(super) fn give(self, link: &LinkInfo) -> Result<(Tap, [OwnedFd; 2]), OpenError> {
        let Self { tap, programs, .. } = self;
        for (attached, (name, instructions)) in programs.iter().zip(program::of_tap(link.index)) {
            let program = attach::load(link, ProgramKind::Tcx, name, &instructions)?;
            sys::update_link(attached.as_fd(), program.as_fd())
                .map_err(|errno| attach::step(link, "replace a program of the TAP", errno))?;
        }
        settings::rename(tap.interface.index, &link.name)
            .map_err(|errno| attach::step(link, "set up the TAP", errno))?;
        Ok((tap, programs))
    }
}
