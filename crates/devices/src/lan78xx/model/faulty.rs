//! Faults of a broken adapter: permanent ([`FaultyDevice`]), or once ([`Fault`]).

use super::Adapter;

/// Permanent faults. The kernel's driver in a guest detects each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultyDevice {
    /// The checksum of received frames is wrong.
    pub wrong_checksum: bool,
    /// Received frames are not padded.
    pub no_receive_padding: bool,
    /// The length of received frames does not include the FCS, which is present all the same.
    pub length_without_fcs: bool,
    /// Command words of received frames are big-endian.
    pub big_endian: bool,
    /// Frames to send are expected without padding.
    pub no_transmit_padding: bool,
    /// The interrupt endpoint never reports.
    pub no_interrupts: bool,
    /// The EEPROM stays busy for ever.
    pub eeprom_busy: bool,
    /// No PHY answers on MDIO.
    pub no_phy: bool,
}

/// Fault that occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next bulk-in transfer is truncated to this number of bytes.
    Cut(usize),
    /// The next bulk-in transfer has this byte changed.
    Corrupt {
        /// Position of the byte, modulo the length.
        at: usize,
        /// Its bits that change.
        bits: u8,
    },
    /// The next bulk-in transfer starts with this number of zero bytes.
    Misalign(usize),
    /// The next received frame has these error bits.
    ErrorBits(u32),
    /// The next received frame has this length in its command words.
    Length(u16),
    /// The next received frame has a wrong checksum.
    Checksum,
    /// The next bulk-in transfer reports a length above the request.
    Oversized,
    /// The next bulk-in transfer is longer than requested, and the host detects it.
    Babble,
    /// The next bulk-in transfer ends with STALL.
    StallIn,
    /// The next bulk-out transfer ends with STALL.
    StallOut,
    /// The next bulk-out transfer ends successfully after this number of bytes.
    ShortOut(usize),
    /// The next bulk-out transfer ends with a bus error after this number of bytes.
    ErrorOut(usize),
    /// The next control request ends with STALL.
    StallControl,
    /// The next bulk-in transfer ends with a bus error.
    BusError,
    /// The next bulk-in transfer is empty.
    Empty,
    /// The next interrupt is lost.
    LoseInterrupt,
    /// The next descriptor has one wrong byte.
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
