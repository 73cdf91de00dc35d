//! Listening socket of the metrics, bound before the process is confined.

use crate::config::model::Listen;
use crate::control::socket::is_alive;
use rustix::net::{SocketFlags, accept_with};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Permissions of a UNIX socket: its owner and group may connect.
const MODE: u32 = 0o660;

/// A bound socket. Dropping it removes the path of a UNIX socket.
#[derive(Debug)]
pub struct Bound {
    socket: OwnedFd,
    /// Address as text, with the actual port if port 0 was configured.
    address: String,
    /// Path and inode of a UNIX socket.
    place: Option<(PathBuf, u64)>,
    /// True once another process owns the socket.
    is_left: Arc<AtomicBool>,
}

/// A bound socket for a successor process.
#[derive(Debug)]
pub struct Shared {
    socket: OwnedFd,
    address: String,
    place: Option<(PathBuf, u64)>,
    is_left: Arc<AtomicBool>,
}

impl Shared {
    /// Address, and path and inode of a UNIX socket.
    pub fn describe(&self) -> (String, Option<(PathBuf, u64)>) {
        (self.address.clone(), self.place.clone())
    }

    /// Keeps the path on drop, because another process owns the socket.
    pub fn leave(&self) {
        // Relaxed: the flag orders nothing.
        self.is_left.store(true, Ordering::Relaxed);
    }
}

impl AsFd for Shared {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Reason why a socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket uses the address.
    #[error(
        "metrics: another program listens on {0} (`ss -lnp` names it): stop that program, or set another `listen` in \
         [metrics]"
    )]
    InUse(Listen),
    /// This host does not have the address.
    #[error("metrics: {0} is not an address of this host: set another `listen` in [metrics]")]
    Elsewhere(Listen),
    /// The path is a file that is no socket.
    #[error("metrics: {0} exists and is not a socket: remove it, or set another `listen` in [metrics]")]
    NoSocket(Listen),
    /// Another error.
    #[error("metrics: cannot listen on {listen}: {reason}")]
    System {
        /// The address.
        listen: Listen,
        /// Error of the system.
        reason: io::Error,
    },
}

impl Bound {
    /// Binds a socket to `listen`.
    ///
    /// # Errors
    /// When the address is in use or the system refuses; the error has a remedy.
    pub fn new(listen: &Listen) -> Result<Self, BindError> {
        let bound = match listen {
            Listen::Tcp(address) => TcpListener::bind(address).and_then(|listener| {
                let address = listener.local_addr()?.to_string();
                listener.set_nonblocking(true)?;
                Ok(Self::inherited(listener.into(), address, None, Arc::default()))
            }),
            Listen::Unix(path) => {
                clear(path, listen)?;
                bind_path(path)
            }
        };
        bound.map_err(|reason| {
            let listen = listen.clone();
            let known = [
                (io::ErrorKind::AddrInUse, BindError::InUse as fn(Listen) -> BindError),
                (io::ErrorKind::AddrNotAvailable, BindError::Elsewhere),
            ];
            match known.into_iter().find(|(kind, _)| *kind == reason.kind()) {
                Some((_, error)) => error(listen),
                None => BindError::System { listen, reason },
            }
        })
    }

    /// Wraps a socket that listens already; its path belongs to another process while `is_left`.
    pub fn inherited(
        socket: OwnedFd,
        address: String,
        place: Option<(PathBuf, u64)>,
        is_left: Arc<AtomicBool>,
    ) -> Self {
        Self { socket, address, place, is_left }
    }

    /// A copy of the socket for a successor process.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn share(&self) -> io::Result<Shared> {
        let (address, place) = (self.address.clone(), self.place.clone());
        Ok(Shared { socket: self.socket.try_clone()?, address, place, is_left: Arc::clone(&self.is_left) })
    }

    /// Address as text.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Accepts a connection as a non-blocking socket.
    pub(super) fn accept(&self) -> rustix::io::Result<OwnedFd> {
        accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let Some((path, inode)) = &self.place else { return };
        if self.is_left.load(Ordering::Relaxed) {
            return;
        }
        // Another process may have created a file at the path, which must stay.
        if std::fs::symlink_metadata(path).is_ok_and(|file| file.ino() == *inode) {
            let _: io::Result<()> = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket of a gateway that has ended.
fn clear(path: &Path, listen: &Listen) -> Result<(), BindError> {
    let Ok(file) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(BindError::NoSocket(listen.clone()));
    }
    if is_alive(path) {
        return Err(BindError::InUse(listen.clone()));
    }
    std::fs::remove_file(path).map_err(|reason| BindError::System { listen: listen.clone(), reason })
}

fn bind_path(path: &Path) -> io::Result<Bound> {
    if let Some(directory) = path.parent().filter(|directory| !directory.is_dir()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    listener.set_nonblocking(true)?;
    let inode = std::fs::symlink_metadata(path)?.ino();
    let place = Some((path.to_owned(), inode));
    Ok(Bound::inherited(listener.into(), path.display().to_string(), place, Arc::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_says_what_to_do() {
        let first = Bound::new(&Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
        let taken = Listen::Tcp(first.address().parse().unwrap());
        let error = Bound::new(&taken).unwrap_err().to_string();
        assert!(error.contains("another program listens") && error.contains("`listen`"), "{error}");
        let elsewhere = Listen::Tcp("192.0.2.1:9100".parse().unwrap());
        assert!(matches!(Bound::new(&elsewhere), Err(BindError::Elsewhere(_))));
    }

    #[test]
    fn a_path_has_one_listener_and_a_stale_socket_is_replaced() {
        let path = std::env::temp_dir().join(format!("polder-metrics-{}.sock", std::process::id()));
        let listen = Listen::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let bound = Bound::new(&listen).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        assert!(matches!(Bound::new(&listen), Err(BindError::InUse(_))));
        drop(bound);
        std::fs::write(&path, "data").unwrap();
        assert!(matches!(Bound::new(&listen), Err(BindError::NoSocket(_))));
        std::fs::remove_file(path).unwrap();
    }
}
