//! The tables of a router's port: its ingresses, and the local addresses and prefixes, which are not
//! forwarded.

use super::classify::RouterMaps;
use super::endpoints::Tables;
use super::sys::{Map, MapKind};
use super::take::{Ingress, LocalPrefixes};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// Maps that the program of a router's port reads for each packet, besides tunnel endpoints.
#[derive(Debug)]
pub(crate) struct Locals {
    pub(crate) ingresses: Table<8>,
    pub(crate) local4: Table<4>,
    pub(crate) local6: Table<16>,
    /// Prefixes: length in host byte order, then the address. Mostly empty, and then a look-up costs next to
    /// nothing.
    pub(crate) land4: Table<8>,
    pub(crate) land6: Table<20>,
}

impl Locals {
    /// Creates the tables without an ingress: no packet is taken.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            ingresses: Table::new(MapKind::Hash, "polder_doors", MOST_DOORS)?,
            local4: Table::new(MapKind::Hash, "polder_local4", MOST_ADDRESSES)?,
            local6: Table::new(MapKind::Hash, "polder_local6", MOST_ADDRESSES)?,
            land4: Table::new(MapKind::LongestPrefix, "polder_land4", MOST_ADDRESSES)?,
            land6: Table::new(MapKind::LongestPrefix, "polder_land6", MOST_ADDRESSES)?,
        })
    }

    /// Returns the tables' descriptors, for the program, together with those of tunnels.
    pub(crate) fn maps<'a>(&'a self, endpoints: Tables<'a>) -> RouterMaps<'a> {
        RouterMaps {
            endpoints,
            ingresses: self.ingresses.as_fd(),
            local4: self.local4.as_fd(),
            local6: self.local6.as_fd(),
            land4: self.land4.as_fd(),
            land6: self.land6.as_fd(),
        }
    }

    /// Updates all tables. Packets taken meanwhile match the old or the new state: addresses are added before
    /// ingresses open, and removed after they are closed.
    pub(crate) fn replace(&self, ingresses: &[Ingress], lands: &[LocalPrefixes]) -> Result<(), Errno> {
        let wanted = Wanted::new(ingresses, lands);
        self.ingresses.keep(&wanted.ingresses)?;
        self.local4.replace(&wanted.local4)?;
        self.local6.replace(&wanted.local6)?;
        self.land4.replace(&wanted.land4)?;
        self.land6.replace(&wanted.land6)?;
        self.ingresses.replace(&wanted.ingresses)
    }
}

/// Wanted content of the tables.
#[derive(Debug, Default)]
struct Wanted {
    ingresses: Content<8>,
    local4: Content<4>,
    local6: Content<16>,
    land4: Content<8>,
    land6: Content<20>,
}

impl Wanted {
    fn new(ingresses: &[Ingress], lands: &[LocalPrefixes]) -> Self {
        let mut wanted = Self {
            ingresses: ingresses.iter().map(|ingress| (key(*ingress), KERNELS)).collect(),
            ..Self::default()
        };
        for LocalPrefixes { network, is_kernels } in lands {
            let value = if *is_kernels { KERNELS } else { OURS };
            let bits = network.bits();
            // Local addresses are in tables of their own, which are faster.
            let is_address = network.is_host() && *is_kernels;
            let before = match network.address() {
                IpAddr::V4(address) if is_address => wanted.local4.insert(address.octets(), value),
                IpAddr::V6(address) if is_address => wanted.local6.insert(address.octets(), value),
                IpAddr::V4(address) => wanted.land4.insert(of_network(bits, address.octets()), value),
                IpAddr::V6(address) => wanted.land6.insert(of_network(bits, address.octets()), value),
            };
            debug_assert!(before.is_none_or(|before| before == value), "one value a network");
        }
        wanted
    }
}

