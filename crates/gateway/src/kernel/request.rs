//! Requests to the kernel over rtnetlink.

use polder_devices::netlink::{DUMP, REQUEST, message, put};
use std::net::IpAddr;

/// Kind of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Interfaces.
    Links,
    /// Addresses of both families.
    Addresses,
    /// Nexthop objects.
    Objects,
    /// IPv4 rules.
    Rules4,
    /// IPv6 rules.
    Rules6,
    /// IPv4 routes of all tables.
    Routes4,
    /// IPv6 routes of all tables.
    Routes6,
    /// IPv4 neighbours.
    Neighbours4,
    /// IPv6 neighbours.
    Neighbours6,
}

impl Kind {
    /// All kinds; items that others refer to come first.
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

    /// Request for a dump, with a sequence number.
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

/// Request that makes the kernel resolve an unknown neighbour, or probe a stale one, like `ip neighbour
/// replace ADDRESS dev INTERFACE use`. With `is_new` it fails if there is an entry.
///
/// An entry that is permanent by then is so no more (`__neigh_update` clears `NUD_PERMANENT`): see
/// [`keep_neighbour`].
pub fn use_neighbour(index: u32, address: IpAddr, is_new: bool) -> Vec<u8> {
    let how = if is_new { NLM_F_EXCL } else { NLM_F_REPLACE };
    message(libc::RTM_NEWNEIGH, REQUEST | NLM_F_CREATE | how, 0, &neighbour(index, address, (0, NTF_USE)))
}

/// Request that makes a neighbour permanent, like `ip neighbour replace ADDRESS lladdr MAC dev INTERFACE`.
pub fn keep_neighbour(index: u32, address: IpAddr, mac: [u8; 6]) -> Vec<u8> {
    let mut body = neighbour(index, address, (NUD_PERMANENT, 0));
    put(&mut body, libc::NDA_LLADDR, &mac);
    message(libc::RTM_NEWNEIGH, REQUEST | NLM_F_CREATE | NLM_F_REPLACE, 0, &body)
}

/// Body of a request about a neighbour, with state and flags.
fn neighbour(index: u32, address: IpAddr, (state, flags): (u16, u8)) -> Vec<u8> {
    let mut body = vec![0; 12];
    body[0] = if address.is_ipv6() { AF_INET6 } else { AF_INET };
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..10].copy_from_slice(&state.to_ne_bytes());
    body[10] = flags;
    match address {
        IpAddr::V4(address) => put(&mut body, libc::NDA_DST, &address.octets()),
        IpAddr::V6(address) => put(&mut body, libc::NDA_DST, &address.octets()),
    }
    body
}

const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const RTM_GETNEXTHOP: u16 = 106;
const NTF_USE: u8 = 0x01;
const NUD_PERMANENT: u16 = 0x80;
