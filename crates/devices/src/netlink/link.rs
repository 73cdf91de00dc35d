//! Messages about interfaces: `ifinfomsg`, then attributes (rtnetlink(7), linux/if_link.h).

use super::{attributes, find, number, number16, text};

/// Number of bytes of `ifinfomsg`.
pub const HEADER: usize = 16;

/// A kernel interface, as a message describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Name.
    pub name: String,
    /// True if the interface is administratively up.
    pub up: bool,
    /// True if the link has a carrier.
    pub carrier: bool,
    /// Header of its packets.
    pub layer: LinkLayer,
    /// MAC address: [`NEAR_STATION`] for [`LinkLayer::Packets`]; zeros if it has none.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// `veth`, `tun`, …; empty for hardware.
    pub kind: String,
    /// The bridge, bond or VRF that the interface belongs to.
    pub master: Option<u32>,
    /// The peer of a veth, the lower interface of a VLAN.
    pub peer: Option<u32>,
    /// True if `peer` is an index in another network namespace.
    pub peer_elsewhere: bool,
    /// Id of that network namespace (`IFLA_LINK_NETNSID`) in the queried namespace.
    pub peer_namespace: Option<u32>,
    /// VLAN ID of a VLAN interface (802.1Q only).
    pub vlan: Option<u16>,
    /// Mode of a macvlan: `MACVLAN_MODE_*` of linux/if_link.h.
    pub macvlan_mode: Option<u32>,
    /// True if the interface is a bridge whose own options call iptables, ip6tables.
    pub calls: [bool; 2],
    /// Number of RX queues.
    pub receive_queues: u32,
    /// Number of TX queues.
    pub transmit_queues: u32,
    /// Its XDP programs.
    pub xdp: XdpState,
    /// Kind of its queueing discipline (`IFLA_QDISC`).
    pub qdisc: String,
    /// Number of packets dropped on transmit.
    pub transmit_dropped: u64,
}

impl Link {
    /// The queueing discipline, if it shapes or sorts what leaves the interface more than those do that the kernel gives
    /// interfaces by default.
    pub fn shaper(&self) -> Option<&str> {
        let is_default = matches!(
            self.qdisc.as_str(),
            "" | "noqueue" | "noop" | "mq" | "pfifo_fast" | "pfifo" | "bfifo" | "fq" | "fq_codel"
        );
        (!is_default).then_some(self.qdisc.as_str())
    }
}

/// Link-layer header of an interface's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkLayer {
    /// Ethernet, or another header.
    #[default]
    Ethernet,
    /// No header: IPv4 and IPv6 packets of a point-to-point link (WireGuard, TUN, PPP, raw IP, IPIP).
    Packets,
}

impl LinkLayer {
    /// Returns the layer of a hardware type (`ARPHRD_*` of linux/if_arp.h).
    ///
    /// SIT and GRE interfaces are not included: their MAC header is the outer IP header, which programs at the
    /// ingress would read.
    fn of(hardware: u16) -> Self {
        if WITHOUT_HEADER.contains(&hardware) { Self::Packets } else { Self::Ethernet }
    }
}

/// `ARPHRD_PPP`, `ARPHRD_RAWIP`, `ARPHRD_TUNNEL`, `ARPHRD_TUNNEL6`, `ARPHRD_NONE`.
const WITHOUT_HEADER: [u16; 5] = [512, 519, 768, 769, 0xfffe];

/// MAC addresses in the internal Ethernet headers of packets of [`LinkLayer::Packets`]: this host's, and that of
/// the other end.
pub const NEAR_STATION: [u8; 6] = [0x02, 0x70, 0x6f, 0x6c, 0x00, 0x01];
/// See [`NEAR_STATION`].
pub const FAR_STATION: [u8; 6] = [0x02, 0x70, 0x6f, 0x6c, 0x00, 0x02];

/// The XDP programs of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpState {
    /// Id of the program at the driver's hook.
    pub native: Option<u32>,
    /// Id of the program at the generic hook.
    pub generic: Option<u32>,
}

impl XdpState {
    /// Returns the program that sees packets first.
    pub fn program(self) -> Option<u32> {
        self.native.or(self.generic)
    }
}

