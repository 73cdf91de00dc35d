//! IPv6 neighbours: one rtnetlink question for the whole table (rtnetlink(7)), which no file of /proc has.

use polder_datapath::wire::MacAddress;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use std::collections::HashMap;
use std::net::Ipv6Addr;

/// Bytes of `nlmsghdr`, and of `ndmsg` behind it.
const MESSAGE_HEADER: usize = 16;
const NEIGHBOUR_HEADER: usize = 12;
/// `NUD_REACHABLE`, `NUD_STALE`, `NUD_DELAY`, `NUD_PROBE`, `NUD_PERMANENT`: the address is known.
const VALID: u16 = 0x9e;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;

/// The neighbours of the interface of that number whose address is known.
pub(super) fn table(interface: u32) -> Result<HashMap<Ipv6Addr, MacAddress>, Errno> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    send(&socket, &request(), SendFlags::empty())?;
    let mut found = HashMap::new();
    let mut answer = vec![0_u8; 1 << 16];
    loop {
        let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
        if read(&answer[..length], interface, &mut found)? {
            return Ok(found);
        }
    }
}

fn request() -> [u8; MESSAGE_HEADER + NEIGHBOUR_HEADER] {
    let mut message = [0; MESSAGE_HEADER + NEIGHBOUR_HEADER];
    let length = u32::try_from(message.len()).expect("a short message");
    message[0..4].copy_from_slice(&length.to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_GETNEIGH.to_ne_bytes());
    message[6..8].copy_from_slice(&DUMP.to_ne_bytes());
    message[MESSAGE_HEADER] = u8::try_from(libc::AF_INET6).expect("a small number");
    message
}

/// Reads the messages of one answer; whether it was the last one.
fn read(mut answer: &[u8], interface: u32, found: &mut HashMap<Ipv6Addr, MacAddress>) -> Result<bool, Errno> {
    while let Some(header) = answer.first_chunk::<MESSAGE_HEADER>() {
        let length = usize::try_from(u32_at(header, 0)).map_err(|_| Errno::BADMSG)?;
        let message = answer.get(MESSAGE_HEADER..length).ok_or(Errno::BADMSG)?;
        match i32::from(u16_at(header, 4)) {
            libc::NLMSG_DONE => return Ok(true),
            libc::NLMSG_ERROR => {
                let code = message.first_chunk::<4>().map_or(0, |code| i32::from_ne_bytes(*code));
                return Err(Errno::from_raw_os_error(-code));
            }
            kind if kind == i32::from(libc::RTM_NEWNEIGH) => found.extend(entry(message, interface)),
            _ => {}
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// One neighbour: `ndmsg`, then attributes.
fn entry(message: &[u8], interface: u32) -> Option<(Ipv6Addr, MacAddress)> {
    const DESTINATION: u16 = 1;
    const LINK_ADDRESS: u16 = 2;
    let header = message.first_chunk::<NEIGHBOUR_HEADER>()?;
    if u32_at(header, 4) != interface || u16_at(header, 8) & VALID == 0 {
        return None;
    }
    let mut attributes = message.get(NEIGHBOUR_HEADER..)?;
    let (mut address, mut mac) = (None, None);
    while let Some(head) = attributes.first_chunk::<4>() {
        let length = usize::from(u16_at(head, 0));
        let value = attributes.get(4..length)?;
        match u16_at(head, 2) {
            DESTINATION => address = <[u8; 16]>::try_from(value).ok().map(Ipv6Addr::from),
            LINK_ADDRESS => mac = value.try_into().ok().map(MacAddress),
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((address?, mac?))
}

fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(MESSAGE_HEADER + body.len()).unwrap();
        let mut message = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10], body].concat();
        message.resize(message.len().next_multiple_of(4), 0);
        message
    }

    fn neighbour(interface: u32, state: u16, address: Ipv6Addr, mac: &[u8]) -> Vec<u8> {
        let header = [&[10, 0, 0, 0][..], &interface.to_ne_bytes(), &state.to_ne_bytes(), &[0, 1]].concat();
        let attribute = |kind: u16, value: &[u8]| {
            let length = u16::try_from(4 + value.len()).unwrap();
            let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let body = [header, attribute(9, &[1]), attribute(1, &address.octets()), attribute(2, mac)].concat();
        message(libc::RTM_NEWNEIGH, &body)
    }

    #[test]
    fn known_addresses_of_the_interface_alone() {
        let address = |last: u16| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        let mac = [2, 0, 0, 0, 0, 7];
        let mut answer = [
            neighbour(3, 2, address(1), &mac),
            neighbour(3, 4, address(2), &mac),
            neighbour(3, 1, address(3), &[]),
            neighbour(3, 0x20, address(4), &mac),
            neighbour(4, 2, address(5), &mac),
            neighbour(3, 0x80, address(6), &[1, 2]),
        ]
        .concat();
        let mut found = HashMap::new();
        assert_eq!(read(&answer, 3, &mut found), Ok(false));
        assert_eq!(found, HashMap::from([1, 2].map(|last| (address(last), MacAddress(mac)))));
        answer.extend(message(3, &[0; 4]));
        assert_eq!(read(&answer, 3, &mut found), Ok(true));
        assert_eq!(read(&answer[..20], 3, &mut found), Err(Errno::BADMSG));
        let refused = message(2, &(-libc::EPERM).to_ne_bytes());
        assert_eq!(read(&refused, 3, &mut found), Err(Errno::PERM));
    }

    /// The kernel of this machine answers, whatever there is.
    #[test]
    fn a_table_can_be_read() {
        assert_eq!(table(u32::MAX), Ok(HashMap::new()));
    }
}
