//! What a driver says of its XDP abilities: the netlink family `netdev` (Linux 6.3,
//! Documentation/netlink/specs/netdev.yaml).

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
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, Some(netlink::GENERIC))?;
    let answer = ask(&socket, CONTROL, GET_FAMILY, (FAMILY_NAME, b"netdev\0"))?;
    let family = find(&answer, FAMILY_ID).and_then(|value| number16(Some(value))).ok_or(Errno::BADMSG)?;
    let answer = ask(&socket, family, GET_DEVICE, (DEVICE_INDEX, &index.to_ne_bytes()))?;
    let bits = find(&answer, DEVICE_FEATURES).and_then(|value| value.get(..8)?.try_into().ok());
    let bits = u64::from_ne_bytes(bits.ok_or(Errno::BADMSG)?);
    Ok(Features {
        native: bits & (BASIC | REDIRECT) == BASIC | REDIRECT,
        zero_copy: bits & ZERO_COPY != 0,
        segments: number(find(&answer, DEVICE_SEGMENTS)).unwrap_or(1),
    })
}

/// Sends one message with one attribute; returns the attributes of the answer.
fn ask(socket: &OwnedFd, family: u16, command: u8, attribute: (u16, &[u8])) -> Result<Vec<u8>, Errno> {
    let (kind, value) = attribute;
    let mut message = vec![0_u8; HEADERS];
    message[4..6].copy_from_slice(&family.to_ne_bytes());
    message[6..8].copy_from_slice(&1_u16.to_ne_bytes()); // NLM_F_REQUEST
    message[16..18].copy_from_slice(&[command, 1]);
    let length = u16::try_from(4 + value.len()).map_err(|_| Errno::INVAL)?;
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(message.len().next_multiple_of(4), 0);
    let length = u32::try_from(message.len()).map_err(|_| Errno::INVAL)?;
    message[..4].copy_from_slice(&length.to_ne_bytes());
    rustix::net::send(socket, &message, SendFlags::empty())?;
    let mut answer = vec![0_u8; 1 << 14];
    let (length, _) = rustix::net::recv(socket, &mut answer[..], RecvFlags::empty())?;
    answer.truncate(length);
    if number16(answer.get(4..)).map(i32::from) == Some(libc::NLMSG_ERROR) {
        let code = number(answer.get(16..)).ok_or(Errno::BADMSG)?.cast_signed();
        return Err(Errno::from_raw_os_error(-code));
    }
    Ok(answer.get(HEADERS..).ok_or(Errno::BADMSG)?.to_vec())
}

fn find(answer: &[u8], wanted: u16) -> Option<&[u8]> {
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
