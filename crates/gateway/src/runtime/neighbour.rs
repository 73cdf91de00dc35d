//! Link-layer addresses of next hops, from the kernel's neighbour table.
//!
//! An underlay port shares its interface with the kernel, which does ARP and neighbour discovery, so Polder
//! reads the kernel's table. A datagram to the discard port makes the kernel resolve an unknown address, and
//! keeps an entry from going stale. The router resolves neighbours on ports that the kernel does not have;
//! there the datagram reaches Polder by the host's TAP.

use crate::kernel::message::{Content, Item, said};
use polder_datapath::wire::MacAddress;
use polder_devices::netlink::Client;
use rustix::net::netdevice::name_to_index;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};

/// Discard service (RFC 863): the receiver ignores the datagram.
const DISCARD: u16 = 9;
/// Length of `ndmsg` in bytes.
const NEIGHBOUR_HEADER: usize = 12;
/// `NUD_REACHABLE`, `NUD_STALE`, `NUD_DELAY`, `NUD_PROBE`, `NUD_PERMANENT`: states with a valid address.
const VALID: u16 = 0x9e;

/// A snapshot of the kernel's neighbours: each family is dumped at its first look-up.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    families: [Option<HashMap<(u32, IpAddr), MacAddress>>; 2],
    numbers: Numbers,
}

impl Neighbours {
    /// Link-layer address of `address` on an interface, if the kernel knows it.
    pub(super) fn find(&mut self, interface: &str, address: IpAddr) -> Option<MacAddress> {
        let interface = self.numbers.of(interface)?;
        let family = self.families[usize::from(address.is_ipv6())].get_or_insert_with(|| dump(address));
        family.get(&(interface, address)).copied()
    }
}

/// Interface indexes, each looked up once.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<String, Option<u32>>);

impl Numbers {
    /// Index of an interface in the thread's network namespace.
    pub(super) fn of(&mut self, interface: &str) -> Option<u32> {
        if let Some(known) = self.0.get(interface) {
            return *known;
        }
        *self.0.entry(interface.to_owned()).or_insert_with(|| number(interface))
    }
}

/// Dumps the neighbours of the family of `address`, by interface; empty if the kernel refuses.
fn dump(address: IpAddr) -> HashMap<(u32, IpAddr), MacAddress> {
    let mut header = [0; NEIGHBOUR_HEADER];
    header[0] = if address.is_ipv6() { AF_INET6 } else { AF_INET };
    let answers = Client::open(None).and_then(|mut client| client.dump(libc::RTM_GETNEIGH, &header));
    answers.unwrap_or_default().iter().filter_map(|(kind, body)| of_entry(*kind, body)).collect()
}

/// Interface, address and link-layer address of a neighbour message, if the last is valid.
fn of_entry(kind: u16, body: &[u8]) -> Option<((u32, IpAddr), MacAddress)> {
    let Content::There(Item::Neighbour(index, found, neighbour)) = said(kind, body) else { return None };
    let mac = neighbour.mac.filter(|_| neighbour.state & VALID != 0)?;
    Some(((index, found), MacAddress(mac)))
}

/// Index of an interface in the thread's network namespace.
pub(super) fn number(interface: &str) -> Option<u32> {
    // Any socket serves for the ioctl.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    name_to_index(&socket, interface).ok()
}

/// Makes the kernel resolve `address`, by `interface` if it is link-local. An unreachable address is no
/// error: it stays missing in the table.
pub(super) fn resolve(interface: &str, address: IpAddr) {
    let sent = match address {
        IpAddr::V4(address) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.send_to(&[], SocketAddrV4::new(address, DISCARD))),
        IpAddr::V6(address) => {
            // Only a link-local address needs a scope: it may exist on any interface.
            let scope = if address.is_unicast_link_local() { number(interface) } else { None };
            let to = SocketAddrV6::new(address, DISCARD, 0, scope.unwrap_or(0));
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(|socket| socket.send_to(&[], to))
        }
    };
    if let Err(error) = sent {
        tracing::debug!(%address, %error, "cannot request the next hop's link-layer address");
    }
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::netlink::put;

    fn neighbour(interface: u32, state: u16, address: IpAddr, mac: &[u8]) -> Vec<u8> {
        let family = if address.is_ipv6() { AF_INET6 } else { AF_INET };
        let mut body =
            [&[family, 0, 0, 0][..], &interface.to_ne_bytes(), &state.to_ne_bytes(), &[0, 1]].concat();
        put(&mut body, 9, &[1]);
        match address {
            IpAddr::V4(address) => put(&mut body, libc::NDA_DST, &address.octets()),
            IpAddr::V6(address) => put(&mut body, libc::NDA_DST, &address.octets()),
        }
        put(&mut body, libc::NDA_LLADDR, mac);
        body
    }

    #[test]
    fn known_addresses_of_the_interface_alone() {
        let mac = [2, 0, 0, 0, 0, 7];
        for address in ["10.0.0.2", "fe80::1"] {
            let address: IpAddr = address.parse().expect("an address");
            let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
            let found = |body: &[u8]| {
                let entry = of_entry(libc::RTM_NEWNEIGH, body);
                entry.filter(|(at, _)| *at == (3, address)).map(|(_, mac)| mac)
            };
            for state in [2, 4, 8, 0x10, 0x80] {
                assert_eq!(found(&neighbour(3, state, address, &mac)), Some(MacAddress(mac)));
            }
            for state in [0, 1, 0x20, 0x40] {
                assert_eq!(found(&neighbour(3, state, address, &mac)), None, "state {state:#x}");
            }
            assert_eq!(found(&neighbour(4, 2, address, &mac)), None, "another interface");
            assert_eq!(found(&neighbour(3, 2, other, &mac)), None, "another address");
            assert_eq!(found(&neighbour(3, 2, address, &[])), None, "no link-layer address");
            assert_eq!(found(&neighbour(3, 2, address, &mac)[..20]), None, "cut off");
        }
    }

    /// The kernel of this machine answers, whatever there is.
    #[test]
    fn a_neighbour_that_there_is_not_is_not_found() {
        for address in ["192.0.2.77", "2001:db8::77"] {
            assert_eq!(Neighbours::default().find("lo", address.parse().expect("an address")), None);
        }
    }
}
