//! Requests to the kernel.

use polder_devices::netlink::{DUMP, REQUEST, message, put};
use std::net::IpAddr;

/// Objects of one dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Interfaces.
    Links,
    /// Addresses of both families.
    Addresses,
    /// Next hop objects.
    Objects,
    /// Rules of IPv4.
    Rules4,
    /// Rules of IPv6.
    Rules6,
    /// Routes of IPv4, of all tables.
    Routes4,
    /// Routes of IPv6, of all tables.
    Routes6,
    /// Neighbours of IPv4.
    Neighbours4,
    /// Neighbours of IPv6.
    Neighbours6,
}

impl Kind {
    /// All of them; what others refer to comes first.
    pub const ALL: [Self; 9] = [
        Self::Links,
        Self::Addresses,
        Self::Objects,
        Self::Rules4,
        Self::Rules6,
        Self::Routes4,
        Self::Routes6,
        Self::Neighbours4,
        Self::Neighbours6,
    ];

    /// The request for a dump, with that number.
    pub fn dump(self, sequence: u32) -> Vec<u8> {
        let (kind, family, body) = match self {
            Self::Links => (libc::RTM_GETLINK, 0, 16),
            Self::Addresses => (libc::RTM_GETADDR, 0, 8),
            Self::Objects => (RTM_GETNEXTHOP, 0, 8),
            Self::Rules4 => (libc::RTM_GETRULE, AF_INET, 12),
            Self::Rules6 => (libc::RTM_GETRULE, AF_INET6, 12),
            Self::Routes4 => (libc::RTM_GETROUTE, AF_INET, 12),
            Self::Routes6 => (libc::RTM_GETROUTE, AF_INET6, 12),
            Self::Neighbours4 => (libc::RTM_GETNEIGH, AF_INET, 12),
            Self::Neighbours6 => (libc::RTM_GETNEIGH, AF_INET6, 12),
        };
        let mut header = vec![0; body];
        header[0] = family;
        message(kind, REQUEST | DUMP, sequence, &header)
    }
}

/// Makes the kernel resolve a neighbour that it does not know, and check one that it has not heard of for
/// long. `ip neighbour replace ADDRESS dev INTERFACE use` says the same.
pub fn use_neighbour(index: u32, address: IpAddr) -> Vec<u8> {
    let mut body = vec![0; 12];
    body[0] = if address.is_ipv6() { AF_INET6 } else { AF_INET };
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[10] = NTF_USE;
    match address {
        IpAddr::V4(address) => put(&mut body, libc::NDA_DST, &address.octets()),
        IpAddr::V6(address) => put(&mut body, libc::NDA_DST, &address.octets()),
    }
    message(libc::RTM_NEWNEIGH, REQUEST | NLM_F_CREATE | NLM_F_REPLACE, 0, &body)
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_CREATE: u16 = 0x400;
const RTM_GETNEXTHOP: u16 = 106;
const NTF_USE: u8 = 0x01;
