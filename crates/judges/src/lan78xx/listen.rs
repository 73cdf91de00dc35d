//! Address of a model's server: IP address and port, or local socket.

use super::Door;
use anyhow::Context as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Address of a model's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port.
    Tcp(SocketAddr),
    /// A socket that is made in a directory.
    Unix(PathBuf),
}

/// A socket in a directory, removed with this guard.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl core::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        let address = text.parse().map(Self::Tcp);
        address.map_err(|_| {
            "write an address and a port as in 127.0.0.1:3240, or the absolute path of a socket".to_owned()
        })
    }
}

impl core::fmt::Display for Listen {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

impl Listen {
    /// Listens there. A socket that a dead process has left is made anew.
    ///
    /// # Errors
    /// When the port is in use, or permission is missing.
    pub fn open(&self) -> anyhow::Result<(Door, Option<SocketFile>)> {
        let told = || format!("cannot listen on {self}");
        match self {
            Self::Tcp(address) => Ok((Door::Tcp(TcpListener::bind(address).with_context(told)?), None)),
            Self::Unix(path) => {
                remove_what_is_dead(path);
                let listener = UnixListener::bind(path).with_context(told)?;
                Ok((Door::Unix(listener), Some(SocketFile(path.clone()))))
            }
        }
    }

    /// Command that attaches the device `busid` of this server.
    pub fn how_to_attach(&self, busid: &str) -> String {
        match self {
            Self::Tcp(address) => format!("`usbip attach -r {} -b {busid}`", address.ip()),
            Self::Unix(path) => {
                format!("`lan78xx = {{ usbip = \"{}\", busid = \"{busid}\" }}` in a port", path.display())
            }
        }
    }
}

/// Removes a socket without a listener. Anything else stays, and binding says what is wrong.
fn remove_what_is_dead(path: &Path) {
    let refused = UnixStream::connect(path).is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused);
    if refused {
        // Binding says so when it could not be removed.
        let _ = std::fs::remove_file(path);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Whoever has removed it meanwhile has done the work.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_told_apart() {
        let read = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string());
        assert_eq!(read("127.0.0.1:3240").as_deref(), Ok("127.0.0.1:3240"));
        assert_eq!(read("[::1]:3240").as_deref(), Ok("[::1]:3240"));
        assert_eq!(read("/run/usbip.sock").as_deref(), Ok("/run/usbip.sock"));
        for wrong in ["", "usbip.sock", "localhost:3240", "127.0.0.1"] {
            assert!(read(wrong).is_err_and(|remedy| remedy.contains("absolute path")), "{wrong}");
        }
    }

    #[test]
    fn a_dead_socket_is_made_anew_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("polder-listen-{}.sock", std::process::id()));
        let listen = Listen::Unix(path.clone());
        let (door, file) = listen.open().unwrap();
        let taken = listen.open().unwrap_err().to_string();
        assert!(taken.contains("cannot listen on"), "{taken}");
        // A process that dies leaves its socket.
        drop(door);
        assert!(path.exists());
        let (again, other) = listen.open().unwrap();
        drop((again, other));
        assert!(!path.exists());
        drop(file);
        assert!(listen.how_to_attach("1-1").contains("polder-listen-"));
    }
}
