//! Properties and faults of the modelled function.

use super::encode::Style;
use crate::cdc::descriptor::{Subclass, capability};
use crate::cdc::mbim::model::ModemOptions;
use crate::cdc::request::NtbParameters;
use crate::usb::Speed;
use polder_datapath::units::Nanos;

/// Properties of the modelled function.
#[derive(Clone, Debug)]
pub struct Options {
    /// Subclass.
    pub subclass: Subclass,
    /// Speed of its bus.
    pub speed: Speed,
    /// Vendor ID and product ID of the device.
    pub identity: (u16, u16),
    /// The MAC address in its string.
    pub mac: [u8; 6],
    /// Maximum frame length in bytes, Ethernet header included, FCS excluded.
    pub longest: u16,
    /// Optional requests that it supports.
    pub capabilities: u8,
    /// Its block parameters.
    pub parameters: NtbParameters,
    /// Form of its blocks.
    pub style: Style,
    /// Maximum number of frames that it puts into a block.
    pub frames_per_block: usize,
    /// True if it has a link from the start.
    pub link: bool,
    /// Link speed in bit/s.
    pub bits_per_second: u32,
    /// True if the data of a notification is sent in a separate transfer.
    pub splits_notifications: bool,
    /// True if it sends no notifications.
    pub is_silent: bool,
    /// Interval at which notifications are repeated, if at all.
    pub repeats: Option<Nanos>,
    /// Modem of an MBIM function.
    pub modem: ModemOptions,
    /// Permanent fault, if it is broken.
    pub faulty: Option<FaultyDevice>,
}

impl Default for Options {
    /// Returns NCM at high speed with blocks of 16 KiB, like the gadget of Linux.
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
    /// The next transfer to the host is replaced by these bytes.
    Replace(Vec<u8>),
    /// The next transfer to the host has this byte changed.
    Corrupt {
        /// Position of the byte, modulo the length.
        at: usize,
        /// Its bits that change.
        bits: u8,
    },
    /// The next transfer to the host is truncated to this number of bytes.
    Cut(usize),
    /// The next transfer to the host reports a length above the request.
    Oversized,
    /// The next transfer to the host ends with STALL.
    StallIn,
    /// The next transfer to the device ends with STALL.
    StallOut,
    /// The next transfer to the device ends with a bus error after this number of bytes.
    ErrorOut(usize),
    /// The next transfer to the device ends successfully after this number of bytes.
    ShortOut(usize),
    /// The next control request ends with STALL.
    StallControl,
    /// The next answer to GET_NTB_PARAMETERS is replaced by these bytes.
    Parameters(Vec<u8>),
    /// The next notification is replaced by these bytes.
    Notification(Vec<u8>),
}

/// Permanent fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultyDevice {
    /// Blocks to the host have another signature.
    Signature,
    /// Headers of blocks to the host point before their table.
    TablePlace,
    /// Tables of blocks to the host have another signature.
    TableSignature,
    /// The first datagram of a block to the host is a byte longer than its table says.
    ShortDatagram,
    /// The first datagram of a block to the host starts two bytes before the offset in its table.
    LateDatagram,
    /// A byte of the first frame of a transfer to the host is changed.
    ChangedByte,
    /// Every 50th transfer to the host is lost.
    LostTransfers,
    /// Transfers to the host lack their last byte.
    CutTransfers,
    /// A byte of each frame from the host is changed.
    ChangedFrames,
    /// The string with the MAC address has a wrong one.
    OtherAddress,
    /// Notifications report no link.
    NoConnection,
    /// Notifications report half the speed.
    HalfSpeed,
}
