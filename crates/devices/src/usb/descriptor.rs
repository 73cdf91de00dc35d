//! USB descriptors (USB 2.0, 9.6; USB 3.2, 9.6).
//!
//! Every value is checked before use; lengths stay within the received bytes.

use super::transport::Speed;

/// Bytes of a device descriptor.
pub const DEVICE_BYTES: usize = 18;
/// Descriptor type of a device.
pub const DEVICE: u8 = 1;
/// Descriptor type of a configuration.
pub const CONFIGURATION: u8 = 2;
/// Descriptor type of a string.
pub const STRING: u8 = 3;
/// Descriptor type of an interface.
pub const INTERFACE: u8 = 4;
/// Descriptor type of an endpoint.
pub const ENDPOINT: u8 = 5;
/// Descriptor type of an interface association.
pub const ASSOCIATION: u8 = 11;
/// Descriptor type of the binary device object store.
pub const BOS: u8 = 15;
/// Descriptor type of a functional descriptor of an interface's class.
pub const CLASS_INTERFACE: u8 = 0x24;
/// Descriptor type of a SuperSpeed endpoint companion.
pub const COMPANION: u8 = 48;

/// The addresses of the three endpoints of a network function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Endpoint of received frames.
    pub bulk_in: u8,
    /// Endpoint of sent frames.
    pub bulk_out: u8,
    /// Interrupt endpoint.
    pub interrupt: u8,
    /// `bInterval` of the interrupt endpoint: an exponent (USB 2.0, 9.6.6).
    pub interval: u8,
    /// Maximum packet size of the interrupt endpoint, in bytes.
    pub interrupt_packet: u16,
}

impl Endpoints {
    /// Returns all three addresses.
    pub const fn all(self) -> [u8; 3] {
        [self.bulk_in, self.bulk_out, self.interrupt]
    }

    /// Returns the polling interval of the interrupt endpoint in microframes, as in a URB of Linux.
    pub fn microframes(self) -> u32 {
        1 << (self.interval.clamp(1, 16) - 1)
    }
}

/// Reason why descriptors cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// A descriptor is too short, or of another type.
    #[error("a descriptor of the USB device is malformed")]
    Malformed,
    /// The device is of another model.
    #[error("the USB device is {vendor:04x}:{product:04x}, not a LAN7800 (0424:7800), LAN7801 or LAN7850")]
    Unknown {
        /// Vendor ID.
        vendor: u16,
        /// Product ID.
        product: u16,
    },
    /// An endpoint is missing.
    #[error("the USB device's configuration has no {0} endpoint")]
    Endpoint(&'static str),
}

/// Returns vendor ID and product ID of a device descriptor.
///
/// # Errors
/// [`DescriptorError::Malformed`].
pub fn parse_device(bytes: &[u8]) -> Result<(u16, u16), DescriptorError> {
    let descriptor: &[u8; DEVICE_BYTES] = bytes.first_chunk().ok_or(DescriptorError::Malformed)?;
    if usize::from(descriptor[0]) != DEVICE_BYTES || descriptor[1] != DEVICE {
        return Err(DescriptorError::Malformed);
    }
    let vendor = u16::from_le_bytes([descriptor[8], descriptor[9]]);
    let product = u16::from_le_bytes([descriptor[10], descriptor[11]]);
    Ok((vendor, product))
}

/// Returns the total bytes of a configuration, from its first nine bytes.
///
/// # Errors
/// [`DescriptorError::Malformed`].
pub fn configuration_bytes(bytes: &[u8]) -> Result<u16, DescriptorError> {
    match bytes {
        [9, CONFIGURATION, low, high, ..] => Ok(u16::from_le_bytes([*low, *high])),
        _ => Err(DescriptorError::Malformed),
    }
}

/// The descriptors of a configuration, in order; each has at least a length and a type.
#[derive(Clone, Debug)]
pub struct Descriptors<'a> {
    rest: &'a [u8],
}

impl<'a> Descriptors<'a> {
    /// Iterates over a configuration.
    ///
    /// # Errors
    /// [`DescriptorError::Malformed`] if it is none, or incomplete.
    pub fn of(bytes: &'a [u8]) -> Result<Self, DescriptorError> {
        let total = usize::from(configuration_bytes(bytes)?);
        let rest = bytes.get(..total).ok_or(DescriptorError::Malformed)?;
        Ok(Self { rest })
    }
}

