//! Locks of interfaces, so that only one gateway uses an interface.
//!
//! The kernel permits two programs at the ingress of an interface, and the second takes packets away from the
//! first. So a gateway locks a file for each interface before it attaches programs: in [`DIRECTORY`], named
//! by network namespace and interface index. The lock ends with the process, and the file names the gateway.
//! An upgrade passes the descriptors of the files, so the locks are never free in between.

use crate::config::model::{Configuration, Port};
use anyhow::{Context as _, Result, anyhow};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Directory of the lock files.
pub const DIRECTORY: &str = "/run/polder/interfaces";
/// Number of attempts to take a lock at the start and in a reload, because `polder check` holds locks
/// briefly.
const TRIES: u32 = 20;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// Lock of an interface. Clones share the lock, which is released with the last one.
#[derive(Clone, Debug)]
pub struct InterfaceLock(Arc<Locked>);

#[derive(Debug)]
struct Locked {
    path: PathBuf,
    file: File,
    /// True once another process owns the lock.
    is_left: AtomicBool,
}

/// Locks of this process: in a reload, a new port may have the interface of a removed one.
static LOCKS: Mutex<BTreeMap<PathBuf, Weak<Locked>>> = Mutex::new(BTreeMap::new());
/// Configuration file of this process's gateway.
static FILE: OnceLock<PathBuf> = OnceLock::new();

/// Sets the configuration file that is written into lock files; only the first call counts.
pub fn set_file(file: &Path) {
    let _: Result<(), PathBuf> = FILE.set(file.to_owned());
}

/// Gateway that holds a lock, as stored in the lock file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Holder {
    process: u32,
    gateway: String,
    control: PathBuf,
    file: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { process, gateway, control, file } = self;
        match (gateway.as_str(), process) {
            ("", 0) => formatter.write_str("another gateway"),
            ("", process) => write!(formatter, "process {process}"),
            (gateway, process) => {
                write!(formatter, "gateway {gateway} (process {process}, ")?;
                if *file != PathBuf::new() {
                    write!(formatter, "file {}, ", file.display())?;
                }
                write!(formatter, "control socket {})", control.display())
            }
        }
    }
}

impl Holder {
    /// This process, with the gateway of `configuration`.
    fn own(configuration: &Configuration) -> Self {
        let gateway = &configuration.gateway;
        Self {
            process: std::process::id(),
            gateway: gateway.name.clone(),
            control: gateway.control.clone(),
            file: FILE.get().cloned().unwrap_or_default(),
        }
    }
}

/// Reason why an interface is not locked.
#[derive(Debug, PartialEq, Eq)]
enum NotLocked {
    /// Another gateway holds the lock.
    Held(Holder),
    /// The file cannot be locked.
    Failed(Errno),
}

impl InterfaceLock {
    /// Locks `interface` of the calling thread's network namespace; `None` if it does not exist, or the user
    /// may not write to the directory.
    ///
    /// # Errors
    /// When another gateway holds the lock.
    pub(super) fn take(interface: &str, configuration: &Configuration) -> Result<Option<Self>> {
        number(interface).map_or(Ok(None), |number| Self::take_number((interface, number), configuration, 1))
    }

    fn take_number(
        (interface, number): (&str, u32),
        configuration: &Configuration,
        tries: u32,
    ) -> Result<Option<Self>> {
        let Some(path) = path(number) else { return Ok(None) };
        // A missing directory is reported when the file is opened.
        let _: std::io::Result<()> = std::fs::create_dir_all(DIRECTORY);
        match Self::lock(path, &Holder::own(configuration), tries) {
            Ok(lock) => Ok(Some(lock)),
            Err(NotLocked::Held(other)) => Err(anyhow!(in_use(interface, &other))),
            Err(NotLocked::Failed(errno)) => {
                tracing::info!("cannot lock {interface} against other gateways, in {DIRECTORY}: {errno}");
                Ok(None)
            }
        }
    }

    /// Locks the file at `path`, or shares this process's lock.
    fn lock(path: PathBuf, holder: &Holder, tries: u32) -> Result<Self, NotLocked> {
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| lock.strong_count() > 0);
        if let Some(lock) = locks.get(&path).and_then(Weak::upgrade) {
            return Ok(Self(lock));
        }
        for tried in 1..=tries.max(1) {
            if let Some(file) = try_lock(&path).map_err(NotLocked::Failed)? {
                let locked = Arc::new(Locked { path: path.clone(), file, is_left: AtomicBool::new(false) });
                locked.name(holder);
                locks.insert(path, Arc::downgrade(&locked));
                return Ok(Self(locked));
            }
            if tried < tries {
                std::thread::sleep(PAUSE);
            }
        }
        Err(NotLocked::Held(holder_of(&path).unwrap_or_default()))
    }

    /// Adopts a lock by its descriptor, after the other process has released it; `None` if the descriptor is
    /// no lock.
    pub fn inherited(path: &Path, descriptor: OwnedFd, configuration: &Configuration) -> Option<Self> {
        let file = File::from(descriptor);
        if path.parent() != Some(Path::new(DIRECTORY)) || !is_at(path, &file) {
            return None;
        }
        // The open file description holds the lock already.
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        let locked = Arc::new(Locked { path: path.to_owned(), file, is_left: AtomicBool::new(false) });
        locked.name(&Holder::own(configuration));
        let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
        locks.insert(path.to_owned(), Arc::downgrade(&locked));
        Some(Self(locked))
    }

    /// Path of the lock file.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Descriptor that a successor process needs to adopt the lock.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    /// Leaves the lock to a process that has its descriptor.
    pub fn leave(&self) {
        // Relaxed: the flag orders nothing.
        self.0.is_left.store(true, Ordering::Relaxed);
    }
}

