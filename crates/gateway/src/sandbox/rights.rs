//! Capabilities that each thread role keeps, with reasons.

use super::role::Role;
use caps::{CapSet, Capability, CapsHashSet};
use std::fs::File;
use std::path::Path;

/// A capability that some roles keep.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    /// The capability.
    pub capability: Capability,
    /// Roles that keep it.
    pub roles: &'static [Role],
    /// Reason why the gateway needs the right.
    pub reason: &'static str,
}

/// All capabilities that any thread keeps, if the process has them.
pub const RIGHTS: &[Right] = &[
    Right {
        capability: Capability::CAP_NET_ADMIN,
        roles: &[Role::Control, Role::Worker],
        reason: "XDP programs, TAPs, promiscuous mode, NAPI contexts, busy polling",
    },
    Right {
        capability: Capability::CAP_NET_RAW,
        roles: &[Role::Control],
        reason: "AF_XDP and packet sockets of ports that are opened, keepalives of GRE tunnels",
    },
    Right {
        capability: Capability::CAP_BPF,
        roles: &[Role::Control],
        reason: "maps and programs of ports that are opened",
    },
    Right {
        capability: Capability::CAP_IPC_LOCK,
        roles: &[Role::Control],
        reason: "packet memory that the kernel locks, beyond RLIMIT_MEMLOCK",
    },
    Right {
        capability: Capability::CAP_SYS_NICE,
        roles: &[Role::Control, Role::Worker, Role::Reload],
        reason: "weights and CPUs of NAPI threads, of workers that have a share, of threads that look after memory",
    },
];

/// Restricts the calling thread's capabilities to its role's; returns them. With `file`, also keeps the right
/// to read this configuration file if another user owns it.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn keep(role: Role, file: Option<&Path>) -> Result<Vec<String>, caps::errors::CapsError> {
    let granted = caps::read(None, CapSet::Permitted)?;
    let mut kept: CapsHashSet = wanted(role).filter(|capability| granted.contains(capability)).collect();
    if let Some(file) = file {
        bound()?;
        caps::set(None, CapSet::Effective, &kept)?;
        let reads = Capability::CAP_DAC_READ_SEARCH;
        if granted.contains(&reads) && is_denied(file) {
            kept.insert(reads);
        }
    }
    // Effective capabilities must be permitted; inheritable ones are not needed.
    caps::set(None, CapSet::Inheritable, &CapsHashSet::new())?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)?;
    let mut names: Vec<_> = kept.into_iter().map(|capability| capability.to_string()).collect();
    names.sort_unstable();
    Ok(names)
}

/// Capabilities that a role keeps.
pub fn wanted(role: Role) -> impl Iterator<Item = Capability> {
    RIGHTS.iter().filter(move |right| right.roles.contains(&role)).map(|right| right.capability)
}

/// Removes capabilities that no role needs from the bounding and ambient sets.
fn bound() -> Result<(), caps::errors::CapsError> {
    // The bounding set can only be changed with CAP_SETPCAP; other processes cannot gain capabilities anyway.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)? {
            caps::drop(None, CapSet::Bounding, capability)?;
        }
    }
    if caps::runtime::ambient_set_supported().is_ok() {
        caps::clear(None, CapSet::Ambient)?;
    }
    Ok(())
}

fn is_denied(file: &Path) -> bool {
    File::open(file).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}
