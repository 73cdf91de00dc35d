//! The netlink family `netdev` (Linux 6.3, Documentation/netlink/specs/netdev.yaml): what a driver says
//! of its XDP abilities, and of the contexts that receive for it.

use super::link::{attributes, number, number16};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use std::os::fd::OwnedFd;

/// What a driver offers to XDP programs and AF_XDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// Programs in the driver, with redirection to sockets.
    pub(super) native: bool,
    /// Sockets without a copy.
    pub(super) zero_copy: bool,
    /// Parts that a packet may have without a copy; 1 without multi-buffer.
    pub(super) segments: u32,
}

/// Asks the driver of interface `index`; an error on kernels that do not know the question.
pub(super) fn features(index: u32) -> Result<Features, Errno> {
    let mut netdev = Netdev::open()?;
    let mut found = None;
    netdev.ask(GET_DEVICE, &[(DEVICE_INDEX, index)], Ask::One, |answer| {
        let bits = find(answer, DEVICE_FEATURES).and_then(|value| value.get(..8)?.try_into().ok());
        found = bits.map(u64::from_ne_bytes).map(|bits| Features {
            native: bits & (BASIC | REDIRECT) == BASIC | REDIRECT,
            zero_copy: bits & ZERO_COPY != 0,
            segments: number(find(answer, DEVICE_SEGMENTS)).unwrap_or(1),
        });
    })?;
    found.ok_or(Errno::BADMSG)
}

/// True if the running Linux is older than a version of two numbers; a release that is not understood is not.
pub(super) fn is_before(wanted: (u32, u32)) -> bool {
    let uname = rustix::system::uname();
    version(&uname.release().to_string_lossy()).is_some_and(|version| version < wanted)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|other: char| !other.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A conversation with the family.
#[derive(Debug)]
pub(super) struct Netdev {
    socket: OwnedFd,
    family: u16,
}

/// What kind of answer is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// One answer.
    One,
    /// All objects that match.
    All,
    /// That it has been done.
    Done,
}

impl Ask {
    /// `NLM_F_REQUEST`, and `NLM_F_DUMP` or `NLM_F_ACK`.
    fn flags(self) -> u16 {
        match self {
            Self::One => 1,
            Self::All => 1 | 0x300,
            Self::Done => 1 | 4,
        }
    }
}

impl Netdev {
    /// Opens a conversation.
    ///
    /// # Errors
    /// `NOENT` on kernels without the family.
    pub(super) fn open() -> Result<Self, Errno> {
        let (kind, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(kind, SocketType::RAW, flags, Some(netlink::GENERIC))?;
        let mut netdev = Self { socket, family: CONTROL };
        let mut family = None;
        let name = message(CONTROL, GET_FAMILY, Ask::One, &[(FAMILY_NAME, b"netdev\0")])?;
        netdev.exchange(&name, Ask::One, |answer| family = number16(find(answer, FAMILY_ID)))?;
        netdev.family = family.ok_or(Errno::BADMSG)?;
        Ok(netdev)
    }

    /// Sends one message with 32-bit attributes and calls `each` with the attributes of each answer.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn ask(
        &mut self,
        command: u8,
        attributes: &[(u16, u32)],
        ask: Ask,
        each: impl FnMut(&[u8]),
    ) -> Result<(), Errno> {
        let values: Vec<_> = attributes.iter().map(|&(kind, value)| (kind, value.to_ne_bytes())).collect();
        let values: Vec<_> = values.iter().map(|(kind, value)| (*kind, value.as_slice())).collect();
        let message = message(self.family, command, ask, &values)?;
        self.exchange(&message, ask, each)
    }

    fn exchange(&mut self, message: &[u8], ask: Ask, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
        rustix::net::send(&self.socket, message, SendFlags::empty())?;
        let mut answers = vec![0_u8; 1 << 15];
        loop {
            let (length, _) = rustix::net::recv(&self.socket, &mut answers[..], RecvFlags::empty())?;
            let mut rest = answers.get(..length).unwrap_or_default();
            while let Some(length) = number(Some(rest)).filter(|&length| length >= 16) {
                let length = length as usize;
                let one = rest.get(..length).ok_or(Errno::BADMSG)?;
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                match number16(one.get(4..)).map(i32::from) {
                    Some(libc::NLMSG_ERROR) => return verdict(one),
                    Some(libc::NLMSG_DONE) => return Ok(()),
                    _ => each(one.get(HEADERS..).ok_or(Errno::BADMSG)?),
                }
            }
            if ask == Ask::One {
                return Ok(());
            }
        }
    }
}

/// `nlmsghdr`, `genlmsghdr` and attributes.
fn message(family: u16, command: u8, ask: Ask, attributes: &[(u16, &[u8])]) -> Result<Vec<u8>, Errno> {
    let mut message = vec![0_u8; HEADERS];
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&ask.flags().to_ne_bytes());
    message[16..18].copy_from_slice(&[command, 1]);
    for (kind, value) in attributes {
        let length = u16::try_from(4 + value.len()).map_err(|_| Errno::INVAL)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(value);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(message.len()).map_err(|_| Errno::INVAL)?;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    Ok(message)
}

/// What an error message says; an error of 0 says that it has been done.
fn verdict(message: &[u8]) -> Result<(), Errno> {
    match number(message.get(16..)).ok_or(Errno::BADMSG)?.cast_signed() {
        0 => Ok(()),
        code => Err(Errno::from_raw_os_error(-code)),
    }
}

/// The value of an attribute in an answer.
pub(super) fn find(answer: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(answer).find(|&(kind, _)| kind == wanted).map(|(_, value)| value)
}

/// `nlmsghdr` and `genlmsghdr`.
const HEADERS: usize = 16 + 4;
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
const ZERO_COPY: u64 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_offers_nothing() {
        match features(1) {
            Ok(found) => assert_eq!(found, Features { native: false, zero_copy: false, segments: 1 }),
            Err(error) => assert_eq!(error, Errno::NOENT, "only a kernel without the family does not answer"),
        }
        assert!(features(u32::MAX).is_err());
    }
}
