//! The register file, and the side effects of reads and writes.

use super::{Adapter, AddressSource, Options};
use crate::lan78xx::descriptor::Chip;
use crate::lan78xx::regs::{
    BURST_CAP, DP_ADDR, DP_CMD, DP_DATA, DP_SEL, DP_WRITE, E2P_CMD, E2P_DATA, FCT_RX_CTL, FCT_RX_FIFO_END,
    FCT_TX_CTL, FCT_TX_FIFO_END, HASH_START, HASH_WORDS, HW_CFG, ID_REV, INT_STS, MAC_CR, MAC_RX, MAC_TX,
    MII_ACC, MII_DATA, MII_PHY_SHIFT, MII_REGISTER_SHIFT, OTP_ADDR1, OTP_ADDR2, OTP_CMD_GO, OTP_FUNC_CMD,
    OTP_PWR_DN, OTP_RD_DATA, OTP_STATUS, PMT_CTL, RX_ADDRH, RX_ADDRL, Register, WK_SRC, dp_sel, e2p_cmd, fct,
    hw_cfg, int_sts, mac_cr, mac_rx, mac_tx, mii_acc, pmt_ctl,
};

/// Number of words of the ordinary registers.
const WORDS: usize = 0x800 / 4;
/// First register address of the one-time programmable memory.
const OTP_BASE: u16 = 0x1000;
/// Number of words of these registers.
const OTP_WORDS: usize = 64;
/// Revision of the chip.
const REVISION: u32 = 2;

#[derive(Debug)]
pub(super) struct Registers {
    words: Box<[u32; WORDS]>,
    otp: [u32; OTP_WORDS],
    /// VLAN and hash filter.
    pub(super) filter_memory: [u32; (HASH_START + HASH_WORDS) as usize],
}

impl Registers {
    pub(super) fn new(options: &Options) -> Self {
        let mut registers = Self {
            words: Box::new([0; WORDS]),
            otp: [0; OTP_WORDS],
            filter_memory: [0; (HASH_START + HASH_WORDS) as usize],
        };
        registers.set(ID_REV, u32::from(options.chip.product()) << 16 | REVISION);
        registers.set(DP_SEL, dp_sel::READY);
        if options.chip == Chip::Lan7800 {
            registers.set(HW_CFG, hw_cfg::LEDS_OF_EEPROM);
        } else if options.chip == Chip::Lan7801 {
            registers.set(MAC_CR, mac_cr::GMII);
        }
        registers.set(PMT_CTL, pmt_ctl::READY);
        registers.set(FCT_RX_FIFO_END, 0x17);
        registers.set(FCT_TX_FIFO_END, 0x17);
        registers.set(BURST_CAP, 0x20);
        let (low, high) = if options.address == AddressSource::Registers {
            let [a, b, c, d, e, f] = options.mac;
            (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, 0, 0]))
        } else {
            (0xffff_ffff, 0xffff)
        };
        registers.set(RX_ADDRL, low);
        registers.set(RX_ADDRH, high);
        registers.set(OTP_PWR_DN, 1);
        registers
    }

    fn word(&mut self, address: u16) -> Option<&mut u32> {
        let index = usize::from(address / 4);
        if address >= OTP_BASE {
            return self.otp.get_mut(index - usize::from(OTP_BASE / 4));
        }
        self.words.get_mut(index)
    }

    /// Returns the value of a register, without the side effects of a read.
    pub(super) fn get<E>(&self, register: Register<E>) -> u32 {
        self.peek(register.address)
    }

    fn peek(&self, address: u16) -> u32 {
        let index = usize::from(address / 4);
        let word = if address >= OTP_BASE {
            self.otp.get(index - usize::from(OTP_BASE / 4))
        } else {
            self.words.get(index)
        };
        word.copied().unwrap_or(0)
    }

    pub(super) fn set<E>(&mut self, register: Register<E>, value: u32) {
        if let Some(word) = self.word(register.address) {
            *word = value;
        }
    }
}

/// True if `address` is that of the register.
const fn is<E: Copy>(address: u16, register: Register<E>) -> bool {
    address == register.address
}

impl Adapter {
    /// Handles a read by the driver.
    pub(super) fn read_register(&mut self, address: u16) -> u32 {
        let value = self.registers.peek(address);
        let rest = |on: bool, bit: u32| if on { 0 } else { bit };
        match address {
            _ if is(address, INT_STS) => value | if self.phy.interrupt() { int_sts::PHY } else { 0 },
            _ if is(address, FCT_RX_CTL) => {
                value | rest(value & fct::ENABLE != 0, fct::DISABLED) | self.bulk.received_bytes()
            }
            _ if is(address, FCT_TX_CTL) => {
                value | rest(value & fct::ENABLE != 0, fct::DISABLED) | self.bulk.sent_bytes()
            }
            _ if is(address, MAC_RX) => value | rest(value & mac_rx::ENABLE != 0, mac_rx::DISABLED),
            _ if is(address, MAC_TX) => value | rest(value & mac_tx::ENABLE != 0, mac_tx::DISABLED),
            _ => value,
        }
    }

