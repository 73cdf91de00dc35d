//! Descriptors: what the device says of itself (USB 2.0, 9.6; USB 3.2, 9.6).
//!
//! The driver believes nothing but what it can check: lengths stay within what was received, and the
//! three endpoints must be there.

use super::usb::Speed;

/// Microchip (Standard Microsystems).
pub const VENDOR: u16 = 0x0424;

/// Bytes of a device descriptor.
pub const DEVICE_BYTES: usize = 18;
/// Descriptor type of a device.
pub const DEVICE: u8 = 1;
/// Descriptor type of a configuration.
pub const CONFIGURATION: u8 = 2;
/// Descriptor type of a string.
pub const STRING: u8 = 3;
/// Descriptor type of an interface.
const INTERFACE: u8 = 4;
/// Descriptor type of an endpoint.
const ENDPOINT: u8 = 5;
/// Descriptor type of the binary device object store.
pub const BOS: u8 = 15;
/// Descriptor type of a SuperSpeed endpoint companion.
const COMPANION: u8 = 48;

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
    /// The product number, which is also the upper half of the chip's identity register.
    pub const fn product(self) -> u16 {
        match self {
            Self::Lan7800 => 0x7800,
            Self::Lan7801 => 0x7801,
            Self::Lan7850 => 0x7850,
        }
    }

    /// The chip of a product number.
    pub const fn of_product(product: u16) -> Option<Self> {
        match product {
            0x7800 => Some(Self::Lan7800),
            0x7801 => Some(Self::Lan7801),
            0x7850 => Some(Self::Lan7850),
            _ => None,
        }
    }

    /// The name on the package.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lan7800 => "LAN7800",
            Self::Lan7801 => "LAN7801",
            Self::Lan7850 => "LAN7850",
        }
    }
}

/// The addresses of the three endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Received frames.
    pub bulk_in: u8,
    /// Frames to be sent.
    pub bulk_out: u8,
    /// Interrupts.
    pub interrupt: u8,
    /// `bInterval` of the interrupt endpoint: an exponent (USB 2.0, 9.6.6).
    pub interval: u8,
}

impl Endpoints {
    /// All three.
    pub const fn all(self) -> [u8; 3] {
        [self.bulk_in, self.bulk_out, self.interrupt]
    }

    /// Polling interval of the interrupt endpoint, in microframes, as a URB of Linux has it.
    pub fn microframes(self) -> u32 {
        1 << (self.interval.clamp(1, 16) - 1)
    }
}

/// As the device has them.
pub const ENDPOINTS: Endpoints = Endpoints { bulk_in: 0x81, bulk_out: 0x02, interrupt: 0x83, interval: 4 };

/// Reason why a device is not one that this driver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// Too short, or of another type.
    #[error("the device's descriptor is malformed")]
    Malformed,
    /// Another device.
    #[error("the device is {vendor:04x}:{product:04x}, not a LAN7800 (0424:7800), LAN7801 or LAN7850")]
    Unknown {
        /// Its vendor.
        vendor: u16,
        /// Its product.
        product: u16,
    },
    /// An endpoint is missing.
    #[error("the device's configuration lacks a {0} endpoint")]
    Endpoint(&'static str),
}

/// Chip of a device descriptor.
///
/// # Errors
/// [`DescriptorError`] when it is none of ours.
pub fn parse_device(bytes: &[u8]) -> Result<Chip, DescriptorError> {
    let descriptor: &[u8; DEVICE_BYTES] = bytes.first_chunk().ok_or(DescriptorError::Malformed)?;
    if usize::from(descriptor[0]) != DEVICE_BYTES || descriptor[1] != DEVICE {
        return Err(DescriptorError::Malformed);
    }
    let vendor = u16::from_le_bytes([descriptor[8], descriptor[9]]);
    let product = u16::from_le_bytes([descriptor[10], descriptor[11]]);
    let chip = if vendor == VENDOR { Chip::of_product(product) } else { None };
    chip.ok_or(DescriptorError::Unknown { vendor, product })
}

