//! Link-layer addresses of next hops, from the kernel's neighbour table.
//!
//! An underlay port shares its interface with the kernel, which keeps ARP; so the kernel is asked.
//! A datagram to the discard port makes it resolve an address that it does not know, and keeps an
//! entry fresh that would go stale.

use polder_datapath::wire::MacAddress;
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;

/// The discard service (RFC 863); what arrives there is thrown away.
const DISCARD: u16 = 9;
/// `ATF_COM`: the entry is complete.
const COMPLETE: u32 = 0x2;

/// The complete entries of the kernel's table for one interface.
///
/// # Errors
/// When the table cannot be read.
pub(super) fn table(interface: &str) -> std::io::Result<HashMap<Ipv4Addr, MacAddress>> {
    // The table of the thread's network namespace, which is the gateway's.
    let text = std::fs::read_to_string(Path::new("/proc/thread-self/net/arp"))?;
    Ok(parse(&text, interface))
}

/// Asks the kernel to resolve `address`. That it cannot be reached is no error here: the table says so.
pub(super) fn resolve(address: Ipv4Addr) {
    let sent = UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| socket.send_to(&[], SocketAddrV4::new(address, DISCARD)));
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
