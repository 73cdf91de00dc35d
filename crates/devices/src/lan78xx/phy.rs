//! The PHY: its identity, its offered abilities, and the link state.

use super::descriptor::Chip;
use super::regs::{
    ADVERTISE, BMCR, BMSR, CONTROL_1000, FCT_FLOW, FLOW, HW_CFG, INT_STS, MAC_CR, MAC_RGMII_ID, MMD_CONTROL,
    MMD_DATA, PARTNER, PHY_ID1, PHY_ID2, PHY_INTERRUPT_MASK, PHY_INTERRUPT_STATUS, RGMII_TX_BYP_DLL,
    RGMII_TX_DLL, STATUS_1000, ability, bmcr, bmsr, flow, gigabit, hw_cfg, int_sts, mac_cr, mac_rgmii_id,
    phy_interrupt,
};
use crate::Link;
use crate::usb::Speed;
use crate::usb::control::{ControlError, Pipe};

/// Value of a register at an MDIO address without a PHY.
const NOBODY: u16 = 0xffff;
/// Vendor part of the internal PHY's identity.
const INTERNAL_ID: u32 = 0x0007_c130;
/// Mask of the identity without its revision.
const MODEL: u32 = 0xffff_fff0;
/// Pause levels of the receive FIFO by bus, in blocks of 512 bytes (end and start). Above 9216 bytes the 12
/// KiB have room for the frame being received and for one that the partner had started before it received the
/// pause.
const LEVELS_SUPER: u32 = 0x0812;
const LEVELS_HIGH: u32 = 0x0211;

/// Identity of a KSZ9031, and the kernel driver's settings in its device 2: the skews of the pads of control,
/// data and clock, so that the received clock is late enough.
const KSZ9031_ID: u32 = 0x0022_1620;
const KSZ9031_MMD: u16 = 2;
const KSZ9031_SKEWS: [(u16, u16); 3] = [(4, 0x0077), (5, 0x7777), (8, 0x1fff)];
/// Access to data of a manageable device, at the address written before.
const MMD_NO_INCREMENT: u16 = 0x4000;

/// A PHY that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phy {
    /// Its address on MDIO.
    pub address: u8,
    /// Vendor, model and revision.
    pub id: u32,
}

impl Phy {
    /// True if the PHY is the adapter's own, whose interrupts are known.
    const fn is_internal(self) -> bool {
        self.id & MODEL == INTERNAL_ID
    }
}

/// Sets up the RGMII of a LAN7801: clocks for the PHY, delays if the PHY has none, and no GMII. Other chips
/// have an internal PHY.
pub(super) async fn prepare_rgmii(pipe: &Pipe, chip: Chip, phy: Option<Phy>) -> Result<(), ControlError> {
    if chip != Chip::Lan7801 {
        return Ok(());
    }
    pipe.modify(MAC_CR, mac_cr::GMII, 0).await?;
    pipe.modify(HW_CFG, 0, hw_cfg::CLOCK_125 | hw_cfg::REFERENCE_CLOCK_25).await?;
    match phy {
        None => {
            pipe.write(MAC_RGMII_ID, mac_rgmii_id::TRANSMIT_DELAY).await?;
            pipe.write(RGMII_TX_BYP_DLL, RGMII_TX_DLL).await
        }
        Some(phy) if phy.id & MODEL == KSZ9031_ID => {
            for (register, skew) in KSZ9031_SKEWS {
                write_mmd(pipe, phy, KSZ9031_MMD, register, skew).await?;
            }
            Ok(())
        }
        Some(_) => Ok(()),
    }
}

/// Writes a register of an MDIO manageable device in the PHY (IEEE 802.3, 22.2.4.3.11).
async fn write_mmd(
    pipe: &Pipe,
    phy: Phy,
    device: u16,
    register: u16,
    value: u16,
) -> Result<(), ControlError> {
    pipe.write_phy(phy.address, MMD_CONTROL, device).await?;
    pipe.write_phy(phy.address, MMD_DATA, register).await?;
    pipe.write_phy(phy.address, MMD_CONTROL, MMD_NO_INCREMENT | device).await?;
    pipe.write_phy(phy.address, MMD_DATA, value).await
}

