//! Sockets of BFD: one for each of our addresses that listens, one for each session that sends.

use super::sys::{self, Arrival};
use super::wanted::SessionKey;
use crate::bfd::{MULTIHOP_PORT, SINGLE_HOP_PORT, SOURCE_PORTS, TTL};
use rustix::net::sockopt::{set_ip_tos, set_ipv6_tclass, set_ipv6_unicast_hops};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Class selector 6, network control (RFC 2474): a packet of BFD is among the last to be dropped.
const CONTROL_CLASS: u8 = 0xc0;
/// Source ports that are tried.
const TRIES: u16 = 64;
/// Octets of a datagram that are read: the packet, and what is behind it.
const OCTETS: usize = 64;

/// Place where packets arrive: our address, and the port.
pub(super) type Place = (IpAddr, u16);

impl SessionKey {
    /// Place where its packets arrive.
    pub(super) fn place(&self) -> Place {
        (self.local, if self.multihop { MULTIHOP_PORT } else { SINGLE_HOP_PORT })
    }
}

/// A socket that receives.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) socket: UdpSocket,
}

/// A datagram as it arrived.
pub(super) struct Datagram {
    pub(super) octets: [u8; OCTETS],
    pub(super) length: usize,
    pub(super) from: IpAddr,
    pub(super) arrival: Arrival,
}

impl Receiver {
    /// Listens at a place.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) fn open((address, port): Place) -> Result<Self, String> {
        let trouble = |error: io::Error| {
            if error.kind() == io::ErrorKind::AddrInUse {
                let whose = "another program's: does a BFD daemon run on this machine?";
                return format!("UDP port {port} of {address} is {whose}");
            }
            if error.kind() == io::ErrorKind::AddrNotAvailable {
                return format!("{address} is no address of this machine");
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

    /// The next datagram, if one waits.
    pub(super) fn receive(&self) -> Option<Datagram> {
        let mut octets = [0; OCTETS];
        // The sender's address is looked at first: reading takes the datagram away.
        let (_, from) = self.socket.peek_from(&mut octets).ok()?;
        let (length, arrival) = sys::receive(&self.socket, &mut octets).ok()?;
        Some(Datagram { octets, length, from: from.ip().to_canonical(), arrival })
    }
}

/// A socket that sends to the other end of a session, from a port of its own (RFC 5881, 4): that of the number, if it is
/// one that is allowed and free.
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
