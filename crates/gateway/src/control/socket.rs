//! Ownership of a control socket's path.
//!
//! A killed gateway leaves a socket file that no process listens on; it is replaced. The check and the
//! replacement happen under a lock, so that one of two gateways that start together is refused. The lock file
//! is separate from the socket and readable for its owner alone, because any process that can open a file can
//! lock it.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A control socket owned by this process. Dropping it removes the path.
#[derive(Debug)]
pub struct Claimed {
    /// Listening socket.
    pub listener: UnixListener,
    place: Place,
}

/// Path and inode of a socket.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    inode: u64,
    /// True once another process owns the socket.
    is_left: Arc<AtomicBool>,
}

/// Reason why a path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another process listens there.
    #[error(
        "another gateway uses the control socket {}: stop that gateway, or give this gateway another `name` or \
         `control` in [gateway]", .0.display()
    )]
    Taken(PathBuf),
    /// The path is a file that is no socket.
    #[error("{} exists and is not a socket: remove it, or set another `control` in [gateway]", .0.display())]
    NoSocket(PathBuf),
    /// The directory is not writable.
    #[error(
        "not allowed to create the control socket {}: run as root, or set `control` in [gateway] to a path \
         that you may write to", .0.display()
    )]
    Permission(PathBuf),
    /// The lock file is accessible to other users.
    #[error(
        "{} belongs to another user or is writable by others, who could keep it locked: remove it, and set \
         `control` in [gateway] to a directory that only this user may write to", .0.display()
    )]
    Foreign(PathBuf),
    /// Another process holds the lock for too long.
    #[error("another process has locked {} for {} s: this process is starting a gateway there, or hangs; stop this process", .0.display(), LOCK.as_secs())]
    Locked(PathBuf),
    /// A system call failed.
    #[error("cannot {step} {}: {reason}", path.display())]
    System {
        /// Operation that failed.
        step: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// Error of the operation.
        reason: io::Error,
    },
}

/// Maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 16;
/// Time limit for taking the lock, which is normally held for milliseconds; tried every [`STEP`].
const LOCK: Duration = Duration::from_secs(5);
const STEP: Duration = Duration::from_millis(5);

/// Binds `path` and listens on it; creates its directory if it is missing.
///
/// # Errors
/// When another process listens there, or a system call fails.
pub fn claim(path: &Path) -> Result<Claimed, ClaimError> {
    let error = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |reason: io::Error| {
            // Some kernel file systems return "not found" where files cannot be created.
            let denied =
                [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::NotFound];
            match denied.contains(&reason.kind()) {
                true => ClaimError::Permission(path),
                false => ClaimError::System { step, path, reason },
            }
        }
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(error("create the directory", directory))?;
    }
    let lock = Lock::take(&path.with_extension("lock"))?;
    let lock = lock.map_err(|errno| error("lock the path of the control socket", path)(errno.into()))?;
    clear(path)?;
    let listener = bind_private(path).map_err(error("create the control socket", path))?;
    let inode = std::fs::symlink_metadata(path).map_err(error("look at", path))?.ino();
    drop(lock);
    Ok(Claimed::inherited(listener, Place::inherited(path, inode, Arc::default())))
}

/// A locked file, removed on drop.
struct Lock {
    path: PathBuf,
    _file: OwnedFd,
}

impl Lock {
    /// Locks the file at `path`, creating it if needed.
    fn take(path: &Path) -> Result<Result<Self, Errno>, ClaimError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let owner = rustix::process::geteuid().as_raw();
        for _ in 0..LOCK.as_millis() / STEP.as_millis() {
            let file = match open(path, flags, Mode::RUSR | Mode::WUSR) {
                // A symbolic link, or another user's file in a directory that all may write to.
                Err(Errno::LOOP) => return Err(ClaimError::Foreign(path.to_owned())),
                Err(_) if is_foreign(path, owner) => return Err(ClaimError::Foreign(path.to_owned())),
                Err(errno) => return Ok(Err(errno)),
                Ok(file) => file,
            };
            let opened = match fstat(&file) {
                Err(errno) => return Ok(Err(errno)),
                Ok(opened) => opened,
            };
            if opened.st_uid != owner || opened.st_mode & 0o077 != 0 {
                return Err(ClaimError::Foreign(path.to_owned()));
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // The previous holder may have removed the file meanwhile.
                Ok(()) if std::fs::symlink_metadata(path).is_ok_and(|file| file.ino() == opened.st_ino) => {
                    return Ok(Ok(Self { path: path.to_owned(), _file: file }));
                }
                Ok(()) => continue,
                Err(Errno::WOULDBLOCK | Errno::INTR) => std::thread::sleep(STEP),
                Err(errno) => return Ok(Err(errno)),
            }
        }
        Err(ClaimError::Locked(path.to_owned()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed before it is unlocked, so that the next holder sees another file.
        let _: io::Result<()> = std::fs::remove_file(&self.path);
    }
}

fn is_foreign(path: &Path, owner: u32) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|file| file.uid() != owner)
}

