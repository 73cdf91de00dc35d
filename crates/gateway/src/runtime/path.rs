//! Path MTUs of tunnels, as far as the kernel knows.
//!
//! Outer packets come from no socket, so the kernel would throw away what a narrow router says of
//! them (RFC 1191). A raw socket for the outer protocol with the address of our end makes such messages its own: the
//! kernel checks them, believes nothing below `net.ipv4.route.min_pmtu`, and forgets after
//! `net.ipv4.route.mtu_expires`; for IPv6 (RFC 8201) nothing below 1280 bytes, until
//! `net.ipv6.route.mtu_expires`. What it answers includes an MTU that the route has by configuration.
//! Nothing is sent through the socket or read from it.

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

/// The two addresses of a tunnel, ours first, and the protocol of its outer IP header.
pub(super) type Ends = (IpAddr, IpAddr, u8);

/// Tunnels that are looked at in one call, at most: the others wait for their turn, so that a call takes some
/// milliseconds whatever their number.
pub(super) const MOST_AT_ONCE: usize = 512;

/// The paths of all tunnels.
#[derive(Debug, Default)]
pub(super) struct Paths {
    /// By our address and the protocol of the outer IP header.
    sockets: HashMap<(IpAddr, u8), Sockets>,
    /// Place of the tunnel that is looked at first.
    next: usize,
}

impl Paths {
    /// Brings the path MTU of tunnels up to date, given with their ends and the interface that carries
    /// them; hears no more of the addresses of all others. Returns true if one has changed.
    pub(super) fn refresh(&mut self, tunnels: &[(Ends, &str, &TunnelState)]) -> bool {
        let wanted = tunnels.iter().map(|((local, _, protocol), ..)| (*local, *protocol));
        let wanted = wanted.collect::<HashSet<_>>();
        // An address may come later than the gateway.
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
            // What another interface carries says nothing of this one.
            let found = interface_by(&mut client, ends.1).ok().flatten();
            let leads_there = found.is_some() && found == numbers.of(interface);
            let sockets = self.sockets.get(&(ends.0, ends.2)).filter(|_| leads_there);
            has_changed |= is_news(ends.1, state, sockets.and_then(|sockets| sockets.mtu(ends.1).ok()));
        }
        self.next = (self.next + count).checked_rem(tunnels.len()).unwrap_or(0);
        has_changed
    }
}

/// Takes note of the path MTU to `remote`. Returns true if it has changed.
fn is_news(remote: IpAddr, state: &TunnelState, mtu: Option<u16>) -> bool {
    let before = state.next_hop.path_mtu();
    state.next_hop.set_path_mtu(mtu);
    let after = state.next_hop.path_mtu();
    if before != after {
        tracing::debug!(%remote, ?before, ?after, "path MTU");
    }
    before != after
}

/// Sockets of one of our addresses for one outer protocol.
#[derive(Debug)]
struct Sockets {
    /// The kernel's ear for messages about outer packets to any remote.
    _listening: OwnedFd,
    /// Is connected to one remote after the other.
    asking: OwnedFd,
    /// True if this host has our address.
    are_bound: bool,
}

impl Sockets {
    /// Listens for messages about packets from `local`.
    ///
    /// # Errors
    /// When the process may not have raw sockets.
    fn open(from: (IpAddr, u8)) -> io::Result<Self> {
        let ((_listening, are_bound), (asking, _)) = (raw_socket(from)?, raw_socket(from)?);
        Ok(Self { _listening, asking, are_bound })
    }

    /// The largest packet that the way to the other end carries.
    ///
    /// # Errors
    /// When nothing leads there.
    fn mtu(&self, remote: IpAddr) -> io::Result<u16> {
        // A socket keeps the route that it had when it was connected.
        connect(&self.asking, &SocketAddr::new(remote, 0))?;
        let mtu = if remote.is_ipv6() { ipv6_mtu(&self.asking)? } else { ip_mtu(&self.asking)? };
        Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
    }
}

/// A raw socket of an outer protocol, from which nothing is read, and whether it has our address.
fn raw_socket((local, protocol): (IpAddr, u8)) -> io::Result<(OwnedFd, bool)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = if local.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let socket = socket_with(family, SocketType::RAW, flags, protocol)?;
    // Packets that the kernel keeps, as before the port is attached, would pile up here.
    set_socket_recv_buffer_size(&socket, 0)?;
    // An end that the host does not have hears of nothing; its route may still have an MTU.
    let is_bound = bind(&socket, &SocketAddr::new(local, 0)).is_ok();
    Ok((socket, is_bound))
}

/// Number of bytes of `rtmsg`.
const ROUTE_HEADER: usize = 12;
/// linux/rtnetlink.h; not every C library's bindings have it.
const RTA_VIA: u16 = 18;

/// The number of the interface by which the kernel reaches `address`.
pub(super) fn interface_to(address: IpAddr) -> Result<Option<u32>, Errno> {
    interface_by(&mut Client::open(None)?, address)
}

fn interface_by(client: &mut Client, address: IpAddr) -> Result<Option<u32>, Errno> {
    let answers = ask_route(client, address, 0, &[])?;
    let route = answers.first().and_then(|(_, body)| body.get(ROUTE_HEADER..));
    Ok(route.and_then(|route| find(route, libc::RTA_OIF)).and_then(number))
}

/// The kernel's answer to the question for a route to `address`, with flags `RTM_F_*`.
pub(super) fn route_to(address: IpAddr, flags: u32) -> Result<Vec<(u16, Vec<u8>)>, Errno> {
    ask_route(&mut Client::open(None)?, address, flags, &[])
}

/// Interface and router by which the kernel sends packets from `local` to `remote`, on one interface if it is given.
/// Without a router `remote` is on the link; IPv4 says so too where no route is by the given interface.
pub(super) fn first_hop(
    client: &mut Client,
    interface: Option<u32>,
    (local, remote): (IpAddr, IpAddr),
) -> Option<(u32, Option<IpAddr>)> {
    let (given, local) = (interface.map(u32::to_ne_bytes), octets(local));
    let mut attributes = given.iter().map(|given| (libc::RTA_OIF, &given[..])).collect::<Vec<_>>();
    attributes.push((libc::RTA_SRC, &local));
    let answers = ask_route(client, remote, 0, &attributes).or_else(|_| {
        // Nothing can be asked from an address that this machine does not have.
        attributes.pop();
        ask_route(client, remote, 0, &attributes)
    });
    let answers = answers.ok()?;
    let route = answers.first()?.1.get(ROUTE_HEADER..)?;
    // `rtvia`: two octets of the family, and the address.
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

/// The kernel's answer to the question for a route to `address`, with flags `RTM_F_*` and further attributes.
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
