//! Sockets of BFD: one receiving socket for each local address, one sending socket for each session.

use super::sys::{self, Arrival};
use super::wanted::SessionKey;
use crate::bfd::{MULTIHOP_PORT, SINGLE_HOP_PORT, SOURCE_PORTS, TTL};
use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass, set_ipv6_unicast_hops};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Class selector 6, network control (RFC 2474), so that BFD packets are dropped last.
const CONTROL_CLASS: u8 = 0xc0;
/// Number of source ports that are tried.
const TRIES: u16 = 64;
/// Maximum number of bytes read of a datagram: more than the longest packet.
const OCTETS: usize = 64;

/// Local address and UDP port of a receiving socket.
pub(super) type Place = (IpAddr, u16);

impl SessionKey {
    /// Local address and port of the session's received packets.
    pub(super) fn place(&self) -> Place {
        (self.local, if self.multihop { MULTIHOP_PORT } else { SINGLE_HOP_PORT })
    }
}

/// A receiving socket.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) socket: UdpSocket,
}

/// A received datagram.
pub(super) struct Datagram {
    pub(super) octets: [u8; OCTETS],
    pub(super) length: usize,
    pub(super) from: IpAddr,
    pub(super) arrival: Arrival,
}

impl Receiver {
    /// Opens a socket for an address and port.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn open((address, port): Place) -> Result<Self, String> {
        let trouble = |error: io::Error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                let whose = "in use by another program: does a BFD daemon run on this host?";
                return format!("UDP port {port} of {address} is {whose}");
            }
            if error.kind() == io::ErrorKind::AddrNotAvailable {
                return format!("{address} is not an address of this host");
            }
            format!("cannot listen at UDP port {port} of {address}: {error}")
        };
        let socket = UdpSocket::bind(SocketAddr::new(address, port)).map_err(trouble)?;
        socket
            .set_nonblocking(true)
            .and_then(|()| sys::report_arrival(&socket, address.is_ipv6()))
            .map_err(trouble)?;
        Ok(Self { socket })
    }

    /// Reads a datagram; `None` if none is queued.
    pub(super) fn receive(&self) -> Option<Datagram> {
        let mut octets = [0; OCTETS];
        // Peeked first for the sender's address, because the read removes the datagram.
        let (_, from) = self.socket.peek_from(&mut octets).ok()?;
        let (length, arrival) = sys::receive(&self.socket, &mut octets).ok()?;
        Some(Datagram { octets, length, from: from.ip().to_canonical(), arrival })
    }
}

/// A connected socket that sends to a session's remote end, from a source port of its own (RFC 5881, 4),
/// `random` if that is allowed and free.
///
/// # Errors
/// Error of the kernel.
pub(super) fn sender(key: &SessionKey, mut random: u16) -> io::Result<UdpSocket> {
    let (first, last) = (*SOURCE_PORTS.start(), *SOURCE_PORTS.end());
    let mut tries = 0;
    let socket = loop {
        let port = if random < first { first + random % (last - first + 1) } else { random };
        match UdpSocket::bind(SocketAddr::new(key.local, port)) {
            Ok(socket) => break socket,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                (tries, random) = (tries + 1, random.wrapping_add(7919));
            }
            Err(error) => return Err(error),
        }
    };
    socket.set_nonblocking(true)?;
    if key.local.is_ipv6() {
        set_ipv6_unicast_hops(&socket, Some(TTL))?;
        set_ipv6_tclass(&socket, CONTROL_CLASS.into())?;
    } else {
        socket.set_ttl(TTL.into())?;
        set_ip_tos(&socket, CONTROL_CLASS)?;
    }
    socket.connect(SocketAddr::new(key.remote, key.place().1))?;
    Ok(socket)
}
