//! What the kernel says of an interface: one rtnetlink question, one answer (rtnetlink(7)).

use core::str;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::OwnedFd;

/// What is known of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkInfo {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) up: bool,
    /// True if somebody is at the other end.
    pub(super) carrier: bool,
    pub(super) mac: [u8; 6],
    pub(super) mtu: u32,
    /// `veth`, `tun`, …; empty for hardware.
    pub(super) kind: String,
    /// The bridge or bond that it belongs to.
    pub(super) master: Option<u32>,
    /// The other end of a veth, the lower device of a VLAN.
    pub(super) peer: Option<u32>,
    /// True if `peer` is a number in another network namespace.
    pub(super) peer_elsewhere: bool,
    pub(super) receive_queues: u32,
    pub(super) transmit_queues: u32,
    pub(super) xdp: XdpState,
}

/// The XDP programs of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct XdpState {
    /// The kernel's number of the program in the driver.
    pub(super) native: Option<u32>,
    /// The kernel's number of the program in the generic hook.
    pub(super) generic: Option<u32>,
}

impl XdpState {
    /// The program that sees packets first.
    pub(super) fn program(self) -> Option<u32> {
        self.native.or(self.generic)
    }
}

/// Which interface is meant.
#[derive(Clone, Copy, Debug)]
pub(super) enum Which<'a> {
    Name(&'a str),
    Index(u32),
}

/// Asks the kernel for one interface of the calling thread's network namespace.
///
/// # Errors
/// `NODEV` when there is none.
pub(super) fn query(which: Which<'_>) -> Result<LinkInfo, Errno> {
    let socket = route_socket()?;
    rustix::net::send(&socket, &request(which)?, rustix::net::SendFlags::empty())?;
    let mut answer = vec![0_u8; 1 << 16];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], rustix::net::RecvFlags::empty())?;
    parse(&answer[..length])
}

/// The interfaces that `upper` receives from: of a bond its members, of a VLAN interface and its like the one that it
/// is on. None of another network namespace, and none where the kernel does not answer.
pub(super) fn below(upper: &LinkInfo) -> Vec<LinkInfo> {
    match upper.kind.as_str() {
        "vlan" | "macvlan" | "macvtap" | "ipvlan" => {
            let lower = upper.peer.filter(|_| !upper.peer_elsewhere);
            lower.and_then(|index| query(Which::Index(index)).ok()).into_iter().collect()
        }
        "bond" | "team" | "bridge" => {
            let members = all().unwrap_or_default().into_iter();
            members.filter(|link| link.master == Some(upper.index)).collect()
        }
        _ => Vec::new(),
    }
}

/// True if the kernel takes the VLAN tag off a packet on its way to the generic XDP of `upper`: it does so between a
/// member's device and whatever receives for the members.
pub(super) fn is_untagged_on_the_way(upper: &LinkInfo) -> bool {
    matches!(upper.kind.as_str(), "bond" | "team" | "macvlan" | "macvtap" | "ipvlan")
}

/// True if the kernel has VLAN interfaces on `lower`.
pub(super) fn carries_vlans(lower: &LinkInfo) -> bool {
    let is_on =
        |link: &LinkInfo| link.kind == "vlan" && link.peer == Some(lower.index) && !link.peer_elsewhere;
    all().is_ok_and(|links| links.iter().any(is_on))
}

/// All interfaces of the calling thread's network namespace.
fn all() -> Result<Vec<LinkInfo>, Errno> {
    let socket = route_socket()?;
    let mut message = request(Which::Index(0))?;
    message[6..8].copy_from_slice(&(1_u16 | 0x300).to_ne_bytes()); // NLM_F_REQUEST | NLM_F_DUMP
    rustix::net::send(&socket, &message, rustix::net::SendFlags::empty())?;
    let mut links = Vec::new();
    let mut answers = vec![0_u8; 1 << 16];
    loop {
        let (length, _) = rustix::net::recv(&socket, &mut answers[..], rustix::net::RecvFlags::empty())?;
        let mut rest = answers.get(..length).unwrap_or_default();
        while let Some(length) = number(Some(rest)).filter(|&length| length >= 16) {
            let one = rest.get(..length as usize).ok_or(Errno::BADMSG)?;
            rest = rest.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
            if number16(one.get(4..)).map(i32::from) == Some(libc::NLMSG_DONE) {
                return Ok(links);
            }
            links.push(parse(one)?);
        }
    }
}

fn route_socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
}

/// An RTM_GETLINK message: `nlmsghdr`, `ifinfomsg`, the name as an attribute.
fn request(which: Which<'_>) -> Result<Vec<u8>, Errno> {
    let (name, index) = match which {
        Which::Name(name) => (Some(name), 0),
        Which::Index(index) => (None, index),
    };
    let mut message = vec![0_u8; MESSAGE_HEADER + LINK_HEADER];
    message[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&1_u16.to_ne_bytes()); // NLM_F_REQUEST
    message[MESSAGE_HEADER + 4..MESSAGE_HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    if let Some(name) = name {
        let length = u16::try_from(ATTRIBUTE_HEADER + name.len() + 1).map_err(|_| Errno::NAMETOOLONG)?;
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&libc::IFLA_IFNAME.to_ne_bytes());
        message.extend_from_slice(name.as_bytes());
        message.push(0);
        message.resize(message.len().next_multiple_of(4), 0);
    }
    let length = u32::try_from(message.len()).map_err(|_| Errno::NAMETOOLONG)?;
    message[0..4].copy_from_slice(&length.to_ne_bytes());
    Ok(message)
}

