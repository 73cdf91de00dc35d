//! Sessions that the configuration asks for.

use super::keys::WantedKeys;
use crate::bfd::Settings;
use crate::config::model::Tunnel;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Local and remote address of a session, and whether it is multihop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SessionKey {
    /// Local address.
    pub local: IpAddr,
    /// Remote address.
    pub remote: IpAddr,
    /// True if routers may be between both ends.
    pub multihop: bool,
}

impl SessionKey {
    /// Key of the session that a tunnel's configuration asks for, if any.
    pub fn of(tunnel: &Tunnel) -> Option<Self> {
        let Tunnel { local, remote, bfd, .. } = tunnel;
        Some(Self { local: *local, remote: *remote, multihop: bfd.as_ref()?.is_multihop() })
    }
}

/// A session that the configuration asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) settings: Settings,
    pub(super) accepts: Accepts,
    /// Authentication, if configured.
    pub(super) keys: Option<WantedKeys>,
}

/// Conditions on a session's packets, which without authentication are the only protection against forged
/// ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    /// Minimum TTL (RFC 5082).
    pub(super) least_ttl: u8,
    /// Permitted ingress interfaces; empty for any, as for multihop sessions (RFC 5881, 3).
    pub(super) interfaces: Vec<u32>,
}

impl Accepts {
    /// True if packets may arrive by an interface.
    pub(super) fn is_from(&self, interface: Option<u32>) -> bool {
        self.interfaces.is_empty() || interface.is_some_and(|interface| self.interfaces.contains(&interface))
    }
}
