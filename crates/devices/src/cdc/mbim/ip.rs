//! Addresses of a session, from an IP Configuration answer (MBIM 1.0, 10.5.20).

use super::service::word;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of addresses and servers that are read of a session.
const MOST_ADDRESSES: u32 = 16;

/// Addresses of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpConfiguration {
    /// The session.
    pub session: u32,
    /// Own addresses with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Gateways, at most one of each family.
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    pub servers: Vec<IpAddr>,
    /// MTU of the session, if the network reports it.
    pub mtu: Option<u16>,
}

/// Bits of the configured items.
const ADDRESS: u32 = 1;
const GATEWAY: u32 = 1 << 1;
const SERVERS: u32 = 1 << 2;
const MTU: u32 = 1 << 3;

/// One address family in the information: offsets of its words, and bytes of an address.
struct Family {
    available: usize,
    count: usize,
    gateway: usize,
    servers: usize,
    mtu: usize,
    bytes: usize,
}

const FAMILIES: [Family; 2] = [
    Family { available: 4, count: 12, gateway: 28, servers: 36, mtu: 52, bytes: 4 },
    Family { available: 8, count: 20, gateway: 32, servers: 44, mtu: 56, bytes: 16 },
];

impl IpConfiguration {
    /// Parses the answer; `None` if it is malformed.
    pub fn read(information: &[u8]) -> Option<Self> {
        let mut found = Self { session: word(information, 0)?, ..Self::default() };
        for family in FAMILIES {
            found.read_family(information, &family)?;
        }
        Some(found)
    }

    fn read_family(&mut self, information: &[u8], family: &Family) -> Option<()> {
        let available = word(information, family.available)?;
        if available & ADDRESS != 0 {
            let (count, at) = place(information, family.count)?;
            for index in 0..count {
                let element = own_address(information, at + index * (4 + family.bytes), family.bytes)?;
                self.addresses.push(element);
            }
        }
        if available & GATEWAY != 0 {
            let at = word(information, family.gateway)? as usize;
            self.gateways.push(address(information, at, family.bytes)?);
        }
        if available & SERVERS != 0 {
            let (count, at) = place(information, family.servers)?;
            for index in 0..count {
                self.servers.push(address(information, at + index * family.bytes, family.bytes)?);
            }
        }
        if available & MTU != 0 {
            let mtu = u16::try_from(word(information, family.mtu)?).unwrap_or(u16::MAX);
            self.mtu = Some(self.mtu.map_or(mtu, |other| other.min(mtu)));
        }
        Some(())
    }
}

/// Returns count and offset of a list.
fn place(information: &[u8], at: usize) -> Option<(usize, usize)> {
    let count = word(information, at)?;
    if count > MOST_ADDRESSES {
        return None;
    }
    Some((count as usize, word(information, at + 4)? as usize))
}

/// Returns a valid unicast address, and its prefix length.
fn own_address(information: &[u8], at: usize, bytes: usize) -> Option<(IpAddr, u8)> {
    let bits = u8::try_from(word(information, at)?).ok()?;
    let address = address(information, at + 4, bytes)?;
    let is_stations = !address.is_unspecified() && !address.is_multicast();
    (usize::from(bits) <= 8 * bytes && is_stations).then_some((address, bits))
}

fn address(information: &[u8], at: usize, bytes: usize) -> Option<IpAddr> {
    let rest = information.get(at..)?;
    Some(if bytes == 4 {
        Ipv4Addr::from(*rest.first_chunk::<4>()?).into()
    } else {
        Ipv6Addr::from(*rest.first_chunk::<16>()?).into()
    })
}
