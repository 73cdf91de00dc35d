//! Layers of a packet description. `None` means that the description leaves a field out.

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
    /// An IPv6 fragment header.
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
    /// Payload of this many zero bytes.
    Payload(usize),
    /// Raw bytes.
    Hex(Vec<u8>),
}

/// Fields of `eth`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eth {
    /// Source address.
    pub src: Option<MacAddress>,
    /// Destination address.
    pub dst: Option<MacAddress>,
    /// EtherType of the payload.
    pub ether_type: Option<u16>,
}

/// Fields of `vlan`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vlan {
    /// VLAN id.
    pub id: u16,
    /// Priority code point.
    pub priority: Option<u8>,
    /// EtherType of the payload.
    pub ether_type: Option<u16>,
}

/// Fields of `arp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arp {
    /// True for a reply.
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

/// Fields of `ip`, `ip4` and `ip6`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ip {
    /// True for IPv6, false for IPv4.
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
    /// "Don't fragment" flag.
    pub df: bool,
    /// "More fragments" flag.
    pub mf: bool,
    /// Fragment offset in bytes.
    pub offset: Option<u16>,
    /// Protocol of the payload.
    pub protocol: Option<u8>,
    /// Length field.
    pub length: Option<u16>,
    /// Checksum field.
    pub checksum: Option<u16>,
}

/// Fields of `frag`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frag {
    /// Fragment offset in bytes.
    pub offset: Option<u16>,
    /// "More fragments" flag.
    pub mf: bool,
    /// Identification, common to the fragments of a datagram.
    pub id: Option<u32>,
    /// Protocol of the payload.
    pub protocol: Option<u8>,
}

/// Fields of `udp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: Option<u16>,
    /// Destination port.
    pub dport: Option<u16>,
    /// Length field.
    pub length: Option<u16>,
    /// Checksum field.
    pub checksum: Option<u16>,
}

/// Fields of `tcp`.
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
    /// Flags; bit 0 is FIN.
    pub flags: Option<u8>,
    /// Window.
    pub window: Option<u16>,
    /// Maximum segment size option.
    pub mss: Option<u16>,
    /// Other options; with `mss`, a multiple of four bytes.
    pub options: Option<Vec<u8>>,
    /// Checksum field.
    pub checksum: Option<u16>,
}

/// Fields of `icmp`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Icmp {
    /// Type of the message.
    pub kind: Option<u8>,
    /// Code of the message.
    pub code: Option<u8>,
    /// Identifier of an echo: upper half of the second word.
    pub id: Option<u16>,
    /// Sequence number of an echo, or MTU of "packet too big": lower half of the second word.
    pub seq: Option<u16>,
    /// Checksum field.
    pub checksum: Option<u16>,
}

/// Fields of `gre`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gre {
    /// The key.
    pub key: Option<u32>,
    /// The sequence number.
    pub seq: Option<u32>,
    /// True if the header has a checksum.
    pub checksum: bool,
    /// EtherType of the payload.
    pub ether_type: Option<u16>,
}

/// Fields of `vxlan`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vxlan {
    /// Network identifier.
    pub vni: Option<u32>,
}
