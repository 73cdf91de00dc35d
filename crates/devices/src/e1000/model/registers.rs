//! The register file and its side effects, with EEPROM and PHY.

use super::super::regs::{
    ADDRESSES, CTRL, EECD, EEPROM_SUM, EEPROM_WORDS, EERD, EERD_ADDRESS_SHIFT, EERD_DATA_SHIFT, ICR, ICS,
    IMC, IMS, MDIC, MDIC_PHY_SHIFT, MDIC_REGISTER_SHIFT, MTA, PBA, PHY_ADDRESS, RAL, SPEED_SHIFT, STATUS,
    TABLE_WORDS, VFTA, ctrl, eerd, mdic, phy, status,
};
use super::super::statistics::Statistic;
use super::serial::SerialPort;
use super::{Mutant, Options};

/// Bytes of modelled registers.
const BYTES: u32 = 0x6000;
/// First and last statistic.
const STATISTICS: core::ops::RangeInclusive<u32> = 0x4000..=0x40fc;
/// Size of the packet buffer for receiving after a reset, in KiB.
const RECEIVE_KIB: u32 = 48;
/// Identity of the PHY: M88E1011.
const PHY_ID: [u16; 2] = [0x0141, 0x0c20];
/// Abilities of the partner without pause frames.
const PARTNER: u16 = 0x41e1;
/// Abilities of the PHY: 10 and 100 Mbit/s, more in the register for 1 Gbit/s, negotiation.
const PHY_ABILITIES: u16 = 0x7949;
/// State of a PHY whose link is up: up, negotiated.
const PHY_LINK: u16 = 0x0024;
/// The same in the PHY's own register: 1 Gbit/s, full duplex, resolved, up.
const PHY_SPECIFIC_LINK: u16 = 0xac00;
/// State of the partner: both receivers work, full duplex at 1 Gbit/s.
const PARTNER_1000: u16 = 0x7800;

/// All registers, and the devices behind them.
#[derive(Debug)]
pub(super) struct RegisterFile {
    words: Box<[u32]>,
    eeprom: [u16; EEPROM_WORDS as usize],
    phy: [u16; 32],
    serial: SerialPort,
}

impl RegisterFile {
    /// Creates the state after power-on.
    pub(super) fn new(options: &Options) -> Self {
        let mut file = Self {
            words: Box::default(),
            eeprom: eeprom(options),
            phy: phy_registers(options),
            serial: SerialPort::default(),
        };
        file.reset(options, 0);
        file.set_link(true);
        file
    }

    /// Sets the state after a reset: undefined registers get random values, different each time.
    pub(super) fn reset(&mut self, options: &Options, number: u64) {
        let mut garbage = fastrand::Rng::with_seed(number);
        self.words = vec![0; BYTES as usize / 4].into_boxed_slice();
        let tables = [(MTA.offset, TABLE_WORDS), (VFTA.offset, TABLE_WORDS), (RAL.offset, 2 * ADDRESSES)];
        for (offset, words) in tables {
            for index in 0..words {
                self.set(offset + 4 * index, garbage.u32(..));
            }
        }
        self.set(PBA.offset, RECEIVE_KIB);
        self.set(CTRL.offset, if options.faulty.never_resets { ctrl::RESET } else { 0 });
    }

    /// Returns the stored value of a register.
    pub(super) fn get(&self, offset: u32) -> u32 {
        self.words.get(offset as usize / 4).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, offset: u32, value: u32) {
        if let Some(word) = self.words.get_mut(offset as usize / 4) {
            *word = value;
        }
    }

    /// Sets the link up, at 1 Gbit/s, or down.
    pub(super) fn set_link(&mut self, up: bool) {
        let link = if up { status::FULL_DUPLEX | status::LINK_UP | 2 << SPEED_SHIFT } else { 0 };
        self.set(STATUS.offset, link);
        let (state, specific) = if up { (PHY_LINK, PHY_SPECIFIC_LINK) } else { (0, 0) };
        self.phy[phy::STATUS as usize] = PHY_ABILITIES | state;
        self.phy[phy::SPECIFIC_STATUS as usize] = specific;
        self.phy[phy::STATUS_1000 as usize] = if up { PARTNER_1000 } else { 0 };
    }

    /// Returns the value that a driver reads, with the side effects of the read.
    pub(super) fn read(&mut self, offset: u32, options: &Options) -> u32 {
        let value = self.get(offset);
        let is_low_half =
            |statistic: &&Statistic| statistic.is_wide() && statistic.register().offset == offset;
        if offset == ICR.offset {
            self.set(offset, 0);
        } else if STATISTICS.contains(&offset)
            && !options.keeps_statistics
            && !Statistic::ALL.iter().any(|statistic| is_low_half(&statistic))
        {
            self.set(offset, 0);
            let lower = offset.wrapping_sub(4);
            if Statistic::ALL.iter().any(|wide| wide.is_wide() && wide.register().offset == lower) {
                self.set(lower, 0);
            }
        }
        value
    }