impl Link {
    /// Parses the body of a message; `None` if its header is truncated.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let flags = number(body.get(8..)?)?;
        let mut link = Self {
            index: number(&body[4..])?,
            up: flags & libc::IFF_UP.cast_unsigned() != 0,
            carrier: flags & libc::IFF_LOWER_UP.cast_unsigned() != 0,
            ..Self::default()
        };
        link.layer = number16(body.get(2..)?).map(LinkLayer::of)?;
        attributes(body.get(HEADER..)?).for_each(|(kind, value)| link.read(kind, value));
        if link.layer == LinkLayer::Packets {
            link.mac = NEAR_STATION;
        }
        Some(link)
    }

    /// Returns the lower interface or the veth peer, if it is in the same network namespace.
    pub fn lower(&self) -> Option<u32> {
        self.peer.filter(|_| !self.peer_elsewhere)
    }

    fn read(&mut self, kind: u16, value: &[u8]) {
        match kind {
            libc::IFLA_IFNAME => self.name = text(value),
            libc::IFLA_ADDRESS => self.mac = value.try_into().unwrap_or_default(),
            libc::IFLA_MTU => self.mtu = number(value).unwrap_or(0),
            libc::IFLA_MASTER => self.master = number(value),
            libc::IFLA_LINK => self.peer = number(value).filter(|&index| index != 0),
            libc::IFLA_LINK_NETNSID => {
                self.peer_elsewhere = true;
                // A negative number means none.
                self.peer_namespace = number(value).filter(|&id| i32::try_from(id).is_ok());
            }
            libc::IFLA_NUM_RX_QUEUES => self.receive_queues = number(value).unwrap_or(0),
            libc::IFLA_NUM_TX_QUEUES => self.transmit_queues = number(value).unwrap_or(0),
            libc::IFLA_LINKINFO => self.read_information(value),
            libc::IFLA_QDISC => self.qdisc = text(value),
            libc::IFLA_XDP => self.xdp = xdp_state(value),
            libc::IFLA_STATS64 => {
                let dropped = value.get(TRANSMIT_DROPPED..).and_then(<[u8]>::first_chunk);
                self.transmit_dropped = dropped.map_or(0, |bytes| u64::from_ne_bytes(*bytes));
            }
            _ => {}
        }
    }

    fn read_information(&mut self, value: &[u8]) {
        self.kind = find(value, libc::IFLA_INFO_KIND).map(text).unwrap_or_default();
        let data = find(value, libc::IFLA_INFO_DATA).unwrap_or_default();
        match self.kind.as_str() {
            "vlan" => {
                let protocol = find(data, VLAN_PROTOCOL).and_then(|value| value.first_chunk());
                let is_8021q = protocol.is_none_or(|protocol| u16::from_be_bytes(*protocol) == 0x8100);
                self.vlan = find(data, VLAN_ID).and_then(number16).filter(|_| is_8021q);
            }
            // For a VXLAN interface the kernel does not use `IFLA_LINK`.
            "vxlan" => {
                self.peer = self.peer.or(find(data, VXLAN_LINK).and_then(number).filter(|&index| index != 0))
            }
            "macvlan" => self.macvlan_mode = find(data, MACVLAN_MODE).and_then(number),
            "bridge" => self.calls = BRIDGE_CALLS.map(|kind| find(data, kind) == Some(&[1])),
            _ => {}
        }
    }
}

fn xdp_state(value: &[u8]) -> XdpState {
    let id = |wanted| find(value, wanted).and_then(number).filter(|&id| id != 0);
    let attached = find(value, XDP_ATTACHED).and_then(|value| value.first().copied()).unwrap_or(0);
    // With one program the kernel gives one attribute; with several, one for each hook.
    let single = id(XDP_PROGRAM);
    XdpState {
        native: id(XDP_DRIVER_PROGRAM).or(single.filter(|_| attached == 1 || attached == 3)),
        generic: id(XDP_GENERIC_PROGRAM).or(single.filter(|_| attached == 2)),
    }
}

/// Offset of `tx_dropped` in `struct rtnl_link_stats64`.
const TRANSMIT_DROPPED: usize = 56;
/// `IFLA_XDP_*`.
const XDP_ATTACHED: u16 = 2;
const XDP_PROGRAM: u16 = 4;
const XDP_DRIVER_PROGRAM: u16 = 5;
const XDP_GENERIC_PROGRAM: u16 = 6;
/// `IFLA_VLAN_*`.
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;
/// `IFLA_VXLAN_LINK`.
const VXLAN_LINK: u16 = 3;
/// `IFLA_MACVLAN_MODE`.
const MACVLAN_MODE: u16 = 1;
/// `IFLA_BR_NF_CALL_IPTABLES`, `IFLA_BR_NF_CALL_IP6TABLES`.
const BRIDGE_CALLS: [u16; 2] = [36, 37];