/// Returns a prefix in the form of the kernel's tries.
fn of_network<const ADDRESS: usize, const KEY: usize>(bits: u8, address: [u8; ADDRESS]) -> [u8; KEY] {
    let mut key = [0; KEY];
    let (length, rest) = key.split_at_mut(4);
    length.copy_from_slice(&u32::from(bits).to_ne_bytes());
    rest.copy_from_slice(&address);
    key
}

/// Returns the key of an ingress, as the program builds it.
fn key(Ingress { mac: [a, b, c, d, e, f], vlan }: Ingress) -> [u8; 8] {
    let [high, low] = vlan.to_be_bytes();
    [a, b, c, d, e, f, high, low]
}

/// Values by key.
type Content<const BYTES: usize> = BTreeMap<[u8; BYTES], [u8; 4]>;

/// Values of the maps; the program tests for zero.
const KERNELS: [u8; 4] = [1; 4];
const OURS: [u8; 4] = [0; 4];

/// A kernel map with a copy of its content.
#[derive(Debug)]
pub(crate) struct Table<const BYTES: usize> {
    map: Map,
    /// Content of the map.
    entered: Mutex<Content<BYTES>>,
}

impl<const BYTES: usize> Table<BYTES> {
    fn new(kind: MapKind, name: &str, most: u32) -> Result<Self, Errno> {
        let bytes = u32::try_from(BYTES).map_err(|_| Errno::INVAL)?;
        Ok(Self { map: Map::new(kind, name, bytes, 4, most)?, entered: Mutex::default() })
    }

    /// Makes `wanted` the content. New entries are added before old ones are removed.
    fn replace(&self, wanted: &Content<BYTES>) -> Result<(), Errno> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, value) in wanted {
            if entered.get(key) != Some(value) {
                self.map.set(key, value)?;
                entered.insert(*key, *value);
            }
        }
        drop(entered);
        self.keep(wanted)
    }

    /// Removes entries that are not wanted.
    fn keep(&self, wanted: &Content<BYTES>) -> Result<(), Errno> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = entered.keys().filter(|key| !wanted.contains_key(*key)).copied().collect::<Vec<_>>();
        for key in gone {
            match self.map.remove(&key) {
                Ok(()) | Err(Errno::NOENT) => entered.remove(&key),
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }
}

impl<const BYTES: usize> AsFd for Table<BYTES> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// Maximum number of ingresses: a port's VLANs and the port itself, and as many macvlans.
const MOST_DOORS: u32 = 8192;
/// Maximum number of local addresses, per family.
const MOST_ADDRESSES: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use polder_datapath::route::Prefix;

    #[test]
    fn addresses_and_networks_have_tables_of_their_own() {
        let local = |address: &str, bits, is_kernels| LocalPrefixes {
            network: Prefix::new(address.parse().expect("an address"), bits).expect("a network"),
            is_kernels,
        };
        let lands = [
            local("10.0.0.1", 32, true),
            local("10.9.0.0", 16, true),
            local("10.9.8.0", 24, false),
            local("10.9.8.7", 32, false),
            local("fd00::1", 128, true),
            local("fd09::", 32, true),
        ];
        let wanted = Wanted::new(&[], &lands);
        assert_eq!(wanted.local4, Content::from([([10, 0, 0, 1], KERNELS)]));
        assert_eq!(wanted.local6.len(), 1);
        let of = |bits: u32, address: [u8; 4]| -> [u8; 8] {
            [bits.to_ne_bytes(), address].as_flattened().try_into().expect("eight bytes")
        };
        let expected =
            [(of(16, [10, 9, 0, 0]), KERNELS), (of(24, [10, 9, 8, 0]), OURS), (of(32, [10, 9, 8, 7]), OURS)];
        assert_eq!(wanted.land4, Content::from(expected));
        let mut network = [0; 20];
        network[..4].copy_from_slice(&32_u32.to_ne_bytes());
        network[4..6].copy_from_slice(&[0xfd, 9]);
        assert_eq!(wanted.land6, Content::from([(network, KERNELS)]));
    }
}
