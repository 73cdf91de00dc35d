//! `ptrace(2)`.

use std::io::{Error, Result};
use std::time::Duration;

/// Stops a thread, waits, and lets it go on.
pub(super) fn hold(thread: i32, time: Duration) -> Result<()> {
    request(libc::PTRACE_SEIZE, thread)?;
    let stopped = request(libc::PTRACE_INTERRUPT, thread).and_then(|()| wait(thread));
    if stopped.is_ok() {
        std::thread::sleep(time);
    }
    // A thread that did not stop is let go when this process ends.
    let detached = request(libc::PTRACE_DETACH, thread);
    stopped.and(detached)
}

#[expect(unsafe_code, reason = "UNSAFETY: a system call without pointers")]
fn request(request: libc::c_uint, thread: i32) -> Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: none of the three requests reads or writes our memory: address and data are null.
    let result = unsafe { libc::ptrace(request, thread, none, none) };
    if result == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Waits until the thread has stopped.
#[expect(unsafe_code, reason = "UNSAFETY: the kernel writes one integer of ours")]
fn wait(thread: i32) -> Result<()> {
    let mut status = 0;
    // SAFETY: `status` is an integer that lives through the call.
    let result = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    if result == thread { Ok(()) } else { Err(Error::last_os_error()) }
}
