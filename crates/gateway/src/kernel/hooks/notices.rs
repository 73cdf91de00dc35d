//! Netlink notices about changes that affect how the kernel forwards packets (netlink(7)).
//!
//! | socket | groups | subject |
//! |---|---|---|
//! | NETLINK_NETFILTER | nf_tables | chains, rules, sets |
//! | NETLINK_XFRM | policies, security associations | IPsec |
//! | NETLINK_ROUTE | rules of both families, tc | policy routing, filters |
//! | NETLINK_ROUTE | routes of both families, nexthop objects | routes by an interface that is no port |
//! | NETLINK_ROUTE | settings of both families | forwarding |
//!
//! The kernel sends a notice before it answers the request that made the change. Lost notices count as notices.

use super::affected::{self, Affected, AffectedObjects, Known};
use polder_devices::netlink::{attributes, messages, number};
use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink, XFRM};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, bind, getsockname, recv, socket_with,
};
use std::os::fd::OwnedFd;

/// Netlink sockets that receive change notices.
#[derive(Debug)]
pub struct Subscription {
    sockets: Vec<(Source, OwnedFd)>,
    datagram: Vec<u8>,
    known: Known,
    affected: Vec<AffectedObjects>,
    /// True if links, neighbours and addresses are included.
    hears_evidence: bool,
}

/// Subjects of the notices that were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// A packet hook, or a forwarding setting.
    pub any: bool,
    /// A packet hook that packets may meet from now on.
    pub hook: bool,
    /// A route by an interface that is no port.
    pub route: bool,
    /// A change of an address, link or setting that may affect how the kernel forwards any packet.
    pub evidence: bool,
}

impl Noticed {
    /// True if the kernel may forward any packet differently than before.
    pub fn changes_evidence(self) -> bool {
        self.hook || self.evidence
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Nftables,
    Ipsec,
    Routing,
}

impl Subscription {
    /// Subscribes; kernels without nf_tables or IPsec have no notices about these.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn open() -> Result<Self, Errno> {
        let routing = mask(&ROUTING);
        let wanted = [
            (Source::Routing, None, routing),
            (Source::Nftables, Some(NETFILTER), 1 << (NFNLGRP_NFTABLES - 1)),
            (Source::Ipsec, Some(XFRM), mask(&IPSEC)),
        ];
        let mut sockets = Vec::new();
        for (source, protocol, groups) in wanted {
            match subscribe(protocol, groups) {
                Ok(socket) => sockets.push((source, socket)),
                Err(Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT) if source != Source::Routing => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            sockets,
            datagram: vec![0; DATAGRAM],
            known: Known::default(),
            affected: Vec::new(),
            hears_evidence: false,
        })
    }

    /// Adds links, neighbours and addresses to the subscription. Returns true the first time.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn hear_evidence(&mut self) -> Result<bool, Errno> {
        if self.hears_evidence {
            return Ok(false);
        }
        for (_, socket) in self.sockets.iter().filter(|(source, _)| *source == Source::Routing) {
            let port = SocketAddrNetlink::try_from(getsockname(socket)?)?.pid();
            bind(socket, &SocketAddrNetlink::new(port, mask(&ROUTING) | mask(&EVIDENCE)))?;
        }
        self.known.read()?;
        self.hears_evidence = true;
        Ok(true)
    }

    /// Descriptors that are readable when notices are queued.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sockets.iter().map(|(_, socket)| socket)
    }

    /// Connections affected by the notices of the last [`read`](Self::read), unless all are.
    pub fn affected(&self) -> &[AffectedObjects] {
        &self.affected
    }

    /// Reads queued notices; `is_port` is true for the interface index of a port.
    pub fn read(&mut self, is_port: impl Fn(u32) -> bool) -> Noticed {
        let mut noticed = Noticed::default();
        self.affected.clear();
        for (source, socket) in &self.sockets {
            for _ in 0..NOTICES {
                match read_one(
                    (*source, socket),
                    &mut self.datagram,
                    (&is_port, &mut self.known),
                    &mut self.affected,
                ) {
                    Some(one) => noticed = noticed | one,
                    None => break,
                }
            }
        }
        noticed
    }
}

/// Reads one datagram of notices; `None` if none is queued.
fn read_one(
    (source, socket): (Source, &OwnedFd),
    datagram: &mut [u8],
    of: (&impl Fn(u32) -> bool, &mut Known),
    affected: &mut Vec<AffectedObjects>,
) -> Option<Noticed> {
    let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    match recv(socket, &mut *datagram, flags) {
        Ok((_, length)) => {
            Some(datagram.get(..length).map_or(LOST, |said| subject(source, said, of, affected)))
        }
        Err(Errno::NOBUFS) => Some(LOST),
        Err(Errno::INTR) => Some(Noticed::default()),
        Err(_) => None,
    }
}

