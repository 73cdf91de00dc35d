//! System calls that nothing else offers: options of sockets that return tables, and `bpf(2)`.

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

/// The part of `union bpf_attr` for `BPF_PROG_QUERY` (linux/bpf.h).
#[repr(C, align(8))]
#[derive(Default)]
struct Query {
    interface: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// Number of programs that are attached to an interface in that way.
pub(super) fn attached_programs(interface: u32, attach_type: u32) -> Result<u32, Errno> {
    const BPF_PROG_QUERY: libc::c_int = 16;
    let mut query = Query { interface, attach_type, ..Query::default() };
    // SAFETY: the kernel reads and writes as many bytes of `query` as it has, and keeps no pointer. It has no
    // room for numbers of programs, so that only their count is written (bpf(2)).
    let status = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size_of::<Query>()) };
    if status == 0 { Ok(query.count) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
}
