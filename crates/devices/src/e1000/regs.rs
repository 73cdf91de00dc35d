//! The registers: their addresses, the side effects of reads, and their bits.
//!
//! One definition serves the driver and the model. A register that changes when it is read cannot be read,
//! modified and written back: that does not compile.
//!
//! Source: PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's Manual (8254x), revision 4.0,
//! chapter 13; the PHY's registers are those of IEEE 802.3, clauses 22, 28 and 40.

use core::marker::PhantomData;

/// A register whose reads return the written value, except some bits; it may be read, modified and written.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

/// A register that a read clears.
#[derive(Clone, Copy, Debug)]
pub enum ReadClears {}

/// A write-only register: reads do not return the written value.
#[derive(Clone, Copy, Debug)]
pub enum WriteOnly {}

/// A register of 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Register<Effect = Plain> {
    /// Its offset in BAR 0.
    pub offset: u32,
    /// Its name in the manual.
    pub name: &'static str,
    effect: PhantomData<Effect>,
}

impl Register {
    /// Returns register `index` of an array that starts with this register.
    #[must_use]
    pub const fn behind(self, index: u32) -> Self {
        Self { offset: self.offset + 4 * index, ..self }
    }
}

/// Returns a statistics register, which a read clears (13.7).
pub(super) const fn statistic(offset: u32, name: &'static str) -> Register<ReadClears> {
    Register { offset, name, effect: PhantomData }
}

