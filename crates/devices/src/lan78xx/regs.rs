//! The adapter's registers: their addresses, the side effects of reads, and their bits.
//!
//! One definition serves the driver and the model. A register that changes when it is read, or that
//! is cleared by writing ones, cannot be read, modified and written back: that does not compile.
//!
//! Source: LAN7800 data sheet, chapter 15 (system control and status registers), as far as the
//! driver of Linux 6.1 uses them; docs/hardware/lan78xx.md separates facts from assumptions.

use core::marker::PhantomData;

/// Vendor request that writes one register.
pub const WRITE_REGISTER: u8 = 0xa0;
/// Vendor request that reads one register.
pub const READ_REGISTER: u8 = 0xa1;
/// Vendor request that reads the block of statistics.
pub const GET_STATISTICS: u8 = 0xa2;

/// Bytes of the block of statistics: 47 counters of 32 bits.
pub const STATISTICS_BYTES: usize = 188;

/// A register whose reads return the written value, except some bits; it may be read, modified and written.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

/// A register whose bits are cleared by writing ones.
#[derive(Clone, Copy, Debug)]
pub enum OnesClear {}

/// A register that a read clears.
#[derive(Clone, Copy, Debug)]
pub enum ReadClears {}

/// A register of the adapter: 32 bits, reached by vendor requests.
#[derive(Clone, Copy, Debug)]
pub struct Register<Effect = Plain> {
    /// Its address, the index of the vendor request.
    pub address: u16,
    /// Its name in the data sheet.
    pub name: &'static str,
    effect: PhantomData<Effect>,
}

/// A register of the PHY: 16 bits, reached over MDIO.
#[derive(Clone, Copy, Debug)]
pub struct PhyRegister<Effect = Plain> {
    /// Its number, 0 to 31.
    pub number: u8,
    /// Its name.
    pub name: &'static str,
    effect: PhantomData<Effect>,
}

impl Register {
    /// Returns the register `words` words after this one, in an array of registers.
    #[must_use]
    pub const fn behind(self, words: u16) -> Self {
        Self { address: self.address + 4 * words, ..self }
    }
}

