//! Ethernet addresses as text.

use super::MacAddress;
use core::fmt;
use core::str::FromStr;

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// The text is not six pairs of hexadecimal digits with `:` or `-` between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a MAC address: write six pairs of hexadecimal digits, as in 02:00:5e:10:00:01")]
pub struct BadMacAddress;

impl FromStr for MacAddress {
    type Err = BadMacAddress;

    fn from_str(text: &str) -> Result<Self, BadMacAddress> {
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut pairs = text.split(separator);
        let mut address = [0; 6];
        for byte in &mut address {
            let pair = pairs.next().ok_or(BadMacAddress)?;
            // `from_str_radix` would accept a sign.
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(BadMacAddress);
            }
            *byte = u8::from_str_radix(pair, 16).map_err(|_| BadMacAddress)?;
        }
        if pairs.next().is_some() {
            return Err(BadMacAddress);
        }
        Ok(Self(address))
    }
}
