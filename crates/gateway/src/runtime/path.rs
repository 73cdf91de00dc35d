//! Path MTUs of tunnels, as far as the kernel knows.
//!
//! Outer packets come from no socket, so the kernel would ignore ICMP messages about them (RFC 1191). A raw
//! socket for the outer protocol, bound to the local address, makes the kernel process them: it ignores
//! values below `net.ipv4.route.min_pmtu`, and forgets them after `net.ipv4.route.mtu_expires`; for IPv6 (RFC
//! 8201) values below 1280 bytes, until `net.ipv6.route.mtu_expires`. The result includes an MTU that the
//! route has by configuration. The socket neither sends nor receives.

use super::neighbour::Numbers;
use polder_datapath::tunnel::TunnelState;
use polder_devices::netlink::{Client, find, number, put};
use rustix::io::Errno;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, socket_with};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

/// Local and remote address of a tunnel, and the protocol of its outer IP header.
pub(super) type Ends = (IpAddr, IpAddr, u8);

/// Maximum number of tunnels for each call, which bounds a call to some milliseconds; the following calls
/// continue with the others.
pub(super) const MOST_AT_ONCE: usize = 512;

/// Sockets for the path MTUs of all tunnels.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By local address and protocol of the outer IP header.
    sockets: HashMap<(IpAddr, u8), Sockets>,
    /// Index of the tunnel that the next call looks at first.
    next: usize,
}

impl Paths {
    /// Updates the path MTU of tunnels, each with its underlay's interface, and closes the sockets of all
    /// other addresses. Returns true if a path MTU changed.
    pub(super) fn refresh(&mut self, tunnels: &[(Ends, &str, &TunnelState)]) -> bool {
        let wanted = tunnels.iter().map(|((local, _, protocol), ..)| (*local, *protocol));
        let wanted = wanted.collect::<HashSet<_>>();
        // The host may receive an address after the gateway has started.
        self.sockets.retain(|key, sockets| wanted.contains(key) && sockets.are_bound);
        for key in wanted {
            if let Entry::Vacant(place) = self.sockets.entry(key)
                && let Ok(sockets) = Sockets::open(key)
            {
                place.insert(sockets);
            }
        }
        let Ok(mut client) = Client::open(None) else { return false };
        let (mut numbers, mut has_changed) = (Numbers::default(), false);
        let count = tunnels.len().min(MOST_AT_ONCE);
        for place in self.next..self.next + count {
            let (ends, interface, state) = tunnels[place % tunnels.len()];
            // Skipped if the route leaves by another interface.
            let found = interface_by(&mut client, ends.1).ok().flatten();
            let leads_there = found.is_some() && found == numbers.of(interface);
            let sockets = self.sockets.get(&(ends.0, ends.2)).filter(|_| leads_there);
            has_changed |= is_news(ends.1, state, sockets.and_then(|sockets| sockets.mtu(ends.1).ok()));
        }
        self.next = (self.next + count).checked_rem(tunnels.len()).unwrap_or(0);
        has_changed
    }
}

/// Stores the path MTU to `remote`. Returns true if it changed.
fn is_news(remote: IpAddr, state: &TunnelState, mtu: Option<u16>) -> bool {
    let before = state.next_hop.path_mtu();
    state.next_hop.set_path_mtu(mtu);
    let after = state.next_hop.path_mtu();
    if before != after {
        tracing::debug!(%remote, ?before, ?after, "path MTU");
    }
    before != after
}

/// Sockets of one local address for one outer protocol.
#[derive(Debug)]
struct Sockets {
    /// Makes the kernel accept ICMP messages about outer packets to any remote.
    _listening: OwnedFd,
    /// Connected to one remote after another, to read its path MTU.
    asking: OwnedFd,
    /// True if this host has the local address.
    are_bound: bool,
}

impl Sockets {
    /// Opens the sockets for outer packets from `local`.
    ///
    /// # Errors
    /// When the process may not open raw sockets.
    fn open(from: (IpAddr, u8)) -> io::Result<Self> {
        let ((_listening, are_bound), (asking, _)) = (raw_socket(from)?, raw_socket(from)?);
        Ok(Self { _listening, asking, are_bound })
    }