macro_rules! registers {
    ($kind:ident, $place:ident, $($(#[doc = $doc:literal])+ $name:ident: $effect:ty = $at:expr;)+) => {
        $($(#[doc = $doc])+
        pub const $name: $kind<$effect> =
            $kind { $place: $at, name: stringify!($name), effect: PhantomData };)+
    };
}

registers! { Register, address,
    /// Chip and revision.
    ID_REV: Plain = 0x000;
    /// Interrupt causes.
    INT_STS: OnesClear = 0x00c;
    /// Hardware configuration.
    HW_CFG: Plain = 0x010;
    /// Power management and reset of the PHY.
    PMT_CTL: Plain = 0x014;
    /// Selection of the internal memory.
    DP_SEL: Plain = 0x024;
    /// Access to internal memory.
    DP_CMD: Plain = 0x028;
    /// Address in internal memory.
    DP_ADDR: Plain = 0x02c;
    /// Data for internal memory.
    DP_DATA: Plain = 0x030;
    /// Access to the EEPROM.
    E2P_CMD: Plain = 0x040;
    /// Data of the EEPROM.
    E2P_DATA: Plain = 0x044;
    /// USB configuration 0.
    USB_CFG0: Plain = 0x080;
    /// USB configuration 1.
    USB_CFG1: Plain = 0x084;
    /// Maximum size of a bulk-in transfer, in packets of the endpoint.
    BURST_CAP: Plain = 0x090;
    /// Time for which a short packet is delayed.
    BULK_IN_DLY: Plain = 0x094;
    /// Causes that the interrupt endpoint reports.
    INT_EP_CTL: Plain = 0x098;
    /// Receive filter.
    RFE_CTL: Plain = 0x0b0;
    /// Receive FIFO.
    FCT_RX_CTL: Plain = 0x0c0;
    /// Transmit FIFO.
    FCT_TX_CTL: Plain = 0x0c4;
    /// Size of the receive FIFO: the last of its 512-byte blocks.
    FCT_RX_FIFO_END: Plain = 0x0c8;
    /// Size of the transmit FIFO: the last of its 512-byte blocks.
    FCT_TX_FIFO_END: Plain = 0x0cc;
    /// Levels of the receive FIFO at which flow control starts and ends, in 512-byte blocks.
    FCT_FLOW: Plain = 0x0d0;
    /// Latency tolerance messages, first of six registers.
    LTM_BELT_IDLE0: Plain = 0x0e0;
    /// Speed and duplex of the MAC.
    MAC_CR: Plain = 0x100;
    /// Control of the MAC's receiver.
    MAC_RX: Plain = 0x104;
    /// Control of the MAC's transmitter.
    MAC_TX: Plain = 0x108;
    /// Flow control.
    FLOW: Plain = 0x10c;
    /// Own address, bytes 4 and 5.
    RX_ADDRH: Plain = 0x118;
    /// Own address, bytes 0 to 3.
    RX_ADDRL: Plain = 0x11c;
    /// Access to the PHY.
    MII_ACC: Plain = 0x120;
    /// Data of the PHY.
    MII_DATA: Plain = 0x124;
    /// Delays of the RGMII of a LAN7801.
    MAC_RGMII_ID: Plain = 0x128;
    /// Wake-up.
    WUCSR: Plain = 0x140;
    /// Wake-up sources.
    WK_SRC: OnesClear = 0x144;
    /// Tuning of the RGMII's transmit clock.
    RGMII_TX_BYP_DLL: Plain = 0x708;
    /// Power of the one-time programmable memory.
    OTP_PWR_DN: Plain = 0x1000;
    /// Address in it, upper bits.
    OTP_ADDR1: Plain = 0x1004;
    /// Address in it, lower bits.
    OTP_ADDR2: Plain = 0x1008;
    /// The byte read from OTP memory.
    OTP_RD_DATA: Plain = 0x1018;
    /// Command to the OTP memory.
    OTP_FUNC_CMD: Plain = 0x1020;
    /// Starts the command.
    OTP_CMD_GO: Plain = 0x1028;
    /// State: busy or not.
    OTP_STATUS: Plain = 0x1030;
}

/// Perfect address filter `index` (0 to 32), bytes 4 and 5 and the valid bit.
///
/// # Panics
/// If there is no such filter.
pub const fn maf_hi(index: u16) -> Register {
    assert!(index < FILTERS, "33 filters");
    Register { address: 0x400 + 8 * index, name: "MAF_HI", effect: PhantomData }
}

/// Perfect address filter `index` (0 to 32), bytes 0 to 3.
///
/// # Panics
/// If there is no such filter.
pub const fn maf_lo(index: u16) -> Register {
    assert!(index < FILTERS, "33 filters");
    Register { address: 0x404 + 8 * index, name: "MAF_LO", effect: PhantomData }
}

/// Number of perfect address filters; the first holds the adapter's own address.
pub const FILTERS: u16 = 33;

macro_rules! bits {
    ($module:ident, $about:literal, $($(#[doc = $doc:literal])+ $name:ident = $value:expr;)+) => {
        #[doc = $about]
        pub mod $module {
            $($(#[doc = $doc])+ pub const $name: u32 = $value;)+
        }
    };
}

bits! { hw_cfg, "Bits of [`HW_CFG`].",
    /// The clock of 125 MHz for the PHY of a LAN7801.
    CLOCK_125 = 0x0200_0000;
    /// The reference clock of 25 MHz for the PHY of a LAN7801.
    REFERENCE_CLOCK_25 = 0x0100_0000;
    /// The pins of LED 0 and LED 1, which on a LAN7800 are those of the EEPROM.
    LEDS_OF_EEPROM = 0x0030_0000;
    /// Allows several frames per transfer.
    MULTIPLE_FRAMES = 0x10;
    /// Resets all but the USB side; clears itself.
    LITE_RESET = 0x2;
    /// Resets the whole device; clears itself.
    SOFT_RESET = 0x1;
}
bits! { pmt_ctl, "Bits of [`PMT_CTL`].",
    /// The device is ready.
    READY = 0x80;
    /// Reset of the PHY; clears itself.
    PHY_RESET = 0x10;
}
bits! { int_sts, "Bits of [`INT_STS`] and [`INT_EP_CTL`], and of what the interrupt endpoint says.",
    /// The receive FIFO has overflowed.
    RX_OVERFLOW = 0x0040_0000;
    /// The PHY has an interrupt.
    PHY = 0x0002_0000;
}
bits! { dp_sel, "Bits of [`DP_SEL`].",
    /// The last access is complete.
    READY = 0x8000_0000;
    /// The memory of VLAN and hash filter.
    VLAN_DA = 0x1;
    /// Number of the memory.
    SELECT = 0xf;
}
/// Words of the VLAN filter in the filter memory: one bit for each VLAN.
pub const VLAN_WORDS: u32 = 128;
/// First word of the hash filter in the filter memory.
pub const HASH_START: u32 = 128;
/// Words of the hash filter.
pub const HASH_WORDS: u32 = 16;
/// [`DP_CMD`]: write.
pub const DP_WRITE: u32 = 1;
bits! { e2p_cmd, "Bits of [`E2P_CMD`]; reading is command 0.",
    /// Starts the access; clears itself.
    BUSY = 0x8000_0000;
    /// Command.
    COMMAND = 0x7000_0000;
    /// The EEPROM did not answer.
    TIMEOUT = 0x400;
    /// The EEPROM was loaded after reset.
    LOADED = 0x200;
    /// Address of a byte.
    ADDRESS = 0x1ff;
}
/// First byte of an EEPROM with a configuration in it.
pub const EEPROM_SIGNATURE: u8 = 0xa5;
/// First byte of a one-time programmable memory with one configuration.
pub const OTP_SIGNATURE_1: u8 = 0xf3;
/// First byte of OTP memory whose second configuration is valid.
pub const OTP_SIGNATURE_2: u8 = 0xf7;
/// Offset of the second configuration.
pub const OTP_SECOND: u16 = 0x100;
/// Offset of the MAC address, after the signature, in either memory.
pub const MAC_OFFSET: u16 = 1;
bits! { usb_cfg0, "Bits of [`USB_CFG0`].",
    /// Bulk-in answers NAK when it is empty, not a zero-length packet.
    NAK_WHEN_EMPTY = 0x40;
    /// [`BURST_CAP`](super::BURST_CAP) limits transfers.
    BURST_CAP_ON = 0x20;
}
bits! { rfe_ctl, "Bits of [`RFE_CTL`].",
    /// Checksums of IGMP.
    IGMP_CHECKSUM = 0x4000;
    /// Checksums of ICMP.
    ICMP_CHECKSUM = 0x2000;
    /// Checksums of TCP and UDP.
    TRANSPORT_CHECKSUM = 0x1000;
    /// Checksums of IP headers.
    IP_CHECKSUM = 0x800;
    /// Receive broadcast.
    BROADCAST = 0x400;
    /// Receive all multicast.
    ALL_MULTICAST = 0x200;
    /// Receive all unicast.
    ALL_UNICAST = 0x100;
    /// Remove the VLAN tag from the frame.
    VLAN_STRIP = 0x80;
    /// Receive only VLANs in the filter.
    VLAN_FILTER = 0x20;
    /// Multicast by hash.
    MULTICAST_HASH = 0x8;
    /// Unicast by hash.
    UNICAST_HASH = 0x4;
    /// Addresses of the perfect filters.
    PERFECT = 0x2;
}
bits! { fct, "Bits of [`FCT_RX_CTL`] and [`FCT_TX_CTL`].",
    /// Enables the FIFO.
    ENABLE = 0x8000_0000;
    /// Empties the FIFO; clears itself.
    RESET = 0x4000_0000;
    /// The FIFO has overflowed; cleared by writing one.
    OVERFLOW = 0x0100_0000;
    /// The FIFO has stopped.
    DISABLED = 0x0010_0000;
    /// Bytes in the FIFO.
    USED = 0xffff;
}
bits! { mac_rgmii_id, "Bits of [`MAC_RGMII_ID`].",
    /// The MAC delays the transmit clock.
    TRANSMIT_DELAY = 0x2;
}
/// Value of [`RGMII_TX_BYP_DLL`] for a partner without delays of its own.
pub const RGMII_TX_DLL: u32 = 0x3d00;
bits! { mac_cr, "Bits of [`MAC_CR`].",
    /// GMII, which a LAN7801 does not have.
    GMII = 0x8_0000;
    /// Duplex follows the PHY.
    AUTO_DUPLEX = 0x1000;
    /// Speed follows the PHY.
    AUTO_SPEED = 0x800;
    /// Loopback: sent frames are received.
    LOOPBACK = 0x400;
}
bits! { mac_rx, "Bits of [`MAC_RX`].",
    /// Longest frame, FCS included.
    MAX_SIZE = 0x3fff_0000;
    /// The MAC has stopped.
    DISABLED = 0x2;
    /// Enables the MAC.
    ENABLE = 0x1;
}
/// Shift of the maximum frame length in [`MAC_RX`].
pub const MAC_RX_MAX_SIZE_SHIFT: u32 = 16;
bits! { mac_tx, "Bits of [`MAC_TX`].",
    /// The MAC has stopped.
    DISABLED = 0x2;
    /// Enables the MAC.
    ENABLE = 0x1;
}
bits! { flow, "Bits of [`FLOW`].",
    /// Sends pause frames.
    TRANSMIT = 0x4000_0000;
    /// Obeys pause frames.
    RECEIVE = 0x2000_0000;
    /// Time for which the partner is to pause, in units of 512 bit times.
    TIME = 0xffff;
}
bits! { mii_acc, "Bits of [`MII_ACC`].",
    /// Starts the access; clears itself.
    BUSY = 0x1;
    /// Writes.
    WRITE = 0x2;
}
/// Shift of the PHY's address in [`MII_ACC`].
pub const MII_PHY_SHIFT: u32 = 11;
/// Shift of the register number in [`MII_ACC`].
pub const MII_REGISTER_SHIFT: u32 = 6;
/// Valid bit of [`maf_hi`].
pub const MAF_VALID: u32 = 0x8000_0000;

registers! { PhyRegister, number,
    /// Control.
    BMCR: Plain = 0;
    /// Status; link loss stays until it is read.
    BMSR: ReadClears = 1;
    /// Identity, upper half.
    PHY_ID1: Plain = 2;
    /// Identity, lower half.
    PHY_ID2: Plain = 3;
    /// Abilities offered to the partner.
    ADVERTISE: Plain = 4;
    /// Abilities that the partner offers.
    PARTNER: Plain = 5;
    /// Abilities offered at 1 Gbit/s.
    CONTROL_1000: Plain = 9;
    /// Abilities that the partner offers at 1 Gbit/s.
    STATUS_1000: Plain = 10;
    /// Function and address of a manageable device behind the PHY.
    MMD_CONTROL: Plain = 13;
    /// Address or data in it.
    MMD_DATA: Plain = 14;
    /// Abilities of the PHY at 1 Gbit/s.
    EXTENDED_STATUS: Plain = 15;
    /// Mask of the internal PHY's interrupts.
    PHY_INTERRUPT_MASK: Plain = 25;
    /// Interrupts of the internal PHY.
    PHY_INTERRUPT_STATUS: ReadClears = 26;
    /// Page of registers 16 to 30 of the internal PHY.
    PHY_PAGE: Plain = 31;
}

macro_rules! phy_bits {
    ($module:ident, $about:literal, $($(#[doc = $doc:literal])+ $name:ident = $value:expr;)+) => {
        #[doc = $about]
        pub mod $module {
            $($(#[doc = $doc])+ pub const $name: u16 = $value;)+
        }
    };
}

phy_bits! { bmcr, "Bits of [`BMCR`] (IEEE 802.3, 22.2.4.1).",
    /// Reset; clears itself.
    RESET = 0x8000;
    /// Negotiate.
    NEGOTIATE = 0x1000;
    /// Power down.
    POWER_DOWN = 0x800;
    /// Negotiate again; clears itself.
    RESTART = 0x200;
}
phy_bits! { bmsr, "Bits of [`BMSR`] (IEEE 802.3, 22.2.4.2).",
    /// Negotiation is complete.
    NEGOTIATED = 0x20;
    /// The link is up.
    LINK = 0x4;
}
phy_bits! { ability, "Bits of [`ADVERTISE`] and [`PARTNER`] (IEEE 802.3, 28B).",
    /// Asymmetric pause.
    PAUSE_ASYMMETRIC = 0x800;
    /// Pause.
    PAUSE = 0x400;
    /// 100 Mbit/s, full duplex.
    FULL_100 = 0x100;
    /// 100 Mbit/s, half duplex.
    HALF_100 = 0x80;
    /// 10 Mbit/s, full duplex.
    FULL_10 = 0x40;
    /// 10 Mbit/s, half duplex.
    HALF_10 = 0x20;
    /// IEEE 802.3.
    SELECTOR = 0x1;
}
phy_bits! { gigabit, "Bits of [`CONTROL_1000`] and [`STATUS_1000`] (IEEE 802.3, 40.5.1.1).",
    /// Offered, full duplex.
    FULL = 0x200;
    /// Offered, half duplex.
    HALF = 0x100;
    /// The partner offers full duplex.
    PARTNER_FULL = 0x800;
    /// The partner offers half duplex.
    PARTNER_HALF = 0x400;
}
phy_bits! { phy_interrupt, "Bits of [`PHY_INTERRUPT_MASK`] and [`PHY_INTERRUPT_STATUS`].",
    /// Enables interrupts to the adapter.
    ENABLE = 0x8000;
    /// The link has changed.
    LINK = 0x2000;
}