impl Locked {
    /// Writes the gateway's description into the file.
    fn name(&self, holder: &Holder) {
        let mut line = serde_json::to_vec(holder).unwrap_or_default();
        line.push(b'\n');
        let length = u64::try_from(line.len()).unwrap_or_default();
        // Errors are ignored: the lock works without a description. Readers take the first line, so they see
        // the old or the new one.
        let _: std::io::Result<()> =
            self.file.write_all_at(&line, 0).and_then(|()| self.file.set_len(length));
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The file is removed before the unlock, so that the next holder creates a new file.
        if !self.is_left.load(Ordering::Relaxed) && is_at(&self.path, &self.file) {
            let _: std::io::Result<()> = std::fs::remove_file(&self.path);
        }
    }
}

/// Locks the interfaces of `ports` before any is opened, until the result is dropped. Locks are taken in the
/// order of interface indexes, so one of two gateways that start together gets all of them.
///
/// # Errors
/// When another gateway holds one of the locks.
pub fn lock_all<'a>(
    ports: impl IntoIterator<Item = &'a Port>,
    configuration: &Configuration,
) -> Result<Vec<InterfaceLock>> {
    let numbered = |port: &'a Port| {
        let interface = port.device.interface()?;
        Some((number(interface)?, interface, port))
    };
    let mut ports = ports.into_iter().filter_map(numbered).collect::<Vec<_>>();
    ports.sort_by_key(|&(number, ..)| number);
    let locks = ports.into_iter().map(|(number, interface, port)| {
        let lock = InterfaceLock::take_number((interface, number), configuration, TRIES);
        lock.with_context(|| format!("cannot open port {}", port.name)).transpose()
    });
    locks.flatten().collect()
}

/// Message about another gateway that uses `interface`; `None` if none does.
pub(super) fn other_gateway(interface: &str, configuration: &Configuration) -> Option<String> {
    let path = path(number(interface)?)?;
    let process = locked_by(&path)?;
    let own = &configuration.gateway.control;
    // An unreadable file belongs to root: an existing control socket of `configuration` is taken as the
    // holder's.
    let holder = holder_of(&path).unwrap_or(Holder { process, ..Holder::default() });
    let is_same = if holder.gateway.is_empty() { own.exists() } else { holder.control == *own };
    (!is_same && holder.process != std::process::id()).then(|| in_use(interface, &holder))
}

fn in_use(interface: &str, holder: &Holder) -> String {
    format!(
        "{interface} is a port of {holder}: stop that gateway, or remove the port from one of the two files"
    )
}

/// Index of an interface in the calling thread's network namespace.
fn number(interface: &str) -> Option<u32> {
    // Any socket serves for the ioctl.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    name_to_index(&socket, interface).ok()
}

/// Path of the lock file of an interface index in the calling thread's network namespace.
fn path(number: u32) -> Option<PathBuf> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").ok()?.ino();
    Some(Path::new(DIRECTORY).join(format!("{namespace}-{number}")))
}

/// Opens and locks the file at `path`; `None` if it is locked.
fn try_lock(path: &Path) -> Result<Option<File>, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    loop {
        // Readable for its owner alone, because any process that can open a file can lock it.
        let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            // The previous holder may have removed the file meanwhile.
            Ok(()) if is_at(path, &file) => return Ok(Some(file)),
            Ok(()) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(errno) => return Err(errno),
        }
    }
}

/// True if the open `file` is still the one at `path`.
fn is_at(path: &Path, file: &File) -> bool {
    let Ok(opened) = fstat(file) else { return false };
    std::fs::symlink_metadata(path)
        .is_ok_and(|found| (found.dev(), found.ino()) == (opened.st_dev, opened.st_ino))
}

/// Process that has locked the file at `path`; 0 if its id is unknown.
fn locked_by(path: &Path) -> Option<u32> {
    let Ok(file) = File::open(path) else { return locked_by_table(path) };
    // Shared, so that two readers do not conflict.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Some(0),
        Ok(()) | Err(_) => None,
    }
}

/// As [`locked_by`], from the kernel's table of locks, for users who may not open the file. The lock of an
/// upgraded gateway shows a process that has ended, which gives 0.
fn locked_by_table(path: &Path) -> Option<u32> {
    let file = std::fs::symlink_metadata(path).ok()?;
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let process = holder_among(&locks, &format!("{major:02x}:{minor:02x}:{}", file.ino()))?;
    Some(if Path::new("/proc").join(process.to_string()).exists() { process } else { 0 })
}

