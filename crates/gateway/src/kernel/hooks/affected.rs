//! Connections that are affected by notices of links, addresses, routes and neighbours, because the kernel may forward
//! their packets differently.
//!
//! | notice | affected connections |
//! |---|---|
//! | route | connections with an end in its network |
//! | neighbour with another MAC address, or removed | directions that are sent to that MAC address |
//! | new neighbour, or a neighbour's timer | none |
//! | unchanged link or address, such as a router advertisement that renews an address | none |
//! | any other | all |
//!
//! Source: rtnetlink(7), linux/neighbour.h, linux/if_link.h.

use polder_devices::netlink::{Client, attributes, find, number16};
use rustix::io::Errno;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;

/// Connections that a change affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffectedObjects {
    /// Connections with an end in this network; prefix length in bits.
    Network(IpAddr, u8),
    /// Directions that are sent to this MAC address.
    Neighbour([u8; 6]),
}

/// Connections that a notice affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Affected {
    None,
    Some(AffectedObjects),
    All,
}

/// Links, addresses and neighbours, as last reported.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// MAC address of each neighbour, by interface index and address.
    neighbours: HashMap<Vec<u8>, Vec<u8>>,
    /// True if there were too many neighbours to store.
    forgets: bool,
    /// Hash of the relevant fields of each link and address.
    others: HashMap<Vec<u8>, u64>,
}

impl Known {
    /// Reads the kernel's neighbours.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn read(&mut self) -> Result<(), Errno> {
        for (kind, body) in Client::open(None)?.dump(RTM_GETNEIGH, &[0; 12])? {
            self.neighbour(kind, &body);
        }
        Ok(())
    }

    /// Handles a neighbour notice: `ndmsg`, then attributes.
    pub(super) fn neighbour(&mut self, kind: u16, body: &[u8]) -> Affected {
        let (Some(&family), Some(index), Some(state), Some(rest)) =
            (body.first(), body.get(4..8), body.get(8..10).and_then(number16), body.get(12..))
        else {
            return Affected::All;
        };
        // FDB entries of bridges and VXLAN devices do not affect routing.
        if i32::from(family) == libc::AF_BRIDGE {
            return Affected::None;
        }
        let name = [index, find(rest, NDA_DST).unwrap_or_default()].concat();
        let address = find(rest, NDA_LLADDR).unwrap_or_default();
        if self.neighbours.len() >= MOST {
            self.neighbours.clear();
            self.forgets = true;
        }
        let is_gone = kind == RTM_DELNEIGH || state & NUD_UNUSABLE != 0;
        let before = if is_gone {
            self.neighbours.remove(&name)
        } else {
            self.neighbours.insert(name, address.to_vec())
        };
        match before.as_deref().map(<[u8; 6]>::try_from) {
            Some(Ok(before)) if is_gone || address != before => {
                Affected::Some(AffectedObjects::Neighbour(before))
            }
            None if self.forgets => Affected::All,
            Some(_) | None => Affected::None,
        }
    }

    /// Handles a link notice: `ifinfomsg`, then attributes.
    pub(super) fn link(&mut self, kind: u16, body: &[u8]) -> Affected {
        let (Some(index), Some(flags), Some(rest)) = (body.get(4..8), body.get(8..12), body.get(16..)) else {
            return Affected::All;
        };
        self.other(kind == RTM_DELLINK, [&[0][..], index].concat(), (flags, rest), &LINK)
    }

    /// Handles an address notice: `ifaddrmsg`, then attributes.
    pub(super) fn address(&mut self, kind: u16, body: &[u8]) -> Affected {
        let (Some(head), Some(rest)) = (body.get(..8), body.get(8..)) else { return Affected::All };
        let address = find(rest, IFA_LOCAL).or_else(|| find(rest, IFA_ADDRESS)).unwrap_or_default();
        let name = [&[1][..], head.get(4..8).unwrap_or_default(), address].concat();
        self.other(kind == RTM_DELADDR, name, (head, rest), &[IFA_ADDRESS, IFA_LOCAL, IFA_FLAGS])
    }

    fn other(
        &mut self,
        is_gone: bool,
        name: Vec<u8>,
        (head, rest): (&[u8], &[u8]),
        kinds: &[u16],
    ) -> Affected {
        let mut hash = DefaultHasher::new();
        head.hash(&mut hash);
        for attribute in attributes(rest).filter(|(kind, _)| kinds.contains(kind)) {
            attribute.hash(&mut hash);
        }
        if self.others.len() >= MOST {
            self.others.clear();
        }
        let hash = hash.finish();
        let before = if is_gone { self.others.remove(&name) } else { self.others.insert(name, hash) };
        if !is_gone && before == Some(hash) { Affected::None } else { Affected::All }
    }
}

/// Connections that a route notice affects: `rtmsg`, then attributes.
pub(super) fn route(body: &[u8]) -> Affected {
    let (Some(&[family, bits, ..]), Some(rest)) = (body.first_chunk::<2>(), body.get(12..)) else {
        return Affected::All;
    };
    let to = find(rest, RTA_DST);
    let network = match i32::from(family) {
        libc::AF_INET => to.map_or(Some([0; 4].into()), |to| <[u8; 4]>::try_from(to).ok().map(IpAddr::from)),
        libc::AF_INET6 => {
            to.map_or(Some([0; 16].into()), |to| <[u8; 16]>::try_from(to).ok().map(IpAddr::from))
        }
        _ => None,
    };
    network.map_or(Affected::All, |network| Affected::Some(AffectedObjects::Network(network, bits)))
}

