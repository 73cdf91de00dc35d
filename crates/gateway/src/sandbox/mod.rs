//! Confinement of a running gateway's threads: capabilities, files, system calls.
//!
//! | | data | by |
//! |---|---|---|
//! | capabilities | [`rights`] | capset(2), the bounding set, `no_new_privs` |
//! | files | [`places`] | landlock(7) |
//! | system calls | [`calls`] | seccomp(2) |
//!
//! The process is confined before its ports are opened, to what control threads need: a reload opens all that a start
//! opens. It has one thread then. Threads inherit that, and give up the rest of it as they begin, each by its [`Role`].
//! Nothing is given back. What the kernel cannot do is logged, and the gateway starts without it.
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
    /// Capabilities that it keeps, or why they were not taken away.
    pub capabilities: Result<Vec<String>, String>,
    /// The version of landlock that confines it to its files, or why none does.
    pub landlock: Result<String, String>,
    /// Reason why no filter confines it to its system calls.
    pub seccomp: Result<(), String>,
}

/// Confinement of the process, if it is confined: a fact about the process, like the rights that it has.
static PROCESS: OnceLock<Confinement> = OnceLock::new();

/// Confinement of the process, if it is confined.
pub fn process() -> Option<&'static Confinement> {
    PROCESS.get()
}

/// Confines the calling thread, and all that it starts from here on, to the privileges of control
/// threads.
pub fn confine_process(configuration: &Configuration, file: &Path) -> &'static Confinement {
    let closes = configuration.ports.iter().any(|port| port.on_exit == OnExit::Drop);
    let pins = af_xdp::prepare_pins(closes);
    // A place that is not there cannot be allowed. Without them, a killed gateway leaves offloads off,
    // and an interface that comes later has no lock.
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
    for lack in confinement.lacks() {
        tracing::debug!(?role, "{lack}");
    }
}

/// Confinement that a thread on this machine would have, found out by a thread that ends with it.
pub fn probe() -> Confinement {
    let failed = || "the thread that tries it cannot be started".to_owned();
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
    // Without it an unprivileged process may install no filter; with it no program that is executed gains rights.
    let quiet = rustix::thread::set_no_new_privs(true).map_err(|errno| errno.to_string());
    let landlock = places::confine(role, own);
    let seccomp = quiet.and_then(|()| filter::confine(role));
    Confinement { capabilities, landlock, seccomp }
}

impl Confinement {
    /// Measures in force, in a few words.
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

    /// Measures that are not in force, and why: a sentence each.
    pub fn lacks(&self) -> Vec<String> {
        let lack = |what: &str, why: &String| format!("{what}: {why}");
        let found = [
            self.seccomp.as_ref().err().map(|why| lack("system calls are not confined (seccomp)", why)),
            self.landlock.as_ref().err().map(|why| lack("files are not confined (landlock)", why)),
            self.capabilities.as_ref().err().map(|why| lack("capabilities are not given up", why)),
        ];
        found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