    /// Handles a write by the driver.
    pub(super) fn write_register(&mut self, address: u16, value: u32) {
        match address {
            _ if is(address, ID_REV) => {}
            _ if is(address, INT_STS) => {
                let left = self.registers.get(INT_STS) & !value;
                self.registers.set(INT_STS, left);
            }
            _ if is(address, WK_SRC) => {
                let left = self.registers.get(WK_SRC) & !value;
                self.registers.set(WK_SRC, left);
            }
            _ if is(address, HW_CFG) => self.write_configuration(value),
            _ if is(address, PMT_CTL) => {
                if value & pmt_ctl::PHY_RESET != 0 {
                    self.phy.reset(self.now);
                }
                self.registers.set(PMT_CTL, value & !pmt_ctl::PHY_RESET | pmt_ctl::READY);
            }
            _ if is(address, DP_SEL) => self.registers.set(DP_SEL, value & dp_sel::SELECT | dp_sel::READY),
            _ if is(address, DP_CMD) => self.access_memory(value),
            _ if is(address, E2P_CMD) => self.access_eeprom(value),
            _ if is(address, OTP_CMD_GO) => self.access_otp(value),
            _ if is(address, MII_ACC) => self.access_phy(value),
            _ if is(address, FCT_RX_CTL) => self.write_rx_fifo(value),
            _ if is(address, FCT_TX_CTL) => {
                if value & fct::RESET != 0 {
                    self.bulk.reset_transmit();
                }
                self.registers.set(FCT_TX_CTL, value & fct::ENABLE);
            }
            _ if is(address, MAC_RX) => self.registers.set(MAC_RX, value & !mac_rx::DISABLED),
            _ if is(address, MAC_TX) => self.registers.set(MAC_TX, value & !mac_tx::DISABLED),
            _ => {
                if let Some(word) = self.registers.word(address) {
                    *word = value;
                }
            }
        }
    }

    fn write_configuration(&mut self, value: u32) {
        if value & (hw_cfg::LITE_RESET | hw_cfg::SOFT_RESET) == 0 {
            self.registers.set(HW_CFG, value);
            return;
        }
        // All state except the USB side is reset; URBs stay, because the host owns them.
        self.registers = Registers::new(&self.options);
        self.bulk.reset_receive();
        self.bulk.reset_transmit();
        self.phy.reset(self.now);
        self.reported = 0;
    }

    fn write_rx_fifo(&mut self, value: u32) {
        if value & fct::RESET != 0 {
            self.bulk.reset_receive();
        }
        let overflow = self.registers.get(FCT_RX_CTL) & fct::OVERFLOW & !value;
        self.registers.set(FCT_RX_CTL, value & fct::ENABLE | overflow);
    }

    fn access_memory(&mut self, command: u32) {
        let selected = self.registers.get(DP_SEL) & dp_sel::SELECT;
        let index = self.registers.get(DP_ADDR) as usize;
        let data = self.registers.get(DP_DATA);
        let Some(word) = self.registers.filter_memory.get_mut(index) else { return };
        if selected != dp_sel::VLAN_DA {
            return;
        }
        if command & DP_WRITE != 0 {
            *word = data;
        } else {
            let word = *word;
            self.registers.set(DP_DATA, word);
        }
    }

    fn access_eeprom(&mut self, command: u32) {
        if command & e2p_cmd::BUSY == 0 {
            self.registers.set(E2P_CMD, command);
            return;
        }
        if self.options.faulty.eeprom_busy {
            self.registers.set(E2P_CMD, command);
            return;
        }
        // On a LAN7800 the LEDs use the pins while they are on.
        let has_pins =
            self.options.chip != Chip::Lan7800 || self.registers.get(HW_CFG) & hw_cfg::LEDS_OF_EEPROM == 0;
        let loaded = if self.memory.has_eeprom() { e2p_cmd::LOADED } else { 0 };
        let is_read = command & e2p_cmd::COMMAND == 0;
        let byte = self.memory.eeprom(command & e2p_cmd::ADDRESS).filter(|_| is_read && has_pins);
        let timeout = if self.memory.has_eeprom() && has_pins { 0 } else { e2p_cmd::TIMEOUT };
        self.registers.set(E2P_CMD, command & (e2p_cmd::COMMAND | e2p_cmd::ADDRESS) | loaded | timeout);
        if let Some(byte) = byte {
            self.registers.set(E2P_DATA, u32::from(byte));
        }
    }

    fn access_otp(&mut self, go: u32) {
        let powered = self.registers.get(OTP_PWR_DN) & 1 == 0;
        let reads = self.registers.get(OTP_FUNC_CMD) & 1 != 0;
        if go & 1 == 0 || !powered || !reads {
            return;
        }
        let address = (self.registers.get(OTP_ADDR1) & 0x1f) << 8 | self.registers.get(OTP_ADDR2) & 0xff;
        let byte = self.memory.otp(address);
        self.registers.set(OTP_RD_DATA, u32::from(byte));
        self.registers.set(OTP_STATUS, 0);
    }

    fn access_phy(&mut self, command: u32) {
        let address = command >> MII_PHY_SHIFT & 31;
        let number = u8::try_from(command >> MII_REGISTER_SHIFT & 31).expect("five bits");
        if command & mii_acc::WRITE != 0 {
            let value = u16::try_from(self.registers.get(MII_DATA) & 0xffff).expect("sixteen bits");
            self.phy.write(address, number, value, self.now);
        } else {
            let value = if self.options.faulty.no_phy { u16::MAX } else { self.phy.read(address, number) };
            self.registers.set(MII_DATA, u32::from(value));
        }
        self.registers.set(MII_ACC, command & !mii_acc::BUSY);
    }
}
