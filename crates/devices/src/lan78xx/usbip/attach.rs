//! Reaching a USB/IP server and asking it for a device.

use super::message::{
    DEVICE_BYTES, Described, NAME_BYTES, REPLY_IMPORT, REQUEST_IMPORT, SETUP_BYTES, VERSION, setup_head,
};
use core::time::Duration;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Address of a USB/IP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host and a port (`192.0.2.1:3240`).
    Tcp(String),
    /// A local socket.
    Unix(PathBuf),
}

impl core::fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Tcp(address) => formatter.write_str(address),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// Reason why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server cannot be reached.
    #[error("cannot reach the USB/IP server {0}: {1}; is usbipd running, and the port open?")]
    Reach(ServerAddress, std::io::Error),
    /// Another service answers there.
    #[error("{0} is not a USB/IP server of version 1.1.1")]
    Protocol(ServerAddress),
    /// The server does not export the device.
    #[error(
        "the USB/IP server {0} has no device {1}, or another client has it: `usbip list -r` and `usbip bind -b {1}` there"
    )]
    NoDevice(ServerAddress, String),
    /// A name that no device has.
    #[error("`{0}` is no bus id: it has 1 to 31 bytes, as `1-1.4`")]
    Name(String),
    /// The device is on a bus that is too slow.
    #[error("the device {0} is on a USB 1 bus; it needs USB 2 or 3")]
    Slow(String),
}

pub(super) fn connect(address: &str, patience: Duration) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::from(std::io::ErrorKind::NotFound);
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(super) fn connect_local(path: &Path, patience: Duration) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// Asks for the device; what follows on the stream are transfers.
pub(super) fn import(
    stream: &mut (impl Read + Write),
    server: &ServerAddress,
    name: &str,
) -> Result<Described, ClientError> {
    let reach = |error| ClientError::Reach(server.clone(), error);
    let mut request = setup_head(REQUEST_IMPORT, 0).to_vec();
    request.extend(name.bytes());
    request.resize(SETUP_BYTES + NAME_BYTES, 0);
    stream.write_all(&request).map_err(reach)?;
    let mut head = [0; SETUP_BYTES];
    stream.read_exact(&mut head).map_err(reach)?;
    let expected = setup_head(REPLY_IMPORT, 0);
    if head[..4] != expected[..4] {
        debug_assert_eq!(expected[..2], VERSION.to_be_bytes());
        return Err(ClientError::Protocol(server.clone()));
    }
    if head != expected {
        return Err(ClientError::NoDevice(server.clone(), name.to_owned()));
    }
    let mut record = [0; DEVICE_BYTES];
    stream.read_exact(&mut record).map_err(reach)?;
    Ok(Described::read(&record))
}
