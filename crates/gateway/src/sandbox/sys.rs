//! seccomp(2) with flags that no library offers.
#![expect(unsafe_code, reason = "UNSAFETY: seccomp(2) takes a pointer to a program")]

use rustix::io::Errno;
use seccompiler::sock_filter;

/// Installs a filter for the calling thread and threads that it starts; if `logged`, the kernel logs refused
/// calls.
///
/// # Errors
/// Error of the kernel; `INVAL` and `NOSYS` without seccomp.
pub(super) fn install(program: &[sock_filter], logged: bool) -> Result<(), Errno> {
    // Logging needs Linux 4.14. Before 5.16 a filter enables costly mitigations against speculative reads of
    // the thread's own memory; since 4.17 they can be declined.
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

/// Maps an executable page.
#[cfg(test)]
pub(super) fn map_code() -> Result<(), Errno> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let access = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: the kernel chooses an unused address, and the page is never accessed.
    unsafe { mmap_anonymous(core::ptr::null_mut(), 4096, access, MapFlags::PRIVATE) }.map(drop)
}

/// Four forbidden calls with arguments that have no effect: tracing, mounting, and creating and joining a
/// namespace.
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