#[cfg(test)]
mod tests {
    use super::super::put;
    use super::*;

    /// A message about interface 7 with a kind and attributes of that kind.
    fn of_kind(kind: &str, data: &[(u16, &[u8])], rest: &[(u16, &[u8])]) -> Link {
        let (mut options, mut information, mut body) = (Vec::new(), Vec::new(), vec![0; HEADER]);
        data.iter().for_each(|(kind, value)| put(&mut options, *kind, value));
        put(&mut information, libc::IFLA_INFO_KIND, kind.as_bytes());
        put(&mut information, libc::IFLA_INFO_DATA, &options);
        body[4] = 7;
        put(&mut body, libc::IFLA_LINKINFO, &information);
        rest.iter().for_each(|(kind, value)| put(&mut body, *kind, value));
        Link::parse(&body).expect("a whole message")
    }

    #[test]
    fn a_vlan_has_its_number_and_the_interface_below() {
        let below = (libc::IFLA_LINK, &3_u32.to_ne_bytes()[..]);
        let id = (VLAN_ID, &12_u16.to_ne_bytes()[..]);
        let link = of_kind("vlan", &[id], &[below]);
        assert_eq!((link.index, link.vlan, link.lower()), (7, Some(12), Some(3)));
        let service = of_kind("vlan", &[id, (VLAN_PROTOCOL, &[0x88, 0xa8])], &[below]);
        assert_eq!(service.vlan, None, "802.1ad");
        let elsewhere = (libc::IFLA_LINK_NETNSID, &[0; 4][..]);
        let moved = of_kind("vlan", &[id], &[below, elsewhere]);
        assert_eq!((moved.lower(), moved.peer, moved.peer_namespace), (None, Some(3), Some(0)));
        let unknown = (libc::IFLA_LINK_NETNSID, &[0xff; 4][..]);
        let moved = of_kind("vlan", &[id], &[below, unknown]);
        assert_eq!((moved.lower(), moved.peer_namespace), (None, None));
        assert_eq!(of_kind("veth", &[id], &[below]).vlan, None);
    }

    #[test]
    fn a_vxlan_interface_has_the_interface_that_it_was_bound_to() {
        let bound = (VXLAN_LINK, &3_u32.to_ne_bytes()[..]);
        assert_eq!(of_kind("vxlan", &[bound], &[]).lower(), Some(3));
        assert_eq!(of_kind("vxlan", &[(VXLAN_LINK, &[0; 4])], &[]).lower(), None);
    }

    #[test]
    fn a_macvlan_has_its_mode_and_the_interface_below() {
        let below = (libc::IFLA_LINK, &3_u32.to_ne_bytes()[..]);
        let mode = (MACVLAN_MODE, &4_u32.to_ne_bytes()[..]);
        let link = of_kind("macvlan", &[mode], &[below]);
        assert_eq!((link.macvlan_mode, link.lower()), (Some(4), Some(3)));
        assert_eq!(of_kind("macvtap", &[mode], &[below]).macvlan_mode, None);
    }

    #[test]
    fn a_bridge_says_what_it_calls() {
        assert_eq!(of_kind("bridge", &[(36, &[1]), (37, &[0])], &[]).calls, [true, false]);
        assert_eq!(of_kind("bond", &[(36, &[1]), (37, &[1])], &[]).calls, [false, false]);
    }

    #[test]
    fn a_link_without_ethernet_has_an_address_all_the_same() {
        let of = |hardware: u16| {
            let mut body = vec![0; HEADER];
            body[2..4].copy_from_slice(&hardware.to_ne_bytes());
            put(&mut body, libc::IFLA_ADDRESS, &[10, 0, 0, 1]);
            let link = Link::parse(&body).expect("a whole message");
            (link.layer, link.mac)
        };
        // PPP, raw IP, IPIP, IP6TNL, TUN and WireGuard.
        for hardware in [512, 519, 768, 769, 0xfffe] {
            assert_eq!(of(hardware), (LinkLayer::Packets, NEAR_STATION), "{hardware}");
        }
        // Ethernet, loopback, SIT, GRE over IPv4 and IPv6.
        for hardware in [1, 772, 776, 778, 823] {
            assert_eq!(of(hardware), (LinkLayer::Ethernet, [0; 6]), "{hardware}");
        }
    }

    #[test]
    fn a_cut_message_is_no_panic() {
        for length in 0..48 {
            let _ = Link::parse(&vec![0xff; length]);
        }
    }
}
