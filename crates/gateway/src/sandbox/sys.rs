//! seccomp(2), which no library calls with the flags that are wanted here.
#![expect(unsafe_code, reason = "UNSAFETY: seccomp(2) takes a pointer to a program")]

use rustix::io::Errno;
use seccompiler::sock_filter;

/// Has the calling thread, and the threads that it starts, keep to a filter; `logged` when the kernel is to log what
/// the filter refuses.
///
/// # Errors
/// Error of the kernel; `INVAL` and `NOSYS` where it has no filters.
pub(super) fn install(program: &[sock_filter], logged: bool) -> Result<(), Errno> {
    // Refusals are logged by the kernel from 4.14 on. Before 5.16 a filter slows a thread down by measures against
    // reading its own memory by speculation, which it can read anyway; from 4.17 on they can be declined.
    let log = if logged { libc::SECCOMP_FILTER_FLAG_LOG } else { 0 };
    let fast = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let flags = [log | fast, log, 0];
    let mut last = Err(Errno::INVAL);
    for flags in flags {
        last = call(program, flags);
        if last != Err(Errno::INVAL) {
            break;
        }
    }
    last
}

fn call(program: &[sock_filter], flags: libc::c_ulong) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::INVAL)?,
        filter: program.as_ptr().cast_mut().cast(),
    };
    // SAFETY: (1) the kernel reads `len` instructions of 8 bytes, the slice's length, and writes nothing; (2) both
    // structures are `struct sock_filter` of linux/filter.h.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    if result == 0 {
        return Ok(());
    }
    Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

const _: () = assert!(size_of::<sock_filter>() == size_of::<libc::sock_filter>());

/// Maps a page that may be executed.
#[cfg(test)]
pub(super) fn map_code() -> Result<(), Errno> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the kernel chooses a place that nobody has; nobody uses the page.
    unsafe { mmap_anonymous(core::ptr::null_mut(), 4096, access, MapFlags::PRIVATE) }.map(drop)
}

/// Tracing, mounting, another namespace and joining one, each with arguments that have no effect.
#[cfg(test)]
pub(super) fn forbidden() -> [Result<(), Errno>; 4] {
    let calls = [
        [libc::SYS_ptrace, i64::from(libc::PTRACE_PEEKDATA), i64::from(i32::MAX), 0],
        [libc::SYS_mount, 0, 1, 1],
        [libc::SYS_unshare, 0, 0, 0],
        [libc::SYS_setns, -1, 0, 0],
    ];
    calls.map(|[number, first, second, third]| {
        // SAFETY: no process has that number, address 1 is not readable, and the others take no pointer.
        let result = unsafe { libc::syscall(number, first, second, third, 0, 0) };
        if result >= 0 {
            return Ok(());
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    })
}