macro_rules! registers {
    ($($(#[doc = $doc:literal])+ $name:ident: $effect:ty = $offset:expr;)+) => {
        $($(#[doc = $doc])+
        pub const $name: Register<$effect> =
            Register { offset: $offset, name: stringify!($name), effect: PhantomData };)+
    };
}

registers! {
    /// Device control (13.4.1).
    CTRL: Plain = 0x0000;
    /// Device status (13.4.2).
    STATUS: Plain = 0x0008;
    /// EEPROM and flash control (13.4.3).
    EECD: Plain = 0x0010;
    /// EEPROM read (13.4.4).
    EERD: Plain = 0x0014;
    /// Access to the PHY (13.4.8).
    MDIC: Plain = 0x0020;
    /// Flow control address, low (13.4.10).
    FCAL: Plain = 0x0028;
    /// Flow control address, high.
    FCAH: Plain = 0x002c;
    /// Flow control type.
    FCT: Plain = 0x0030;
    /// EtherType of a VLAN tag.
    VET: Plain = 0x0038;
    /// Interrupt causes (13.4.17).
    ICR: ReadClears = 0x00c0;
    /// Minimum time between two interrupts, in units of 256 ns (13.4.18).
    ITR: Plain = 0x00c4;
    /// Sets interrupt causes (13.4.19).
    ICS: WriteOnly = 0x00c8;
    /// Enables interrupt causes (13.4.20).
    IMS: Plain = 0x00d0;
    /// Disables interrupt causes (13.4.21).
    IMC: WriteOnly = 0x00d8;
    /// Receive control (13.4.22).
    RCTL: Plain = 0x0100;
    /// Time of a pause frame.
    FCTTV: Plain = 0x0170;
    /// Transmit control (13.4.33).
    TCTL: Plain = 0x0400;
    /// Gap between frames (13.4.34).
    TIPG: Plain = 0x0410;
    /// Packet buffer: KiB for receiving.
    PBA: Plain = 0x1000;
    /// Level of the packet buffer at which the partner may send again.
    FCRTL: Plain = 0x2160;
    /// Level of the packet buffer at which the partner is to pause.
    FCRTH: Plain = 0x2168;
    /// Receive ring: address, low.
    RDBAL: Plain = 0x2800;
    /// Receive ring: address, high.
    RDBAH: Plain = 0x2804;
    /// Receive ring: bytes, a multiple of 128.
    RDLEN: Plain = 0x2808;
    /// Receive ring: head, the device's next descriptor.
    RDH: Plain = 0x2810;
    /// Receive ring: tail, the first descriptor that the device does not own.
    RDT: Plain = 0x2818;
    /// Delay of the receive interrupt.
    RDTR: Plain = 0x2820;
    /// Thresholds of the receive ring.
    RXDCTL: Plain = 0x2828;
    /// Maximum delay of the receive interrupt.
    RADV: Plain = 0x282c;
    /// Transmit ring: address, low.
    TDBAL: Plain = 0x3800;
    /// Transmit ring: address, high.
    TDBAH: Plain = 0x3804;
    /// Transmit ring: bytes, a multiple of 128.
    TDLEN: Plain = 0x3808;
    /// Transmit ring: head, the device's next descriptor.
    TDH: Plain = 0x3810;
    /// Transmit ring: tail, the first descriptor that the device does not own.
    TDT: Plain = 0x3818;
    /// Delay of the transmit interrupt.
    TIDV: Plain = 0x3820;
    /// Thresholds of the transmit ring.
    TXDCTL: Plain = 0x3828;
    /// Maximum delay of the transmit interrupt.
    TADV: Plain = 0x382c;
    /// Checksums of received packets.
    RXCSUM: Plain = 0x5000;
    /// Multicast table, first of 128 words (13.5.1).
    MTA: Plain = 0x5200;
    /// First receive address, low (13.5.2).
    RAL: Plain = 0x5400;
    /// First receive address, high.
    RAH: Plain = 0x5404;
    /// VLAN filter, first of 128 words (13.5.4).
    VFTA: Plain = 0x5600;
}

/// Words of the multicast table, and of the VLAN filter.
pub const TABLE_WORDS: u32 = 128;
/// Receive addresses.
pub const ADDRESSES: u32 = 16;
/// Valid bit of the upper half of a receive address.
pub const ADDRESS_VALID: u32 = 0x8000_0000;

macro_rules! bits {
    ($module:ident, $about:literal, $($(#[doc = $doc:literal])+ $name:ident = $value:expr;)+) => {
        #[doc = $about]
        pub mod $module {
            $($(#[doc = $doc])+ pub const $name: u32 = $value;)+
        }
    };
}

bits! { ctrl, "Bits of [`CTRL`].",
    /// Full duplex.
    FULL_DUPLEX = 0x1;
    /// Speed follows the PHY.
    AUTO_SPEED = 0x20;
    /// The link may come up.
    SET_LINK_UP = 0x40;
    /// Loss of signal is inverted.
    INVERT_LOSS = 0x80;
    /// Speed is forced.
    FORCE_SPEED = 0x800;
    /// Duplex is forced.
    FORCE_DUPLEX = 0x1000;
    /// Reset; clears itself.
    RESET = 0x0400_0000;
    /// Obeys pause frames.
    RECEIVE_PAUSE = 0x0800_0000;
    /// Sends pause frames.
    TRANSMIT_PAUSE = 0x1000_0000;
    /// Removes tags of received frames.
    VLAN_MODE = 0x4000_0000;
    /// Reset of the PHY.
    PHY_RESET = 0x8000_0000;
}
bits! { status, "Bits of [`STATUS`].",
    /// Full duplex.
    FULL_DUPLEX = 0x1;
    /// The link is up.
    LINK_UP = 0x2;
    /// Speed: 0 is 10 Mbit/s, 1 is 100, others 1000.
    SPEED = 0xc0;
}
/// Shift of the speed in [`STATUS`].
pub const SPEED_SHIFT: u32 = 6;
bits! { eecd, "Bits of [`EECD`] (82540, 82545).",
    /// Clock of the EEPROM's serial port.
    CLOCK = 0x1;
    /// Selects the EEPROM.
    SELECT = 0x2;
    /// Data bit to the EEPROM.
    DATA_IN = 0x4;
    /// Data bit from the EEPROM.
    DATA_OUT = 0x8;
    /// The driver asks for the serial port.
    REQUEST = 0x40;
    /// The driver has the serial port.
    GRANT = 0x80;
    /// There is an EEPROM.
    PRESENT = 0x100;
}
bits! { eerd, "Bits of [`EERD`] (82540, 82545).",
    /// Starts a read.
    START = 0x1;
    /// The word is available.
    DONE = 0x10;
}
/// Shift of the word's address in [`EERD`].
pub const EERD_ADDRESS_SHIFT: u32 = 8;
/// Shift of the word in [`EERD`].
pub const EERD_DATA_SHIFT: u32 = 16;
bits! { mdic, "Bits of [`MDIC`].",
    /// The data of a PHY's register.
    DATA = 0xffff;
    /// Writes.
    WRITE = 0x0400_0000;
    /// Reads.
    READ = 0x0800_0000;
    /// The access is complete.
    READY = 0x1000_0000;
    /// No PHY answered.
    ERROR = 0x4000_0000;
}
/// Shift of the register's number in [`MDIC`].
pub const MDIC_REGISTER_SHIFT: u32 = 16;
/// Shift of the PHY's address in [`MDIC`].
pub const MDIC_PHY_SHIFT: u32 = 21;
bits! { icr, "Bits of [`ICR`], [`ICS`], [`IMS`] and [`IMC`].",
    /// A descriptor with RS has been sent.
    TX_WRITTEN_BACK = 0x1;
    /// The transmit ring is empty.
    TX_EMPTY = 0x2;
    /// The link has changed.
    LINK = 0x4;
    /// Receive sequence error.
    RX_SEQUENCE = 0x8;
    /// Few receive descriptors are left.
    RX_LOW = 0x10;
    /// A frame found no room.
    RX_OVERRUN = 0x40;
    /// Frames have arrived.
    RX_TIMER = 0x80;
    /// An access to the PHY is complete.
    MDIO = 0x200;
}
bits! { rctl, "Bits of [`RCTL`].",
    /// Enables the receiver.
    ENABLE = 0x2;
    /// Stores bad frames.
    STORE_BAD = 0x4;
    /// Receives all unicast.
    ALL_UNICAST = 0x8;
    /// Receives all multicast.
    ALL_MULTICAST = 0x10;
    /// Receives frames longer than 1522 bytes.
    LONG = 0x20;
    /// Receives broadcast.
    BROADCAST = 0x8000;
    /// `RX_LOW` threshold: a quarter of the ring.
    LOW_QUARTER = 0x100;
    /// Size of a buffer, with [`SIZE_EXTENSION`].
    SIZE = 0x3_0000;
    /// Receives only VLANs in the filter.
    VLAN_FILTER = 0x4_0000;
    /// Multiplies buffer sizes by 16.
    SIZE_EXTENSION = 0x0200_0000;
    /// Removes the FCS.
    STRIP_FCS = 0x0400_0000;
}
/// Shift of the size of a buffer in [`RCTL`].
pub const RCTL_SIZE_SHIFT: u32 = 16;
bits! { tctl, "Bits of [`TCTL`].",
    /// Enables the transmitter.
    ENABLE = 0x2;
    /// Pads short frames.
    PAD_SHORT = 0x8;
    /// Maximum number of collisions per frame: 15.
    COLLISIONS = 0xf0;
    /// Collision distance of full duplex: 64 bytes.
    DISTANCE = 0x4_0000;
}
/// Gaps of a copper link (13.4.34).
pub const TIPG_COPPER: u32 = 8 | 8 << 10 | 6 << 20;
bits! { rxcsum, "Bits of [`RXCSUM`].",
    /// Checksums of IPv4 headers.
    IP = 0x100;
    /// Checksums of TCP and UDP.
    TRANSPORT = 0x200;
}
/// [`TXDCTL`]: thresholds are in descriptors, and each requested report is written back at once.
pub const TXDCTL_AT_ONCE: u32 = 0x0100_0000;
/// [`RXDCTL`]: thresholds are in descriptors, and each descriptor is written back at once.
pub const RXDCTL_AT_ONCE: u32 = 0x0101_0000;

/// Address of the PHY of these chips.
pub const PHY_ADDRESS: u32 = 1;
/// Registers of the PHY.
pub mod phy {
    /// Control.
    pub const CONTROL: u32 = 0;
    /// Status.
    pub const STATUS: u32 = 1;
    /// Identity, upper half.
    pub const ID_1: u32 = 2;
    /// Identity, lower half.
    pub const ID_2: u32 = 3;
    /// Abilities offered to the partner.
    pub const ADVERTISE: u32 = 4;
    /// Abilities that the partner offers.
    pub const PARTNER: u32 = 5;
    /// Abilities offered at 1 Gbit/s.
    pub const CONTROL_1000: u32 = 9;
    /// Abilities and state of the partner at 1 Gbit/s.
    pub const STATUS_1000: u32 = 10;
    /// State of this kind of PHY (88E1011).
    pub const SPECIFIC_STATUS: u32 = 17;
    /// Control: reset; clears itself.
    pub const RESET: u16 = 0x8000;
    /// Control: negotiate.
    pub const NEGOTIATE: u16 = 0x1000;
    /// Control: negotiate again.
    pub const RESTART: u16 = 0x200;
    /// Abilities: asymmetric pause.
    pub const PAUSE_ASYMMETRIC: u16 = 0x800;
    /// Abilities: pause.
    pub const PAUSE: u16 = 0x400;
    /// Abilities: 100 and 10 Mbit/s, full and half duplex, IEEE 802.3.
    pub const MODES: u16 = 0x1e1;
    /// Abilities at 1 Gbit/s: full duplex.
    pub const GIGABIT_FULL: u16 = 0x200;
}

/// Words of the EEPROM that its checksum covers (5.6).
pub const EEPROM_WORDS: u32 = 64;
/// Right sum of these words.
pub const EEPROM_SUM: u16 = 0xbaba;
