//! The EEPROM's serial port: a driver clocks a command in and a word out, bit by bit.
//!
//! Source: 8254x SDM, 13.4.3 (the port), 5.3 (the EEPROM); Microwire as in 93C46: a start bit, two bits of
//! the operation, six of the address, a word of 16 bits, each transferred at the rising edge of the clock.

use super::super::regs::{EEPROM_WORDS, eecd};

/// Bits of a command, and of its address.
const COMMAND_BITS: u32 = 9;
const ADDRESS_BITS: u32 = 6;
/// Start bit and operation of a read.
const READ: u32 = 0b110;
/// Bits of a word.
const WORD_BITS: u32 = 16;

/// State of the port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SerialPort {
    /// Last written value.
    control: u32,
    /// Bits of the command, and number of clocks since its start bit.
    command: u32,
    clocks: u32,
    /// Output bit of the EEPROM.
    output: bool,
}

impl SerialPort {
    /// Handles a write of the port's register; returns the value that a driver then reads. A `silent` port is
    /// never granted.
    pub(super) fn write(&mut self, value: u32, words: &[u16; EEPROM_WORDS as usize], silent: bool) -> u32 {
        let rises = value & !self.control & eecd::CLOCK != 0;
        self.control = value;
        if value & eecd::SELECT == 0 {
            (self.command, self.clocks, self.output) = (0, 0, false);
        } else if rises {
            self.clock(value & eecd::DATA_IN != 0, words);
        }
        let granted = value & eecd::REQUEST != 0 && !silent;
        let mut said = value & !(eecd::DATA_OUT | eecd::GRANT) | eecd::PRESENT;
        said |= if granted { eecd::GRANT } else { 0 };
        said | if self.output { eecd::DATA_OUT } else { 0 }
    }

    fn clock(&mut self, input: bool, words: &[u16; EEPROM_WORDS as usize]) {
        if self.clocks == 0 && !input {
            // A command starts with a one.
            return;
        }
        self.clocks = self.clocks.saturating_add(1);
        if self.clocks <= COMMAND_BITS {
            self.command = self.command << 1 | u32::from(input);
            return;
        }
        let place = self.clocks - COMMAND_BITS;
        let is_read = self.command >> ADDRESS_BITS == READ && place <= WORD_BITS;
        let word = words[(self.command % EEPROM_WORDS) as usize];
        self.output = is_read && u32::from(word) >> (WORD_BITS - place.min(WORD_BITS)) & 1 != 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clocks bits in, the highest first; returns the bits that came out.
    fn shift(port: &mut SerialPort, words: &[u16; 64], bits: u32, count: u32) -> u32 {
        (0..count).rev().fold(0, |out, place| {
            let data = if bits >> place & 1 != 0 { eecd::DATA_IN } else { 0 };
            let said = port.write(eecd::SELECT | eecd::CLOCK | data, words, false);
            port.write(eecd::SELECT | data, words, false);
            out << 1 | u32::from(said & eecd::DATA_OUT != 0)
        })
    }

    #[test]
    fn words_are_clocked_out() {
        let words = core::array::from_fn(|index| 0x8001_u16.wrapping_mul(u16::try_from(index).unwrap_or(0)));
        let mut port = SerialPort::default();
        for (address, word) in (0..).zip(words) {
            port.write(0, &words, false);
            // Zeros before the start bit mean nothing.
            assert_eq!(shift(&mut port, &words, READ << ADDRESS_BITS | address, COMMAND_BITS + 2), 0);
            assert_eq!(shift(&mut port, &words, 0, WORD_BITS), u32::from(word));
        }
        // Another operation gives nothing.
        port.write(0, &words, false);
        shift(&mut port, &words, 0b101 << ADDRESS_BITS | 3, COMMAND_BITS);
        assert_eq!(shift(&mut port, &words, 0, WORD_BITS), 0);
    }

    #[test]
    fn the_port_is_granted_on_request() {
        let (mut port, words) = (SerialPort::default(), [0; 64]);
        assert_eq!(port.write(eecd::REQUEST, &words, false) & eecd::GRANT, eecd::GRANT);
        assert_eq!(port.write(eecd::REQUEST, &words, true) & eecd::GRANT, 0);
        assert_eq!(port.write(0, &words, false) & eecd::GRANT, 0);
    }
}
