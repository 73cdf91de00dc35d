//! Signals to the process.

use crate::ends::ends;
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// The signals that a gateway obeys, each a byte in a pipe.
pub(super) struct Signals {
    pub(super) end: UnixStream,
    /// Written to end the gateway without a signal.
    pub(super) ender: UnixStream,
    pub(super) reload: UnixStream,
}

/// Reason why a wait has ended.
pub(super) enum Signal {
    /// The process is to end.
    End,
    /// The configuration is to be read again.
    Reload,
    /// There is work for [`Gateway::take_news`](super::gateway::Gateway::take_news), or the supervisor has ended.
    News,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        let (end, end_writer) = UnixStream::pair()?;
        let (reload, reload_writer) = UnixStream::pair()?;
        let impatient = ends();
        for signal in [SIGTERM, SIGINT] {
            // The second one ends the process at once; in this order, so that the first one does not.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&impatient))?;
            signal_hook::flag::register(signal, Arc::clone(&impatient))?;
            pipe::register(signal, end_writer.try_clone()?)?;
        }
        pipe::register(SIGHUP, reload_writer)?;
        reload.set_nonblocking(true)?;
        Ok(Self { end, ender: end_writer, reload })
    }

    /// Waits for a signal. `None` when `timeout` has passed without one.
    pub(super) fn wait(&mut self, timeout: Timespec, events: [Option<&OwnedFd>; 3]) -> Option<Signal> {
        let mut files = vec![PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.reload, PollFlags::IN)];
        files.extend(events.into_iter().flatten().map(|event| PollFd::new(event, PollFlags::IN)));
        // An interrupted wait is a wait that ended early; the next one sees the byte.
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
            // Several hang-ups before we looked are one.
            let _: std::io::Result<usize> = self.reload.read(&mut bytes);
            Signal::Reload
        })
    }
}

/// A pause as system calls take it.
pub(super) fn timespec(pause: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(pause.0 / Nanos::SECOND.0).unwrap_or(1),
        tv_nsec: i64::try_from(pause.0 % Nanos::SECOND.0).unwrap_or(0),
    }
}
