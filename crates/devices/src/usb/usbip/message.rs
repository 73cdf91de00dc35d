//! The messages of the protocol, big-endian, version 1.1.1.

use crate::usb::{Speed, Status};

/// Version in set-up messages.
pub(super) const VERSION: u16 = 0x0111;
/// Request for the list of devices.
pub(super) const REQUEST_LIST: u16 = 0x8005;
/// Answer with the list.
pub(super) const REPLY_LIST: u16 = 0x0005;
/// Request for a device.
pub(super) const REQUEST_IMPORT: u16 = 0x8003;
/// Answer with the device.
pub(super) const REPLY_IMPORT: u16 = 0x0003;

/// Bytes of the head of a set-up message: version, code, status.
pub(super) const SETUP_BYTES: usize = 8;
/// Bytes of a device's name.
pub(super) const NAME_BYTES: usize = 32;
/// Offset of the name in a device's description.
pub(super) const NAME_AT: usize = 256;
/// Bytes of an interface's description in a list.
pub(super) const INTERFACE_BYTES: usize = 4;
/// Bytes of a device's description.
pub(super) const DEVICE_BYTES: usize = 312;
/// Bytes of a transfer's header.
pub(super) const HEADER_BYTES: usize = 48;

/// Request for a transfer.
pub(super) const SUBMIT: u32 = 1;
/// Request to cancel a transfer.
pub(super) const UNLINK: u32 = 2;
/// Completion of a transfer.
pub(super) const SUBMITTED: u32 = 3;
/// Answer to a cancellation.
pub(super) const UNLINKED: u32 = 4;

/// Flags of a transfer: data to the host; a zero-length packet after a full last packet.
pub(super) const FLAG_IN: u32 = 0x200;
pub(super) const FLAG_ZERO_PACKET: u32 = 0x40;

/// Errors of Linux, as transfers carry them.
pub(super) const EPIPE: i32 = -32;
pub(super) const ECONNRESET: i32 = -104;
pub(super) const EOVERFLOW: i32 = -75;
pub(super) const ENODEV: i32 = -19;

/// The header of a transfer, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) command: u32,
    pub(super) sequence: u32,
    pub(super) device: u32,
    /// 1 for data to the host.
    pub(super) direction: u32,
    pub(super) endpoint: u32,
    /// Fields that depend on the command. Of a request: flags, length, start frame, packets (none: all ones)
    /// and interval.
    pub(super) words: [u32; 5],
    pub(super) setup: [u8; 8],
}

impl Header {
    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| u32::from_be_bytes(words[index]);
        let mut setup = [0; 8];
        setup.copy_from_slice(&bytes[40..]);
        Self {
            command: word(0),
            sequence: word(1),
            device: word(2),
            direction: word(3),
            endpoint: word(4),
            words: [word(5), word(6), word(7), word(8), word(9)],
            setup,
        }
    }

    pub(super) fn write(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let head = [self.command, self.sequence, self.device, self.direction, self.endpoint];
        let words = head.into_iter().chain(self.words);
        for (target, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *target = word.to_be_bytes();
        }
        bytes[40..].copy_from_slice(&self.setup);
        bytes
    }

    /// Returns status and length of a completed transfer.
    pub(super) fn outcome(&self) -> (Status, usize) {
        (status(self.words[0].cast_signed()), self.words[1] as usize)
    }
}

/// Returns the status for an error of Linux.
const fn status(error: i32) -> Status {
    match error {
        0 => Status::Done,
        EPIPE => Status::Stall,
        // ENOENT and ECONNRESET: unlinked; ESHUTDOWN and ENODEV: gone.
        -2 | ECONNRESET => Status::Cancelled,
        EOVERFLOW => Status::Babble,
        ENODEV | -108 => Status::Gone,
        _ => Status::Error,
    }
}

/// Returns the head of a set-up message.
pub(super) fn setup_head(code: u16, status: u32) -> [u8; SETUP_BYTES] {
    let ([a, b], [c, d]) = (VERSION.to_be_bytes(), code.to_be_bytes());
    let [e, f, g, h] = status.to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// A server's description of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) device: u32,
    pub(super) speed: Option<Speed>,
    pub(super) vendor: u16,
    pub(super) product: u16,
}

impl Described {
    pub(super) fn read(bytes: &[u8; DEVICE_BYTES]) -> Self {
        let word =
            |at: usize| bytes[at..].first_chunk().map_or(0, |word: &[u8; 4]| u32::from_be_bytes(*word));
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let speed = match word(296) {
            3 => Some(Speed::High),
            5 | 6 => Some(Speed::Super),
            _ => None,
        };
        Self { device: word(288) << 16 | word(292), speed, vendor: half(300), product: half(302) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_written_and_read() {
        let header = Header {
            command: SUBMIT,
            sequence: 7,
            device: 3,
            direction: 1,
            endpoint: 2,
            words: [1, 2, 3, 4, 5],
            setup: [9; 8],
        };
        assert_eq!(Header::read(&header.write()), header);
        assert_eq!(header.write()[..8], [0, 0, 0, 1, 0, 0, 0, 7]);
    }
}
