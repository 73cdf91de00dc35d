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

/// The instruction that makes a system call.
pub(super) const CALL: &[u8] = &[0x0f, 0x05];

/// Makes a thread execute the system call `exit`, by the instruction at `call`.
#[cfg(target_arch = "x86_64")]
pub(super) fn end(thread: i32, call: u64) -> Result<()> {
    request(libc::PTRACE_SEIZE, thread)?;
    let changed = request(libc::PTRACE_INTERRUPT, thread).and_then(|()| wait(thread)).and_then(|()| {
        let mut registers = registers(thread)?;
        (registers.rax, registers.rdi, registers.rip) = (libc::SYS_exit.cast_unsigned(), 0, call);
        // Not in a system call: the kernel repeats none.
        registers.orig_rax = u64::MAX;
        set_registers(thread, &registers)
    });
    let detached = request(libc::PTRACE_DETACH, thread);
    changed.and(detached)
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn end(_thread: i32, _call: u64) -> Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "UNSAFETY: the kernel writes one structure of ours")]
fn registers(thread: i32) -> Result<libc::user_regs_struct> {
    // SAFETY: a structure of integers, for which zeros are values.
    let mut registers = unsafe { std::mem::zeroed::<libc::user_regs_struct>() };
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel writes a `user_regs_struct` (ptrace(2), PTRACE_GETREGS), which lives through the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, none, &raw mut registers) };
    if result == -1 { Err(Error::last_os_error()) } else { Ok(registers) }
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "UNSAFETY: the kernel reads one structure of ours")]
fn set_registers(thread: i32, registers: &libc::user_regs_struct) -> Result<()> {
    let none = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the kernel reads a `user_regs_struct` (ptrace(2), PTRACE_SETREGS), which lives through the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, none, registers) };
    if result == -1 { Err(Error::last_os_error()) } else { Ok(()) }
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
