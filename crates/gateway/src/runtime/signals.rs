//! Signals to the process.

use crate::shutdown::shutdown_flag;
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Signals that the gateway handles, each as a byte in a socket pair.
pub(super) struct Signals {
    pub(super) end: UnixStream,
    /// Write end that ends the gateway without a signal.
    pub(super) ender: UnixStream,
    pub(super) reload: UnixStream,
}

/// Reason for the end of a wait.
pub(super) enum Signal {
    /// The process must end.
    End,
    /// The configuration file must be read again.
    Reload,
    /// An event descriptor is readable: work for [`Gateway::take_news`](super::gateway::Gateway::take_news),
    /// or the end of the supervisor.
    News,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let (end, end_writer) = UnixStream::pair()?;
        let (reload, reload_writer) = UnixStream::pair()?;
        let impatient = shutdown_flag();
        for signal in [SIGTERM, SIGINT] {
            // The second signal exits at once. Registered in this order, so that the first signal does not.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&impatient))?;
            signal_hook::flag::register(signal, Arc::clone(&impatient))?;
            pipe::register(signal, end_writer.try_clone()?)?;
        }
        pipe::register(SIGHUP, reload_writer)?;
        reload.set_nonblocking(true)?;
        Ok(Self { end, ender: end_writer, reload })
    }

    /// Waits for a signal. Returns `None` when `timeout` has passed.
    pub(super) fn wait(&mut self, timeout: Timespec, events: [Option<&OwnedFd>; 3]) -> Option<Signal> {
        let mut files = vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.reload, PollFlags::IN)];
        files.extend(events.into_iter().flatten().map(|event| PollFd::new(event, PollFlags::IN)));
        // After EINTR the next wait sees the byte.
        poll(&mut files, Some(&timeout)).ok()?;
        let is_readable =
            |at: usize| files.get(at).is_some_and(|file| file.revents().contains(PollFlags::IN));
        if is_readable(0) {
            return Some(Signal::End);
        }
        if !is_readable(1) {
            return (2..files.len()).any(is_readable).then_some(Signal::News);
        }
        Some({
            let mut bytes = [0; 16];
            // Several SIGHUPs before the read cause one reload.
            let _: std::io::Result<usize> = self.reload.read(&mut bytes);
            Signal::Reload
        })
    }
}

/// Converts a pause for system calls.
pub(super) fn timespec(pause: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(pause.0 / Nanos::SECOND.0).unwrap_or(1),
        tv_nsec: i64::try_from(pause.0 % Nanos::SECOND.0).unwrap_or(0),
    }
}