/// Maximum number of stored neighbours, and of links and addresses; the kernel limits neighbours to 1,024 of
/// a family by default.
const MOST: usize = 1 << 16;
/// linux/neighbour.h; `NUD_INCOMPLETE`, `NUD_FAILED`.
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_UNUSABLE: u16 = 0x21;
/// linux/if_link.h: address, name, MTU, lower link, qdisc, master, state, XDP.
const LINK: [u16; 8] = [1, 3, 4, 5, 6, 10, 16, 43];
/// linux/if_addr.h.
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
/// linux/rtnetlink.h.
const RTA_DST: u16 = 1;
const RTM_DELLINK: u16 = 17;
const RTM_DELADDR: u16 = 21;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::netlink::put;
    use proptest::prelude::*;

    const RTM_NEW: u16 = 28;
    const REACHABLE: u16 = 2;
    const FAILED: u16 = 0x20;

    fn attributes(of: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        of.iter().for_each(|(kind, value)| put(&mut body, *kind, value));
        body
    }

    fn neighbour(family: i32, state: u16, address: &[u8]) -> Vec<u8> {
        let [low, high] = state.to_ne_bytes();
        let head = [u8::try_from(family).expect("a byte"), 0, 0, 0, 3, 0, 0, 0, low, high, 0, 0];
        [&head[..], &attributes(&[(NDA_DST, &[192, 0, 2, 1]), (NDA_LLADDR, address)])].concat()
    }

    #[test]
    fn neighbours_touch_the_address_that_they_had() {
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let mut known = Known::default();
        let mut says =
            |kind, state, address: &[u8]| known.neighbour(kind, &neighbour(libc::AF_INET, state, address));
        assert_eq!(says(RTM_NEW, REACHABLE, &one), Affected::None, "a new one");
        assert_eq!(says(RTM_NEW, REACHABLE, &one), Affected::None, "its timer");
        assert_eq!(says(RTM_NEW, REACHABLE, &two), Affected::Some(AffectedObjects::Neighbour(one)));
        assert_eq!(says(RTM_NEW, FAILED, &[]), Affected::Some(AffectedObjects::Neighbour(two)));
        assert_eq!(says(RTM_NEW, FAILED, &[]), Affected::None);
        assert_eq!(says(RTM_DELNEIGH, FAILED, &[]), Affected::None);
        assert_eq!(known.neighbour(RTM_NEW, &neighbour(libc::AF_BRIDGE, REACHABLE, &one)), Affected::None);
        assert_eq!(known.neighbour(RTM_NEW, &[0; 5]), Affected::All);
    }

    #[test]
    fn links_and_addresses_touch_nothing_as_they_were() {
        let mut known = Known::default();
        let link = |flags: u8, mtu: u32, bytes: u8| {
            let head = [0, 0, 0, 0, 3, 0, 0, 0, flags, 0, 0, 0, 0, 0, 0, 0];
            [&head[..], &attributes(&[(4, &mtu.to_ne_bytes()), (23, &[bytes; 8])])].concat()
        };
        assert_eq!(known.link(16, &link(1, 1500, 0)), Affected::All, "a new one");
        assert_eq!(known.link(16, &link(1, 1500, 9)), Affected::None, "its counters");
        assert_eq!(known.link(16, &link(0, 1500, 9)), Affected::All);
        assert_eq!(known.link(16, &link(0, 1400, 9)), Affected::All);
        assert_eq!(known.link(RTM_DELLINK, &link(0, 1400, 9)), Affected::All);
        let address = |bits, valid: u8| {
            let head = [2, bits, 0, 0, 3, 0, 0, 0];
            [&head[..], &attributes(&[(IFA_LOCAL, &[192, 0, 2, 1]), (6, &[valid; 16])])].concat()
        };
        assert_eq!(known.address(20, &address(24, 0)), Affected::All, "a new one");
        assert_eq!(known.address(20, &address(24, 7)), Affected::None, "prolonged");
        assert_eq!(known.address(20, &address(25, 7)), Affected::All);
        assert_eq!(known.address(RTM_DELADDR, &address(25, 7)), Affected::All);
    }

    #[test]
    fn routes_touch_their_network() {
        let body = |family: i32, bits, to: &[u8]| {
            let head = [u8::try_from(family).expect("a byte"), bits, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
            [&head[..], &attributes(&[(RTA_DST, to)])].concat()
        };
        let network = |address: &str, bits| {
            Affected::Some(AffectedObjects::Network(address.parse().expect("an address"), bits))
        };
        assert_eq!(route(&body(libc::AF_INET, 8, &[10, 0, 0, 0])), network("10.0.0.0", 8));
        assert_eq!(route(&[2, 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0]), network("0.0.0.0", 0));
        assert_eq!(route(&body(libc::AF_INET6, 128, &[0; 16])), network("::", 128));
        assert_eq!(route(&body(libc::AF_INET, 8, &[10])), Affected::All);
        assert_eq!(route(&body(libc::AF_MPLS, 20, &[0; 4])), Affected::All);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(body in proptest::collection::vec(any::<u8>(), 0..100), kind in 16_u16..40) {
            let mut known = Known::default();
            known.neighbour(kind, &body);
            known.link(kind, &body);
            known.address(kind, &body);
            route(&body);
        }
    }
}
