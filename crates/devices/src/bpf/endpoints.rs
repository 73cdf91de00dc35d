//! The tables of tunnels that the program reads for each packet, one for each family.

use super::sys::{Map, MapKind};
use super::take::TunnelEndpoint;
use polder_datapath::tunnel::{Carrier, Ends};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// The endpoints of one port, here and in the kernel.
#[derive(Debug)]
pub(crate) struct TunnelEndpointMap {
    v4: Map,
    v6: Map,
    /// Content of the maps.
    entered: Mutex<BTreeSet<TunnelEndpoint>>,
}

impl TunnelEndpointMap {
    /// Empty tables.
    pub(crate) fn new() -> Result<Self, Errno> {
        let v4 = Map::new(MapKind::Hash, "polder_claims", 12, 4, MOST_ENDPOINTS)?;
        let v6 = Map::new(MapKind::Hash, "polder_claims6", 36, 4, MOST_ENDPOINTS_V6)?;
        Ok(Self { v4, v6, entered: Mutex::default() })
    }

    /// The tables' descriptors, for the program.
    pub(crate) fn tables(&self) -> Tables<'_> {
        Tables { v4: self.v4.as_fd(), v6: self.v6.as_fd() }
    }

    /// Makes `endpoints` the content of the table. New ones come in before old ones go.
    pub(crate) fn replace(&self, endpoints: &[TunnelEndpoint]) -> Result<(), Errno> {
        let wanted = endpoints.iter().copied().collect::<BTreeSet<_>>();
        let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
        for &endpoint in wanted.difference(&entered.clone()) {
            let (map, key) = self.place(endpoint);
            map.set(&key, &[1, 0, 0, 0])?;
            entered.insert(endpoint);
        }
        for endpoint in entered.difference(&wanted).copied().collect::<Vec<_>>() {
            let (map, key) = self.place(endpoint);
            match map.remove(&key) {
                Ok(()) | Err(Errno::NOENT) => entered.remove(&endpoint),
                Err(errno) => return Err(errno),
            };
        }
        Ok(())
    }

    /// The table that an endpoint is in, and its key there: selector, local address, remote address, as in the packet.
    fn place(&self, endpoint: TunnelEndpoint) -> (&Map, Vec<u8>) {
        let selector = selector(endpoint.carrier).to_ne_bytes();
        match endpoint.ends {
            Ends::V4 { local, remote } => (&self.v4, [selector, local.octets(), remote.octets()].concat()),
            Ends::V6 { local, remote } => {
                (&self.v6, [&selector[..], &local.octets(), &remote.octets()].concat())
            }
        }
    }
}

/// The first word of a key: which packets between the two addresses are a tunnel's. A UDP port stands there as a
/// program loads it from a packet; GRE is a number beyond all ports.
pub(crate) const fn selector(carrier: Carrier) -> u32 {
    match carrier {
        Carrier::Gre => 1 << 16,
        Carrier::Udp(port) => port.to_be() as u32,
    }
}

/// The tables of one port for its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tables<'f> {
    pub(crate) v4: BorrowedFd<'f>,
    pub(crate) v6: BorrowedFd<'f>,
}

/// Tunnels over IPv4 that a port can have.
const MOST_ENDPOINTS: u32 = 65_536;
/// Tunnels over IPv6 that a port can have; a kernel that sets memory aside for all of them takes about a
/// hundred bytes for each.
const MOST_ENDPOINTS_V6: u32 = 16_384;
