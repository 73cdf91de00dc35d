//! The messages of a server.

use super::message::{DEVICE_BYTES, ECONNRESET, ENODEV, EOVERFLOW, EPIPE, Header, SUBMITTED, UNLINKED};
use crate::usb::model::Identity;
use crate::usb::{Speed, Status};

/// Bus and device number of a server's only device, joined as in `vhci_hcd`.
pub(super) const DEVICE_ID: u32 = 1 << 16 | 2;

const EPROTO: i32 = -71;

impl Header {
    /// Returns the header for a completed transfer.
    pub(super) fn submitted(sequence: u32, status: Status, actual: usize) -> Self {
        let actual = u32::try_from(actual).unwrap_or(u32::MAX);
        let words = [error(status).cast_unsigned(), actual, 0, u32::MAX, 0];
        Self { command: SUBMITTED, sequence, words, ..Self::default() }
    }

    /// Returns the header of the answer to an unlink; `early` if the transfer was cancelled.
    pub(super) fn unlinked(sequence: u32, early: bool) -> Self {
        let status = if early { ECONNRESET.cast_unsigned() } else { 0 };
        Self { command: UNLINKED, sequence, words: [status, 0, 0, 0, 0], ..Self::default() }
    }
}

/// Returns the Linux error for a status.
const fn error(status: Status) -> i32 {
    match status {
        Status::Done => 0,
        Status::Stall => EPIPE,
        Status::Cancelled => ECONNRESET,
        Status::Babble => EOVERFLOW,
        Status::Error => EPROTO,
        Status::Gone => ENODEV,
    }
}

/// Returns the server's description of a device.
pub(super) fn describe(identity: &Identity, name: &str) -> [u8; DEVICE_BYTES] {
    let mut bytes = [0; DEVICE_BYTES];
    let path = format!("/polder/model/{name}");
    put(&mut bytes[..256], path.as_bytes());
    put(&mut bytes[256..288], name.as_bytes());
    let (bus, device) = (DEVICE_ID >> 16, DEVICE_ID & 0xffff);
    for (at, word) in [(288, bus), (292, device), (296, speed_number(identity.speed))] {
        put(&mut bytes[at..], &word.to_be_bytes());
    }
    for (at, half) in [(300, identity.vendor), (302, identity.product), (304, 0x0300_u16)] {
        put(&mut bytes[at..], &half.to_be_bytes());
    }
    // Class, subclass, protocol, current configuration, number of configurations, number of interfaces.
    let [class, subclass, protocol] = identity.class;
    let interfaces = u8::try_from(identity.interfaces.len()).unwrap_or(u8::MAX);
    put(&mut bytes[306..], &[class, subclass, protocol, 1, 1, interfaces]);
    bytes
}

/// Returns the kernel's number of a speed.
const fn speed_number(speed: Speed) -> u32 {
    match speed {
        Speed::High => 3,
        Speed::Super => 5,
    }
}

fn put(target: &mut [u8], bytes: &[u8]) {
    target[..bytes.len()].copy_from_slice(bytes);
}

/// A device of the tests.
#[cfg(test)]
pub(super) const DEVICE: Identity = Identity {
    vendor: 0x0424,
    product: 0x7801,
    speed: Speed::High,
    class: [255, 0, 255],
    interfaces: &[[255, 0, 255]],
    interrupt: 0x83,
};

#[cfg(test)]
mod tests {
    use super::super::message::Described;
    use super::*;

    #[test]
    fn statuses_survive_the_way() {
        for status in
            [Status::Done, Status::Stall, Status::Cancelled, Status::Babble, Status::Error, Status::Gone]
        {
            assert_eq!(Header::submitted(1, status, 99).outcome(), (status, 99));
        }
    }

    #[test]
    fn a_device_is_described() {
        let bytes = describe(&DEVICE, "1-1");
        let described = Described::read(&bytes);
        assert_eq!(described.device, 0x1_0002);
        assert_eq!((described.vendor, described.product), (0x0424, 0x7801));
        assert_eq!(described.speed, Some(Speed::High));
        assert_eq!(bytes[256..260], *b"1-1\0");
    }
}
