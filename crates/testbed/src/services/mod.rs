//! Services to measure with: the same code behind Polder's ports and behind the kernel's sockets.
//!
//! Each runs in a process of its own, on one core; its counters are requested by a line on its standard input.

pub mod consumer;
mod echo;
mod files;
pub mod nfs;
mod over_kernel;
mod over_polder;

pub use echo::{Echo, Speed};
pub use files::HANDLE;

use anyhow::Context as _;
use consumer::{Maker, Service};
use std::io::Write as _;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

/// Line that the process prints when it is ready, and before its numbers.
pub const READY: &str = "ready";
/// Request for the counters, and the end of its answer.
pub const ASK: &str = "books";
/// The end of an answer.
pub const END: &str = "that is all";

/// Kind of service.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Requests come back, after work that takes a given time.
    Echo {
        /// CPU time of a request's work.
        cost: Duration,
        /// The time of every second request, if that is another.
        every_second: Option<Duration>,
    },
    /// A directory by NFSv3, each request after such work.
    Nfs {
        /// Directory that is served.
        directory: PathBuf,
        /// The time of the work.
        cost: Duration,
    },
}

impl Kind {
    /// Makes services of the kind, for a core of that speed.
    ///
    /// # Errors
    /// When the directory cannot be served.
    fn maker(&self, speed: Speed) -> anyhow::Result<Maker> {
        match self {
            &Self::Echo { cost, every_second } => {
                let first = Echo::of_cost(cost, speed);
                let echo = first.and(every_second.map_or(first, |cost| Echo::of_cost(cost, speed)));
                Ok(Box::new(move || Box::new(echo) as Box<dyn Service>))
            }
            Self::Nfs { directory, cost } => files::maker(directory, Echo::of_cost(*cost, speed)),
        }
    }
}

/// Options of a service.
#[derive(Clone, Debug)]
pub struct Options {
    /// Kind of service.
    pub kind: Kind,
    /// The address and UDP port that it is claimed by.
    pub address: SocketAddrV4,
    /// The core that is its own.
    pub core: usize,
    /// Speed of the core; measured at start if `None`.
    pub speed: Option<Speed>,
    /// The gateway's configuration when it runs behind Polder's ports; its port `service` is the service.
    pub configuration: Option<String>,
    /// The service's link-layer address.
    pub mac: [u8; 6],
}

impl Options {
    /// Makes its services.
    fn maker(&self) -> anyhow::Result<Maker> {
        self.kind.maker(self.speed.map_or_else(|| Speed::once(self.core), Ok)?)
    }
}

/// Serves until the standard input ends, or until interrupted.
///
/// # Errors
/// When the service cannot be reached at that address.
pub fn serve(options: &Options) -> anyhow::Result<()> {
    match &options.configuration {
        None => over_kernel::serve(options),
        Some(configuration) => over_polder::serve(options, configuration),
    }
    .context("the service cannot run")
}

/// Prints a line for the parent process.
fn say(line: impl AsRef<str>) {
    // Without a reader there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{}", line.as_ref());
}
