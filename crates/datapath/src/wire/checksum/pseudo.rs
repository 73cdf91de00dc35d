//! Pseudo-headers of the checksums of TCP, UDP and ICMPv6.

use super::{Checksum, fold, sum_of};
use crate::wire::IpProtocol;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The addresses that TCP, UDP and ICMPv6 have in their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// RFC 9293, 3.1; RFC 768.
    V4 {
        /// Source of the packet.
        source: Ipv4Addr,
        /// Destination of the packet.
        destination: Ipv4Addr,
    },
    /// RFC 8200, 8.1. With a routing header, the destination is the last one on the way.
    V6 {
        /// Source of the packet.
        source: Ipv6Addr,
        /// Final destination of the packet.
        destination: Ipv6Addr,
    },
}

impl Pseudo {
    /// Addresses of an answer.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::V4 { source, destination } => Self::V4 { source: destination, destination: source },
            Self::V6 { source, destination } => Self::V6 { source: destination, destination: source },
        }
    }

    /// The sum over the pseudo-header of a message of `length` bytes, to which the message is added.
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

    /// [`Pseudo::sum`] over a message that is all in one place, checksum field included.
    #[inline]
    pub fn sum_over(self, protocol: IpProtocol, message: &[u8]) -> Checksum {
        // A message longer than 4 GiB does not exist; its checksum would be wrong, no more.
        self.sum(protocol, u32::try_from(message.len()).unwrap_or(u32::MAX)).with(message)
    }
}
