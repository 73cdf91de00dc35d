//! System calls that another process's thread makes because we want it to (ptrace(2)).
#![expect(unsafe_code, reason = "UNSAFETY: ptrace(2), and the registers of another process")]
#![cfg(target_arch = "x86_64")]

use std::io::Error;

/// A thread of another process that is stopped, and goes on where it was when this is dropped.
pub(crate) struct Stopped {
    thread: i32,
    before: libc::user_regs_struct,
}

impl Stopped {
    /// Stops a thread that sleeps in a system call.
    pub(crate) fn new(thread: i32) -> Self {
        request(libc::PTRACE_ATTACH, thread, 0, 0).expect("it may be traced");
        wait(thread);
        let before = registers(thread);
        Self { thread, before }
    }

    /// Runs a system call there and returns its result: a number, or an error below 0. A text takes
    /// the place of argument `at`.
    pub(crate) fn call(&self, number: i64, mut arguments: [u64; 3], text: Option<(usize, &str)>) -> i64 {
        if let Some((at, text)) = text {
            // Below what the thread has on its stack, the part that functions may use unasked included.
            let place = self.before.rsp - 4096;
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(text.len() / 8 * 8 + 8, 0);
            for (word, offset) in bytes.chunks_exact(8).zip((0_u64..).step_by(8)) {
                let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
                request(libc::PTRACE_POKEDATA, self.thread, place + offset, word)
                    .expect("the stack can be written");
            }
            arguments[at] = place;
        }
        let mut registers_for = self.before;
        // The thread sleeps behind a `syscall` of two bytes; it makes that once more. No call is to be restarted.
        registers_for.rip -= 2;
        registers_for.orig_rax = u64::MAX;
        registers_for.rax = number.cast_unsigned();
        [registers_for.rdi, registers_for.rsi, registers_for.rdx] = arguments;
        [registers_for.r10, registers_for.r8, registers_for.r9] = [0; 3];
        set_registers(self.thread, &registers_for);
        request(libc::PTRACE_SINGLESTEP, self.thread, 0, 0).expect("it makes a step");
        wait(self.thread);
        registers(self.thread).rax.cast_signed()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        set_registers(self.thread, &self.before);
        // A process that is gone needs nothing.
        let _ = request(libc::PTRACE_DETACH, self.thread, 0, 0);
    }
}

fn request(what: libc::c_uint, thread: i32, address: u64, data: u64) -> Result<(), Error> {
    // SAFETY: these requests take numbers; those that take a pointer are below.
    let result = unsafe { libc::ptrace(what, thread, address, data) };
    if result == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn wait(thread: i32) {
    let mut status = 0;
    // SAFETY: the kernel writes one number, which lives across the call.
    let found = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) };
    assert!(found == thread && libc::WIFSTOPPED(status), "the thread is stopped");
}

fn registers(thread: i32) -> libc::user_regs_struct {
    // SAFETY: a structure of numbers, all of which may be 0.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one such structure, which lives across the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, &raw mut registers) };
    assert_eq!(result, 0, "{}", Error::last_os_error());
    registers
}

fn set_registers(thread: i32, registers: &libc::user_regs_struct) {
    // SAFETY: the kernel reads one such structure, which lives across the call.
    let result = unsafe { libc::ptrace(libc::PTRACE_SETREGS, thread, 0, core::ptr::from_ref(registers)) };
    assert!(result == 0 || Error::last_os_error().raw_os_error() == Some(libc::ESRCH));
}
