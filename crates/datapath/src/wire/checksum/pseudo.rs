//! Pseudo-headers of the checksums of TCP, UDP and ICMPv6.

use super::{Checksum, fold, sum_of};
use crate::wire::IpProtocol;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Pseudo-header addresses in the checksums of TCP, UDP and ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// IPv4 (RFC 9293, 3.1; RFC 768).
    V4 {
        /// Source of the packet.
        source: Ipv4Addr,
        /// Destination of the packet.
        destination: Ipv4Addr,
    },
    /// IPv6 (RFC 8200, 8.1). With a routing header, the destination is the last address of the route.
    V6 {
        /// Source of the packet.
        source: Ipv6Addr,
        /// Final destination of the packet.
        destination: Ipv6Addr,
    },
}

impl Pseudo {
    /// Addresses of a reply: source and destination swapped.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { source, destination } => Self::V4 { source: destination, destination: source },
            Self::V6 { source, destination } => Self::V6 { source: destination, destination: source },
        }
    }

    /// Sum over the pseudo-header of a message of `length` bytes; the caller adds the message.
    #[inline]
    pub fn sum(self, protocol: IpProtocol, length: u32) -> Checksum {
        let addresses = match self {
            Self::V4 { source, destination } => {
                u64::from(u32::from_ne_bytes(source.octets()))
                    + u64::from(u32::from_ne_bytes(destination.octets()))
            }
            Self::V6 { source, destination } => {
                u64::from(fold(sum_of(&source.octets()))) + u64::from(fold(sum_of(&destination.octets())))
            }
        };
        let protocol = u64::from(u16::from(protocol.0).to_be());
        Checksum { sum: addresses + protocol + u64::from(length.to_be()), odd: false }
    }

    /// [`Pseudo::sum`] and the sum of a contiguous message, checksum field included.
    #[inline]
    pub fn sum_over(self, protocol: IpProtocol, message: &[u8]) -> Checksum {
        // A message longer than 4 GiB does not exist; its checksum would merely be wrong.
        self.sum(protocol, u32::try_from(message.len()).unwrap_or(u32::MAX)).with(message)
    }
}
