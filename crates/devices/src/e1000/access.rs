//! Access to registers, EEPROM and PHY, with deadlines.

use super::regs::{
    CTRL, EEPROM_SUM, EEPROM_WORDS, EERD, EERD_ADDRESS_SHIFT, EERD_DATA_SHIFT, MDIC, MDIC_PHY_SHIFT,
    MDIC_REGISTER_SHIFT, PHY_ADDRESS, Plain, ReadClears, Register, STATUS, WriteOnly, eerd, mdic,
};
use crate::pci::{ALL_ONES, Registers};
use polder_datapath::units::Nanos;
use std::sync::Arc;

/// Interval at which an awaited register is read.
const PAUSE: Nanos = Nanos(50_000);
/// Number of readings before waiting is given up: 50 ms.
const LOOKS: u32 = 1000;

/// Reason why an operation of the device failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// All registers read as ones.
    #[error(
        "the device does not respond: its registers read as all ones; check that it has power and is \
             plugged in"
    )]
    Gone,
    /// An operation did not end in time.
    #[error("the device's {0} did not become ready in time; power it off and on, or reboot")]
    Busy(&'static str),
    /// No PHY answers.
    #[error("no PHY answers on the device's management bus; power it off and on, or reboot")]
    NoPhy,
}

/// A register that can be read.
pub(super) trait Readable {}
impl Readable for Plain {}
impl Readable for ReadClears {}
/// A register that can be written.
pub(super) trait Writable {}
impl Writable for Plain {}
impl Writable for WriteOnly {}

/// The registers of one device.
#[derive(Clone)]
pub(super) struct Access(Arc<dyn Registers>);

impl Access {
    pub(super) fn new(registers: Arc<dyn Registers>) -> Self {
        Self(registers)
    }

    #[inline]
    pub(super) fn read<E: Readable>(&self, register: Register<E>) -> u32 {
        self.0.read32(register.offset)
    }

    #[inline]
    pub(super) fn write<E: Writable>(&self, register: Register<E>, value: u32) {
        self.0.write32(register.offset, value);
    }

    /// Reads a register, and writes it with some bits cleared and some set.
    pub(super) fn modify(&self, register: Register<Plain>, clear: u32, set: u32) {
        let value = self.read(register);
        self.write(register, value & !clear | set);
    }

    pub(super) fn pause(&self, time: Nanos) {
        self.0.pause(time);
    }

    /// True if the device does not answer. `STATUS` has reserved bits that read as zeros.
    pub(super) fn is_gone(&self) -> bool {
        self.read(STATUS) == ALL_ONES
    }

    /// Reads a register until the bits of `mask` have the values of `wanted`.
    pub(super) fn until(
        &self,
        register: Register<Plain>,
        mask: u32,
        wanted: u32,
    ) -> Result<u32, AccessError> {
        for _ in 0..LOOKS {
            let value = self.read(register);
            if value == ALL_ONES && self.is_gone() {
                return Err(AccessError::Gone);
            }
            if value & mask == wanted {
                return Ok(value);
            }
            self.pause(PAUSE);
        }
        Err(AccessError::Busy(register.name))
    }

    /// Resets the device (13.4.1, 14.7); the PHY keeps its link.
    pub(super) fn reset(&self) -> Result<(), AccessError> {
        self.modify(CTRL, 0, super::regs::ctrl::RESET);
        // Registers must not be read for a microsecond; the device loads the EEPROM meanwhile.
        self.pause(RESET);
        self.until(CTRL, super::regs::ctrl::RESET, 0).map(drop)
    }

    /// Returns a word of the EEPROM (13.4.4).
    pub(super) fn read_eeprom(&self, address: u32) -> Result<u16, AccessError> {
        self.write(EERD, address << EERD_ADDRESS_SHIFT | eerd::START);
        let value = self.until(EERD, eerd::DONE, eerd::DONE)?;
        Ok(low_half(value >> EERD_DATA_SHIFT))
    }

    /// Returns all words that the checksum covers, and true if the checksum is right (5.6).
    pub(super) fn read_whole_eeprom(&self) -> Result<([u16; EEPROM_WORDS as usize], bool), AccessError> {
        let mut words = [0; EEPROM_WORDS as usize];
        for (address, word) in (0..).zip(&mut words) {
            *word = self.read_eeprom(address)?;
        }
        let sum = words.iter().fold(0, |sum: u16, &word| sum.wrapping_add(word));
        Ok((words, sum == EEPROM_SUM))
    }

    /// Starts to read a register of the PHY.
    pub(super) fn ask_phy(&self, number: u32) {
        self.write(MDIC, mdic::READ | PHY_ADDRESS << MDIC_PHY_SHIFT | number << MDIC_REGISTER_SHIFT);
    }

    /// Returns the answer of the PHY, if it has arrived.
    pub(super) fn phy_answer(&self) -> Option<Result<u16, AccessError>> {
        let value = self.read(MDIC);
        if value == ALL_ONES {
            return Some(Err(AccessError::Gone));
        }
        (value & mdic::READY != 0).then(|| {
            if value & mdic::ERROR != 0 { Err(AccessError::NoPhy) } else { Ok(low_half(value & mdic::DATA)) }
        })
    }

    /// Reads a register of the PHY.
    pub(super) fn read_phy(&self, number: u32) -> Result<u16, AccessError> {
        self.ask_phy(number);
        self.until(MDIC, mdic::READY, mdic::READY)?;
        self.phy_answer().unwrap_or(Err(AccessError::Busy(MDIC.name)))
    }

    /// Writes a register of the PHY.
    pub(super) fn write_phy(&self, number: u32, value: u16) -> Result<(), AccessError> {
        let place = PHY_ADDRESS << MDIC_PHY_SHIFT | number << MDIC_REGISTER_SHIFT;
        self.write(MDIC, mdic::WRITE | place | u32::from(value));
        let value = self.until(MDIC, mdic::READY, mdic::READY)?;
        if value & mdic::ERROR != 0 { Err(AccessError::NoPhy) } else { Ok(()) }
    }
}

/// Wait after a reset (14.7: the EEPROM is read in less than 2 ms).
const RESET: Nanos = Nanos::from_millis(3);

fn low_half(value: u32) -> u16 {
    u16::try_from(value & 0xffff).unwrap_or(u16::MAX)
}
