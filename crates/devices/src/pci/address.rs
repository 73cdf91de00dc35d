//! Address of a device on the machine's PCI buses.

use core::fmt;
use core::str::FromStr;

/// Domain, bus, device and function, written as `0000:00:03.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// Error: a text is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a PCI address has domain, bus, device and function, as in \"0000:00:03.0\"; `lspci -D` shows all addresses"
)]
pub struct NoAddress;

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(formatter, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        let (domain, rest) = text.split_once(':').ok_or(NoAddress)?;
        let (bus, rest) = rest.split_once(':').ok_or(NoAddress)?;
        let (device, function) = rest.split_once('.').ok_or(NoAddress)?;
        let part = |text: &str, digits: usize, most: u32| {
            let is_right = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let number = u32::from_str_radix(text, 16).ok().filter(|&number| is_right && number <= most);
            number.ok_or(NoAddress)
        };
        let byte = |text: &str, digits: usize, most: u32| {
            part(text, digits, most).and_then(|number| u8::try_from(number).map_err(|_| NoAddress))
        };
        let domain = part(domain, domain.len().clamp(4, 8), u32::MAX)?;
        let (bus, device, function) = (byte(bus, 2, 0xff)?, byte(device, 2, 0x1f)?, byte(function, 1, 7)?);
        Ok(Self { domain, bus, device, function })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["0000:00:03.0", "0001:ff:1f.7", "10000:01:00.0"] {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()).as_deref(), Ok(text));
        }
        let upper = "0000:0A:00.0".parse::<Address>().map(|address| address.to_string());
        assert_eq!(upper.as_deref(), Ok("0000:0a:00.0"));
        let wrong =
            ["", "00:03.0", "0000:00:20.0", "0000:00:03.8", "0000:0:3.0", "0:00:03.0", "0000:00:+3.0"];
        for text in wrong {
            assert_eq!(text.parse::<Address>(), Err(NoAddress), "{text}");
        }
    }
}
