//! Descriptors of the adapters, which must have the three endpoints.

use crate::usb::Speed;
use crate::usb::descriptor::{
    self, CONFIGURATION, DEVICE, DEVICE_BYTES, DescriptorError, Descriptors, ENDPOINT, Endpoints,
    FoundEndpoints, INTERFACE, endpoint,
};

/// Microchip (Standard Microsystems).
pub const VENDOR: u16 = 0x0424;

/// Model of the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// USB 3, with PHY.
    Lan7800,
    /// USB 3, RGMII to a PHY on the board.
    Lan7801,
    /// USB 2 (HSIC), with PHY.
    Lan7850,
}

impl Chip {
    /// Returns the product ID, which is also the upper half of the chip's identity register.
    pub const fn product(self) -> u16 {
        match self {
            Self::Lan7800 => 0x7800,
            Self::Lan7801 => 0x7801,
            Self::Lan7850 => 0x7850,
        }
    }

    /// Returns the chip of a product ID.
    pub const fn of_product(product: u16) -> Option<Self> {
        match product {
            0x7800 => Some(Self::Lan7800),
            0x7801 => Some(Self::Lan7801),
            0x7850 => Some(Self::Lan7850),
            _ => None,
        }
    }

    /// Returns the chip of a device.
    pub const fn of(vendor: u16, product: u16) -> Option<Self> {
        if vendor == VENDOR { Self::of_product(product) } else { None }
    }

    /// Returns the name on the package.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan7800 => "LAN7800",
            Self::Lan7801 => "LAN7801",
            Self::Lan7850 => "LAN7850",
        }
    }
}

/// Endpoints of the real device.
pub const ENDPOINTS: Endpoints =
    Endpoints { bulk_in: 0x81, bulk_out: 0x02, interrupt: 0x83, interval: 4, interrupt_packet: 16 };

/// Returns the chip of a device descriptor.
///
/// # Errors
/// [`DescriptorError`] for another device.
pub fn parse_device(bytes: &[u8]) -> Result<Chip, DescriptorError> {
    let (vendor, product) = descriptor::parse_device(bytes)?;
    Chip::of(vendor, product).ok_or(DescriptorError::Unknown { vendor, product })
}

/// Returns the endpoints of a configuration, in any order.
///
/// # Errors
/// [`DescriptorError`] if it is malformed, or an endpoint is missing.
pub fn parse_configuration(bytes: &[u8]) -> Result<Endpoints, DescriptorError> {
    let mut found = FoundEndpoints::default();
    for descriptor in Descriptors::of(bytes)? {
        if let endpoint @ [_, ENDPOINT, ..] = descriptor? {
            found.add(endpoint)?;
        }
    }
    found.complete()
}

/// Returns a device descriptor: manufacturer, product and serial number are strings 1, 2 and 3.
pub fn device(chip: Chip, speed: Speed) -> [u8; DEVICE_BYTES] {
    let ([vendor_0, vendor_1], [product_0, product_1]) = (VENDOR.to_le_bytes(), chip.product().to_le_bytes());
    // USB 2.10 has a BOS; at SuperSpeed the packet size of endpoint 0 is an exponent.
    let (version, packet) = match speed {
        Speed::High => (0x0210_u16, 64),
        Speed::Super => (0x0300, 9),
    };
    let [version_0, version_1] = version.to_le_bytes();
    [
        18, DEVICE, version_0, version_1, 255, 0, 255, packet, vendor_0, vendor_1, product_0, product_1, 0,
        3, 1, 2, 3, 1,
    ]
}

/// Returns the descriptor of the only configuration, with all its descriptors.
pub fn configuration(speed: Speed) -> Vec<u8> {
    let packet = match speed {
        Speed::High => 512_u16,
        Speed::Super => 1024,
    };
    let mut body = vec![9, INTERFACE, 0, 0, 3, 255, 0, 255, 0];
    body.extend(endpoint(speed, ENDPOINTS.bulk_in, 2, packet, 0));
    body.extend(endpoint(speed, ENDPOINTS.bulk_out, 2, packet, 0));
    body.extend(endpoint(speed, ENDPOINTS.interrupt, 3, ENDPOINTS.interrupt_packet, ENDPOINTS.interval));
    let [total_0, total_1] = u16::try_from(9 + body.len()).unwrap_or(u16::MAX).to_le_bytes();
    // Bus-powered. A unit is 2 mA at high speed and 8 mA at SuperSpeed; a port gives 500 or 900 mA.
    let power = match speed {
        Speed::High => 250,
        Speed::Super => 112,
    };
    let mut bytes = vec![9, CONFIGURATION, total_0, total_1, 1, 1, 0, 0xa0, power];
    bytes.extend(body);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_descriptors_are_understood() {
        for speed in [Speed::High, Speed::Super] {
            for chip in [Chip::Lan7800, Chip::Lan7801, Chip::Lan7850] {
                assert_eq!(parse_device(&device(chip, speed)), Ok(chip));
            }
            assert_eq!(parse_configuration(&configuration(speed)), Ok(ENDPOINTS));
        }
        assert_eq!(configuration(Speed::High).len(), 9 + 9 + 3 * 7);
        assert_eq!(configuration(Speed::Super).len(), 9 + 9 + 3 * 13);
    }

    #[test]
    fn other_devices_are_named() {
        let mut other = device(Chip::Lan7800, Speed::High);
        other[10] = 1;
        assert_eq!(parse_device(&other), Ok(Chip::Lan7801));
        other[11] = 0;
        assert_eq!(parse_device(&other), Err(DescriptorError::Unknown { vendor: 0x0424, product: 1 }));
        assert_eq!(parse_device(&other[..17]), Err(DescriptorError::Malformed));
    }

    #[test]
    fn a_configuration_cut_or_changed_anywhere_does_no_harm() {
        let whole = configuration(Speed::Super);
        for length in 0..whole.len() {
            assert!(parse_configuration(&whole[..length]).is_err());
        }
        for at in 0..whole.len() {
            for value in [0, 1, 2, 7, 128, 255] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = parse_configuration(&changed);
            }
        }
        let mut lacking = whole;
        lacking[18 + 2 * 13 + 3] = 2;
        assert_eq!(parse_configuration(&lacking), Err(DescriptorError::Endpoint("interrupt")));
    }
}
