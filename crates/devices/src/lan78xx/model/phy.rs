//! The PHY behind MDIO: identity, negotiation, link, interrupts.
//!
//! The LAN7800 and the LAN7850 have an internal PHY at address 1. The LAN7801 has none; the model adds a
//! KSZ9031, as on evaluation boards.

use crate::lan78xx::descriptor::Chip;
use crate::lan78xx::regs::{
    ADVERTISE, BMCR, BMSR, CONTROL_1000, EXTENDED_STATUS, PARTNER, PHY_ID1, PHY_ID2, PHY_INTERRUPT_MASK,
    PHY_INTERRUPT_STATUS, PHY_PAGE, STATUS_1000, ability, bmcr, bmsr, gigabit, phy_interrupt,
};
use polder_datapath::units::Nanos;

/// Address of the only PHY on the bus.
const ADDRESS: u32 = 1;
/// Value of a register at an address without a PHY.
const NOBODY: u16 = 0xffff;
/// Interrupt control and status register of a KSZ9031: enables in the upper half, causes in the lower.
const KSZ_INTERRUPTS: u8 = 27;
/// Its bits for a link that has come up, and for one that has gone down.
const KSZ_LINK_UP: u16 = 0x1;
const KSZ_LINK_DOWN: u16 = 0x4;
/// All abilities of a 10/100 PHY.
const ABILITIES: u16 =
    ability::FULL_100 | ability::HALF_100 | ability::FULL_10 | ability::HALF_10 | ability::SELECTOR;
/// Constant bits of BMSR: all 10/100 modes, extended status, negotiation.
const CAPABLE: u16 = 0x7949;
/// Value of EXTENDED_STATUS: 1000BASE-T, both duplexes.
const GIGABIT_CAPABLE: u16 = 0x3000;

/// Link partner at the other end of the cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partner {
    /// Its fastest speed in Mbit/s: 10, 100 or 1000.
    pub speed: u16,
    /// True if it sends and obeys pause frames.
    pub pause: bool,
    /// True if the cable is plugged in.
    pub cable: bool,
}

impl Default for Partner {
    /// 1 Gbit/s, no pause frames, plugged in.
    fn default() -> Self {
        Self { speed: 1000, pause: false, cable: true }
    }
}

#[derive(Debug)]
pub(super) struct Phy {
    chip: Chip,
    partner: Partner,
    /// Registers 0 to 31 as written, page 0.
    registers: [u16; 32],
    /// Registers 16 to 30 of the other pages, which share their values.
    page: [u16; 32],
    cable: bool,
    /// Start time of the negotiation; `None` while it cannot succeed.
    negotiating: Option<Nanos>,
    link: bool,
    /// True if BMSR is to show a loss of link at the next read.
    lost: bool,
    causes: u16,
    /// True if an interrupt is asserted; reading the causes ends it.
    asserted: bool,
}

impl Phy {
    pub(super) fn new(chip: Chip, partner: Partner) -> Self {
        let mut phy = Self {
            chip,
            partner,
            registers: [0; 32],
            page: [0; 32],
            cable: partner.cable,
            negotiating: None,
            link: false,
            lost: true,
            causes: 0,
            asserted: false,
        };
        phy.reset(Nanos(0));
        phy
    }

    pub(super) fn reset(&mut self, now: Nanos) {
        self.registers = [0; 32];
        self.registers[usize::from(BMCR.number)] = bmcr::NEGOTIATE | 0x140;
        self.registers[usize::from(ADVERTISE.number)] =
            ABILITIES | ability::PAUSE | ability::PAUSE_ASYMMETRIC;
        self.registers[usize::from(CONTROL_1000.number)] = gigabit::FULL | gigabit::HALF;
        self.causes = 0;
        self.asserted = false;
        self.negotiate(now);
    }

    pub(super) fn has_link(&self) -> bool {
        self.link
    }

    /// Returns the link speed in Mbit/s.
    pub(super) fn speed(&self) -> u64 {
        let offers_gigabit = self.registers[usize::from(CONTROL_1000.number)] & gigabit::FULL != 0;
        let offers_100 = self.registers[usize::from(ADVERTISE.number)] & ability::FULL_100 != 0;
        match self.partner.speed {
            1000 if offers_gigabit => 1000,
            1000 | 100 if offers_100 => 100,
            _ => 10,
        }
    }

    /// True if the interrupt line is asserted.
    pub(super) fn interrupt(&self) -> bool {
        self.asserted
    }

    pub(super) fn set_cable(&mut self, plugged: bool, now: Nanos) {
        self.cable = plugged;
        self.negotiate(now);
    }

