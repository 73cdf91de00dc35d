//! Parts of an open port that are handed over to the successor process: meanwhile packets wait in the TAP,
//! and the program goes on carrying flows.

use super::attach::Attached;
use super::error::OpenError;
use super::port::Port;
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// Version of the layout that the program, its maps and the receivers share. A process of another version
/// opens the interface anew.
pub const LAYOUT: u32 = 1;

/// Parts of a port that the predecessor process has open.
#[derive(Debug)]
pub struct Parts {
    /// Link of the interface's program.
    pub(super) link: OwnedFd,
    /// Links of the TAP's programs.
    pub(super) tap_programs: [OwnedFd; 2],
    /// Map of the windows.
    pub(super) windows: OwnedFd,
    /// Maps of the flows, if the program carries flows.
    pub(super) flows: Option<[OwnedFd; 3]>,
    /// Files of the TAP, one per queue.
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
    /// Returns the descriptors for the successor process; `None` at clsact, whose filters have no
    /// descriptors.
    pub fn parts(&self) -> Option<Vec<BorrowedFd<'_>>> {
        let Attached::Tcx(attachment) = &self.attached else { return None };
        let mut parts = vec![attachment.descriptor()];
        parts.extend(self.tap_programs.iter().map(|link| link.as_fd()));
        parts.push(self.windows.as_fd());
        parts.extend(self.flows.iter().flat_map(|flows| flows.descriptors()));
        parts.extend(self.tap_files.iter().map(|file| file.as_fd()));
        Some(parts)
    }

    /// Makes the port's program the attached program, in one step.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn begin(&mut self) -> Result<(), OpenError> {
        match &mut self.attached {
            Attached::Tcx(attachment) => Ok(attachment.commit(&self.link, &self.program)?),
            // The filter has been active since it was attached.
            Attached::Clsact(_) => Ok(()),
        }
    }

    /// Attaches the port's program again, after the successor process has given up.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn take_back(&self) -> Result<(), OpenError> {
        match &self.attached {
            Attached::Tcx(attachment) => Ok(attachment.renew(&self.link, &self.program)?),
            Attached::Clsact(_) => Ok(()),
        }
    }

    /// Raises the window while the successor takes over, or restores it.
    pub fn deepen(&self, is_deep: bool) {
        self.windows.deepen(is_deep);
    }

    /// Keeps the interface's state when the port is closed: the successor process goes on with it.
    pub fn leave(&mut self) {
        if let Attached::Tcx(attachment) = &mut self.attached {
            attachment.leave();
        }
    }
}
