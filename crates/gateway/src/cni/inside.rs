//! The container's network namespace: interface, addresses and routes (network_namespaces(7), rtnetlink(7)).

use super::call::Call;
use super::error::{CHANGED, CniError, ENVIRONMENT, KERNEL};
use super::pair::{self, BY_MAC, NOT_AT_ALL, look, refused, with_flags};
use super::result::{Cidr, Ip, Route, Success};
use crate::kernel::message::{Content, Item, Target, said};
use polder_devices::netlink::link::Link;
use polder_devices::netlink::{Client, put};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Network namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";
/// `IFA_F_NODAD`: no duplicate address detection, because the IPAM plugin assigns each address once.
const NO_DETECTION: u8 = 2;
/// Lengths of `ifaddrmsg` and `rtmsg` in bytes.
const ADDRESS_HEADER: usize = 8;
const ROUTE_HEADER: usize = 12;
/// `RTPROT_STATIC`.
const STATIC: u8 = 4;
/// `RTAX_MTU` and `RTAX_ADVMSS`.
const METRIC_MTU: u16 = 2;
const METRIC_ADVMSS: u16 = 8;

/// A container's network namespace.
pub(super) struct Namespace(File);

impl Namespace {
    /// Opens a namespace other than the plugin's own.
    pub(super) fn open(path: &Path) -> Result<Self, CniError> {
        let wrong =
            |text: String| CniError::new(ENVIRONMENT, format!("CNI_NETNS is {}: {text}", path.display()));
        // Does not block on a FIFO in its place.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|error| wrong(format!("{error}; start the container first")))?;
        let place = |file: std::io::Result<std::fs::Metadata>| file.map(|file| (file.dev(), file.ino())).ok();
        if place(file.metadata()) == place(std::fs::metadata(OWN)) {
            return Err(wrong(
                "this is the namespace of the gateway; give the container one of its own".to_owned(),
            ));
        }
        let namespace = Self(file);
        match namespace.inside(|_| ()) {
            Ok(()) => Ok(namespace),
            Err(Errno::INVAL) => {
                Err(wrong("it is not a network namespace, or the container has ended".to_owned()))
            }
            Err(error) => Err(refused("enter the container's namespace", error)),
        }
    }

