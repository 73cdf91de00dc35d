//! Parts of an open port with which another process can go on: packets that come meanwhile wait in the TAP, and flows that the
//! program carries are carried all the time.

use super::attach::Attached;
use super::error::OpenError;
use super::port::Port;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Version of what the program, its maps and the receivers share. Processes of another one open the interface anew.
pub const LAYOUT: u32 = 1;

/// Parts of a port that another process has open.
#[derive(Debug)]
pub struct Parts {
    /// Link of the interface's program.
    pub(super) link: OwnedFd,
    /// Links of the TAP's programs.
    pub(super) tap_programs: [OwnedFd; 2],
    /// Map of the windows.
    pub(super) windows: OwnedFd,
    /// Maps of the flows, if the program carries some.
    pub(super) flows: Option<[OwnedFd; 3]>,
    /// Files of the TAP, a queue each.
    pub(super) tap: Vec<OwnedFd>,
}

impl Parts {
    /// Takes descriptors in the order of [`Port::parts`].
    ///
    /// # Errors
    /// `INVAL` for too few.
    pub fn new(has_flows: bool, descriptors: Vec<OwnedFd>) -> Result<Self, Errno> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(Errno::INVAL);
        let (link, tap_programs, windows) = (next()?, [next()?, next()?], next()?);
        let flows = if has_flows { Some([next()?, next()?, next()?]) } else { None };
        let tap = descriptors.collect::<Vec<_>>();
        if tap.is_empty() { Err(Errno::INVAL) } else { Ok(Self { link, tap_programs, windows, flows, tap }) }
    }
}

impl Port {
    /// Descriptors with which another process can go on; `None` at clsact, whose filters have no descriptors.
    pub fn parts(&self) -> Option<Vec<BorrowedFd<'_>>> {
        let Attached::Tcx(attachment) = &self.attached else { return None };
        let mut parts = vec![attachment.descriptor()];
        parts.extend(self.tap_programs.iter().map(|link| link.as_fd()));
        parts.push(self.windows.as_fd());
        parts.extend(self.flows.iter().flat_map(|flows| flows.descriptors()));
        parts.extend(self.tap_files.iter().map(|file| file.as_fd()));
        Some(parts)
    }

    /// Puts the port's program to work, in one step.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn begin(&mut self) -> Result<(), OpenError> {
        match &mut self.attached {
            Attached::Tcx(attachment) => Ok(attachment.commit(&self.link, &self.program)?),
            // It works since it was attached.
            Attached::Clsact(_) => Ok(()),
        }
    }

    /// Puts the port's program to work again: the process that was to go on with the port does not.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn take_back(&self) -> Result<(), OpenError> {
        match &self.attached {
            Attached::Tcx(attachment) => Ok(attachment.renew(&self.link, &self.program)?),
            Attached::Clsact(_) => Ok(()),
        }
    }

    /// Has more wait while another process takes over, or no more than otherwise.
    pub fn deepen(&self, is_deep: bool) {
        self.windows.deepen(is_deep);
    }

    /// Leaves the interface as it is when the port is closed: another process goes on with it.
    pub fn leave(&mut self) {
        if let Attached::Tcx(attachment) = &mut self.attached {
            attachment.leave();
        }
    }
}
