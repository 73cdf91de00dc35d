//! Address prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address prefix of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    pub(super) bytes: [u8; 16],
    pub(super) bits: u8,
    pub(super) is_v6: bool,
}

/// The prefix is too long for its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a prefix of {bits} bits is too long; IPv4 has 32 bits and IPv6 has 128")]
pub struct BadPrefix {
    bits: u8,
}

impl Prefix {
    /// Prefix of the first `bits` bits of `address`; the other bits are ignored.
    ///
    /// # Errors
    /// [`BadPrefix`] if the family has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Result<Self, BadPrefix> {
        let (mut bytes, is_v6) = match address {
            IpAddr::V4(address) => (widen(address), false),
            IpAddr::V6(address) => (address.octets(), true),
        };
        if bits > if is_v6 { 128 } else { 32 } {
            return Err(BadPrefix { bits });
        }
        for (index, byte) in (0..).zip(&mut bytes) {
            let kept = u32::from(bits).saturating_sub(8 * index);
            *byte &= !0xff_u8.checked_shr(kept).unwrap_or(0);
        }
        Ok(Self { bytes, bits, is_v6 })
    }

    /// First address of the prefix.
    pub fn address(&self) -> IpAddr {
        let [a, b, c, d, ..] = self.bytes;
        if self.is_v6 { Ipv6Addr::from(self.bytes).into() } else { Ipv4Addr::from([a, b, c, d]).into() }
    }

    /// Prefix of a single address.
    pub fn host(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self { bytes: widen(address), bits: 32, is_v6: false },
            IpAddr::V6(address) => Self { bytes: address.octets(), bits: 128, is_v6: true },
        }
    }

    /// True if the prefix is a single address.
    pub fn is_host(&self) -> bool {
        self.bits == if self.is_v6 { 128 } else { 32 }
    }

    /// True if the prefix is IPv6.
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// True if the prefix contains the address.
    pub fn contains(&self, address: IpAddr) -> bool {
        Self::new(address, self.bits).is_ok_and(|prefix| prefix == *self)
    }

    /// Prefix length in bits.
    pub fn bits(&self) -> u8 {
        self.bits
    }
}

fn widen(address: Ipv4Addr) -> [u8; 16] {
    let [a, b, c, d] = address.octets();
    [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}