    /// File of the namespace.
    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Runs `work` in the namespace, on a thread of its own.
    fn inside<T: Send>(&self, work: impl FnOnce(&mut Client) -> T + Send) -> Result<T, Errno> {
        let enter_and_work = || {
            move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work(&mut Client::open(None)?))
        };
        std::thread::scope(|scope| scope.spawn(enter_and_work).join().unwrap_or(Err(Errno::IO)))
    }

    /// An interface of the container; `None` if it does not exist.
    pub(super) fn look(&self, name: &str) -> Result<Option<Link>, CniError> {
        let found = self.inside(|client| look(client, name)).and_then(|found| found);
        found.map_err(|error| refused("read the container's interfaces", error))
    }

    /// Adds the addresses to the interface, sets it up, and adds the routes.
    pub(super) fn set_up(&self, index: u32, call: &Call, attached: &Success) -> Result<(), CniError> {
        let has_ipv6 = attached.ips.iter().any(|ip| ip.address.address.is_ipv6());
        let name = &call.interface;
        let work = |client: &mut Client| {
            if has_ipv6 {
                // Fails on a kernel without IPv6, which then refuses the address.
                let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "0");
            }
            pair::make_addresses(client, index, if has_ipv6 { BY_MAC } else { NOT_AT_ALL });
            for Ip { address, .. } in &attached.ips {
                let added = client.create(libc::RTM_NEWADDR, &address_body(index, *address));
                added.map_err(|error| refused(&format!("assign {address} to {name}"), error))?;
            }
            let up = client.ask(libc::RTM_NEWLINK, &with_flags(index, libc::IFF_UP));
            up.map_err(|error| refused(&format!("set {name} up"), error))?;
            attached.routes.iter().try_for_each(|route| add_route(client, index, route, attached))
        };
        self.inside(work).map_err(|error| refused("enter the container's namespace", error))?
    }

    /// Makes the kernel announce the interface's addresses, because neighbours may remember another
    /// container's MAC address. Failures are ignored.
    ///
    /// Source: `arp_notify` and `ndisc_notify` of ip-sysctl.rst; setting the same MAC address again triggers
    /// them.
    pub(super) fn announce(&self, link: &Link) {
        let announced = self.inside(|client| {
            for file in ["ipv4/conf/NAME/arp_notify", "ipv6/conf/NAME/ndisc_notify"] {
                let _ = std::fs::write(format!("/proc/sys/net/{}", file.replace("NAME", &link.name)), "1");
            }
            let mut body = with_flags(link.index, 0);
            put(&mut body, libc::IFLA_ADDRESS, &link.mac);
            client.ask(libc::RTM_NEWLINK, &body)
        });
        let _ = announced;
    }

    /// Compares the interface with the result of ADD.
    pub(super) fn compare(&self, link: &Link, attached: &Success) -> Result<(), CniError> {
        let dump = |client: &mut Client| {
            let addresses = client.dump(libc::RTM_GETADDR, &[0; ADDRESS_HEADER])?;
            let routes = client.dump(libc::RTM_GETROUTE, &[0; ROUTE_HEADER])?;
            Ok([addresses, routes].concat())
        };
        let answers = self.inside(dump).and_then(|answers| answers);
        let answers = answers.map_err(|error: Errno| refused("read the container's addresses", error))?;
        let items = answers.iter().filter_map(|(kind, body)| match said(*kind, body) {
            Content::There(item) => Some(item),
            Content::Gone(_) | Content::Settings | Content::Done | Content::Error(_) | Content::Nothing => {
                None
            }
        });
        let items = items.collect::<Vec<_>>();
        let lacks = |what: String| {
            let message = format!("the container's {} has no {what}: call DEL and ADD", link.name);
            Err(CniError::new(CHANGED, message))
        };
        if let Some(ip) =
            attached.ips.iter().find(|ip| !items.iter().any(|item| is_address(item, link.index, ip)))
        {
            return lacks(format!("address {}", ip.address));
        }
        let is_there = |route: &&Route| {
            let hop = next_hop(route, &attached.ips);
            items.iter().any(|item| is_route(item, link.index, route, hop))
        };
        match attached.routes.iter().find(|route| !is_there(route)) {
            Some(route) => lacks(format!("route to {}", route.dst)),
            None => Ok(()),
        }
    }
}

fn add_route(client: &mut Client, index: u32, route: &Route, attached: &Success) -> Result<(), CniError> {
    let body = route_body(index, route, next_hop(route, &attached.ips));
    match client.create(libc::RTM_NEWROUTE, &body) {
        // The first route to a network is used.
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(CniError::new(
            KERNEL,
            format!(
                "cannot add the route to {} ({error}): its next hop has to be in a network of the container",
                route.dst
            ),
        )),
    }
}

/// Next hop of a route: its own, or the gateway of an address.
fn next_hop(route: &Route, ips: &[Ip]) -> Option<IpAddr> {
    let of_family = |ip: &&Ip| ip.address.address.is_ipv4() == route.dst.address.is_ipv4();
    route.gw.or_else(|| ips.iter().filter(of_family).find_map(|ip| ip.gateway))
}

fn is_address(item: &Item, index: u32, ip: &Ip) -> bool {
    let Item::Address(found) = item else { return false };
    (found.index, found.address, found.bits) == (index, ip.address.address, ip.address.bits)
}

fn is_route(item: &Item, index: u32, route: &Route, hop: Option<IpAddr>) -> bool {
    let Item::Route(key, _, _, Target::Hops(hops)) = item else { return false };
    let is_wanted = key.prefix.address() == masked(route.dst) && key.prefix.bits() == route.dst.bits;
    is_wanted && hops.iter().any(|found| found.index == index && found.gateway == hop)
}

