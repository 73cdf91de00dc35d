//! Class requests and notifications (CDC 1.2, section 6; ECM 1.2, section 6; NCM 1.0, section 6).

use super::ntb::SMALLEST_ALIGNMENT;
use crate::Link;

/// Requests to the control interface.
pub(super) const SEND_COMMAND: u8 = 0;
pub(super) const GET_RESPONSE: u8 = 1;
pub(super) const RESET_FUNCTION: u8 = 5;
pub(super) const SET_PACKET_FILTER: u8 = 0x43;
pub(super) const GET_NTB_PARAMETERS: u8 = 0x80;
pub(super) const SET_NET_ADDRESS: u8 = 0x82;
pub(super) const SET_NTB_FORMAT: u8 = 0x84;
/// Sets the maximum bytes of a block to the host.
pub const SET_NTB_INPUT_SIZE: u8 = 0x86;
pub(super) const SET_MAX_DATAGRAM_SIZE: u8 = 0x88;
pub(super) const SET_CRC_MODE: u8 = 0x8a;

/// All frames: promiscuous, all multicast, own address, broadcast, listed groups (ECM 1.2, table 8).
pub(super) const ALL_FRAMES: u16 = 0x1f;

/// Bytes of the parameters.
pub const PARAMETER_BYTES: usize = 28;
/// Smallest block that a device must accept and may be limited to (NCM 1.0, 6.2.1).
pub const SMALLEST_BLOCK: u32 = 2048;

/// Answer to GET_NTB_PARAMETERS (NCM 1.0, table 6-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NtbParameters {
    /// Bit 0: 16 bits; bit 1: 32 bits.
    pub formats: u16,
    /// Maximum block to the host, in bytes.
    pub in_bytes: u32,
    /// Divisor of offsets in blocks to the host.
    pub in_divisor: u16,
    /// Remainder of those offsets.
    pub in_remainder: u16,
    /// Alignment of tables in blocks to the host.
    pub in_alignment: u16,
    /// Maximum block to the device, in bytes.
    pub out_bytes: u32,
    /// Divisor of offsets in blocks to the device.
    pub out_divisor: u16,
    /// Remainder of the offset of a datagram's payload.
    pub out_remainder: u16,
    /// Alignment of tables in blocks to the device.
    pub out_alignment: u16,
    /// Maximum number of datagrams of a block to the device; 0 for no limit.
    pub out_datagrams: u16,
}

impl NtbParameters {
    /// Parses the answer; `None` if it is too short.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; PARAMETER_BYTES] = bytes.first_chunk()?;
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from(half(at)) | u32::from(half(at + 2)) << 16;
        Some(Self {
            formats: half(2),
            in_bytes: word(4),
            in_divisor: half(8),
            in_remainder: half(10),
            in_alignment: half(12),
            out_bytes: word(16),
            out_divisor: half(20),
            out_remainder: half(22),
            out_alignment: half(24),
            out_datagrams: half(26),
        })
    }

    /// Returns the answer's bytes.
    pub fn write(&self) -> [u8; PARAMETER_BYTES] {
        let mut bytes = [0; PARAMETER_BYTES];
        let length = u16::try_from(PARAMETER_BYTES).unwrap_or(u16::MAX);
        for (at, half) in [
            (0, length),
            (2, self.formats),
            (8, self.in_divisor),
            (10, self.in_remainder),
            (12, self.in_alignment),
            (20, self.out_divisor),
            (22, self.out_remainder),
            (24, self.out_alignment),
            (26, self.out_datagrams),
        ] {
            bytes[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        bytes[4..8].copy_from_slice(&self.in_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.out_bytes.to_le_bytes());
        bytes
    }

    /// Returns divisor, remainder and alignment of blocks to the device. Invalid values are replaced by the
    /// specification's defaults, as in Linux.
    pub fn out_shape(&self) -> (usize, usize, usize) {
        let wise = |value: u16| value >= SMALLEST_ALIGNMENT && value.is_power_of_two();
        let within = |value: u16| if wise(value) { value } else { SMALLEST_ALIGNMENT };
        let divisor = within(self.out_divisor);
        let remainder = if self.out_remainder < divisor { self.out_remainder } else { 0 };
        (usize::from(divisor), usize::from(remainder), usize::from(within(self.out_alignment)))
    }
}

/// Kinds of notifications (CDC 1.2, table 20).
pub(super) const NETWORK_CONNECTION: u8 = 0;
pub(super) const RESPONSE_AVAILABLE: u8 = 1;
pub(super) const SPEED_CHANGE: u8 = 0x2a;
/// Bytes of a notification without data.
pub(super) const NOTIFICATION_BYTES: usize = 8;
/// Request type of a notification: class, to an interface, to the host.
pub(super) const NOTIFICATION: u8 = 0xa1;
/// Number of bit/s in a Mbit/s.
const MEGABIT: u32 = 1_000_000;

/// Joins notifications with data that arrives in a transfer of its own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Notifications {
    /// True if the data of a speed change is to follow.
    awaits_speed: bool,
}

impl Notifications {
    /// Handles an interrupt transfer; returns true if it was about the link.
    pub(super) fn take(&mut self, bytes: &[u8], link: &mut Link) -> bool {
        if core::mem::take(&mut self.awaits_speed) {
            return set_speed(bytes, link);
        }
        match *bytes {
            [NOTIFICATION, NETWORK_CONNECTION, value, ..] if bytes.len() >= NOTIFICATION_BYTES => {
                link.up = value != 0;
                true
            }
            [NOTIFICATION, SPEED_CHANGE, ..] if bytes.len() == NOTIFICATION_BYTES => {
                self.awaits_speed = true;
                false
            }
            [NOTIFICATION, SPEED_CHANGE, ..] => {
                bytes.get(NOTIFICATION_BYTES..).is_some_and(|data| set_speed(data, link))
            }
            _ => false,
        }
    }
}

/// Handles the speeds to the host and to the device, in bit/s.
fn set_speed(data: &[u8], link: &mut Link) -> bool {
    let Some([a, b, c, d, e, f, g, h]) = data.first_chunk().copied() else { return false };
    let (down, up) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    link.speed = u16::try_from(down.max(up) / MEGABIT).unwrap_or(u16::MAX);
    link.full_duplex = true;
    true
}