/// Finds the PHY: an internal one is at address 1, a board's may have any address.
pub(super) async fn find(pipe: &Pipe, chip: Chip) -> Result<Option<Phy>, ControlError> {
    let last = match chip {
        Chip::Lan7800 | Chip::Lan7850 => 1,
        Chip::Lan7801 => 31,
    };
    // Address 1 first, then the others.
    for address in core::iter::once(1).chain((0..=last).filter(|&address| address != 1)) {
        let high = pipe.read_phy(address, PHY_ID1).await?;
        if high == NOBODY || high == 0 {
            continue;
        }
        let low = pipe.read_phy(address, PHY_ID2).await?;
        return Ok(Some(Phy { address, id: u32::from(high) << 16 | u32::from(low) }));
    }
    Ok(None)
}

/// Offers all modes, and pause frames if `pause`, and starts negotiation.
pub(super) async fn start(pipe: &Pipe, phy: Phy, pause: bool) -> Result<(), ControlError> {
    let modes = ability::FULL_100 | ability::HALF_100 | ability::FULL_10 | ability::HALF_10;
    let pauses = if pause { ability::PAUSE | ability::PAUSE_ASYMMETRIC } else { 0 };
    pipe.write_phy(phy.address, ADVERTISE, modes | pauses | ability::SELECTOR).await?;
    pipe.write_phy(phy.address, CONTROL_1000, gigabit::FULL).await?;
    if phy.is_internal() {
        let _ = pipe.read_phy(phy.address, PHY_INTERRUPT_STATUS).await?;
        let mask = phy_interrupt::ENABLE | phy_interrupt::LINK;
        pipe.write_phy(phy.address, PHY_INTERRUPT_MASK, mask).await?;
    }
    pipe.write_phy(phy.address, BMCR, bmcr::NEGOTIATE | bmcr::RESTART).await
}

/// Checks the link, after an interrupt or at an interval, and sets flow control by it.
pub(super) async fn look(
    pipe: &Pipe,
    (chip, phy): (Chip, Option<Phy>),
    speed: Speed,
    pause: bool,
) -> Result<Link, ControlError> {
    pipe.write(INT_STS, int_sts::PHY).await?;
    let Some(phy) = phy else {
        // A LAN7801 that is wired to a switch always has a link. The others have an internal PHY: if that
        // does not answer, there is no link.
        let wired = Link { up: true, speed: 1000, full_duplex: true, ..Link::default() };
        return Ok(if chip == Chip::Lan7801 { wired } else { Link::default() });
    };
    if phy.is_internal() {
        let _ = pipe.read_phy(phy.address, PHY_INTERRUPT_STATUS).await?;
    }
    let link = negotiated(pipe, phy, pause).await?;
    if link.up {
        let levels = match speed {
            Speed::High => LEVELS_HIGH,
            Speed::Super => LEVELS_SUPER,
        };
        let transmit = if link.pause_transmit { flow::TRANSMIT } else { 0 };
        let receive = if link.pause_receive { flow::RECEIVE } else { 0 };
        pipe.write(FCT_FLOW, levels).await?;
        pipe.write(FLOW, if transmit | receive == 0 { 0 } else { transmit | receive | flow::TIME }).await?;
    }
    Ok(link)
}

/// Returns the negotiated link (IEEE 802.3, 28B.3).
async fn negotiated(pipe: &Pipe, phy: Phy, pause: bool) -> Result<Link, ControlError> {
    // A loss of link stays until it is read; the second reading is the current state.
    let first = pipe.read_phy(phy.address, BMSR).await?;
    let status = if first & bmsr::LINK != 0 { first } else { pipe.read_phy(phy.address, BMSR).await? };
    if status & bmsr::LINK == 0 || status & bmsr::NEGOTIATED == 0 || status == NOBODY {
        return Ok(Link::default());
    }
    let partner = pipe.read_phy(phy.address, PARTNER).await?;
    let partner_gigabit = pipe.read_phy(phy.address, STATUS_1000).await?;
    let (speed, full_duplex) = if partner_gigabit & gigabit::PARTNER_FULL != 0 {
        (1000, true)
    } else if partner & ability::FULL_100 != 0 {
        (100, true)
    } else if partner & ability::HALF_100 != 0 {
        (100, false)
    } else {
        (10, partner & ability::FULL_10 != 0)
    };
    let pauses = pause && full_duplex;
    let symmetric = partner & ability::PAUSE != 0;
    let asymmetric = partner & ability::PAUSE_ASYMMETRIC != 0;
    Ok(Link {
        up: true,
        speed,
        full_duplex,
        pause_transmit: pauses && symmetric,
        pause_receive: pauses && (symmetric || asymmetric),
    })
}