/// Removes the socket of a gateway that has ended.
fn clear(path: &Path) -> Result<(), ClaimError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ClaimError::NoSocket(path.to_owned()));
    }
    if is_alive(path) {
        return Err(ClaimError::Taken(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(|reason| ClaimError::System {
        step: "remove the stale control socket",
        path: path.to_owned(),
        reason,
    })
}

/// True if a process listens at `path`, or if that is unknown.
pub fn is_alive(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connected = SocketAddrUnix::new(path).and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    // Non-blocking: EAGAIN means a full backlog, so the gateway is alive.
    !matches!(connected, Err(Errno::CONNREFUSED | Errno::NOENT))
}

/// A listening socket that only its owner may connect to.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Before `listen` no client can connect, so the mode is set in time.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

impl Claimed {
    /// Wraps a socket that listens already.
    pub fn inherited(listener: UnixListener, place: Place) -> Self {
        Self { listener, place }
    }

    /// Makes `SO_PEERCRED` of clients return this process, because it has the process that called listen(2)
    /// last.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn listen_anew(listener: &impl AsFd) -> Result<(), Errno> {
        listen(listener, BACKLOG)
    }

    /// Path and inode of the socket.
    pub fn place(&self) -> &Place {
        &self.place
    }
}

impl Place {
    /// Path of a socket with this inode, which belongs to another process while `is_left`.
    pub fn inherited(path: &Path, inode: u64, is_left: Arc<AtomicBool>) -> Self {
        Self { path: path.to_owned(), inode, is_left }
    }

    /// Inode of the socket.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Keeps the path on drop, because another process owns the socket.
    pub fn leave(&self) {
        // Relaxed: the flag orders nothing.
        self.is_left.store(true, Ordering::Relaxed);
    }

    /// Path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the path.
    pub fn remove(&self) {
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        // Another process may have created a file at the path, which must stay.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _: io::Result<()> = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        self.place.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("polder-socket-{name}-{}", std::process::id()));
        let _: io::Result<()> = std::fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_path_has_one_owner() {
        let directory = directory("owner");
        let path = directory.join("deep/er/gateway.sock");
        let first = claim(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(claim(&path), Err(ClaimError::Taken(_))));
        drop(first);
        assert!(!path.exists());
        claim(&path).unwrap();
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_path_that_another_process_goes_on_with_stays() {
        let directory = directory("left");
        let path = directory.join("gateway.sock");
        let first = claim(&path).unwrap();
        let listener = first.listener.try_clone().unwrap();
        let next =
            Claimed::inherited(listener, Place::inherited(&path, first.place().inode(), Arc::default()));
        first.place().clone().leave();
        drop(first);
        assert!(is_alive(&path));
        drop(next);
        assert!(!path.exists());
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_a_killed_process_left_is_taken_over() {
        let directory = directory("stale");
        let path = directory.join("gateway.sock");
        std::fs::create_dir_all(&directory).unwrap();
        // Dropping a standard listener closes it and leaves its file.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists() && !is_alive(&path));
        let claimed = claim(&path).unwrap();
        assert!(is_alive(&path));
        drop(claimed);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_file_is_not_removed() {
        let directory = directory("file");
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(claim(&path), Err(ClaimError::NoSocket(_))));
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_socket_of_somebody_else_at_the_path_stays() {
        let directory = directory("other");
        let path = directory.join("gateway.sock");
        let first = claim(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = claim(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn of_many_that_start_together_one_wins() {
        let directory = directory("race");
        let path = directory.join("gateway.sock");
        std::fs::create_dir_all(&directory).unwrap();
        for _ in 0..50 {
            drop(UnixListener::bind(&path).unwrap());
            let together = std::sync::Barrier::new(6);
            let start = || {
                together.wait();
                claim(&path).ok()
            };
            let winners = std::thread::scope(|scope| {
                let threads = [(); 6].map(|()| scope.spawn(start));
                threads.map(|thread| thread.join().unwrap()).into_iter().flatten().collect::<Vec<_>>()
            });
            assert_eq!(winners.len(), 1);
        }
        std::fs::remove_dir_all(directory).unwrap();
    }
}
