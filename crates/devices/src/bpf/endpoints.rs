//! The tables of tunnel endpoints that the program reads for each packet, one per family.

use super::sys::{Map, MapKind};
use super::take::{TunnelEndpoint, TunnelFields};
use polder_datapath::tunnel::Ends;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// The tunnel endpoints of one port, here and in the kernel.
#[derive(Debug)]
pub(crate) struct TunnelEndpointMap {
    v4: Map,
    v6: Map,
    /// Content of the maps.
    entered: Mutex<BTreeSet<Key>>,
}

impl TunnelEndpointMap {
    /// Creates empty tables.
    pub(crate) fn new() -> Result<Self, Errno> {
        let v4 = Map::new(MapKind::Hash, "polder_claims", 16, 4, MOST_ENDPOINTS)?;
        let v6 = Map::new(MapKind::Hash, "polder_claims6", 40, 4, MOST_ENDPOINTS_V6)?;
        Ok(Self { v4, v6, entered: Mutex::default() })
    }

    /// Returns the tables' descriptors, for the program.
    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables { v4: self.v4.as_fd(), v6: self.v6.as_fd() }
    }

    /// Makes `endpoints` the content of the tables. New entries are added before old ones are removed.
    pub(crate) fn replace(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        let wanted = endpoints.iter().flat_map(keys).collect::<BTreeSet<_>>();
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for key in wanted.difference(&entered.clone()) {
            let (map, bytes) = self.place(key);
            map.set(bytes, &[1, 0, 0, 0])?;
            entered.insert(*key);
        }
        for key in entered.difference(&wanted).copied().collect::<Vec<_>>() {
            let (map, bytes) = self.place(&key);
            match map.remove(bytes) {
                Ok(()) | Err(Errno::NOENT) => entered.remove(&key),
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }

    /// Returns the table of a key, and the key's bytes.
    fn place<'k>(&self, key: &'k Key) -> (&Map, &'k [u8]) {
        match key {
            Key::V4(bytes) => (&self.v4, bytes),
            Key::V6(bytes) => (&self.v6, bytes),
        }
    }
}

/// Key of a table, as the program builds it from a packet: local address, remote address, selector, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    V4([u8; 16]),
    V6([u8; 40]),
}

/// Returns the keys of a tunnel's packets: its own, and for GRE the key of fragments, which all tunnels
/// between two endpoints share.
fn keys(endpoint: &TunnelEndpoint) -> impl Iterator<Item = Key> {
    let (selector, number, fragment) = match endpoint.fields {
        TunnelFields::Gre { has_frames, key } => {
            let kind = if has_frames { SELECTOR_FRAMES } else { SELECTOR_PACKETS };
            let selector = if key.is_some() { kind | KEYED } else { kind };
            (selector, key.unwrap_or(0), Some((SELECTOR_FRAGMENT, 0)))
        }
        TunnelFields::Ip { protocol } => (SELECTOR_PROTOCOL | i32::from(protocol), 0, None),
        TunnelFields::Vxlan { port, vni } => (i32::from(port.to_be()), vni << 8, None),
    };
    let ends = endpoint.ends;
    [Some((selector, number)), fragment].into_iter().flatten().map(move |(selector, number): (i32, u32)| {
        let fields = [selector.to_ne_bytes(), number.to_be_bytes()].concat();
        match ends {
            Ends::V4 { local, remote } => Key::V4(joined(&[&local.octets(), &remote.octets(), &fields])),
            Ends::V6 { local, remote } => Key::V6(joined(&[&local.octets(), &remote.octets(), &fields])),
        }
    })
}

fn joined<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.iter_mut().zip(parts.iter().copied().flatten()).for_each(|(byte, &part)| *byte = part);
    bytes
}

/// Selectors of a key. For UDP the selector is the destination port in load byte order; the others are above
/// all ports.
pub(crate) const SELECTOR_FRAMES: i32 = 1 << 16;
pub(crate) const SELECTOR_PACKETS: i32 = 2 << 16;
/// Selector of GRE fragments, which have no number.
pub(crate) const SELECTOR_FRAGMENT: i32 = 3 << 16;
/// Selector of packets and fragments that are recognised by their protocol alone, which is in the lowest
/// bits.
pub(crate) const SELECTOR_PROTOCOL: i32 = 4 << 16;
/// Bit of a selector: the number is a GRE key.
pub(crate) const KEYED: i32 = 1 << 24;

/// The tables of one port, for its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'f> {
    pub(crate) v4: BorrowedFd<'f>,
    pub(crate) v6: BorrowedFd<'f>,
}

/// Maximum number of IPv4 keys of a port: two for each tunnel of a gateway, and a reserve.
const MOST_ENDPOINTS: u32 = 65_536;
/// Maximum number of IPv6 keys of a port; a kernel that preallocates takes about 100 bytes for each.
const MOST_ENDPOINTS_V6: u32 = 32_768;
