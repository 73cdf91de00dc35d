//! `polder run`: from a file to a running gateway, until a signal ends it.

use super::gateway::Gateway;
use crate::config;
use anyhow::{Context as _, Result};
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The signals that a gateway obeys, each a byte in a pipe.
struct Signals {
    end: UnixStream,
    reload: UnixStream,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        let (end, end_writer) = UnixStream::pair()?;
        let (reload, reload_writer) = UnixStream::pair()?;
        pipe::register(SIGTERM, end_writer.try_clone()?)?;
        pipe::register(SIGINT, end_writer)?;
        pipe::register(SIGHUP, reload_writer)?;
        reload.set_nonblocking(true)?;
        Ok(Self { end, reload })
    }

    /// Waits for a signal. `None` when `timeout` has passed without one.
    fn wait(&mut self, timeout: Timespec) -> Option<Signal> {
        let mut files = [PollFd::new(&self.end, PollFlags::IN), PollFd::new(&self.reload, PollFlags::IN)];
        // An interrupted wait is a wait that ended early; the next one sees the byte.
        poll(&mut files, Some(&timeout)).ok()?;
        let [end, reload] = files.map(|file| file.revents().contains(PollFlags::IN));
        if end {
            return Some(Signal::End);
        }
        reload.then(|| {
            let mut bytes = [0; 16];
            // Several hang-ups before we looked are one.
            let _: std::io::Result<usize> = self.reload.read(&mut bytes);
            Signal::Reload
        })
    }
}

enum Signal {
    End,
    Reload,
}

/// Runs the gateway that `path` describes until SIGINT or SIGTERM; SIGHUP reloads the file.
///
/// # Errors
/// When the file is wrong or a port cannot be opened. What had been opened is closed again.
pub fn run(path: &Path) -> Result<()> {
    let loaded = config::load(path)?;
    let mut signals = Signals::new().context("cannot listen for signals")?;
    let mut gateway = Gateway::start(loaded.configuration)?;
    loop {
        let pause = gateway.tick();
        match signals.wait(timespec(pause)) {
            Some(Signal::End) => break,
            Some(Signal::Reload) => gateway.reload(config::load(path)?.configuration)?,
            None => {}
        }
    }
    gateway.stop();
    tracing::info!(accounts = ?gateway.accounts(), unaccounted = gateway.accounts().unaccounted(), "ended");
    for &reason in polder_datapath::drops::DropReason::ALL {
        let n = super::accounts::drops(&gateway.worker_counters(), &gateway.queue_counters(), reason);
        if n > 0 {
            tracing::info!(?reason, n, "drops");
        }
    }
    Ok(())
}

fn timespec(pause: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(pause.0 / 1_000_000_000).unwrap_or(1),
        tv_nsec: i64::try_from(pause.0 % 1_000_000_000).unwrap_or(0),
    }
}