impl std::ops::BitOr for Noticed {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            any: self.any | other.any,
            hook: self.hook | other.hook,
            route: self.route | other.route,
            evidence: self.evidence | other.evidence,
        }
    }
}

/// Bit mask of groups.
fn mask(groups: &[u32]) -> u32 {
    groups.iter().fold(0, |mask, group| mask | 1 << (group - 1))
}

fn subscribe(protocol: Option<Protocol>, groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
    if set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        set_socket_recv_buffer_size(&socket, BUFFER_BYTES)?;
    }
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Subject of a datagram.
fn subject(
    source: Source,
    datagram: &[u8],
    (is_port, known): (&impl Fn(u32) -> bool, &mut Known),
    affected: &mut Vec<AffectedObjects>,
) -> Noticed {
    match source {
        Source::Nftables | Source::Ipsec => HOOK,
        Source::Routing => messages(datagram).fold(Noticed::default(), |noticed, message| {
            noticed | routing((message.kind, message.body), is_port, known, affected)
        }),
    }
}

/// Subject of a routing message.
fn routing(
    (kind, body): (u16, &[u8]),
    is_port: &impl Fn(u32) -> bool,
    known: &mut Known,
    affected: &mut Vec<AffectedObjects>,
) -> Noticed {
    let (noticed, touch) = match kind {
        RTM_NEWROUTE | RTM_DELROUTE => {
            (Noticed { route: leads_elsewhere(body, is_port), ..Noticed::default() }, affected::route(body))
        }
        RTM_NEWNEXTHOP | RTM_DELNEXTHOP => {
            (Noticed { route: hop_leads_elsewhere(body, is_port), ..Noticed::default() }, Affected::All)
        }
        RTM_NEWLINK | RTM_DELLINK => (Noticed::default(), known.link(kind, body)),
        RTM_NEWADDR | RTM_DELADDR => (Noticed::default(), known.address(kind, body)),
        RTM_NEWNEIGH | RTM_DELNEIGH => (Noticed::default(), known.neighbour(kind, body)),
        RTM_NEWNETCONF | RTM_DELNETCONF => (Noticed { any: true, ..Noticed::default() }, Affected::All),
        _ => (HOOK, Affected::All),
    };
    match touch {
        Affected::None => noticed,
        Affected::Some(one) => {
            affected.push(one);
            noticed
        }
        Affected::All => Noticed { evidence: true, ..noticed },
    }
}

/// True if a route leads by an interface that is no port: `rtmsg`, then attributes.
fn leads_elsewhere(body: &[u8], is_port: &impl Fn(u32) -> bool) -> bool {
    let (Some(&[family, bits, ..]), Some(&kind), Some(rest)) =
        (body.first_chunk::<2>(), body.get(7), body.get(12..))
    else {
        return false;
    };
    if kind != RTN_UNICAST {
        return false;
    }
    let mut is_elsewhere = false;
    for (attribute, value) in attributes(rest) {
        match attribute {
            // Link-local networks exist on each link and are never forwarded.
            RTA_DST if i32::from(family) == libc::AF_INET6 && bits >= 10 && is_link_local(value) => {
                return false;
            }
            RTA_OIF => is_elsewhere |= number(value).is_some_and(|index| !is_port(index)),
            RTA_MULTIPATH => is_elsewhere |= hops(value).any(|index| !is_port(index)),
            _ => {}
        }
    }
    is_elsewhere
}

/// True if a nexthop object (`nhmsg`, then attributes) leads to an interface that is no port.
fn hop_leads_elsewhere(body: &[u8], is_port: &impl Fn(u32) -> bool) -> bool {
    let mut attributes = attributes(body.get(8..).unwrap_or_default());
    attributes.any(|(kind, value)| kind == NHA_OIF && number(value).is_some_and(|index| !is_port(index)))
}

/// Interface indexes of next hops: `rtnexthop`, each with attributes.
fn hops(mut value: &[u8]) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let length = usize::from(polder_devices::netlink::number16(value)?);
        let index = number(value.get(4..)?)?;
        // A length below the header's ends the list.
        value = value.get(length.max(8).next_multiple_of(4)..).unwrap_or_default();
        Some(index)
    })
}

fn is_link_local(address: &[u8]) -> bool {
    matches!(address, [0xfe, second, ..] if second & 0xc0 == 0x80)
}

