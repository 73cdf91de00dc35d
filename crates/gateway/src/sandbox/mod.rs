//! Sandbox of a running gateway's threads: capabilities, files, system calls.
//!
//! | | data | mechanism |
//! |---|---|---|
//! | capabilities | [`rights`] | capset(2), the bounding set, `no_new_privs` |
//! | files | [`places`] | landlock(7) |
//! | system calls | [`calls`] | seccomp(2) |
//!
//! The process is restricted before its ports are opened, to the privileges of control threads, because a reload opens the
//! same things as a start. It has one thread then. New threads inherit these privileges, and drop more of them according to
//! their [`Role`]. No privilege is ever regained. Mechanisms that the kernel lacks are logged, and the gateway starts
//! without them.
//!
//! `docs/adr/0032-sandbox.md` has the reasons.

pub mod calls;
mod filter;
pub mod places;
pub mod rights;
mod role;
mod sys;

use crate::config::model::{Configuration, Listen, OnExit};
use crate::device;
use places::Own;
use polder_devices::af_xdp;
pub use role::Role;
use std::path::Path;
use std::sync::OnceLock;

/// Confinement of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Capabilities that it keeps, or the reason why none were dropped.
    pub capabilities: Result<Vec<String>, String>,
    /// The landlock version that restricts its files, or the reason why none does.
    pub landlock: Result<String, String>,
    /// Reason why no filter restricts its system calls.
    pub seccomp: Result<(), String>,
}

/// Confinement of the process, set once.
static PROCESS: OnceLock<Confinement> = OnceLock::new();

/// Confinement of the process; `None` if it is not confined.
pub fn process() -> Option<&'static Confinement> {
    PROCESS.get()
}

/// Confines the calling thread, and threads that it starts, to the privileges of control threads.
pub fn confine_process(configuration: &Configuration, file: &Path) -> &'static Confinement {
    let closes = configuration.ports.iter().any(|port| port.on_exit == OnExit::Drop);
    let pins = af_xdp::prepare_pins(closes);
    // Only existing directories can be permitted. Without these, a killed gateway's offloads are not
    // restored, and interfaces added later have no lock.
    let _ = std::fs::create_dir_all(af_xdp::OFFLOAD_NOTES);
    let _ = std::fs::create_dir_all(device::LOCKS);
    let metrics = match &configuration.metrics.listen {
        Some(Listen::Unix(path)) => Some(path.as_path()),
        Some(Listen::Tcp(_)) | None => None,
    };
    let sockets = [Some(configuration.gateway.control.as_path()), metrics];
    let own = Own::new(file, sockets.into_iter().flatten(), pins);
    PROCESS.get_or_init(|| confine(Role::Control, &own, Some(file)))
}

/// Confines the calling thread to the privileges of its role, if the process is confined.
pub fn enter(role: Role) {
    if PROCESS.get().is_none() {
        return;
    }
    let confinement = confine(role, &Own::default(), None);
    for lack in confinement.missing() {
        tracing::debug!(?role, "{lack}");
    }
}

/// Confinement that a thread on this host would get, tried by a short-lived thread.
pub fn probe() -> Confinement {
    let failed = || "cannot start the thread that tests the sandbox".to_owned();
    let tried = std::thread::Builder::new().spawn(|| confine(Role::Worker, &Own::default(), None));
    let tried = tried.ok().and_then(|thread| thread.join().ok());
    tried.unwrap_or_else(|| Confinement {
        capabilities: Err(failed()),
        landlock: Err(failed()),
        seccomp: Err(failed()),
    })
}

fn confine(role: Role, own: &Own, file: Option<&Path>) -> Confinement {
    let capabilities = rights::keep(role, file).map_err(|error| error.to_string());
    // An unprivileged process needs it to install a filter; with it, executed programs gain no privileges.
    let quiet = rustix::thread::set_no_new_privs(true).map_err(|errno| errno.to_string());
    let landlock = places::confine(role, own);
    let seccomp = quiet.and_then(|()| filter::confine(role));
    Confinement { capabilities, landlock, seccomp }
}

impl Confinement {
    /// Mechanisms in force, as text.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        if self.seccomp.is_ok() {
            parts.push("system calls (seccomp)".to_owned());
        }
        if let Ok(version) = &self.landlock {
            parts.push(format!("files (landlock {version})"));
        }
        if let Ok(kept) = &self.capabilities {
            let kept = if kept.is_empty() { "none kept".to_owned() } else { kept.join(", ") };
            parts.push(format!("capabilities ({kept})"));
        }
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }

    /// Mechanisms not in force, each with the reason, as a sentence.
    pub fn missing(&self) -> Vec<String> {
        let lack = |what: &str, why: &String| format!("{what}: {why}");
        let found = [
            self.seccomp.as_ref().err().map(|why| lack("system calls are not confined (seccomp)", why)),
            self.landlock.as_ref().err().map(|why| lack("files are not confined (landlock)", why)),
            self.capabilities.as_ref().err().map(|why| lack("capabilities are not dropped", why)),
        ];
        found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