impl<'a> Iterator for Descriptors<'a> {
    type Item = Result<&'a [u8], DescriptorError>;

    fn next(&mut self) -> Option<Self::Item> {
        let [length, _, ..] = *self.rest else { return None };
        let length = usize::from(length);
        if length < 2 || length > self.rest.len() {
            self.rest = &[];
            return Some(Err(DescriptorError::Malformed));
        }
        let (descriptor, behind) = self.rest.split_at(length);
        self.rest = behind;
        Some(Ok(descriptor))
    }
}

/// Endpoints of an interface found so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoundEndpoints {
    bulk_in: Option<u8>,
    bulk_out: Option<u8>,
    /// Address, `bInterval`, maximum packet size.
    interrupt: Option<(u8, u8, u16)>,
}

impl FoundEndpoints {
    /// Adds an endpoint descriptor; the first of each kind counts.
    ///
    /// # Errors
    /// [`DescriptorError::Malformed`].
    pub fn add(&mut self, descriptor: &[u8]) -> Result<(), DescriptorError> {
        let [_, _, address, attributes, ..] = *descriptor else { return Err(DescriptorError::Malformed) };
        match (attributes & 3, address & 0x80 != 0) {
            (2, true) => self.bulk_in = self.bulk_in.or(Some(address)),
            (2, false) => self.bulk_out = self.bulk_out.or(Some(address)),
            (3, true) if self.interrupt.is_none() => {
                let interval = descriptor.get(6).copied().unwrap_or(1);
                let packet = match *descriptor {
                    [_, _, _, _, low, high, ..] => u16::from_le_bytes([low, high]) & 0x7ff,
                    _ => 0,
                };
                self.interrupt = Some((address, interval, packet));
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns all three endpoints.
    ///
    /// # Errors
    /// [`DescriptorError::Endpoint`] if one is missing.
    pub fn complete(self) -> Result<Endpoints, DescriptorError> {
        let bulk_in = self.bulk_in.ok_or(DescriptorError::Endpoint("bulk-in"))?;
        let bulk_out = self.bulk_out.ok_or(DescriptorError::Endpoint("bulk-out"))?;
        let (interrupt, interval, interrupt_packet) =
            self.interrupt.ok_or(DescriptorError::Endpoint("interrupt"))?;
        Ok(Endpoints { bulk_in, bulk_out, interrupt, interval, interrupt_packet })
    }
}

/// Returns an endpoint descriptor, with its companion at SuperSpeed.
pub fn endpoint(speed: Speed, address: u8, kind: u8, packet: u16, interval: u8) -> Vec<u8> {
    let [packet_0, packet_1] = packet.to_le_bytes();
    let mut bytes = vec![7, ENDPOINT, address, kind, packet_0, packet_1, interval];
    if speed == Speed::Super {
        let (burst, interval_bytes) = if kind == 2 { (3, [0, 0]) } else { (0, packet.to_le_bytes()) };
        bytes.extend([6, COMPANION, burst, 0, interval_bytes[0], interval_bytes[1]]);
    }
    bytes
}

/// Returns the binary device object store: link power management, SuperSpeed.
pub fn bos() -> [u8; 22] {
    [
        5, BOS, 22, 0, 2, // header, two capabilities
        7, 16, 2, 2, 0, 0, 0, // USB 2.0 extension: link power management
        10, 16, 3, 0, 14, 0, 1, 10, 255, 7, // SuperSpeed: full, high and super speed
    ]
}

/// Returns a string descriptor; for `None` the list of languages, which is string 0.
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

    /// Linux refuses an interrupt URB whose interval is 0, or above 2^15 at SuperSpeed.
    #[test]
    fn every_interval_of_a_descriptor_is_one_that_linux_takes() {
        let endpoints =
            Endpoints { bulk_in: 0x81, bulk_out: 2, interrupt: 0x83, interval: 0, interrupt_packet: 16 };
        let microframes = |interval| Endpoints { interval, ..endpoints }.microframes();
        assert_eq!([0, 1, 4, 16, 255].map(microframes), [1, 1, 8, 1 << 15, 1 << 15]);
    }
}