    fn negotiate(&mut self, now: Nanos) {
        let powered = self.registers[usize::from(BMCR.number)] & bmcr::POWER_DOWN == 0;
        self.set_link(false);
        self.negotiating = (self.cable && powered).then_some(now);
    }

    pub(super) fn advance(&mut self, now: Nanos, delay: Nanos) {
        if self.next_event(delay).is_some_and(|due| due <= now) {
            self.negotiating = None;
            self.set_link(true);
        }
    }

    pub(super) fn next_event(&self, delay: Nanos) -> Option<Nanos> {
        self.negotiating.map(|since| since + delay)
    }

    fn set_link(&mut self, up: bool) {
        if self.link == up {
            return;
        }
        self.link = up;
        self.lost |= !up;
        let (cause, enabled) = match self.chip {
            Chip::Lan7800 | Chip::Lan7850 => {
                let mask = self.registers[usize::from(PHY_INTERRUPT_MASK.number)];
                (phy_interrupt::LINK, mask & phy_interrupt::ENABLE != 0 && mask & phy_interrupt::LINK != 0)
            }
            Chip::Lan7801 => {
                let cause = if up { KSZ_LINK_UP } else { KSZ_LINK_DOWN };
                (cause, self.registers[usize::from(KSZ_INTERRUPTS)] >> 8 & cause != 0)
            }
        };
        self.causes |= cause;
        self.asserted |= enabled;
    }

    /// Reads a register of the PHY at `address`.
    pub(super) fn read(&mut self, address: u32, number: u8) -> u16 {
        if address != ADDRESS {
            return NOBODY;
        }
        let (id1, id2) = match self.chip {
            Chip::Lan7800 | Chip::Lan7850 => (0x0007, 0xc132),
            Chip::Lan7801 => (0x0022, 0x1622),
        };
        let number = number & 31;
        if self.on_other_page(number) {
            return self.page[usize::from(number)];
        }
        match number {
            n if n == BMSR.number => self.status(),
            n if n == PHY_ID1.number => id1,
            n if n == PHY_ID2.number => id2,
            n if n == PARTNER.number => self.partner_abilities(),
            n if n == STATUS_1000.number => self.partner_gigabit(),
            n if n == EXTENDED_STATUS.number => GIGABIT_CAPABLE,
            n if n == PHY_INTERRUPT_STATUS.number && self.chip != Chip::Lan7801 => self.take_causes(),
            KSZ_INTERRUPTS if self.chip == Chip::Lan7801 => {
                let enabled = self.registers[usize::from(KSZ_INTERRUPTS)] & 0xff00;
                enabled | self.take_causes()
            }
            n => self.registers[usize::from(n)],
        }
    }

    /// Writes a register of the PHY at `address`.
    pub(super) fn write(&mut self, address: u32, number: u8, value: u16, now: Nanos) {
        if address != ADDRESS {
            return;
        }
        let number = number & 31;
        if self.on_other_page(number) {
            self.page[usize::from(number)] = value;
            return;
        }
        self.registers[usize::from(number)] = value;
        if number != BMCR.number {
            return;
        }
        if value & bmcr::RESET != 0 {
            self.reset(now);
        } else {
            self.registers[usize::from(number)] &= !bmcr::RESTART;
            let is_idle = !self.link && self.negotiating.is_none();
            if is_idle || value & (bmcr::RESTART | bmcr::POWER_DOWN) != 0 {
                self.negotiate(now);
            }
        }
    }

    fn on_other_page(&self, number: u8) -> bool {
        let page = self.registers[usize::from(PHY_PAGE.number)];
        self.chip != Chip::Lan7801 && page != 0 && (16..31).contains(&number)
    }

    fn take_causes(&mut self) -> u16 {
        self.asserted = false;
        core::mem::take(&mut self.causes)
    }

    fn status(&mut self) -> u16 {
        let shows_link = self.link && !core::mem::take(&mut self.lost);
        let link = if shows_link { bmsr::LINK } else { 0 };
        let negotiated = if self.link { bmsr::NEGOTIATED } else { 0 };
        CAPABLE | link | negotiated
    }

    fn partner_abilities(&self) -> u16 {
        if !self.link {
            return 0;
        }
        let fast = if self.partner.speed >= 100 { ability::FULL_100 | ability::HALF_100 } else { 0 };
        let pause = if self.partner.pause { ability::PAUSE } else { 0 };
        // The acknowledge bit is set.
        0x4000 | fast | pause | ability::FULL_10 | ability::HALF_10 | ability::SELECTOR
    }

    fn partner_gigabit(&self) -> u16 {
        if !self.link || self.partner.speed < 1000 {
            return 0;
        }
        // Both receivers work.
        0x3000 | gigabit::PARTNER_FULL | gigabit::PARTNER_HALF
    }
}
