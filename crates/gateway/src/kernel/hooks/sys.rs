//! System calls that nothing else offers: options of sockets that return tables.

#![expect(unsafe_code, reason = "UNSAFETY: system calls that write through pointers")]

use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Reads an option whose value is a request at first and the answer at last: `value` is both.
pub(super) fn socket_option(
    socket: &OwnedFd,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> Result<usize, Errno> {
    let mut length = libc::socklen_t::try_from(value.len()).map_err(|_| Errno::TOOBIG)?;
    // SAFETY: the kernel reads and writes at most `length` bytes of `value`, which are there, and writes the
    // length, and keeps no pointer (getsockopt(2)).
    let status = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    if status == 0 { Ok(length as usize) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
