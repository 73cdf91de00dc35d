//! Settings of connection tracking in the calling thread's network namespace.

use super::connections::Timeouts;
use std::fs;
use std::io;
use std::path::Path;

/// A setting that cannot be read or set.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The kernel tracks no connections.
    #[error("{FOLDER} does not exist: load the kernel module nf_conntrack (`modprobe nf_conntrack`)")]
    NoConntrack,
    /// The kernel sends no events.
    #[error("{FOLDER}/{EVENTS} does not exist: the kernel was built without CONFIG_NF_CONNTRACK_EVENTS")]
    NoEvents,
    /// The file is there, and cannot be read or written.
    #[error("cannot read or write {FOLDER}/{EVENTS}: run as root, with /proc/sys writable")]
    Refused(#[source] io::Error),
    /// The value is no number.
    #[error("{FOLDER}/{EVENTS} has the value {0:?}, which is not a number")]
    Value(String),
}

/// Reads `nf_conntrack_events`: 0 for no events, 1 for those of all connections, 2 for those of connections that began
/// while somebody listened.
///
/// # Errors
/// If the kernel has no such setting, or it cannot be read.
pub fn events() -> Result<u8, SettingError> {
    let text = fs::read_to_string(Path::new(FOLDER).join(EVENTS)).map_err(refusal)?;
    text.trim().parse().map_err(|_| SettingError::Value(text.trim().to_owned()))
}

/// Opens `nf_conntrack_events` for writing. Connections that began before a change keep their value.
///
/// # Errors
/// If the kernel has no such setting, or it cannot be written.
pub(super) fn open_events() -> Result<fs::File, SettingError> {
    fs::File::options().write(true).open(Path::new(FOLDER).join(EVENTS)).map_err(refusal)
}

/// Reads the timeouts; the kernel's defaults where one cannot be read.
pub fn timeouts() -> Timeouts {
    let default = Timeouts::default();
    Timeouts {
        established: seconds("nf_conntrack_tcp_timeout_established", default.established),
        unacknowledged: seconds("nf_conntrack_tcp_timeout_unacknowledged", default.unacknowledged),
        udp_stream: seconds("nf_conntrack_udp_timeout_stream", default.udp_stream),
    }
}

fn seconds(name: &str, default: u32) -> u32 {
    let text = fs::read_to_string(Path::new(FOLDER).join(name)).ok();
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(default)
}

fn refusal(error: io::Error) -> SettingError {
    if error.kind() != io::ErrorKind::NotFound {
        SettingError::Refused(error)
    } else if Path::new(FOLDER).join("nf_conntrack_max").exists() {
        SettingError::NoEvents
    } else {
        SettingError::NoConntrack
    }
}

const FOLDER: &str = "/proc/sys/net/netfilter";
const EVENTS: &str = "nf_conntrack_events";
