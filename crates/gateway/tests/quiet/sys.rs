//! Counts the system calls of one thread: a seccomp filter tells another thread of each of them, which
//! counts it and lets it go on.
//!
//! Source: seccomp_unotify(2), seccomp(2).

use std::io::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Not yet there.
const NONE: i32 = -1;
/// `_IOWR('!', 0, struct seccomp_notif)` and `_IOWR('!', 1, struct seccomp_notif_resp)`.
const RECEIVE: libc::c_ulong = request(0, size_of::<libc::seccomp_notif>());
const SEND: libc::c_ulong = request(1, size_of::<libc::seccomp_notif_resp>());

const fn request(number: usize, size: usize) -> libc::c_ulong {
    (3 << 30 | size << 16 | (b'!' as usize) << 8 | number) as libc::c_ulong
}

/// The system calls of a thread.
#[derive(Default)]
pub(crate) struct Calls {
    count: AtomicU64,
}

impl Calls {
    /// Counts those of the calling thread from here on. Says why the system does not allow it.
    pub(crate) fn of_this_thread() -> Result<Arc<Self>> {
        let calls = Arc::<Self>::default();
        let listener = Arc::new(AtomicI32::new(NONE));
        let (counted, told) = (Arc::clone(&calls), Arc::clone(&listener));
        std::thread::spawn(move || {
            // The filtered thread cannot wake anybody before somebody answers for it.
            while told.load(Ordering::Acquire) == NONE {
                std::hint::spin_loop();
            }
            let listener = told.load(Ordering::Acquire);
            while listener > NONE && answer(listener).is_ok() {
                counted.count.fetch_add(1, Ordering::Relaxed);
            }
        });
        let installed = install();
        let failed = NONE - 1;
        listener.store(installed.as_ref().map_or(failed, |listener| *listener), Ordering::Release);
        installed.map(|_| calls)
    }

    /// Number of calls until now.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// Has every further system call of the calling thread told; the file to hear of them.
#[expect(unsafe_code, reason = "UNSAFETY: system calls with pointers")]
fn install() -> Result<i32> {
    let code = u16::try_from(libc::BPF_RET | libc::BPF_K).expect("a code of 16 bits");
    let mut program = [libc::sock_filter { code, jt: 0, jf: 0, k: libc::SECCOMP_RET_USER_NOTIF }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    // SAFETY: (1) PR_SET_NO_NEW_PRIVS takes integers alone.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(Error::last_os_error());
    }
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    // SAFETY: (1) `program` and the filter that it points to live through the call, which copies both.
    let file = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &program) };
    if file < 0 { Err(Error::last_os_error()) } else { Ok(i32::try_from(file).expect("a descriptor")) }
}

/// Waits for the next system call and lets it go on; an error when the thread has ended.
#[expect(unsafe_code, reason = "UNSAFETY: ioctls are untyped")]
fn answer(listener: i32) -> Result<()> {
    // SAFETY: (1) all its fields are integers, and the kernel wants it zeroed.
    let mut notice = unsafe { core::mem::zeroed::<libc::seccomp_notif>() };
    loop {
        // SAFETY: (1) RECEIVE writes one `seccomp_notif`, which `notice` is.
        if unsafe { libc::ioctl(listener, RECEIVE, &mut notice) } == 0 {
            break;
        }
        let error = Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).expect("a flag");
    let reply = libc::seccomp_notif_resp { id: notice.id, val: 0, error: 0, flags };
    // SAFETY: (1) SEND reads one `seccomp_notif_resp`, which `reply` is.
    let sent = unsafe { libc::ioctl(listener, SEND, &reply) };
    // A thread that was interrupted in between tells of the call again.
    let _ = sent;
    Ok(())
}
