//! Path MTUs of tunnels, as far as the kernel knows.
//!
//! Outer packets come from no socket, so the kernel would throw away what a narrow router says of
//! them (RFC 1191). A raw socket for the outer protocol between the ends of a tunnel makes such messages its own: the
//! kernel checks them, believes nothing below `net.ipv4.route.min_pmtu`, and forgets after
//! `net.ipv4.route.mtu_expires`; for IPv6 (RFC 8201) nothing below 1280 bytes, until
//! `net.ipv6.route.mtu_expires`. What it answers includes an MTU that the route has by configuration.
//! Nothing is sent through the socket or read from it.

use super::neighbour;
use polder_datapath::tunnel::TunnelState;
use polder_devices::netlink::{Client, find, number, put};
use rustix::io::Errno;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, socket_with};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

/// The two addresses of a tunnel, ours first, and the protocol of its outer IP header.
pub(super) type Ends = (IpAddr, IpAddr, u8);

/// The paths of all tunnels.
#[derive(Debug, Default)]
pub(super) struct Paths(HashMap<Ends, Path>);

impl Paths {
    /// Brings the path MTU of tunnels up to date, given with their ends and the interface that carries
    /// them; forgets the paths of all others. Returns true if one has changed.
    pub(super) fn refresh<'a>(
        &mut self,
        tunnels: impl IntoIterator<Item = (Ends, &'a str, &'a TunnelState)>,
    ) -> bool {
        let mut has_changed = false;
        let mut known = std::mem::take(&mut self.0);
        for (ends, interface, state) in tunnels {
            // What another interface carries says nothing of this one.
            let found = interface_to(ends.1).ok().flatten();
            let leads_there = found.is_some() && found == neighbour::number(interface);
            let path = self.0.remove(&ends).or_else(|| known.remove(&ends)).or_else(|| Path::open(ends).ok());
            let mtu = path.as_ref().filter(|_| leads_there).and_then(|path| path.mtu().ok());
            let before = state.next_hop.path_mtu();
            state.next_hop.set_path_mtu(mtu);
            let after = state.next_hop.path_mtu();
            if before != after {
                tracing::debug!(remote = %ends.1, ?before, ?after, "path MTU");
                has_changed = true;
            }
            self.0.extend(path.map(|path| (ends, path)));
        }
        has_changed
    }
}

/// The kernel's ear for messages about one tunnel's outer packets.
#[derive(Debug)]
struct Path {
    socket: OwnedFd,
    remote: IpAddr,
}

impl Path {
    /// Listens for messages about packets from `local` to `remote`.
    ///
    /// # Errors
    /// When the process may not have raw sockets.
    fn open((local, remote, protocol): Ends) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = if local.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
        let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
        // Packets that the kernel keeps, as before the port is attached, would pile up here.
        set_socket_recv_buffer_size(&socket, 0)?;
        // An end that the host does not have hears of nothing; its route may still have an MTU.
        if let Err(error) = bind(&socket, &SocketAddr::new(local, 0)) {
            tracing::debug!(%local, %error, "no address of this host: nothing will be heard of its path");
        }
        Ok(Self { socket, remote })
    }

    /// The largest packet that the way to the other end carries.
    ///
    /// # Errors
    /// When nothing leads there.
    fn mtu(&self) -> io::Result<u16> {
        // A socket keeps the route that it had when it was connected.
        connect(&self.socket, &SocketAddr::new(self.remote, 0))?;
        let mtu = if self.remote.is_ipv6() { ipv6_mtu(&self.socket)? } else { ip_mtu(&self.socket)? };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}

/// Number of bytes of `rtmsg`.
const ROUTE_HEADER: usize = 12;

/// The number of the interface by which the kernel reaches `address`.
pub(super) fn interface_to(address: IpAddr) -> Result<Option<u32>, Errno> {
    let answers = route_to(address, 0)?;
    let route = answers.first().and_then(|(_, body)| body.get(ROUTE_HEADER..));
    Ok(route.and_then(|route| find(route, libc::RTA_OIF)).and_then(number))
}

/// The kernel's answer to the question for a route to `address`, with flags `RTM_F_*`.
pub(super) fn route_to(address: IpAddr, flags: u32) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
    let (family, bits, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, 32, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, 128, address.octets().to_vec()),
    };
    let mut body = vec![0; ROUTE_HEADER];
    body[..2].copy_from_slice(&[u8::try_from(family).unwrap_or_default(), bits]);
    body[8..ROUTE_HEADER].copy_from_slice(&flags.to_ne_bytes());
    put(&mut body, libc::RTA_DST, &octets);
    Client::open(None)?.ask(libc::RTM_GETROUTE, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// The kernel of this machine answers: its own addresses are on the loopback interface, which is the first.
    #[test]
    fn the_kernel_says_which_interface_leads_to_an_address() {
        assert_eq!(interface_to(Ipv4Addr::LOCALHOST.into()), Ok(Some(1)));
        // A machine without IPv6 has no way there.
        assert_ne!(interface_to(Ipv6Addr::LOCALHOST.into()).unwrap_or(Some(1)), None);
        let whole_network = Ipv4Addr::new(127, 9, 8, 7);
        assert_eq!(interface_to(whole_network.into()), Ok(Some(1)));
    }
}
