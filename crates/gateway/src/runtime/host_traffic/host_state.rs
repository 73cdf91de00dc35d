//! Addresses, routes and TCP connections of this host, read only.

use crate::kernel::message::{Address, Content, Item, Target, said};
use crate::runtime::path::{interface_to, route_to};
use polder_devices::netlink::Client;
use polder_devices::netlink::link::{self, Link};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// State of this host, as far as the kernel reports it.
#[derive(Clone, Debug, Default)]
pub(in crate::runtime) struct HostState {
    pub(in crate::runtime) links: Vec<Link>,
    pub(in crate::runtime) addresses: Vec<Address>,
    /// Interfaces of default routes, with their gateway.
    pub(in crate::runtime) default_routes: Vec<(u32, Option<IpAddr>)>,
    /// SSH connection of the caller.
    pub(super) login: Option<Login>,
    /// Established TCP connections.
    pub(super) connections: Vec<Connection>,
}

/// An SSH connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) client: IpAddr,
    pub(super) server: IpAddr,
    /// Index of the interface by which the kernel reaches the client.
    pub(super) way_back: Option<u32>,
}

/// A TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
}

impl HostState {
    /// Reads the host's state, and its connections if addresses of `interfaces` are affected. Missing answers
    /// of the kernel leave fields empty.
    pub(super) fn look<'a>(mut interfaces: impl Iterator<Item = &'a str>) -> Self {
        let mut host = Self {
            login: std::env::var("SSH_CONNECTION").ok().as_deref().and_then(login),
            ..Self::look_at_interfaces()
        };
        let has_addresses = |interface| {
            let silent = host.silent_with(interface);
            host.addresses.iter().any(|own| silent.contains(&own.index))
        };
        // Reading them takes milliseconds.
        if interfaces.any(has_addresses) {
            host.connections = TABLES.into_iter().flat_map(connections).collect();
        }
        host
    }

    /// Reads only interfaces, addresses and default routes.
    pub(in crate::runtime) fn look_at_interfaces() -> Self {
        let Ok(mut client) = Client::open(None) else { return Self::default() };
        let mut dump = |kind, header: &[u8]| client.dump(kind, header).unwrap_or_default();
        let links = dump(libc::RTM_GETLINK, &[0; link::HEADER]);
        let addresses = dump(libc::RTM_GETADDR, &[0; ADDRESS_HEADER]);
        let address = |(kind, body): &(u16, Vec<u8>)| {
            let Content::There(Item::Address(address)) = said(*kind, body) else { return None };
            Some(address)
        };
        Self {
            links: links.iter().filter_map(|(_, body)| Link::parse(body)).collect(),
            addresses: addresses.iter().filter_map(address).collect(),
            default_routes: SOMEWHERE.into_iter().flat_map(default_routes).collect(),
            ..Self::default()
        }
    }

    /// Name of an interface; empty if unknown.
    pub(in crate::runtime) fn name(&self, index: u32) -> &str {
        let link = self.links.iter().find(|link| link.index == index);
        link.map_or("", |link| link.name.as_str())
    }

    /// Interfaces that receive nothing when a port takes all frames of `interface`: itself, interfaces
    /// stacked on it, and its master.
    pub(super) fn silent_with(&self, interface: &str) -> BTreeSet<u32> {
        let first = self.links.iter().filter(|link| link.name == interface).map(|link| link.index);
        // A VRF's members keep their own addresses.
        let is_vrf = |link: &Link| link.kind == "vrf";
        let vrfs =
            self.links.iter().filter(|link| is_vrf(link)).map(|link| link.index).collect::<BTreeSet<_>>();
        let masters = |link: &Link| link.master.filter(|master| !vrfs.contains(master));
        with_uppers(&self.links, first, masters)
    }
}

/// `first` with all interfaces that receive through them: stacked interfaces, and masters as `masters`
/// returns them.
pub(in crate::runtime) fn with_uppers(
    links: &[Link],
    first: impl IntoIterator<Item = u32>,
    masters: impl Fn(&Link) -> Option<u32>,
) -> BTreeSet<u32> {
    let mut uppers = HashMap::<u32, Vec<u32>>::new();
    for link in links {
        // A veth's peer is no lower interface.
        if let Some(lower) = link.lower().filter(|_| is_stacked(link)) {
            uppers.entry(lower).or_default().push(link.index);
        }
        if let Some(master) = masters(link) {
            uppers.entry(link.index).or_default().push(master);
        }
    }
    let (mut found, mut open) = (BTreeSet::new(), first.into_iter().collect::<Vec<_>>());
    while let Some(index) = open.pop() {
        if found.insert(index) {
            open.extend(uppers.get(&index).into_iter().flatten());
        }
    }
    found
}

/// True if an interface receives frames through its lower interface.
pub(in crate::runtime) fn is_stacked(link: &Link) -> bool {
    matches!(link.kind.as_str(), "vlan" | "macvlan" | "macvtap" | "ipvlan" | "ipvtap" | "macsec")
}

