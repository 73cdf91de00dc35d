//! Locks of interfaces: an interface belongs to one gateway.
//!
//! Two programs at the ingress of an interface are no error to the kernel: the second one takes the packets of the
//! first. So a gateway locks a file for each interface before it attaches anything: below [`DIRECTORY`], by network
//! namespace and number. The lock ends with its process, and the file names the gateway. `polder check` looks for the
//! lock in `/proc/locks`: a look does not make a start fail elsewhere.

use crate::config::model::Configuration;
use anyhow::{Result, anyhow};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Directory of the locked files.
pub const DIRECTORY: &str = "/run/polder/interfaces";
/// Tries for a lock that is held, and the pause between them: a gateway that was killed lets go of it soon.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Lock of an interface, held for as long as this lives.
#[derive(Debug)]
pub struct InterfaceLock {
    path: PathBuf,
    _file: File,
}

/// Gateway that has an interface, as its file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Holder {
    process: u32,
    gateway: String,
    control: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gateway.as_str() {
            "" => write!(formatter, "process {}", self.process),
            gateway => {
                let control = self.control.display();
                write!(formatter, "gateway {gateway} (process {}, control socket {control})", self.process)
            }
        }
    }
}

impl InterfaceLock {
    /// Locks `interface` of the calling thread's network namespace for the gateway; `None` for an interface that is not
    /// there, and for a user who may not write to the directory.
    ///
    /// # Errors
    /// When another gateway has it.
    pub(super) fn take(interface: &str, configuration: &Configuration) -> Result<Option<Self>> {
        let Some(path) = path(interface) else { return Ok(None) };
        // What the directory lacks is found out when the file is opened.
        let _: std::io::Result<()> = std::fs::create_dir_all(DIRECTORY);
        let gateway = &configuration.gateway;
        let holder = Holder {
            process: std::process::id(),
            gateway: gateway.name.clone(),
            control: gateway.control.clone(),
        };
        match Self::lock(path, &holder) {
            Ok(lock) => Ok(Some(lock)),
            Err(Ok(other)) => Err(anyhow!(in_use(interface, &other))),
            Err(Err(errno)) => {
                tracing::info!("{interface} is not locked for other gateways, in {DIRECTORY}: {errno}");
                Ok(None)
            }
        }
    }

    /// Locks the file at `path`; after an error the gateway that has it, or the reason why nobody can.
    fn lock(path: PathBuf, holder: &Holder) -> Result<Self, Result<Holder, Errno>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            // Nobody else may open it: whoever can open a file can lock it.
            let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(Err)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    let opened = fstat(&file).map_err(Err)?.st_ino;
                    // The gateway that had it may have taken the file away meanwhile.
                    if std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == opened) {
                        let mut file = File::from(file);
                        let mut line = serde_json::to_vec(holder).unwrap_or_default();
                        line.push(b'\n');
                        // Without a name the lock is as good.
                        let _: std::io::Result<()> = file.write_all(&line);
                        return Ok(Self { path, _file: file });
                    }
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(PAUSE),
                Err(errno) => return Err(Err(errno)),
            }
        }
        Err(Ok(holder_of(&path).unwrap_or_default()))
    }
}

impl Drop for InterfaceLock {
    fn drop(&mut self) {
        // Before it is unlocked: who gets the lock next sees that the file is another one.
        let _: std::io::Result<()> = std::fs::remove_file(&self.path);
    }
}

/// Message about the other gateway that has `interface`; `None` if none has it. The gateway of `configuration` is no other.
pub(super) fn other_gateway(interface: &str, configuration: &Configuration) -> Option<String> {
    let path = path(interface)?;
    let process = locked_by(&path)?;
    let own = &configuration.gateway.control;
    // A file that cannot be read is root's: the gateway that has the control socket of the file is taken to be the one.
    let holder = holder_of(&path).unwrap_or(Holder { process, ..Holder::default() });
    let is_same = if holder.gateway.is_empty() { own.exists() } else { holder.control == *own };
    (!is_same && process != std::process::id()).then(|| in_use(interface, &holder))
}

fn in_use(interface: &str, holder: &Holder) -> String {
    format!(
        "{interface} is a port of {holder}: stop that gateway, or take the port out of one of the two files"
    )
}

/// Path of the file that is locked for an interface of the calling thread's network namespace.
fn path(interface: &str) -> Option<PathBuf> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    // Any socket will do to ask by.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    let number = name_to_index(&socket, interface).ok()?;
    Some(Path::new(DIRECTORY).join(format!("{namespace}-{number}")))
}

/// Process that has locked the file at `path`.
fn locked_by(path: &Path) -> Option<u32> {
    let file = std::fs::symlink_metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    holder_among(&locks, &format!("{major:02x}:{minor:02x}:{}", file.ino()))
}

/// Process that holds a lock of the file, in the lines of `/proc/locks`: number, kind, strictness, access, process, file.
/// A line of one that waits has an arrow behind its number.
fn holder_among(locks: &str, file: &str) -> Option<u32> {
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|words| match words[..] {
        [_, "FLOCK", _, _, process, found, ..] if found == file => process.parse().ok(),
        _ => None,
    })
}

/// Gateway that the file at `path` names.
fn holder_of(path: &Path) -> Option<Holder> {
    let text = std::fs::read_to_string(path).ok()?;
    // A longer name may have stood there before.
    serde_json::from_str(text.lines().next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(gateway: &str) -> Holder {
        let control = PathBuf::from(format!("/run/polder/{gateway}.sock"));
        Holder { process: std::process::id(), gateway: gateway.to_owned(), control }
    }

    #[test]
    fn one_gateway_has_the_lock_and_is_named() {
        let path = std::env::temp_dir().join(format!("polder-lock-{}", std::process::id()));
        std::fs::write(
            &path,
            "a longer line of a gateway that was killed, which had the file before\n".repeat(3),
        )
        .expect("a file");
        let first = InterfaceLock::lock(path.clone(), &holder("one")).expect("nobody has it");
        assert_eq!(locked_by(&path), Some(std::process::id()));
        let other = InterfaceLock::lock(path.clone(), &holder("two")).expect_err("it is held");
        assert_eq!(other, Ok(holder("one")));
        drop(first);
        assert!(!path.exists());
        assert_eq!(locked_by(&path), None);
        drop(InterfaceLock::lock(path.clone(), &holder("two")).expect("nobody has it"));
        let missing = path.join("no directory");
        assert_eq!(InterfaceLock::lock(missing, &holder("two")).expect_err("no file"), Err(Errno::NOENT));
    }

    #[test]
    fn a_lock_is_found_among_those_of_others() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:18:42 0 EOF\n1: -> FLOCK ADVISORY WRITE 9 00:18:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 00:18:42 0 EOF\n";
        assert_eq!(holder_among(locks, "00:18:42"), Some(8));
        assert_eq!(holder_among(locks, "00:18:4"), None);
    }
}
