//! The table of tunnels that the program reads for each packet.

use super::options::Claim;
use super::sys::{Map, MapKind};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// The claims of one port, here and in the kernel.
#[derive(Debug)]
pub(super) struct Claims {
    map: Map,
    /// What is in the map.
    entered: Mutex<BTreeSet<Claim>>,
}

impl Claims {
    /// An empty table.
    pub(super) fn new() -> Result<Self, Errno> {
        let map = Map::new(MapKind::Hash, "polder_claims", 8, 4, MOST_CLAIMS)?;
        Ok(Self { map, entered: Mutex::default() })
    }

    /// Makes `claims` the content of the table. New ones come in before old ones go.
    pub(super) fn replace(&self, claims: &[Claim]) -> Result<(), Errno> {
        let wanted = claims.iter().copied().collect::<BTreeSet<_>>();
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for &claim in wanted.difference(&entered.clone()) {
            self.map.set(&key(claim), &[1, 0, 0, 0])?;
            entered.insert(claim);
        }
        for claim in entered.difference(&wanted).copied().collect::<Vec<_>>() {
            match self.map.remove(&key(claim)) {
                Ok(()) | Err(Errno::NOENT) => entered.remove(&claim),
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }
}

impl AsFd for Claims {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

/// The key of the program's table: local address, remote address, as in the packet.
fn key(claim: Claim) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (claim.local.octets(), claim.remote.octets());
    [a, b, c, d, e, f, g, h]
}

/// Tunnels that a port can have.
const MOST_CLAIMS: u32 = 65_536;