    /// Path MTU to `remote`, in bytes.
    ///
    /// # Errors
    /// When there is no route.
    fn mtu(&self, remote: IpAddr) -> io::Result<u16> {
        // Reconnected for each call: a socket keeps the route of its last connect.
        connect(&self.asking, &SocketAddr::new(remote, 0))?;
        let mtu = if remote.is_ipv6() { ipv6_mtu(&self.asking)? } else { ip_mtu(&self.asking)? };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}

/// A raw socket of an outer protocol that nobody reads, and whether it is bound to `local`.
fn raw_socket((local, protocol): (IpAddr, u8)) -> io::Result<(OwnedFd, bool)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = if local.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
    // Packets that the kernel receives before the port is attached would fill the buffer.
    set_socket_recv_buffer_size(&socket, 0)?;
    // Unbound, the socket receives no ICMP messages; its route may still have an MTU.
    let is_bound = bind(&socket, &SocketAddr::new(local, 0)).is_ok();
    Ok((socket, is_bound))
}

/// Length of `rtmsg` in bytes.
const ROUTE_HEADER: usize = 12;
/// linux/rtnetlink.h; missing in the bindings of some C libraries.
const RTA_VIA: u16 = 18;

/// Index of the interface by which the kernel reaches `address`.
pub(super) fn interface_to(address: IpAddr) -> Result<Option<u32>, Errno> {
    interface_by(&mut Client::open(None)?, address)
}

fn interface_by(client: &mut Client, address: IpAddr) -> Result<Option<u32>, Errno> {
    let answers = ask_route(client, address, 0, &[])?;
    let route = answers.first().and_then(|(_, body)| body.get(ROUTE_HEADER..));
    Ok(route.and_then(|route| find(route, libc::RTA_OIF)).and_then(number))
}

/// The kernel's answer to a route look-up for `address`, with flags `RTM_F_*`.
pub(super) fn route_to(address: IpAddr, flags: u32) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
    ask_route(&mut Client::open(None)?, address, flags, &[])
}

/// Interface and router by which the kernel sends packets from `local` to `remote`, on a given interface if
/// there is one. No router means that `remote` is on the link; for IPv4 also that no route leaves by the
/// given interface.
pub(super) fn first_hop(
    client: &mut Client,
    interface: Option<u32>,
    (local, remote): (IpAddr, IpAddr),
) -> Option<(u32, Option<IpAddr>)> {
    let (given, local) = (interface.map(u32::to_ne_bytes), octets(local));
    let mut attributes = given.iter().map(|given| (libc::RTA_OIF, &given[..])).collect::<Vec<_>>();
    attributes.push((libc::RTA_SRC, &local));
    let answers = ask_route(client, remote, 0, &attributes).or_else(|_| {
        // Asked again without a source address, which this host may not have.
        attributes.pop();
        ask_route(client, remote, 0, &attributes)
    });
    let answers = answers.ok()?;
    let route = answers.first()?.1.get(ROUTE_HEADER..)?;
    // `rtvia`: two bytes with the address family, then the address.
    let via = || find(route, RTA_VIA)?.get(2..).and_then(ip_address);
    let router = find(route, libc::RTA_GATEWAY).and_then(ip_address).or_else(via);
    Some((find(route, libc::RTA_OIF).and_then(number)?, router))
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn ip_address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

/// The kernel's answer to a route look-up for `address`, with flags `RTM_F_*` and further attributes.
fn ask_route(
    client: &mut Client,
    address: IpAddr,
    flags: u32,
    attributes: &[(u16, &[u8])],
) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
    let (family, bits) = if address.is_ipv6() { (libc::AF_INET6, 128) } else { (libc::AF_INET, 32) };
    let mut body = vec![0; ROUTE_HEADER];
    body[..2].copy_from_slice(&[u8::try_from(family).unwrap_or_default(), bits]);
    body[8..ROUTE_HEADER].copy_from_slice(&flags.to_ne_bytes());
    put(&mut body, libc::RTA_DST, &octets(address));
    attributes.iter().for_each(|(kind, value)| put(&mut body, *kind, value));
    client.ask(libc::RTM_GETROUTE, &body)
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
