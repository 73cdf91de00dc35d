//! The layers of a description. `None` is what is not said.

use polder_datapath::wire::MacAddress;
use std::net::{IpAddr, Ipv4Addr};

/// One layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layer {
    /// An Ethernet header.
    Eth(Eth),
    /// An 802.1Q tag.
    Vlan(Vlan),
    /// ARP.
    Arp(Arp),
    /// An IPv4 or IPv6 header.
    Ip(Ip),
    /// A fragment header of IPv6.
    Frag(Frag),
    /// A UDP header.
    Udp(Udp),
    /// A TCP header.
    Tcp(Tcp),
    /// ICMP or ICMPv6.
    Icmp(Icmp),
    /// GRE.
    Gre(Gre),
    /// VXLAN.
    Vxlan(Vxlan),
    /// This number of zero bytes.
    Payload(usize),
    /// Raw bytes.
    Hex(Vec<u8>),
}

/// `eth`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eth {
    /// Source address.
    pub src: Option<MacAddress>,
    /// Destination address.
    pub dst: Option<MacAddress>,
    /// Type of the payload.
    pub ether_type: Option<u16>,
}

/// `vlan`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    /// The VLAN.
    pub id: u16,
    /// Priority code point.
    pub priority: Option<u8>,
    /// Type of the payload.
    pub ether_type: Option<u16>,
}

/// `arp`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arp {
    /// True if it answers.
    pub is_reply: bool,
    /// MAC address of the sender.
    pub sender_mac: Option<MacAddress>,
    /// IPv4 address of the sender.
    pub sender: Option<Ipv4Addr>,
    /// MAC address of the target.
    pub target_mac: Option<MacAddress>,
    /// IPv4 address of the target.
    pub target: Ipv4Addr,
}

/// `ip`, `ip4`, `ip6`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ip {
    /// The family, where it is said.
    pub is_v6: Option<bool>,
    /// Source address.
    pub src: Option<IpAddr>,
    /// Destination address.
    pub dst: Option<IpAddr>,
    /// Time to live, or hop limit.
    pub ttl: Option<u8>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// Explicit congestion notification.
    pub ecn: Option<u8>,
    /// Flow label.
    pub flow: Option<u32>,
    /// Identification.
    pub id: Option<u16>,
    /// Not to be fragmented.
    pub df: bool,
    /// More fragments follow.
    pub mf: bool,
    /// Bytes of the datagram before this fragment.
    pub offset: Option<u16>,
    /// Protocol of the payload.
    pub protocol: Option<u8>,
    /// The length field.
    pub length: Option<u16>,
    /// The checksum field.
    pub checksum: Option<u16>,
}

/// `frag`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frag {
    /// Bytes of the datagram before this fragment.
    pub offset: Option<u16>,
    /// More fragments follow.
    pub mf: bool,
    /// Identification, common to the fragments of a datagram.
    pub id: Option<u32>,
    /// Protocol of the payload.
    pub protocol: Option<u8>,
}

/// `udp`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// The length field.
    pub length: Option<u16>,
    /// The checksum field.
    pub checksum: Option<u16>,
}

/// `tcp`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// Sequence number.
    pub seq: Option<u32>,
    /// Acknowledgement number.
    pub ack: Option<u32>,
    /// Flags, FIN lowest.
    pub flags: Option<u8>,
    /// Window.
    pub window: Option<u16>,
    /// The option of that name.
    pub mss: Option<u16>,
    /// Further options, whole words together with `mss`.
    pub options: Option<Vec<u8>>,
    /// The checksum field.
    pub checksum: Option<u16>,
}

/// `icmp`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Icmp {
    /// Type of the message.
    pub kind: Option<u8>,
    /// Code of the message.
    pub code: Option<u8>,
    /// Of an echo, upper half of the second word.
    pub id: Option<u16>,
    /// Of an echo, lower half of the second word; of "too big", the MTU.
    pub seq: Option<u16>,
    /// The checksum field.
    pub checksum: Option<u16>,
}

/// `gre`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gre {
    /// The key.
    pub key: Option<u32>,
    /// The sequence number.
    pub seq: Option<u32>,
    /// True if it has a checksum.
    pub checksum: bool,
    /// Type of the payload.
    pub ether_type: Option<u16>,
}

/// `vxlan`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vxlan {
    /// Network identifier.
    pub vni: Option<u32>,
}