/// Interface and gateway of the kernel's route to `somewhere`, if it is a default route.
fn default_routes(somewhere: IpAddr) -> Vec<(u32, Option<IpAddr>)> {
    let answers = route_to(somewhere, FIB_MATCH).unwrap_or_default();
    let Some((kind, body)) = answers.first() else { return Vec::new() };
    let Content::There(Item::Route(key, _, _, target)) = said(*kind, body) else { return Vec::new() };
    if key.prefix.bits() != 0 {
        return Vec::new();
    }
    match target {
        Target::Hops(hops) => hops.into_iter().map(|hop| (hop.index, hop.gateway)).collect(),
        Target::Object(..) => {
            interface_to(somewhere).ok().flatten().map(|index| (index, None)).into_iter().collect()
        }
        Target::Local(_)
        | Target::Broadcast
        | Target::Blackhole
        | Target::Unreachable
        | Target::Prohibit
        | Target::Throw => Vec::new(),
    }
}

/// `SSH_CONNECTION`: address and port of the client, then of the server (ssh(1)).
fn login(text: &str) -> Option<Login> {
    let mut words = text.split(' ');
    let mut address = || {
        let word = words.next()?;
        words.next()?;
        // A link-local address is followed by its interface.
        word.split('%').next()?.parse::<IpAddr>().ok()
    };
    let (client, server) = (address()?, address()?);
    Some(Login { client, server, way_back: interface_to(client).ok().flatten() })
}

/// Established connections of one table.
fn connections(path: &str) -> Vec<Connection> {
    // A large buffer, because the kernel walks its whole table for each read.
    let mut text = String::with_capacity(1 << 16);
    let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    text.lines().skip(1).filter_map(connection).collect()
}

/// Parses a line of /proc/net/tcp: number, local and remote end, state, and unused fields.
fn connection(line: &str) -> Option<Connection> {
    const ESTABLISHED: &str = "01";
    let mut words = line.split_whitespace().skip(1);
    let (local, remote) = (words.next()?, words.next()?);
    let open = Connection { local: end(local)?, remote: end(remote)? };
    let within = open.remote.ip().is_loopback() || open.remote.ip() == open.local.ip();
    (words.next()? == ESTABLISHED && !within).then_some(open)
}

/// Parses an address, as 32-bit words in host byte order, and a port; an IPv4 address may be written as IPv6.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let (words, rest) = address.as_bytes().as_chunks::<8>();
    let word =
        |word: &[u8; 8]| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok().map(u32::to_ne_bytes);
    let words = words.iter().filter(|_| rest.is_empty()).map(word);
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

/// Length of `ifaddrmsg` in bytes.
const ADDRESS_HEADER: usize = 8;
/// `RTM_F_FIB_MATCH`: the kernel returns the matching table entry.
const FIB_MATCH: u32 = 0x2000;
/// Documentation addresses, which only a default route covers (RFC 5737, RFC 3849).
const SOMEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 253)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0xffff, 0, 0, 0, 0xfd)),
];
/// Connection tables of both families in the calling thread's network namespace.
const TABLES: [&str; 2] = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_read_as_the_kernel_writes_them() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue";
        // The kernel prints words in the machine's order.
        let v4 = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
        let line = |state: &str| {
            format!("   0: {}:0016 {}:C35A {state} 00000000:00000000", v4([192, 0, 2, 1]), v4([192, 0, 2, 7]))
        };
        let open = connection(&line("01")).expect("it is open");
        assert_eq!(open.local.to_string(), "192.0.2.1:22");
        assert_eq!(open.remote.to_string(), "192.0.2.7:50010");
        assert_eq!(connection(&line("0A")), None, "it listens");
        assert_eq!(connection(head), None);
        let mapped = [v4([0; 4]), v4([0; 4]), v4([0, 0, 0xff, 0xff]), v4([192, 0, 2, 1])].concat();
        assert_eq!(
            end(&format!("{mapped}:0016")).map(|end| end.to_string()).as_deref(),
            Some("192.0.2.1:22")
        );
        for cut in ["", ":", "00:16", "0102030405:0016", "01020304:", "zz020304:0016"] {
            assert_eq!(end(cut), None, "{cut}");
        }
    }

    #[test]
    fn a_login_is_read_as_ssh_says_it() {
        let found = login("127.0.0.9 50122 127.0.0.1 22").expect("a login");
        let [client, server] = ["127.0.0.9", "127.0.0.1"].map(|text| text.parse::<IpAddr>().expect(text));
        assert_eq!(found, Login { client, server, way_back: Some(1) });
        assert_eq!(login("fe80::7%eth0 1 fe80::1%eth0 22").map(|login| login.server.is_ipv6()), Some(true));
        for cut in ["", "UNKNOWN 65535 UNKNOWN 65535", "192.0.2.7 1", "192.0.2.7 1 192.0.2.1"] {
            assert_eq!(login(cut), None, "{cut}");
        }
    }
}
