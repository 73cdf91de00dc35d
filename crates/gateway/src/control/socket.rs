//! Who has the path of a control socket.
//!
//! A killed gateway leaves its socket behind; nobody listens there any more, so the path is taken over.
//! Looking and taking over happen under a lock on the directory, so that of two gateways that start at
//! the same time one is refused.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A socket's path that this process has. Dropping it takes the path away.
#[derive(Debug)]
pub struct Claimed {
    /// Where connections come in.
    pub listener: UnixListener,
    path: PathBuf,
    inode: u64,
}

/// Why a path cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Somebody listens there.
    #[error(
        "another gateway has the control socket {}: stop it, or give this one another `name` or `control` in \
         [gateway]", .0.display()
    )]
    Taken(PathBuf),
    /// Something that is no socket stands there.
    #[error("{} is there and is no socket: remove it, or set another `control` in [gateway]", .0.display())]
    NoSocket(PathBuf),
    /// Only root may write to the directory.
    #[error(
        "not allowed to make the control socket {}: run as root, or set `control` in [gateway] to a path that \
         you may write to", .0.display()
    )]
    Permission(PathBuf),
    /// The system refuses.
    #[error("cannot {step} {}: {reason}", path.display())]
    System {
        /// What was tried.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
}

/// Connections that may wait.
const BACKLOG: i32 = 16;

/// Takes `path`, makes its directory when that is missing, and listens there.
///
/// # Errors
/// When another process listens there, or the system refuses.
pub fn claim(path: &Path) -> Result<Claimed, ClaimError> {
    let error = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |reason: io::Error| {
            let denied = [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem];
            match denied.contains(&reason.kind()) {
                true => ClaimError::Permission(path),
                false => ClaimError::System { step, path, reason },
            }
        }
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory);
        made.map_err(error("make the directory", directory))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let lock = open(directory, flags, Mode::empty())
        .and_then(|lock| flock(&lock, FlockOperation::LockExclusive).map(|()| lock))
        .map_err(|errno| error("lock the directory", directory)(errno.into()))?;
    clear(path)?;
    let listener = bind_private(path).map_err(error("make the control socket", path))?;
    let inode = std::fs::symlink_metadata(path).map_err(error("look at", path))?.ino();
    drop(lock);
    Ok(Claimed { listener, path: path.to_owned(), inode })
}

/// Removes the socket of a gateway that is gone.
fn clear(path: &Path) -> Result<(), ClaimError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ClaimError::NoSocket(path.to_owned()));
    }
    if is_alive(path) {
        return Err(ClaimError::Taken(path.to_owned()));
    }
    std::fs::remove_file(path).map_err(|reason| ClaimError::System {
        step: "remove the control socket that was left behind",
        path: path.to_owned(),
        reason,
    })
}

/// Whether somebody listens at `path`. In doubt somebody does.
pub fn is_alive(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connected = SocketAddrUnix::new(path).and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    // Not to wait: a gateway whose backlog is full is alive, and says so by EAGAIN.
    !matches!(connected, Err(rustix::io::Errno::CONNREFUSED | rustix::io::Errno::NOENT))
}

/// A listening socket that its owner alone may connect to.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Nobody can connect before `listen`, so the mode is right from the first moment.
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // Another file may have come to the path since; that one is not ours to remove.
        if std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode) {
            let _: io::Result<()> = std::fs::remove_file(&self.path);
        }
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