/// Network address of a prefix.
fn masked(network: Cidr) -> IpAddr {
    match network.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(network.bits)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(network.bits)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

fn family_of(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    u8::try_from(family).unwrap_or_default()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Body of a request to add an address: `ifaddrmsg`, then attributes.
fn address_body(index: u32, Cidr { address, bits }: Cidr) -> Vec<u8> {
    let flags = if address.is_ipv6() { NO_DETECTION } else { 0 };
    let mut body = vec![family_of(address), bits, flags, 0];
    body.extend(index.to_ne_bytes());
    put(&mut body, libc::IFA_LOCAL, &octets(address));
    put(&mut body, libc::IFA_ADDRESS, &octets(address));
    body
}

/// Body of a request to add a route: `rtmsg`, then attributes.
fn route_body(index: u32, route: &Route, hop: Option<IpAddr>) -> Vec<u8> {
    // Destinations without a next hop are on-link.
    let usual = if hop.is_none() && route.dst.address.is_ipv4() {
        libc::RT_SCOPE_LINK
    } else {
        libc::RT_SCOPE_UNIVERSE
    };
    let table =
        u8::try_from(route.table.unwrap_or(libc::RT_TABLE_MAIN.into())).unwrap_or(libc::RT_TABLE_UNSPEC);
    let mut body = vec![family_of(route.dst.address), route.dst.bits, 0, 0, table, STATIC];
    body.extend([route.scope.unwrap_or(usual), libc::RTN_UNICAST, 0, 0, 0, 0]);
    if route.dst.bits > 0 {
        put(&mut body, libc::RTA_DST, &octets(masked(route.dst)));
    }
    put(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
    if let Some(hop) = hop {
        put(&mut body, libc::RTA_GATEWAY, &octets(hop));
    }
    for (kind, value) in [(libc::RTA_PRIORITY, route.priority), (libc::RTA_TABLE, route.table)] {
        value.into_iter().for_each(|value| put(&mut body, kind, &value.to_ne_bytes()));
    }
    let mut metrics = Vec::new();
    for (kind, value) in [(METRIC_MTU, route.mtu), (METRIC_ADVMSS, route.advmss)] {
        value.into_iter().for_each(|value| put(&mut metrics, kind, &value.to_ne_bytes()));
    }
    if !metrics.is_empty() {
        put(&mut body, libc::RTA_METRICS, &metrics);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(dst: &str, gw: Option<&str>) -> Route {
        let gw = gw.map(|gw| gw.parse().expect("an address"));
        let dst = dst.parse().expect("a network");
        Route { dst, gw, mtu: Some(1400), advmss: None, priority: Some(5), table: None, scope: None }
    }

    #[test]
    fn the_kernel_is_told_the_route_that_check_looks_for() {
        let ips = [Ip {
            interface: None,
            address: "192.0.2.5/24".parse().expect("an address"),
            gateway: "192.0.2.1".parse().ok(),
        }];
        for (dst, gw, hop) in [
            ("0.0.0.0/0", None, Some("192.0.2.1")),
            ("198.51.100.9/24", Some("192.0.2.2"), Some("192.0.2.2")),
            ("2001:db8::/32", None, None),
        ] {
            let route = route(dst, gw);
            let hop = hop.map(|hop| hop.parse().expect("an address"));
            assert_eq!(next_hop(&route, &ips), hop, "{dst}");
            let Content::There(item) = said(libc::RTM_NEWROUTE, &route_body(7, &route, hop)) else {
                panic!("{dst}")
            };
            assert!(is_route(&item, 7, &route, hop) && !is_route(&item, 8, &route, hop), "{item:?}");
        }
    }

    #[test]
    fn the_kernel_is_told_the_address_that_check_looks_for() {
        for text in ["192.0.2.5/24", "2001:db8::5/64"] {
            let address = text.parse().expect("an address");
            let Content::There(item) = said(libc::RTM_NEWADDR, &address_body(7, address)) else {
                panic!("{text}")
            };
            let ip = Ip { interface: None, address, gateway: None };
            assert!(is_address(&item, 7, &ip) && !is_address(&item, 8, &ip), "{item:?}");
        }
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        for (path, why) in
            [("/proc/self/ns/net", "of its own"), ("/proc/self/ns/none", "start the container")]
        {
            let Err(error) = Namespace::open(Path::new(path)) else { panic!("{path}") };
            assert!(error.message.contains(why), "{error}");
        }
        assert!(Namespace::open(Path::new("/proc/self/exe")).is_err());
    }
}