fn parse(answer: &[u8]) -> Result<LinkInfo, Errno> {
    let kind = number16(answer.get(4..)).ok_or(Errno::BADMSG)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let code = number(answer.get(MESSAGE_HEADER..)).ok_or(Errno::BADMSG)?.cast_signed();
        return Err(Errno::from_raw_os_error(-code));
    }
    let header = answer.get(MESSAGE_HEADER..MESSAGE_HEADER + LINK_HEADER).ok_or(Errno::BADMSG)?;
    let flags = number(header.get(8..)).unwrap_or(0);
    let mut link = LinkInfo {
        index: number(header.get(4..)).unwrap_or(0),
        up: flags & libc::IFF_UP.cast_unsigned() != 0,
        carrier: flags & IFF_LOWER_UP != 0,
        ..LinkInfo::default()
    };
    for (kind, value) in attributes(&answer[MESSAGE_HEADER + LINK_HEADER..]) {
        read_attribute(&mut link, kind, value);
    }
    Ok(link)
}

fn read_attribute(link: &mut LinkInfo, kind: u16, value: &[u8]) {
    match kind {
        libc::IFLA_IFNAME => link.name = text(value),
        libc::IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
        libc::IFLA_MTU => link.mtu = number(Some(value)).unwrap_or(0),
        libc::IFLA_MASTER => link.master = number(Some(value)),
        libc::IFLA_LINK => link.peer = number(Some(value)).filter(|&index| index != 0),
        libc::IFLA_LINK_NETNSID => link.peer_elsewhere = true,
        libc::IFLA_NUM_RX_QUEUES => link.receive_queues = number(Some(value)).unwrap_or(0),
        libc::IFLA_NUM_TX_QUEUES => link.transmit_queues = number(Some(value)).unwrap_or(0),
        libc::IFLA_LINKINFO => {
            let kind = attributes(value).find(|&(kind, _)| kind == libc::IFLA_INFO_KIND);
            link.kind = kind.map(|(_, value)| text(value)).unwrap_or_default();
        }
        libc::IFLA_XDP => link.xdp = xdp_state(value),
        _ => {}
    }
}

fn xdp_state(value: &[u8]) -> XdpState {
    let find = |wanted| attributes(value).find(|&(kind, _)| kind == wanted).map(|(_, value)| value);
    let id = |wanted| number(find(wanted)).filter(|&id| id != 0);
    let attached = find(XDP_ATTACHED).and_then(|value| value.first().copied()).unwrap_or(0);
    // With one program attached the kernel names it once; with several, each by its own attribute.
    let single = id(XDP_PROGRAM);
    XdpState {
        native: id(XDP_DRIVER_PROGRAM).or(single.filter(|_| attached == 1 || attached == 3)),
        generic: id(XDP_GENERIC_PROGRAM).or(single.filter(|_| attached == 2)),
    }
}

/// The attributes in `bytes`: length and type (16 bits each), value, padded to four bytes.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let length = usize::from(number16(Some(bytes))?);
        let kind = number16(bytes.get(2..))? & ATTRIBUTE_TYPE;
        let value = bytes.get(ATTRIBUTE_HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(super) fn number(bytes: Option<&[u8]>) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes?.get(..4)?.try_into().ok()?))
}

pub(super) fn number16(bytes: Option<&[u8]>) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes?.get(..2)?.try_into().ok()?))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    str::from_utf8(&bytes[..end]).unwrap_or_default().to_owned()
}

/// linux/if.h; the layer below is up.
const IFF_LOWER_UP: u32 = 1 << 16;
const MESSAGE_HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// The bits of an attribute's type that are not flags.
const ATTRIBUTE_TYPE: u16 = 0x3fff;
/// `IFLA_XDP_*` of linux/if_link.h.
const XDP_ATTACHED: u16 = 2;
const XDP_PROGRAM: u16 = 4;
const XDP_DRIVER_PROGRAM: u16 = 5;
const XDP_GENERIC_PROGRAM: u16 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_number() {
        let by_name = query(Which::Name("lo")).expect("every namespace has lo");
        assert_eq!((by_name.name.as_str(), by_name.mtu), ("lo", 65_536));
        assert_eq!(query(Which::Index(by_name.index)), Ok(by_name));
    }

    #[test]
    fn all_interfaces_are_found() {
        let lo = query(Which::Name("lo")).expect("every namespace has lo");
        let all = all().expect("an answer");
        assert!(all.iter().any(|link| link.index == lo.index && link.name == "lo"), "{all:?}");
        assert_eq!(below(&lo), Vec::new());
    }

    #[test]
    fn a_missing_interface_is_no_device() {
        assert_eq!(query(Which::Name("pd-none")), Err(Errno::NODEV));
    }

    #[test]
    fn a_cut_answer_is_no_panic() {
        for length in 0..48 {
            let _ = parse(&vec![0xff; length]);
        }
    }
}