const HOOK: Noticed = Noticed { any: true, hook: true, route: false, evidence: true };
const LOST: Noticed = Noticed { any: true, hook: true, route: true, evidence: true };
/// Maximum number of datagrams read from a socket at a time.
const NOTICES: usize = 1000;
/// Maximum length of a notice's datagram in bytes.
const DATAGRAM: usize = 1 << 15;
/// Size of the receive buffer in bytes.
const BUFFER_BYTES: usize = 1 << 20;
/// linux/netfilter/nfnetlink.h.
const NFNLGRP_NFTABLES: u32 = 7;
/// `XFRMNLGRP_SA` and `XFRMNLGRP_POLICY` of linux/xfrm.h.
const IPSEC: [u32; 2] = [3, 4];
/// `RTNLGRP_*` of linux/rtnetlink.h: tc; IPv4 routes, rules, settings; IPv6 routes, rules, settings; nexthop
/// objects.
const ROUTING: [u32; 8] = [4, 7, 8, 24, 11, 19, 25, 32];
/// `RTNLGRP_*`: links, neighbours, IPv4 and IPv6 addresses.
const EVIDENCE: [u32; 4] = [1, 3, 5, 9];
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTM_NEWNETCONF: u16 = 80;
const RTM_DELNETCONF: u16 = 81;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTN_UNICAST: u8 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
/// linux/nexthop.h.
const NHA_OIF: u16 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(kind: u16, body: &[u8]) -> Vec<u8> {
        polder_devices::netlink::message(kind, 0, 0, body)
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(value.len() + 4).unwrap();
        let mut bytes = [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn route(family: u8, (kind, bits): (u8, u8), attributes: &[Vec<u8>]) -> Vec<u8> {
        let header = [family, bits, 0, 0, 254, 3, 0, kind, 0, 0, 0, 0];
        message(RTM_NEWROUTE, &[&header[..], &attributes.concat()].concat())
    }

    fn of(datagram: &[u8]) -> Noticed {
        subject(Source::Routing, datagram, (&|index| index == 3, &mut Known::default()), &mut Vec::new())
    }

    const ROUTE_ALONE: Noticed = Noticed { any: false, hook: false, route: true, evidence: false };
    const EVIDENCE_ALONE: Noticed = Noticed { any: false, hook: false, route: false, evidence: true };

    #[test]
    fn routes_count_where_an_interface_is_no_port() {
        let by = |index: u32| attribute(RTA_OIF, &index.to_ne_bytes());
        let hop = |index: u32| [&[8, 0, 0, 0][..], &index.to_ne_bytes()].concat();
        let several = |indices: [u32; 2]| attribute(RTA_MULTIPATH, &indices.map(hop).concat());
        assert_eq!(of(&route(2, (1, 0), &[by(3)])), Noticed::default());
        assert_eq!(of(&route(2, (1, 0), &[by(4)])), ROUTE_ALONE);
        assert_eq!(of(&route(2, (1, 0), &[several([3, 3])])), Noticed::default());
        assert_eq!(of(&route(2, (1, 0), &[several([3, 4])])), ROUTE_ALONE);
        assert_eq!(of(&route(2, (2, 32), &[by(4)])), Noticed::default(), "an address of this machine");
        let local = attribute(RTA_DST, &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(of(&route(10, (1, 64), &[local, by(4)])), Noticed::default());
        let object = |index: u32| {
            message(RTM_NEWNEXTHOP, &[&[0; 8][..], &attribute(NHA_OIF, &index.to_ne_bytes())].concat())
        };
        let both = Noticed { evidence: true, ..ROUTE_ALONE };
        assert_eq!([of(&object(3)), of(&object(4))], [EVIDENCE_ALONE, both]);
    }

    #[test]
    fn rules_and_filters_are_hooks_and_settings_are_read_alone() {
        assert_eq!(of(&message(32, &[0; 12])), HOOK, "a rule of routing");
        assert_eq!(of(&message(44, &[0; 20])), HOOK, "a filter of tc");
        assert_eq!(of(&message(RTM_NEWNETCONF, &[0; 4])), Noticed { any: true, ..EVIDENCE_ALONE });
        assert_eq!(subject(Source::Nftables, &[], (&|_| true, &mut Known::default()), &mut Vec::new()), HOOK);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(datagram in proptest::collection::vec(any::<u8>(), 0..200), kind in 16_u16..120) {
            of(&datagram);
            of(&message(kind, &datagram));
            hops(&datagram).count();
        }
    }
}
