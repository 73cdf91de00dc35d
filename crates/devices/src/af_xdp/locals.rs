//! The tables of a router's port: its doors, and the addresses of this machine, which are not forwarded.

use super::options::Door;
use super::sys::{Map, MapKind};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// What the program of a router's port reads for each packet, besides claims.
#[derive(Debug)]
pub(super) struct Locals {
    pub(super) doors: Set<8>,
    pub(super) local4: Set<4>,
    pub(super) local6: Set<16>,
}

impl Locals {
    /// No door: nothing is taken.
    pub(super) fn new() -> Result<Self, Errno> {
        Ok(Self {
            doors: Set::new("polder_doors", MOST_DOORS)?,
            local4: Set::new("polder_local4", MOST_ADDRESSES)?,
            local6: Set::new("polder_local6", MOST_ADDRESSES)?,
        })
    }

    /// Brings all tables up to date. What is taken in between is taken rightly by the old or the new:
    /// addresses come before doors open and go after these are shut.
    pub(super) fn replace(&self, doors: &[Door], addresses: &[IpAddr]) -> Result<(), Errno> {
        let (mut local4, mut local6) = (BTreeSet::new(), BTreeSet::new());
        for address in addresses {
            match address {
                IpAddr::V4(address) => drop(local4.insert(address.octets())),
                IpAddr::V6(address) => drop(local6.insert(address.octets())),
            }
        }
        let doors = doors.iter().map(|door| key(*door)).collect::<BTreeSet<_>>();
        self.doors.keep(&doors)?;
        self.local4.replace(&local4)?;
        self.local6.replace(&local6)?;
        self.doors.replace(&doors)
    }
}

/// The key of a door as the program makes it.
fn key(Door { mac: [a, b, c, d, e, f], vlan }: Door) -> [u8; 8] {
    let [high, low] = vlan.to_be_bytes();
    [a, b, c, d, e, f, high, low]
}

/// A hash map of the kernel whose values say nothing.
#[derive(Debug)]
pub(super) struct Set<const BYTES: usize> {
    map: Map,
    /// What is in the map.
    entered: Mutex<BTreeSet<[u8; BYTES]>>,
}

impl<const BYTES: usize> Set<BYTES> {
    fn new(name: &str, most: u32) -> Result<Self, Errno> {
        let bytes = u32::try_from(BYTES).map_err(|_| Errno::INVAL)?;
        Ok(Self { map: Map::new(MapKind::Hash, name, bytes, 4, most)?, entered: Mutex::default() })
    }

    /// Makes `wanted` the content. New ones come in before old ones go.
    fn replace(&self, wanted: &BTreeSet<[u8; BYTES]>) -> Result<(), Errno> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for key in wanted.difference(&entered.clone()) {
            self.map.set(key, &[1, 0, 0, 0])?;
            entered.insert(*key);
        }
        drop(entered);
        self.keep(wanted)
    }

    /// Removes what is not wanted.
    fn keep(&self, wanted: &BTreeSet<[u8; BYTES]>) -> Result<(), Errno> {
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for key in entered.difference(wanted).copied().collect::<Vec<_>>() {
            match self.map.remove(&key) {
                Ok(()) | Err(Errno::NOENT) => entered.remove(&key),
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }
}

impl<const BYTES: usize> AsFd for Set<BYTES> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// VLANs that a port can have, and itself.
const MOST_DOORS: u32 = 4096;
/// Addresses that a machine can have, each family.
const MOST_ADDRESSES: u32 = 65_536;
