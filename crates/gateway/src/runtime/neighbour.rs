//! Link-layer addresses of next hops, from the kernel's neighbour table.
//!
//! An underlay port shares its interface with the kernel, which keeps ARP and neighbour discovery; so the
//! kernel is asked.
//! A datagram to the discard port makes it resolve an address that it does not know, and keeps an
//! entry fresh that would go stale.

mod v6;

use polder_datapath::wire::MacAddress;
use rustix::net::netdevice::name_to_index;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::path::Path;

/// The discard service (RFC 863); what arrives there is thrown away.
const DISCARD: u16 = 9;
/// `ATF_COM`: the entry is complete.
const COMPLETE: u32 = 0x2;

/// The link-layer address that the kernel knows for `address` on this interface.
pub(super) fn find(interface: &str, address: IpAddr) -> Option<MacAddress> {
    match address {
        IpAddr::V4(address) => table(interface).ok()?.get(&address).copied(),
        IpAddr::V6(address) => v6::table(number(interface)?).ok()?.get(&address).copied(),
    }
}

/// The number of an interface of the thread's network namespace.
fn number(interface: &str) -> Option<u32> {
    // Any socket will do to ask by.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    name_to_index(&socket, interface).ok()
}

/// The complete entries of the kernel's table for one interface.
///
/// # Errors
/// When the table cannot be read.
fn table(interface: &str) -> std::io::Result<HashMap<Ipv4Addr, MacAddress>> {
    // The table of the thread's network namespace, which is the gateway's.
    let text = std::fs::read_to_string(Path::new("/proc/thread-self/net/arp"))?;
    Ok(parse(&text, interface))
}

/// Asks the kernel to resolve `address`, which is on the link of the interface if it is on any. That it
/// cannot be reached is no error here: the table says so.
pub(super) fn resolve(interface: &str, address: IpAddr) {
    let sent = match address {
        IpAddr::V4(address) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.send_to(&[], SocketAddrV4::new(address, DISCARD))),
        IpAddr::V6(address) => {
            // Any interface has such an address.
            let scope = if address.is_unicast_link_local() { number(interface) } else { None };
            let to = SocketAddrV6::new(address, DISCARD, 0, scope.unwrap_or(0));
            UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(|socket| socket.send_to(&[], to))
        }
    };
    if let Err(error) = sent {
        tracing::debug!(%address, %error, "cannot ask for the next hop");
    }
}

fn parse(text: &str, interface: &str) -> HashMap<Ipv4Addr, MacAddress> {
    text.lines().skip(1).filter_map(|line| entry(line, interface)).collect()
}

/// One line: address, hardware type, flags, hardware address, mask, device (proc_net(5)).
fn entry(line: &str, interface: &str) -> Option<(Ipv4Addr, MacAddress)> {
    let mut fields = line.split_whitespace();
    let address = fields.next()?.parse().ok()?;
    let flags = u32::from_str_radix(fields.nth(1)?.strip_prefix("0x")?, 16).ok()?;
    let mac = fields.next()?.parse().ok()?;
    (fields.nth(1)? == interface && flags & COMPLETE != 0).then_some((address, mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_entries_of_the_interface_alone() {
        let text = "IP address       HW type     Flags       HW address            Mask     Device\n\
                    10.0.0.2         0x1         0x2         02:00:00:00:00:07     *        radio\n\
                    10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        radio\n\
                    10.0.0.4         0x1         0x2         02:00:00:00:00:09     *        other\n\
                    garbage\n";
        let table = parse(text, "radio");
        assert_eq!(table.len(), 1);
        assert_eq!(table[&Ipv4Addr::new(10, 0, 0, 2)], MacAddress([2, 0, 0, 0, 0, 7]));
    }
}
