//! Detection of a thread's end from another thread.
//!
//! `pidfd_open(2)` with `PIDFD_THREAD` (Linux 6.9) returns a descriptor that becomes readable when the thread
//! ends. On older kernels an open `/proc/self/task/TID/stat` is polled: it stays bound to this thread even if
//! its id is reused.
//!
//! The first thread of a process is an exception: its descriptor reports the end of the whole process (Linux
//! 6.16). No supervised work runs there.

use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

/// Handle for detecting the end of a thread.
#[derive(Debug)]
pub(super) enum Exit {
    /// pidfd of the thread.
    Reported(OwnedFd),
    /// Status file of the thread in /proc, which must be polled.
    Sought(File),
}

/// `PIDFD_THREAD` of linux/pidfd.h.
const THREAD: u32 = 0o200;

impl Exit {
    /// Handle of the calling thread.
    ///
    /// # Errors
    /// When no file descriptor is left.
    pub(super) fn own() -> io::Result<Self> {
        let flags = PidfdFlags::from_bits_retain(THREAD);
        match pidfd_open(rustix::thread::gettid(), flags) {
            Ok(event) => Ok(Self::Reported(event)),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => Err(Errno::MFILE.into()),
            // Linux before 6.9 does not know the flag; a seccomp filter may refuse it.
            Err(_) => Self::sought(),
        }
    }

    fn sought() -> io::Result<Self> {
        let number = rustix::thread::gettid().as_raw_nonzero();
        File::open(format!("/proc/self/task/{number}/stat")).map(Self::Sought)
    }

    /// Descriptor that becomes readable when the thread ends; `None` if polling is needed.
    pub(super) fn event(&self) -> Option<&OwnedFd> {
        match self {
            Self::Reported(event) => Some(event),
            Self::Sought(_) => None,
        }
    }

    /// True if the thread has ended.
    pub(super) fn has_come(&self) -> bool {
        match self {
            Self::Reported(event) => is_readable(event),
            Self::Sought(file) => !is_alive(file),
        }
    }
}

fn is_readable(event: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut files = [PollFd::new(event, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut files, Some(&now)).is_ok_and(|count| count > 0)
}

/// The third field is the state; the second, the name in parentheses, may contain any characters.
fn is_alive(file: &File) -> bool {
    let mut text = [0; 128];
    let Ok(length) = file.read_at(&mut text, 0) else { return false };
    let text = &text[..length];
    let state = text.iter().rposition(|&byte| byte == b')').and_then(|at| text.get(at + 2));
    state.is_some_and(|state| !b"ZX".contains(state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use polder_datapath::units::Nanos;
    use std::sync::mpsc::channel;

    #[test]
    fn both_ways_see_the_end_of_a_thread_and_not_before() {
        for open in [Exit::own, Exit::sought] {
            let (say, exit) = channel();
            let (end, wait) = channel::<()>();
            let thread = std::thread::Builder::new().name("a) Z (b".to_owned()).spawn(move || {
                say.send(open()).unwrap();
                wait.recv().unwrap_err();
            });
            let exit = exit.recv().unwrap().unwrap();
            assert!(!exit.has_come());
            drop(end);
            thread.unwrap().join().unwrap();
            let clock = Clock::start();
            while !exit.has_come() {
                assert!(clock.elapsed() < Nanos::from_seconds(5), "{exit:?}");
            }
        }
    }
}
