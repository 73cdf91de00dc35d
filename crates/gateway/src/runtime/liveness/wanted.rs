//! Sessions that are wanted.

use super::keys::WantedKeys;
use crate::bfd::Settings;
use crate::config::model::Tunnel;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Both ends of a session, ours first, and how far apart they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// Our address.
    pub local: IpAddr,
    /// Address of the remote end.
    pub remote: IpAddr,
    /// True if routers may lie between.
    pub multihop: bool,
}

impl SessionKey {
    /// The session that a tunnel asks for, if it does.
    pub fn of(tunnel: &Tunnel) -> Option<Self> {
        let Tunnel { local, remote, bfd, .. } = tunnel;
        Some(Self { local: *local, remote: *remote, multihop: bfd.as_ref()?.is_multihop() })
    }
}

/// A session that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) settings: Settings,
    pub(super) accepts: Accepts,
    /// Authentication, if there is to be any.
    pub(super) keys: Option<WantedKeys>,
}

/// Packets that a session accepts: without authentication, nothing else beside their addresses shows that they are the
/// other end's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// TTL below which they are refused (RFC 5082).
    pub(super) least_ttl: u8,
    /// Interfaces by which they come; none for any, as over several hops (RFC 5881, 3).
    pub(super) interfaces: Vec<u32>,
}

impl Accepts {
    /// True if packets may come by an interface.
    pub(super) fn is_from(&self, interface: Option<u32>) -> bool {
        self.interfaces.is_empty() || interface.is_some_and(|interface| self.interfaces.contains(&interface))
    }
}
