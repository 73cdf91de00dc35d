//! Verdict of an interface's program on a frame, found by a test run of the program.

use super::link::{self, Which};
use super::port::Port;
use crate::bpf::sys;
use rustix::io::Errno;
use std::os::fd::AsFd as _;

/// Result for a frame that arrives at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpVerdict {
    /// The frame goes to user space.
    Taken,
    /// The program carries the frame to another interface by itself.
    Carried,
    /// The frame goes to the kernel.
    Kernel,
    /// The program drops the frame.
    Dropped,
}

/// Number of bytes that the program gets: more than it reads.
const SHOWN: usize = 512;
/// The shortest frame on which the kernel runs a program.
const SHORTEST: usize = 14;

impl Port {
    /// Runs the interface's program on a frame, as if its first queue had received it. The frame is not
    /// forwarded.
    ///
    /// # Errors
    /// Error of the kernel: `PERM` without the right to run programs, `INVAL` for a frame shorter than an
    /// Ethernet header, `NOENT` if the interface has no program or another one.
    pub fn verdict(&self, frame: &[u8]) -> Result<XdpVerdict, Errno> {
        let shown = &frame[..frame.len().min(SHOWN)];
        if shown.len() < SHORTEST {
            return Err(Errno::INVAL);
        }
        let link = link::query(Which::Index(self.interface.index))?;
        // The descriptor that loaded the program is used: opening a program by its number needs
        // CAP_SYS_ADMIN.
        let info = sys::object_info(self.program.as_fd())?;
        let number = u32::from_ne_bytes([info[4], info[5], info[6], info[7]]);
        if link.xdp.program() != Some(number) {
            return Err(Errno::NOENT);
        }
        if self.flows.as_ref().is_some_and(|flows| flows.carries(frame)) {
            return Ok(XdpVerdict::Carried);
        }
        // `enum xdp_action`: aborted, drop, pass, back out, redirect.
        Ok(match sys::test_run(self.program.as_fd(), shown)? {
            4 => XdpVerdict::Taken,
            2 => XdpVerdict::Kernel,
            _ => XdpVerdict::Dropped,
        })
    }
}
