//! Connecting to a USB/IP server and importing a device.

use super::message::{
    DEVICE_BYTES, Described, NAME_BYTES, REPLY_IMPORT, REQUEST_IMPORT, SETUP_BYTES, VERSION, setup_head,
};
use crate::usb::monotonic;
use core::time::Duration;
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Interval at which a wait checks for cancellation.
const STEP: Duration = Duration::from_millis(20);

/// Address of a USB/IP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host and a port (`192.0.2.1:3240`).
    Tcp(String),
    /// A Unix socket.
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
    Reach(ServerAddress, io::Error),
    /// Another service answers at the address.
    #[error("{0} is not a USB/IP server of version 1.1.1")]
    Protocol(ServerAddress),
    /// The server does not export the device.
    #[error(
        "the USB/IP server {0} has no device {1}, or another client uses it: `usbip list -r` and `usbip \
         bind -b {1}` there"
    )]
    NoDevice(ServerAddress, String),
    /// The name is invalid for a device.
    #[error("`{0}` is not a bus id: use 1 to 31 bytes, as `1-1.4`")]
    Name(String),
    /// The bus of the device is too slow.
    #[error("the USB device {0} is on a USB 1 bus; plug the device into a USB 2 or 3 port")]
    Slow(String),
}

/// A connection whose operations end at a deadline, or when `cancelled` is set.
pub(super) struct Conversation<'a> {
    stream: OwnedFd,
    deadline: Nanos,
    cancelled: &'a AtomicBool,
}

impl<'a> Conversation<'a> {
    /// Connects to a server; the whole conversation must end within `patience`.
    pub(super) fn begin(
        server: &ServerAddress,
        patience: Duration,
        cancelled: &'a AtomicBool,
    ) -> Result<Self, ClientError> {
        let deadline = monotonic() + Nanos(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        let connected = match server {
            ServerAddress::Tcp(address) => address
                .to_socket_addrs()
                .and_then(|addresses| Self::connect_any(addresses, deadline, cancelled)),
            ServerAddress::Unix(path) => Self::connect_local(path, deadline, cancelled),
        };
        connected.map_err(|error| ClientError::Reach(server.clone(), error))
    }

    /// Connects to the first address that answers.
    fn connect_any(
        addresses: impl Iterator<Item = SocketAddr>,
        deadline: Nanos,
        cancelled: &'a AtomicBool,
    ) -> io::Result<Self> {
        let mut last = ErrorKind::NotFound.into();
        for address in addresses {
            match Self::connect(&address, address.is_ipv4(), deadline, cancelled) {
                Ok(conversation) => return Ok(conversation),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn connect(
        address: &SocketAddr,
        v4: bool,
        deadline: Nanos,
        cancelled: &'a AtomicBool,
    ) -> io::Result<Self> {
        let family = if v4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let stream = socket(family)?;
        sockopt::set_tcp_nodelay(&stream, true)?;
        match rustix::net::connect(&stream, address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let conversation = Self { stream, deadline, cancelled };
        conversation.wait(PollFlags::OUT)?;
        sockopt::socket_error(&conversation.stream)??;
        Ok(conversation)
    }

    /// Connects to a Unix socket, which is done at once or fails for lack of room.
    fn connect_local(path: &Path, deadline: Nanos, cancelled: &'a AtomicBool) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let conversation = Self { stream: socket(AddressFamily::UNIX)?, deadline, cancelled };
        loop {
            match rustix::net::connect(&conversation.stream, &address) {
                Ok(()) => return Ok(conversation),
                Err(Errno::AGAIN) => conversation.go_on().map(|()| std::thread::sleep(STEP))?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the socket, which is non-blocking.
    pub(super) fn into_stream(self) -> OwnedFd {
        self.stream
    }

    fn go_on(&self) -> io::Result<()> {
        // Relaxed: a cancellation may be seen late.
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled, because the program ends"));
        }
        if monotonic() > self.deadline { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
    }

    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let step = Timespec::try_from(STEP).ok();
        loop {
            self.go_on()?;
            match rustix::event::poll(&mut [PollFd::new(&self.stream, flags)], step.as_ref()) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None)
}

impl Read for Conversation<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        Ok(rustix::io::read(&self.stream, bytes)?)
    }
}

impl Write for Conversation<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        Ok(rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Imports the device; afterwards the stream carries transfers.
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