    /// Handles a write by the driver, with the side effects on registers only.
    pub(super) fn write(&mut self, offset: u32, value: u32, options: &Options) {
        if offset == ICS.offset {
            self.set(ICR.offset, self.get(ICR.offset) | value);
        } else if offset == IMS.offset {
            self.set(offset, self.get(offset) | value);
        } else if offset == IMC.offset {
            self.set(IMS.offset, self.get(IMS.offset) & !value);
        } else if offset == CTRL.offset {
            let stays = if options.faulty.never_resets { 0 } else { ctrl::RESET };
            self.set(offset, value & !(stays | ctrl::PHY_RESET));
        } else if offset == EECD.offset {
            let swaps = options.mutant == Some(Mutant::SwapsEeprom);
            let words = self.eeprom.map(|word| if swaps { word.swap_bytes() } else { word });
            let said = self.serial.write(value, &words, options.faulty.silent_eeprom);
            self.set(offset, said);
        } else if offset == EERD.offset {
            self.read_eeprom(value, options);
        } else if offset == MDIC.offset {
            self.access_phy(value, options);
        } else if offset != ICR.offset && offset != STATUS.offset && !STATISTICS.contains(&offset) {
            self.set(offset, value);
        }
    }

    fn read_eeprom(&mut self, value: u32, options: &Options) {
        if options.faulty.silent_eeprom || value & eerd::START == 0 {
            return self.set(EERD.offset, 0);
        }
        let address = value >> EERD_ADDRESS_SHIFT & 0xff;
        let word = self.eeprom.get(address as usize).copied().unwrap_or(u16::MAX);
        self.set(EERD.offset, eerd::DONE | u32::from(word) << EERD_DATA_SHIFT);
    }

    fn access_phy(&mut self, value: u32, options: &Options) {
        if options.faulty.silent_phy {
            return self.set(MDIC.offset, value & !mdic::READY);
        }
        let is_there = value >> MDIC_PHY_SHIFT & 0x1f == PHY_ADDRESS && !options.faulty.no_phy;
        let register = (value >> MDIC_REGISTER_SHIFT & 0x1f) as usize;
        let result = match (is_there, value & mdic::WRITE != 0) {
            (false, _) => value | mdic::READY | mdic::ERROR,
            (true, true) => {
                self.write_phy(register, u16::try_from(value & mdic::DATA).unwrap_or(0));
                value | mdic::READY
            }
            (true, false) => value & !mdic::DATA | mdic::READY | u32::from(self.phy[register]),
        };
        self.set(MDIC.offset, result);
    }

    fn write_phy(&mut self, register: usize, value: u16) {
        match u32::try_from(register) {
            // The driver cannot write the state.
            Ok(phy::STATUS | phy::SPECIFIC_STATUS | phy::STATUS_1000) => {}
            Ok(phy::CONTROL) => self.phy[register] = value & !(phy::RESET | phy::RESTART),
            _ => self.phy[register] = value,
        }
    }

    /// Adds to a statistic; a 32-bit statistic stops at its maximum.
    pub(super) fn count(&mut self, statistic: Statistic, amount: u64) {
        let offset = statistic.register().offset;
        let low = u64::from(self.get(offset));
        if !statistic.is_wide() {
            return self.set(offset, u32::try_from(low + amount).unwrap_or(u32::MAX));
        }
        let sum = (low | u64::from(self.get(offset + 4)) << 32).wrapping_add(amount);
        self.set(offset, u32::try_from(sum & 0xffff_ffff).unwrap_or(0));
        self.set(offset + 4, u32::try_from(sum >> 32).unwrap_or(0));
    }
}

fn eeprom(options: &Options) -> [u16; EEPROM_WORDS as usize] {
    let mut words = [0; EEPROM_WORDS as usize];
    if !options.faulty.no_address {
        let [a, b, c, d, e, f] = options.mac;
        words[..3].copy_from_slice(&[[a, b], [c, d], [e, f]].map(u16::from_le_bytes));
    }
    let sum = words.iter().fold(0, |sum: u16, &word| sum.wrapping_add(word));
    words[EEPROM_WORDS as usize - 1] =
        EEPROM_SUM.wrapping_sub(sum).wrapping_add(u16::from(options.faulty.bad_eeprom));
    words
}

fn phy_registers(options: &Options) -> [u16; 32] {
    let mut registers = [0; 32];
    registers[phy::ID_1 as usize] = PHY_ID[0];
    registers[phy::ID_2 as usize] = PHY_ID[1];
    let pauses = if options.partner_pauses { phy::PAUSE | phy::PAUSE_ASYMMETRIC } else { 0 };
    registers[phy::PARTNER as usize] = PARTNER | pauses;
    registers
}
