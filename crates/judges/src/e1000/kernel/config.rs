//! The PCI configuration space of the device: identity, command, two base addresses, an interrupt pin.
//!
//! Source: PCI Local Bus Specification 3.0, 6.1 and 6.2.5; 8254x SDM, 4.1.

/// Bytes of the space.
const BYTES: usize = 256;
/// Places in it.
const COMMAND: usize = 0x04;
const BARS: [usize; 2] = [0x10, 0x14];
/// Bytes behind the base addresses: registers in memory, and two ports.
const SIZES: [u32; 2] = [0x2_0000, 0x40];
/// Bits of a base address that is a port's.
const IS_PORT: u32 = 1;
/// Bits of the command.
const PORTS: u16 = 0x1;
const MEMORY: u16 = 0x2;
const MASTER: u16 = 0x4;
const INTERRUPT_OFF: u16 = 0x400;

/// Field of the space: place, value after a reset, bits that can be written; all little-endian.
const FIELDS: &[(usize, u32, u32)] = &[
    // 82545EM, copper: Linux changes the throttle of a running device from this one on.
    (0x00, 0x100f_8086, 0),
    // Ports, memory, bus mastering, parity, system errors, interrupt off.
    (0x04, 0, 0x0547),
    // An Ethernet controller, revision 3.
    (0x08, 0x0200_0003, 0),
    // Cache line, latency.
    (0x0c, 0, 0xffff),
    (0x10, 0, !(SIZES[0] - 1)),
    (0x14, IS_PORT, !(SIZES[1] - 1)),
    (0x2c, 0x001e_8086, 0),
    // Line and pin of the interrupt.
    (0x3c, 0x0000_0100, 0xff),
];

/// Place in the device that an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Offset of a register.
    Register(u32),
    /// The port that holds the offset of a register.
    OffsetPort,
    /// The port that is that register.
    ValuePort,
    /// No register of the device.
    Nowhere,
}

/// The space.
#[derive(Clone, Debug)]
pub(super) struct Config {
    bytes: [u8; BYTES],
    writable: [u8; BYTES],
}

impl Config {
    /// The space after a reset.
    pub(super) fn new() -> Self {
        let mut config = Self { bytes: [0; BYTES], writable: [0; BYTES] };
        for &(at, value, writable) in FIELDS {
            config.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            config.writable[at..at + 4].copy_from_slice(&writable.to_le_bytes());
        }
        config
    }

    /// Up to four bytes; ones beyond the end.
    pub(super) fn read(&self, offset: u32, bytes: u32) -> u32 {
        let byte =
            |index: u32| self.bytes.get((offset.saturating_add(index)) as usize).copied().unwrap_or(0xff);
        (0..bytes.min(4)).fold(0, |value, index| value | u32::from(byte(index)) << (8 * index))
    }

    /// Writes up to four bytes, as far as they can be written.
    pub(super) fn write(&mut self, offset: u32, value: u32, bytes: u32) {
        for (index, new) in (0..bytes.min(4)).zip(value.to_le_bytes()) {
            let at = offset.saturating_add(index) as usize;
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *byte = *byte & !mask | new & mask;
            }
        }
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]])
    }

    /// True if the device may reach memory.
    pub(super) fn is_master(&self) -> bool {
        self.command() & MASTER != 0
    }

    /// True if the device may interrupt.
    pub(super) fn may_interrupt(&self) -> bool {
        self.command() & INTERRUPT_OFF == 0
    }

    /// Place in the device that an address of the machine's memory, or of its ports, leads to.
    pub(super) fn place(&self, address: u64, is_memory: bool) -> Place {
        let (bar, decodes) = if is_memory { (0, MEMORY) } else { (1, PORTS) };
        let base = u64::from(self.read(u32::try_from(BARS[bar]).unwrap_or(0), 4) & !(SIZES[bar] - 1));
        let inside = address.checked_sub(base).and_then(|inside| u32::try_from(inside).ok());
        let inside = inside.filter(|inside| *inside < SIZES[bar] && self.command() & decodes != 0);
        match (inside, is_memory) {
            (Some(offset), true) => Place::Register(offset),
            (Some(0), false) => Place::OffsetPort,
            (Some(4), false) => Place::ValuePort,
            (Some(_) | None, _) => Place::Nowhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_as_firmware_does() {
        let mut config = Config::new();
        for (at, wanted) in [(0x10, 0xfffe_0000), (0x14, 0xffff_ffc1), (0x18, 0), (0x28, 0), (0x30, 0)] {
            config.write(at, u32::MAX, 4);
            assert_eq!(config.read(at, 4), wanted, "{at:#x}");
        }
        config.write(0, 0, 4);
        assert_eq!((config.read(0, 2), config.read(2, 2), config.read(0x0a, 2)), (0x8086, 0x100f, 0x0200));
        assert_eq!(
            (config.read(0x3d, 1), config.read(255, 4), config.read(u32::MAX, 4)),
            (1, 0xffff_ff00, u32::MAX)
        );
    }

    #[test]
    fn addresses_lead_to_what_is_decoded() {
        let mut config = Config::new();
        config.write(0x10, 0xfebc_0000, 4);
        config.write(0x14, 0xc000, 4);
        assert_eq!(config.place(0xfebc_0100, true), Place::Nowhere, "nothing is decoded yet");
        assert!(!config.is_master() && config.may_interrupt());
        config.write(4, 0x0407, 2);
        assert!(config.is_master() && !config.may_interrupt());
        assert_eq!(config.place(0xfebc_0100, true), Place::Register(0x100));
        assert_eq!(config.place(0xfebe_0000, true), Place::Nowhere);
        assert_eq!(config.place(0xfebb_ffff, true), Place::Nowhere);
        assert_eq!(
            (config.place(0xc000, false), config.place(0xc004, false)),
            (Place::OffsetPort, Place::ValuePort)
        );
        assert_eq!(
            (config.place(0xc008, false), config.place(0xc000, true)),
            (Place::Nowhere, Place::Nowhere)
        );
    }
}
