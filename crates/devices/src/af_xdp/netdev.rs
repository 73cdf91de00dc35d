//! The netlink family `netdev` (Linux 6.3, Documentation/netlink/specs/netdev.yaml): a driver's XDP features,
//! and the NAPI contexts of an interface.

use crate::netlink::{Client, find, number, number16, put};
use rustix::io::Errno;
use rustix::net::netlink::GENERIC;

/// Features of a driver for XDP programs and AF_XDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
    /// The driver runs programs itself, and redirects to sockets.
    pub(crate) native: bool,
    /// Frames that another driver's program redirects here: `None` if the driver accepts none, true if it
    /// accepts frames of several buffers too.
    pub(crate) takes_frames: Option<bool>,
    /// The driver supports zero-copy sockets.
    pub(crate) zero_copy: bool,
    /// Maximum number of parts of a packet in zero-copy mode; 1 without multi-buffer.
    pub(crate) segments: u32,
}

/// Asks the driver of interface `index`; an error on kernels without the request.
pub(crate) fn features(index: u32) -> Result<Features, Errno> {
    let mut netdev = Netdev::open()?;
    let mut found = None;
    netdev.ask(GET_DEVICE, &[(DEVICE_INDEX, index)], Ask::One, |answer| {
        let bits = find(answer, DEVICE_FEATURES).and_then(|value| value.get(..8)?.try_into().ok());
        found = bits.map(u64::from_ne_bytes).map(|bits| Features {
            native: bits & (BASIC | REDIRECT) == BASIC | REDIRECT,
            takes_frames: (bits & TRANSMIT != 0).then_some(bits & TRANSMIT_PARTS != 0),
            zero_copy: bits & ZERO_COPY != 0,
            segments: find(answer, DEVICE_SEGMENTS).and_then(number).unwrap_or(1),
        });
    })?;
    found.ok_or(Errno::BADMSG)
}

/// True if the interface's driver sends frames of several buffers that another interface's XDP program
/// redirects there, false for frames of one buffer only; `None` if it accepts none, or if unknown (Linux
/// before 6.3).
pub fn takes_frames(interface: u32) -> Option<bool> {
    features(interface).ok()?.takes_frames
}

/// Support of a driver for AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpSupport {
    /// The driver runs programs itself, and redirects to sockets.
    pub native: bool,
    /// The driver supports zero-copy sockets.
    pub zero_copy: bool,
}

/// Returns the AF_XDP support that the interface's driver reports; `None` if unknown (Linux before 6.3).
pub fn xdp_support(interface: u32) -> Option<XdpSupport> {
    let Features { native, zero_copy, .. } = features(interface).ok()?;
    Some(XdpSupport { native, zero_copy })
}

/// True if the running Linux is older than version `wanted`; false if the release is not understood.
pub(crate) fn is_before(wanted: (u32, u32)) -> bool {
    let uname = rustix::system::uname();
    version(&uname.release().to_string_lossy()).is_some_and(|version| version < wanted)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Netlink client of the family.
#[derive(Debug)]
pub(crate) struct Netdev {
    client: Client,
    family: u16,
}

/// Expected answers to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// One answer, or the acknowledgement alone.
    One,
    /// One answer for each object that matches.
    All,
}

impl Netdev {
    /// Opens a client.
    ///
    /// # Errors
    /// `NOENT` on kernels without the family.
    pub(crate) fn open() -> Result<Self, Errno> {
        let mut netdev = Self { client: Client::open(Some(GENERIC))?, family: CONTROL };
        let mut family = None;
        let name = [(FAMILY_NAME, &b"netdev\0"[..])];
        netdev.exchange(GET_FAMILY, name, Ask::One, |answer| {
            family = find(answer, FAMILY_ID).and_then(number16);
        })?;
        netdev.family = family.ok_or(Errno::BADMSG)?;
        Ok(netdev)
    }

    /// Sends one message with 32-bit attributes, and calls `each` with the attributes of each answer.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn ask(
        &mut self,
        command: u8,
        attributes: &[(u16, u32)],
        ask: Ask,
        each: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let attributes = attributes.iter().map(|&(kind, value)| (kind, value.to_ne_bytes()));
        self.exchange(command, attributes, ask, each)
    }

    /// Sends one message with its `genlmsghdr`: the command, and version 1.
    fn exchange<V: AsRef<[u8]>>(
        &mut self,
        command: u8,
        attributes: impl IntoIterator<Item = (u16, V)>,
        ask: Ask,
        each: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let mut body = vec![command, 1, 0, 0];
        attributes.into_iter().for_each(|(kind, value)| put(&mut body, kind, value.as_ref()));
        let answers = match ask {
            Ask::One => self.client.ask(self.family, &body)?,
            Ask::All => self.client.dump(self.family, &body)?,
        };
        answers.iter().filter_map(|(_, body)| body.get(4..)).for_each(each);
        Ok(())
    }
}

/// linux/genetlink.h: `GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`, `CTRL_ATTR_FAMILY_*`.
const CONTROL: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// linux/netdev.h: `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_*`, `NETDEV_XDP_ACT_*`.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;
const DEVICE_SEGMENTS: u16 = 4;
const BASIC: u64 = 1;
const REDIRECT: u64 = 1 << 1;
const TRANSMIT: u64 = 1 << 2;
const ZERO_COPY: u64 = 1 << 3;
const TRANSMIT_PARTS: u64 = 1 << 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_offers_nothing() {
        match features(1) {
            Ok(found) => assert_eq!(
                found,
                Features { native: false, takes_frames: None, zero_copy: false, segments: 1 }
            ),
            Err(error) => assert_eq!(error, Errno::NOENT, "only a kernel without the family does not answer"),
        }
        assert!(features(u32::MAX).is_err());
    }
}