/// The endpoints of a configuration, in whatever order they stand.
///
/// # Errors
/// [`DescriptorError`] when it is malformed, or an endpoint is missing.
pub fn parse_configuration(bytes: &[u8]) -> Result<Endpoints, DescriptorError> {
    let total = match bytes {
        [9, CONFIGURATION, low, high, ..] => usize::from(u16::from_le_bytes([*low, *high])),
        _ => return Err(DescriptorError::Malformed),
    };
    let mut rest = bytes.get(..total).ok_or(DescriptorError::Malformed)?;
    let (mut bulk_in, mut bulk_out, mut interrupt) = (None, None, None);
    let mut interval = 1;
    while let [length, kind, ..] = *rest {
        let length = usize::from(length);
        if length < 2 || length > rest.len() {
            return Err(DescriptorError::Malformed);
        }
        let (descriptor, behind) = rest.split_at(length);
        rest = behind;
        if kind != ENDPOINT {
            continue;
        }
        let [_, _, address, attributes, ..] = *descriptor else { return Err(DescriptorError::Malformed) };
        match (attributes & 3, address & 0x80 != 0) {
            (2, true) => bulk_in = bulk_in.or(Some(address)),
            (2, false) => bulk_out = bulk_out.or(Some(address)),
            (3, true) if interrupt.is_none() => {
                interrupt = Some(address);
                interval = descriptor.get(6).copied().unwrap_or(1);
            }
            _ => {}
        }
    }
    Ok(Endpoints {
        bulk_in: bulk_in.ok_or(DescriptorError::Endpoint("bulk-in"))?,
        bulk_out: bulk_out.ok_or(DescriptorError::Endpoint("bulk-out"))?,
        interrupt: interrupt.ok_or(DescriptorError::Endpoint("interrupt"))?,
        interval,
    })
}

/// The descriptor of a device: manufacturer, product and serial number are strings 1, 2 and 3.
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

/// The descriptor of the one configuration, with all that belongs to it.
pub fn configuration(speed: Speed) -> Vec<u8> {
    let packet = match speed {
        Speed::High => 512_u16,
        Speed::Super => 1024,
    };
    let endpoints = [
        (ENDPOINTS.bulk_in, 2, packet, 0),
        (ENDPOINTS.bulk_out, 2, packet, 0),
        (ENDPOINTS.interrupt, 3, 16, ENDPOINTS.interval),
    ];
    let mut body = vec![9, INTERFACE, 0, 0, 3, 255, 0, 255, 0];
    for (address, kind, packet, interval) in endpoints {
        let [packet_0, packet_1] = packet.to_le_bytes();
        body.extend([7, ENDPOINT, address, kind, packet_0, packet_1, interval]);
        if speed == Speed::Super {
            let (burst, bytes) = if kind == 2 { (3, 0) } else { (0, 16) };
            body.extend([6, COMPANION, burst, 0, bytes, 0]);
        }
    }
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

/// The binary device object store: link power management, SuperSpeed.
pub fn bos() -> [u8; 22] {
    [
        5, BOS, 22, 0, 2, // header, two capabilities
        7, 16, 2, 2, 0, 0, 0, // USB 2.0 extension: link power management
        10, 16, 3, 0, 14, 0, 1, 10, 255, 7, // SuperSpeed: full, high and super speed
    ]
}

/// A string, or the list of languages as string 0.
pub fn string(text: Option<&str>) -> Vec<u8> {
    let words: Vec<u16> = text.map_or_else(|| vec![0x0409], |text| text.encode_utf16().collect());
    // A descriptor has at most 255 bytes.
    let words = &words[..words.len().min(126)];
    let length = u8::try_from(2 + 2 * words.len()).unwrap_or(u8::MAX);
    let mut bytes = vec![length, STRING];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
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

    /// Linux refuses an interrupt URB whose interval is 0, or above 2^15 at SuperSpeed.
    #[test]
    fn every_interval_of_a_descriptor_is_one_that_linux_takes() {
        let microframes = |interval| Endpoints { interval, ..ENDPOINTS }.microframes();
        assert_eq!([0, 1, 4, 16, 255].map(microframes), [1, 1, 8, 1 << 15, 1 << 15]);
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
