//! Properties of an interface from the kernel: one rtnetlink question, one answer (rtnetlink(7)).

use crate::netlink::{Client, attributes, find, number, put, text};
use rustix::io::Errno;

/// Properties of one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkInfo {
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) up: bool,
    /// True if the link has a carrier.
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

/// Interface by name or by index.
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
    let (name, index) = match which {
        Which::Name(name) => (Some(name), 0),
        Which::Index(index) => (None, index),
    };
    let mut body = vec![0; LINK_HEADER];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    if let Some(name) = name {
        put(&mut body, libc::IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
    }
    let answers = Client::open(None)?.ask(libc::RTM_GETLINK, &body)?;
    answers.iter().find_map(|(_, body)| parse(body)).ok_or(Errno::BADMSG)
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
    let answers = Client::open(None)?.dump(libc::RTM_GETLINK, &[0; LINK_HEADER])?;
    answers.iter().map(|(_, body)| parse(body).ok_or(Errno::BADMSG)).collect()
}

/// `ifinfomsg`, then attributes.
fn parse(body: &[u8]) -> Option<LinkInfo> {
    let flags = number(body.get(8..)?)?;
    let mut link = LinkInfo {
        index: number(&body[4..])?,
        up: flags & libc::IFF_UP.cast_unsigned() != 0,
        carrier: flags & libc::IFF_LOWER_UP.cast_unsigned() != 0,
        ..LinkInfo::default()
    };
    for (kind, value) in attributes(body.get(LINK_HEADER..)?) {
        read_attribute(&mut link, kind, value);
    }
    Some(link)
}

fn read_attribute(link: &mut LinkInfo, kind: u16, value: &[u8]) {
    match kind {
        libc::IFLA_IFNAME => link.name = text(value),
        libc::IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
        libc::IFLA_MTU => link.mtu = number(value).unwrap_or(0),
        libc::IFLA_MASTER => link.master = number(value),
        libc::IFLA_LINK => link.peer = number(value).filter(|&index| index != 0),
        libc::IFLA_LINK_NETNSID => link.peer_elsewhere = true,
        libc::IFLA_NUM_RX_QUEUES => link.receive_queues = number(value).unwrap_or(0),
        libc::IFLA_NUM_TX_QUEUES => link.transmit_queues = number(value).unwrap_or(0),
        libc::IFLA_LINKINFO => {
            link.kind = find(value, libc::IFLA_INFO_KIND).map(text).unwrap_or_default();
        }
        libc::IFLA_XDP => link.xdp = xdp_state(value),
        _ => {}
    }
}

fn xdp_state(value: &[u8]) -> XdpState {
    let id = |wanted| find(value, wanted).and_then(number).filter(|&id| id != 0);
    let attached = find(value, XDP_ATTACHED).and_then(|value| value.first().copied()).unwrap_or(0);
    // With one program attached the kernel names it once; with several, each by its own attribute.
    let single = id(XDP_PROGRAM);
    XdpState {
        native: id(XDP_DRIVER_PROGRAM).or(single.filter(|_| attached == 1 || attached == 3)),
        generic: id(XDP_GENERIC_PROGRAM).or(single.filter(|_| attached == 2)),
    }
}

/// Number of bytes of `ifinfomsg`.
const LINK_HEADER: usize = 16;
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
