//! The local and remote address of a tunnel, both IPv4 or both IPv6.

use super::{IPV4_BYTES, IPV6_BYTES, TunnelId, toobig};
use crate::next_hop::NextHop;
use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Tunnel endpoints: local and remote address; their family is that of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ends {
    /// Outer packets are IPv4 (RFC 2784).
    V4 {
        /// This gateway's address.
        local: Ipv4Addr,
        /// The remote endpoint's address.
        remote: Ipv4Addr,
    },
    /// Outer packets are IPv6 (RFC 7676).
    V6 {
        /// This gateway's address.
        local: Ipv6Addr,
        /// The remote endpoint's address.
        remote: Ipv6Addr,
    },
}

impl Ends {
    /// Endpoints of two addresses; `None` if their families differ.
    pub const fn of(local: IpAddr, remote: IpAddr) -> Option<Self> {
        match (local, remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => Some(Self::V4 { local, remote }),
            (IpAddr::V6(local), IpAddr::V6(remote)) => Some(Self::V6 { local, remote }),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
        }
    }

    /// This gateway's address.
    pub const fn local(self) -> IpAddr {
        match self {
            Self::V4 { local, .. } => IpAddr::V4(local),
            Self::V6 { local, .. } => IpAddr::V6(local),
        }
    }

    /// The remote endpoint's address.
    pub const fn remote(self) -> IpAddr {
        match self {
            Self::V4 { remote, .. } => IpAddr::V4(remote),
            Self::V6 { remote, .. } => IpAddr::V6(remote),
        }
    }

    /// The same tunnel as seen by the remote endpoint.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { local, remote } => Self::V4 { local: remote, remote: local },
            Self::V6 { local, remote } => Self::V6 { local: remote, remote: local },
        }
    }

    /// True if outer packets are IPv6.
    pub const fn is_v6(self) -> bool {
        matches!(self, Self::V6 { .. })
    }

    /// Length of the outer IP header without options, in bytes.
    pub(super) const fn ip_bytes(self) -> u16 {
        match self {
            Self::V4 { .. } => IPV4_BYTES,
            Self::V6 { .. } => IPV6_BYTES,
        }
    }

    /// Minimum path MTU in bytes that is accepted for the family: smaller values are forged or not meant for
    /// this gateway (RFC 8200, 5).
    pub(super) const fn least_path_mtu(self) -> u16 {
        match self {
            Self::V4 { .. } => NextHop::LEAST_PATH_MTU,
            Self::V6 { .. } => toobig::LEAST_MTU_V6,
        }
    }

    /// Hash of endpoints and number: odd multipliers, upper bits of the sum (Dietzfelbinger).
    #[inline(always)]
    pub(super) fn spread(&self, id: TunnelId) -> usize {
        const FIRST: u64 = 0x9e37_79b9_7f4a_7c15;
        const SECOND: u64 = 0xc2b2_ae3d_27d4_eb4f;
        const THIRD: u64 = 0x1656_67b1_9e37_79f9;
        let id = id.bits().wrapping_mul(SECOND);
        let ends = match self {
            Self::V4 { local, remote } => {
                (u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits())).wrapping_mul(FIRST)
            }
            Self::V6 { local, remote } => {
                let fold = |address: &Ipv6Addr| {
                    let [high, low] = halves(address);
                    high.wrapping_mul(THIRD).wrapping_add(low).rotate_left(29)
                };
                fold(local).wrapping_mul(FIRST).wrapping_add(fold(remote).wrapping_mul(THIRD))
            }
        };
        (ends.wrapping_add(id) >> 40) as usize
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
const fn halves(address: &Ipv6Addr) -> [u64; 2] {
    let bits = address.to_bits();
    [(bits >> 64) as u64, bits as u64]
}

impl From<(Ipv4Addr, Ipv4Addr)> for Ends {
    fn from((local, remote): (Ipv4Addr, Ipv4Addr)) -> Self {
        Self::V4 { local, remote }
    }
}

impl From<(Ipv6Addr, Ipv6Addr)> for Ends {
    fn from((local, remote): (Ipv6Addr, Ipv6Addr)) -> Self {
        Self::V6 { local, remote }
    }
}

impl fmt::Display for Ends {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {}", self.local(), self.remote())
    }
}
