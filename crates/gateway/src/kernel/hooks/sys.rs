//! System calls without a wrapper in other libraries: socket options that return tables, and scheduling.

#![expect(unsafe_code, reason = "UNSAFETY: system calls that read and write through pointers")]

use rustix::io::Errno;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// Reads a socket option; `value` is first the request, then the answer. Returns the answer's length.
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

/// Gives the calling thread the lowest real-time priority (`SCHED_FIFO`, sched(7)). Threads that it starts
/// have normal priority.
pub(super) fn set_real_time() -> Result<(), Errno> {
    let attributes = SchedulingAttributes {
        size: size_of::<SchedulingAttributes>().try_into().unwrap_or(0),
        policy: libc::SCHED_FIFO.cast_unsigned(),
        flags: SCHED_FLAG_RESET_ON_FORK,
        priority: 1,
        ..SchedulingAttributes::default()
    };
    // SAFETY: the kernel reads `size` bytes, the size of the structure, and writes nothing.
    let status = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0_u32) };
    if status == 0 { Ok(()) } else { Err(last_error()) }
}

/// `struct sched_attr` of linux/sched/types.h, first version.
#[repr(C)]
#[derive(Default)]
struct SchedulingAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// linux/sched.h.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
