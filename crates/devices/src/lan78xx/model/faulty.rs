//! Faults of a broken adapter: permanent ([`FaultyDevice`]), or once ([`Fault`]).

use super::Adapter;

/// Permanent faults. Each of them is caught by the kernel's driver in a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultyDevice {
    /// The checksum of received frames is wrong.
    pub wrong_checksum: bool,
    /// Received frames follow each other without padding.
    pub no_receive_padding: bool,
    /// The length of received frames does not count the FCS, which is there all the same.
    pub length_without_fcs: bool,
    /// Command words of received frames are big-endian.
    pub big_endian: bool,
    /// Frames to be sent are expected without padding between them.
    pub no_transmit_padding: bool,
    /// The interrupt endpoint never says anything.
    pub no_interrupts: bool,
    /// The EEPROM stays busy for ever.
    pub eeprom_busy: bool,
    /// No PHY answers on MDIO.
    pub no_phy: bool,
}

/// Fault that occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next bulk-in transfer is cut to this number of bytes.
    Cut(usize),
    /// The next bulk-in transfer has this byte changed.
    Corrupt {
        /// Position of the byte, modulo the length.
        at: usize,
        /// Its bits that change.
        bits: u8,
    },
    /// The next bulk-in transfer begins with this number of zero bytes.
    Misalign(usize),
    /// The next received frame has these error bits.
    ErrorBits(u32),
    /// The next received frame has this length in its command words.
    Length(u16),
    /// The next received frame has a wrong checksum.
    Checksum,
    /// The next bulk-in transfer says that it is longer than was asked for.
    Oversized,
    /// The next bulk-in transfer is longer than was asked for, and the host notices.
    Babble,
    /// The next bulk-in transfer ends with STALL.
    StallIn,
    /// The next bulk-out transfer ends with STALL.
    StallOut,
    /// The next bulk-out transfer ends well, after so many bytes.
    ShortOut(usize),
    /// The next bulk-out transfer ends with an error of the bus, after so many bytes.
    ErrorOut(usize),
    /// The next control request ends with STALL.
    StallControl,
    /// The next bulk-in transfer ends with an error of the bus.
    BusError,
    /// The next bulk-in transfer is empty.
    Empty,
    /// The next interrupt is lost.
    LoseInterrupt,
    /// The next descriptor has one byte wrong.
    Descriptor {
        /// Position of the byte, modulo the length.
        at: usize,
        /// Value of the byte.
        value: u8,
    },
}

impl Adapter {
    /// Takes the first planned fault of a kind.
    pub(super) fn take_fault(&mut self, kind: impl Fn(&Fault) -> bool) -> Option<Fault> {
        if self.faults.is_empty() {
            return None;
        }
        let at = self.faults.iter().position(kind)?;
        self.faults.remove(at)
    }
}
