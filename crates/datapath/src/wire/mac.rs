//! Ethernet addresses (IEEE 802).

mod text;

pub use text::BadMacAddress;

/// An Ethernet address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The zero address `00:00:00:00:00:00`.
    pub const ZERO: Self = Self([0; 6]);

    /// True for group addresses, broadcast included.
    #[inline(always)]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 0x01 != 0
    }

    /// True for the broadcast address.
    #[inline]
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == Self::BROADCAST.to_u64()
    }

    /// True if the address is in 01:80:c2:00:00:00 to 01:80:c2:00:00:0f, which bridges never forward (IEEE
    /// 802.1Q, 8.6.3).
    #[inline]
    pub const fn is_reserved_link_local(self) -> bool {
        self.to_u64() & !0x0f == 0x0180_c200_0000
    }

    /// True if the address is locally administered.
    #[inline]
    pub const fn is_local(self) -> bool {
        self.0[0] & 0x02 != 0
    }

    /// True for unicast addresses except zero.
    #[inline]
    pub const fn is_station(self) -> bool {
        !self.is_multicast() && self.to_u64() != 0
    }

    /// The address as a number below 2⁴⁸, first byte most significant.
    #[inline(always)]
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address in the lower 48 bits of `number`.
    #[inline(always)]
    pub const fn from_u64(number: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = number.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_there_and_back() {
        let address = MacAddress([0x02, 0, 0x5e, 0x10, 0xab, 0xff]);
        assert_eq!(address.to_string(), "02:00:5e:10:ab:ff");
        assert_eq!("02:00:5e:10:ab:ff".parse(), Ok(address));
        assert_eq!("02-00-5E-10-AB-FF".parse(), Ok(address));
        assert_eq!(MacAddress::from_u64(address.to_u64()), address);
    }

    #[test]
    fn other_texts_are_refused() {
        let texts = [
            "",
            "02",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "2:0:5e:10:0:1",
            "02:00:5e:10:00:0g",
            "+2:00:5e:10:00:01",
            "02:00:5e-10:00:01",
            "02:00:5e:10:00:01 ",
            "é2:00:5e:10:00:1",
        ];
        for text in texts {
            assert_eq!(text.parse::<MacAddress>(), Err(BadMacAddress), "{text:?}");
        }
    }

    #[test]
    fn kinds() {
        assert!(MacAddress::BROADCAST.is_multicast() && MacAddress::BROADCAST.is_broadcast());
        assert!(!MacAddress([0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]).is_broadcast());
        for last in 0..=0x0f {
            assert!(MacAddress([0x01, 0x80, 0xc2, 0, 0, last]).is_reserved_link_local());
        }
        assert!(!MacAddress([0x01, 0x80, 0xc2, 0, 0, 0x10]).is_reserved_link_local());
        assert!(!MacAddress([0x01, 0x80, 0xc2, 0, 1, 0x00]).is_reserved_link_local());
        assert!(!MacAddress::ZERO.is_station() && MacAddress([2, 0, 0, 0, 0, 0]).is_station());
    }
}
