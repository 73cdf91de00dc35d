//! Properties and faults of the imitated function.

use super::encode::Style;
use crate::cdc::descriptor::{Subclass, capability};
use crate::cdc::mbim::model::ModemOptions;
use crate::cdc::request::NtbParameters;
use crate::usb::Speed;
use polder_datapath::units::Nanos;

/// Properties of the imitated function.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its subclass.
    pub subclass: Subclass,
    /// The bus it is on.
    pub speed: Speed,
    /// Vendor and product of the device.
    pub identity: (u16, u16),
    /// The MAC address in its string.
    pub mac: [u8; 6],
    /// Longest frame, Ethernet header included, FCS excluded.
    pub longest: u16,
    /// Optional requests that it knows.
    pub capabilities: u8,
    /// Its wishes for blocks.
    pub parameters: NtbParameters,
    /// Shape of the blocks that it makes.
    pub style: Style,
    /// Frames that it puts into a block at most.
    pub frames_per_block: usize,
    /// True if it has a link from the start.
    pub link: bool,
    /// Its speed in bits a second.
    pub bits_per_second: u32,
    /// True if the data of a notification come in a transfer of their own.
    pub splits_notifications: bool,
    /// True if it sends no notifications.
    pub is_silent: bool,
    /// Interval at which it repeats them, if it does.
    pub repeats: Option<Nanos>,
    /// Modem of an MBIM function.
    pub modem: ModemOptions,
    /// Permanent fault, if it is broken.
    pub faulty: Option<FaultyDevice>,
}

impl Default for Options {
    /// NCM at high speed with blocks of 16 KiB, as the gadget of Linux has it.
    fn default() -> Self {
        Self {
            subclass: Subclass::Ncm,
            speed: Speed::High,
            identity: (0x0525, 0xa4a1),
            mac: [0x02, 0x0c, 0xdc, 0, 0, 1],
            longest: 1518,
            capabilities: capability::PACKET_FILTER | capability::CRC_MODE,
            parameters: NtbParameters {
                formats: 3,
                in_bytes: 16 * 1024,
                in_divisor: 4,
                in_remainder: 0,
                in_alignment: 4,
                out_bytes: 16 * 1024,
                out_divisor: 4,
                out_remainder: 0,
                out_alignment: 4,
                out_datagrams: 0,
            },
            style: Style::default(),
            frames_per_block: 32,
            link: true,
            bits_per_second: 425_984_000,
            splits_notifications: false,
            is_silent: false,
            repeats: None,
            modem: ModemOptions::default(),
            faulty: None,
        }
    }
}

/// Fault that occurs once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The next transfer to the host has these bytes.
    Replace(Vec<u8>),
    /// The next transfer to the host has this byte changed.
    Corrupt {
        /// Position of the byte, modulo the length.
        at: usize,
        /// Its bits that change.
        bits: u8,
    },
    /// The next transfer to the host is cut to this number of bytes.
    Cut(usize),
    /// The next transfer to the host says that it is longer than was asked for.
    Oversized,
    /// The next transfer to the host ends with STALL.
    StallIn,
    /// The next transfer to the device ends with STALL.
    StallOut,
    /// The next transfer to the device ends with an error of the bus, after so many bytes.
    ErrorOut(usize),
    /// The next transfer to the device ends well, after so many bytes.
    ShortOut(usize),
    /// The next control request ends with STALL.
    StallControl,
    /// The next answer to GET_NTB_PARAMETERS.
    Parameters(Vec<u8>),
    /// The next notification has these bytes.
    Notification(Vec<u8>),
}

/// Permanent fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyDevice {
    /// Blocks to the host have another signature.
    Signature,
    /// Headers of blocks to the host name a place in front of their table.
    TablePlace,
    /// Tables of blocks to the host have another signature.
    TableSignature,
    /// The first datagram of a block to the host is a byte longer than its table says.
    ShortDatagram,
    /// The first datagram of a block to the host begins two bytes in front of where its table says.
    LateDatagram,
    /// A byte of the first frame of a transfer to the host is changed.
    ChangedByte,
    /// A transfer to the host is lost, time and again.
    LostTransfers,
    /// Transfers to the host end a byte early.
    CutTransfers,
    /// A byte of each frame from the host is changed.
    ChangedFrames,
    /// The string with the MAC address has another one.
    OtherAddress,
    /// Notifications say that there is no link.
    NoConnection,
    /// Notifications say half of the speed.
    HalfSpeed,
}
