//! What the paths of tunnels carry, as far as the kernel knows.
//!
//! Outer packets come from no socket, so the kernel would throw away what a narrow router says of
//! them (RFC 1191). A raw socket for the outer protocol between the ends of a tunnel makes such messages its own: the
//! kernel checks them, believes nothing below `net.ipv4.route.min_pmtu`, and forgets after
//! `net.ipv4.route.mtu_expires`; for IPv6 (RFC 8201) nothing below 1280 bytes, until
//! `net.ipv6.route.mtu_expires`. What it answers includes an MTU that the route has by configuration.
//! Nothing is sent through the socket or read from it.

use polder_datapath::tunnel::TunnelState;
use rustix::net::sockopt::{ip_mtu, ipv6_mtu, set_socket_recv_buffer_size};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, socket_with};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

/// The two addresses of a tunnel, ours first, and the protocol of its outer IP header.
pub(super) type Ends = (IpAddr, IpAddr, u8);

/// The paths of all tunnels.
#[derive(Debug, Default)]
pub(super) struct Paths(HashMap<Ends, Path>);

impl Paths {
    /// Brings the path MTU of tunnels up to date, given with their ends and the interface that carries
    /// them; forgets the paths of all others.
    pub(super) fn refresh<'a>(
        &mut self,
        tunnels: impl IntoIterator<Item = (Ends, &'a str, &'a TunnelState)>,
    ) {
        let mut known = std::mem::take(&mut self.0);
        for (ends, interface, state) in tunnels {
            // What another interface carries says nothing of this one.
            let leads_there = interface_to(ends.1).ok().flatten().is_some_and(|found| found == interface);
            let path = self.0.remove(&ends).or_else(|| known.remove(&ends)).or_else(|| Path::open(ends).ok());
            let mtu = path.as_ref().filter(|_| leads_there).and_then(|path| path.mtu().ok());
            let before = state.next_hop.path_mtu();
            state.next_hop.set_path_mtu(mtu);
            let after = state.next_hop.path_mtu();
            if before != after {
                tracing::debug!(remote = %ends.1, ?before, ?after, "path MTU");
            }
            self.0.extend(path.map(|path| (ends, path)));
        }
    }
}

/// The kernel's ear for messages about one tunnel's outer packets.
#[derive(Debug)]
struct Path {
    socket: OwnedFd,
    remote: IpAddr,
}

impl Path {
    /// Listens for what is said of packets from `local` to `remote`.
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

/// The interface by which the kernel reaches `address`.
///
/// # Errors
/// When the kernel's table cannot be read.
fn interface_to(address: IpAddr) -> io::Result<Option<String>> {
    // The tables of the thread's network namespace, which is the gateway's.
    let read = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    Ok(match address {
        IpAddr::V4(address) => best_route(&read("route")?, address),
        IpAddr::V6(address) => best_route_v6(&read("ipv6_route")?, address),
    })
}

/// The same as [`best_route`] for IPv6.
fn best_route_v6(text: &str, address: Ipv6Addr) -> Option<String> {
    let routes = text.lines().filter_map(|line| route_v6(line, address));
    let best = routes.max_by_key(|&(prefix, metric, _)| (prefix, u32::MAX - metric));
    best.map(|(_, _, interface)| interface.to_owned())
}

/// Prefix, metric and interface of a line that `address` matches: destination, its prefix length, source,
/// its prefix length, next hop, metric, references, use, flags, interface (all numbers hexadecimal).
fn route_v6(line: &str, address: Ipv6Addr) -> Option<(u32, u32, &str)> {
    /// `RTF_REJECT`: nothing goes there.
    const REJECT: u32 = 0x200;
    let fields = line.split_whitespace().collect::<Vec<_>>();
    let number = |at: usize| u32::from_str_radix(fields.get(at)?, 16).ok();
    let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
    let (prefix, metric, flags) = (number(1).filter(|&prefix| prefix <= 128)?, number(5)?, number(8)?);
    let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
    let leads = address.to_bits() & mask == destination && flags & REJECT == 0;
    leads.then_some((prefix, metric, *fields.get(9)?))
}

/// The interface of the longest prefix, and of those the one of the lowest metric.
fn best_route(text: &str, address: Ipv4Addr) -> Option<String> {
    let routes = text.lines().skip(1).filter_map(|line| route(line, address));
    let best = routes.max_by_key(|&(prefix, metric, _)| (prefix, u32::MAX - metric));
    best.map(|(_, _, interface)| interface.to_owned())
}

/// Prefix, metric and interface of a line that `address` matches: interface, destination, gateway,
/// flags, references, use, metric, mask (proc_net(5)); addresses stand in the machine's byte order.
fn route(line: &str, address: Ipv4Addr) -> Option<(u32, u32, &str)> {
    let fields = line.split_whitespace().collect::<Vec<_>>();
    let hexadecimal = |at: usize| {
        let number = u32::from_str_radix(fields.get(at)?, 16).ok()?;
        Some(u32::from_be_bytes(number.to_ne_bytes()))
    };
    let (destination, mask) = (hexadecimal(1)?, hexadecimal(7)?);
    let metric = fields.get(6)?.parse().ok()?;
    (address.to_bits() & mask == destination).then_some((mask.count_ones(), metric, *fields.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_and_the_lowest_metric() {
        let number = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |interface: &str, to: [u8; 4], mask: [u8; 4], metric: u32| {
            let (to, mask) = (number(to), number(mask));
            format!("{interface}\t{to}\t00000000\t0003\t0\t0\t{metric}\t{mask}\t0\t0\t0\n")
        };
        let text = [
            "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n".to_owned(),
            line("office", [0; 4], [0; 4], 0),
            line("slow", [10, 1, 0, 0], [255, 255, 0, 0], 200),
            line("radio", [10, 1, 0, 0], [255, 255, 0, 0], 100),
            line("peer", [192, 168, 20, 1], [255; 4], 0),
            "garbage\n".to_owned(),
        ]
        .concat();
        let best = |address: [u8; 4]| best_route(&text, address.into());
        assert_eq!(best([10, 1, 2, 3]).as_deref(), Some("radio"));
        assert_eq!(best([192, 168, 20, 1]).as_deref(), Some("peer"));
        assert_eq!(best([192, 168, 20, 2]).as_deref(), Some("office"));
        assert_eq!(best_route("Iface\n", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn the_same_for_ipv6() {
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let line = |to: &str, prefix: u8, metric: u32, flags: u32, interface: &str| {
            let (to, none) = (address(to).to_bits(), 0_u128);
            format!(
                "{to:032x} {prefix:02x} {none:032x} 00 {none:032x} {metric:08x} 00000001 00000000 {flags:08x} {interface}\n"
            )
        };
        let text = [
            line("::", 0, 1024, 3, "office"),
            line("fd00:1::", 32, 200, 1, "slow"),
            line("fd00:1::", 32, 100, 1, "radio"),
            line("fd00:2::7", 128, 0, 1, "peer"),
            line("fd00:3::", 32, 0, 0x201, "lo"),
            line("::", 0, u32::MAX, 0x0020_0200, "lo"),
            "garbage\n".to_owned(),
        ]
        .concat();
        let best = |to: &str| best_route_v6(&text, address(to));
        assert_eq!(best("fd00:1::2").as_deref(), Some("radio"));
        assert_eq!(best("fd00:2::7").as_deref(), Some("peer"));
        assert_eq!(best("fd00:2::8").as_deref(), Some("office"));
        assert_eq!(best("fd00:3::1").as_deref(), Some("office"));
        assert_eq!(best_route_v6("", Ipv6Addr::LOCALHOST), None);
    }
}