/// Process that holds a lock of a file, from `/proc/locks`: number, kind, strictness, access, process, file.
/// Lines of waiting processes have an arrow after the number.
fn holder_among(locks: &str, file: &str) -> Option<u32> {
    let mut lines = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|words| match words[..] {
        [_, "FLOCK", _, _, process, found, ..] if found == file => process.parse().ok(),
        _ => None,
    })
}

/// Holder stored in the lock file at `path`.
fn holder_of(path: &Path) -> Option<Holder> {
    let text = std::fs::read_to_string(path).ok()?;
    // A longer description may have been there before.
    serde_json::from_str(text.lines().next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(gateway: &str) -> Holder {
        let control = PathBuf::from(format!("/run/polder/{gateway}.sock"));
        let file = PathBuf::from(format!("/etc/polder/{gateway}.toml"));
        Holder { process: std::process::id(), gateway: gateway.to_owned(), control, file }
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("polder-lock-{name}-{}", std::process::id()))
    }

    #[test]
    fn one_gateway_has_the_lock_and_is_named() {
        let path = scratch("named");
        let longer = "a longer line of a gateway that was killed, which had the file before\n".repeat(5);
        std::fs::write(&path, longer).expect("a file");
        let first = InterfaceLock::lock(path.clone(), &holder("one"), 1).expect("nobody has it");
        assert_eq!(std::fs::read_to_string(&path).expect("it reads").lines().count(), 1);
        assert_eq!(locked_by(&path), Some(0));
        assert_eq!(locked_by_table(&path), Some(std::process::id()));
        assert_eq!(try_lock(&path).map(|file| file.is_some()), Ok(false));
        assert_eq!(holder_of(&path), Some(holder("one")));
        // A second lock of this process is the same.
        let second = InterfaceLock::lock(path.clone(), &holder("two"), 1).expect("it is this process's");
        drop(first);
        assert_eq!(locked_by(&path), Some(0));
        drop(second);
        assert!(!path.exists());
        assert_eq!(locked_by(&path), None);
        let missing = path.join("no directory");
        let failed = InterfaceLock::lock(missing, &holder("two"), 1).expect_err("no file");
        assert_eq!(failed, NotLocked::Failed(Errno::NOENT));
    }

    /// By descriptors of its own, as another process has them.
    #[test]
    fn a_lock_of_another_process_is_waited_for_and_named() {
        let path = scratch("other");
        let file = try_lock(&path).expect("a file").expect("nobody has it");
        let other = Locked { path: path.clone(), file, is_left: AtomicBool::new(false) };
        other.name(&holder("one"));
        let refused = InterfaceLock::lock(path.clone(), &holder("two"), 2).expect_err("it is held");
        assert_eq!(refused, NotLocked::Held(holder("one")));
        let text = in_use("eth0", &holder("one"));
        let process = std::process::id();
        assert_eq!(
            text,
            format!(
                "eth0 is a port of gateway one (process {process}, file /etc/polder/one.toml, control socket \
                 /run/polder/one.sock): stop that gateway, or remove the port from one of the two files"
            )
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| InterfaceLock::lock(path.clone(), &holder("two"), 500).map(|_| ()));
            std::thread::sleep(3 * PAUSE);
            drop(other);
            assert_eq!(waiting.join().expect("it ends"), Ok(()));
        });
    }

    #[test]
    fn a_lock_that_is_passed_is_never_free() {
        let path = scratch("passed");
        let before = InterfaceLock::lock(path.clone(), &holder("one"), 1).expect("nobody has it");
        let passed = before.descriptor().try_clone_to_owned().expect("a copy");
        before.leave();
        drop(before);
        assert!(path.exists(), "the process before has removed the file of the next one");
        assert_eq!(try_lock(&path).map(|file| file.is_some()), Ok(false), "the lock is free");
        drop(passed);
        assert_eq!(try_lock(&path).map(|file| file.is_some()), Ok(true));
        std::fs::remove_file(&path).expect("it is there");
    }

    /// Somebody has emptied the directory, and another gateway has locked a file of the same name.
    #[test]
    fn the_file_of_another_gateway_is_not_removed() {
        let path = scratch("emptied");
        let first = InterfaceLock::lock(path.clone(), &holder("one"), 1).expect("nobody has it");
        std::fs::remove_file(&path).expect("it is there");
        let second = try_lock(&path).expect("a file").expect("it is another file");
        drop(first);
        assert!(is_at(&path, &second));
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn a_lock_is_found_among_those_of_others() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:18:42 0 EOF\n1: -> FLOCK ADVISORY WRITE 9 00:18:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 00:18:42 0 EOF\n";
        assert_eq!(holder_among(locks, "00:18:42"), Some(8));
        assert_eq!(holder_among(locks, "00:18:4"), None);
    }
}
