//! `[tunnel.NAME]`: what it carries, between which ends, and how; the addresses say over which family.

use super::keys::Access;
use super::keys::Reload::Live;
use super::liveness::{BFD, Bfd, KEEPALIVE, Keepalive};
use super::model::{Configuration, Mac, number};
use super::names::Reference;
use super::notation::{
    Boolean, Choice, Given, Integer, List, Notation as _, Text, WordOr, list, number_or, text,
};
use super::port::MAX_MTU;
use super::router::{ADDRESS, InterfaceAddress};
use super::section::{Refusal, Section};
use super::values::{self, STATION};
use super::vxlan::Vxlan;
use polder_buffers::PortId;
use polder_datapath::tunnel::{Carrier, Encapsulation, LEAST_MTU, TunnelOptions};
use polder_datapath::wire::Vxlan as Header;
use serde::Serialize;
use std::net::{IpAddr, Ipv4Addr};
use toml::Value;

/// Smallest and largest MSS that a clamp may set.
const MIN_MSS: u16 = 64;
const MAX_MSS: u16 = 9538;
/// The largest flow label: 20 bits.
const MAX_LABEL: u32 = 0x000f_ffff;
/// Maximum number of remotes of a tunnel: a flooded frame is replicated to each.
const MAX_REMOTES: usize = 64;

const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
const A_KIND: &str = "add `kind = \"gretap\"`, which carries Ethernet frames, `kind = \"vxlan\"`, which does so over UDP, `kind = \"gre\"`, which carries IP packets, or `kind = \"ipip\"` or `\"sit\"`, which carry IPv4 or IPv6 alone";
pub(super) const HOST: Text<IpAddr> =
    text("IPv4 or IPv6 address", "a host's, one family for both ends", values::host);
const DEVICE: Text<String> = text("", "an interface's name", values::new_interface);
const REMOTES: List<Text<IpAddr>> = list(HOST, "addresses", Some("name the addresses of the other ends"));
const NEXT_HOP: Text<IpAddr> =
    text("IPv4 or IPv6 address", "a host's of that family, link-local too", values::neighbour);
const TTL: WordOr<Ttl, u8> = word_or!(Ttl::Fixed, Integer(1..=u8::MAX, "hops"), "inherit" = Inherit);
const DSCP: WordOr<Dscp, u8> = word_or!(Dscp::Fixed, Integer(0..=63, ""), "inherit" = Inherit);
const FLOW_LABEL: WordOr<FlowLabel, u32> =
    word_or!(FlowLabel::Fixed, Integer(0..=MAX_LABEL, ""), "flow" = Flow, "inherit" = Inherit);
const TCP_MSS: WordOr<TcpMss, u16> =
    word_or!(TcpMss::Bytes, Integer(MIN_MSS..=MAX_MSS, "bytes"), "clamp" = Clamp, "off" = Off);

section! {
    /// A tunnel over IPv4 or IPv6 whose other end is another gateway.
    pub struct Tunnel("a tunnel", "[tunnel.NAME]") {
        /// Its number, unique among ports and tunnels.
        #[serde(serialize_with = "number")]
        id: PortId = PortId(0);
        /// Its name; of a tunnel with a list of remotes each is a port, and its name is `TABLE@REMOTE`.
        name: String = String::new();
        /// Name of its table in the file.
        table: String = String::new();
        /// Remotes of a list in the file; none after checks, where each is a tunnel.
        #[serde(skip)]
        remotes: Vec<IpAddr> = Vec::new();
        /// Kind of what it carries.
        kind: TunnelKind = TunnelKind::Gretap;
        /// Network, port and checksums, if it is VXLAN.
        vxlan: Option<Vxlan> = None;
        keys:
        /// Encapsulation: Ethernet frames in GRE or VXLAN, as a port of a bridge; IP packets in GRE or IPv4, as an interface of [the router](routing.md#tunnels).
        kind as TunnelKind, Choice(TunnelKind::WORDS), |tunnel| Some(tunnel.kind), Tunnel::set_kind => Live, required(A_KIND);
        /// Name of a kernel interface, a TUN, that Polder makes for the tunnel; see [a device](routing.md#a-device-for-a-tunnel). For `gre`, `ipip` and `sit` alone.
        device: Option<String> = None, Given(DEVICE) => Live, usual("none");
        /// Inner addresses of this end, as `["192.0.2.0/31", "2001:db8::/127"]`: the router's own, or with `device` the interface's. For `gre`, `ipip` and `sit` alone.
        addresses: Vec<InterfaceAddress> = Vec::new(), list(ADDRESS, "addresses", None) => Live, usual("required for `gre`, `ipip`, `sit` without `device`"), range("none \
            twice, \
                networks \
                    of \
                        links \
                            distinct");
        /// Outer address of this end; an address of this host, possibly on `lo`.
        local: IpAddr = NOWHERE, HOST => Live, required("add `local = \"…\"`, the address of this end");
        /// Outer address of the other end.
        remote: IpAddr = NOWHERE, HOST => Live, usual("required, or `remotes`"), only(|tunnel| !tunnel.is_of_list());
        /// Outer addresses of several other ends; see [several remotes](#several-remotes). For `vxlan` alone.
        remotes @ Access { read: Tunnel::read_remotes, write: Tunnel::written_remotes, shape: || REMOTES.shape() } => Live, usual("none"), range("1 to 64, none twice");
        /// Port that carries the outer packets.
        port: @[serde(serialize_with = "number")] PortId = PortId(0), Reference("an underlay or router port") => Live, required("add `port = \"…\"`, the underlay port that carries it");
        /// Neighbour on that port that outer packets are sent to; its link-layer address comes from the kernel.
        next_hop: Option<IpAddr> = None, Given(NEXT_HOP) => Live, usual("the kernel's route to `remote` by that port");
        /// Link-layer address of the next hop, in place of the kernel's neighbour table.
        next_hop_mac: Option<Mac> = None, Given(STATION) => Live, usual("the kernel's neighbour table");
        /// VXLAN network identifier, in both directions. For `vxlan` alone.
        vni as u32, Integer(0..=Header::MAX_VNI, ""), |tunnel| Some(tunnel.vxlan?.vni), |tunnel, vni| tunnel.set_vxlan(|vxlan| vxlan.vni = vni) => Live, usual("required for `vxlan`");
        /// UDP destination port, in both directions. For `vxlan` alone.
        udp_port as u16, Integer(1..=u16::MAX, ""), |tunnel| Some(tunnel.vxlan?.udp_port), |tunnel, port| tunnel.set_vxlan(|vxlan| vxlan.udp_port = port) => Live, usual("4789");
        /// True if sent packets have a UDP checksum. For `vxlan` alone.
        udp_checksum as bool, Boolean, |tunnel| Some(tunnel.vxlan?.udp_checksum), |tunnel, on| tunnel.set_vxlan(|vxlan| vxlan.udp_checksum = on) => Live, usual("`false` over IPv4, `true` over IPv6");
        /// True if packets without UDP checksum are accepted over IPv6 (RFC 6935). For `vxlan` over IPv6 alone.
        accept_zero_checksum as bool, Boolean, |tunnel| Some(tunnel.vxlan?.accept_zero_checksum), |tunnel, on| tunnel.set_vxlan(|vxlan| vxlan.accept_zero_checksum = on) => Live, usual("`false`"), only(Tunnel::is_v6);
        /// GRE key (RFC 2890), in both directions.
        key: Option<u32> = None, Given(Integer(0..=u32::MAX, "")) => Live, usual("none");
        /// GRE checksum, in both directions.
        checksum: bool = false, Boolean => Live, only(Tunnel::is_gre);
        /// GRE sequence numbers (RFC 2890), in both directions; late packets are dropped.
        sequence: bool = false, Boolean => Live, only(Tunnel::is_gre);
        /// TTL or hop limit of outer packets.
        ttl: Ttl = Ttl::Fixed(64), TTL => Live;
        /// DSCP of outer packets (RFC 2983).
        dscp: Dscp = Dscp::Inherit, DSCP => Live;
        /// Handling of congestion marks.
        ecn: Ecn = Ecn::Rfc6040, Choice(Ecn::WORDS) => Live;
        /// Flow label of outer IPv6 packets (RFC 6437): from the inner flow's hash, the inner packet's label, or this number.
        flow_label: FlowLabel = FlowLabel::Flow, FLOW_LABEL => Live, only(Tunnel::is_v6);
        /// Number of further tunnels that an outer IPv6 packet may enter (RFC 2473); `"none"` omits the option. GRE over IPv6 alone.
        encapsulation_limit: Option<u8> = Some(TunnelOptions::ENCAPSULATION_LIMIT), number_or(&[("none", None)], 0..=u8::MAX, "tunnels") => Live, only(Tunnel::has_limit);
        /// True if outer packets forbid fragments; see [ADR 0005](../adr/0005-tunnel-mtu.md). For all but `vxlan`.
        dont_fragment: bool = false, Boolean => Live, only(Tunnel::may_be_cut);
        /// Longest inner network packet; senders are told by ICMP.
        mtu: Option<u16> = None, Given(Integer(LEAST_MTU..=MAX_MTU, "bytes")) => Live, usual("the \
            underlay's \
                MTU less the \
                    outer headers");
        /// Largest MSS of TCP connections through the tunnel: what fits in one packet (`clamp`), or this number.
        tcp_mss: TcpMss = TcpMss::Clamp, TCP_MSS => Live;
        /// BFD with the other end; the tunnel is used only while the session is up; see [bfd](#bfd).
        bfd: Option<Bfd> = None, Given(BFD) => Live, usual("none");
        /// Keepalives to the other end; the tunnel is used only while they are answered; see [keepalive](#keepalive).
        keepalive: Option<Keepalive> = None, Given(KEEPALIVE) => Live, usual("none");
    }
}

choices! {
    /// Kind of a tunnel.
    pub enum TunnelKind {
        /// Ethernet frames: it is a port of a bridge.
        #[default]
        Gretap = "gretap",
        /// IPv4 and IPv6 packets: it is an interface of the router.
        Gre = "gre",
        /// Ethernet frames in VXLAN: it is a port of a bridge.
        Vxlan = "vxlan",
        /// IPv4 packets in IPv4: it is an interface of the router.
        Ipip = "ipip",
        /// IPv6 packets in IPv4: it is an interface of the router.
        Sit = "sit",
    }
}

impl Tunnel {
    /// Sets the kind, and with it if there are keys of VXLAN.
    fn set_kind(&mut self, kind: TunnelKind) {
        self.kind = kind;
        self.vxlan = (kind == TunnelKind::Vxlan).then(Vxlan::default);
    }

    /// Changes the keys of VXLAN, if it is that; else they are refused apart.
    fn set_vxlan(&mut self, set: impl FnOnce(&mut Vxlan)) {
        if let Some(vxlan) = &mut self.vxlan {
            set(vxlan);
        }
    }

    fn read_remotes(&mut self, section: &Section<'_>, key: &'static str) -> bool {
        let Some(remotes) = section.read_as(key, &REMOTES) else { return false };
        let count = remotes.len();
        if let Some(((_, span), _)) = section.place(key).filter(|_| count > MAX_REMOTES) {
            let refusal = Refusal::new(format!("`{key}` has {count} addresses"));
            let why = "each remote gets a copy of each flooded frame";
            let remedy = format!("use at most {MAX_REMOTES}: {why}");
            section.findings.refuse(refusal.remedy(remedy), span);
            return false;
        }
        self.remotes = remotes;
        true
    }

    /// The remotes of all tunnels of its table, if that has a list.
    fn written_remotes(&self, all: &Configuration) -> Option<Value> {
        if !self.is_of_list() {
            return REMOTES.write(&Vec::new(), all);
        }
        let tunnels = all.tunnels.iter().filter(|tunnel| tunnel.table == self.table);
        REMOTES.write(&tunnels.map(|tunnel| tunnel.remote).collect(), all)
    }

    /// True if its table has a list of remotes, of which it is one.
    pub fn is_of_list(&self) -> bool {
        self.name != self.table
    }

    /// True if it is watched, by BFD or by keepalives.
    pub fn is_watched(&self) -> bool {
        self.bfd.is_some() || self.keepalive.is_some()
    }

    fn is_gre(&self) -> bool {
        self.kind.is_gre()
    }

    fn may_be_cut(&self) -> bool {
        self.kind.may_be_cut()
    }

    /// True if outer packets may carry an encapsulation limit.
    pub(super) fn has_limit(&self) -> bool {
        self.is_v6() && self.is_gre()
    }

    /// True if it is an interface of the router.
    pub fn is_routed(&self) -> bool {
        !self.kind.carries_frames()
    }

    /// True if outer packets are IPv6.
    pub fn is_v6(&self) -> bool {
        self.local.is_ipv6()
    }

    /// Protocol between the outer IP header and what is inside.
    pub fn encapsulation(&self) -> Encapsulation {
        match self.kind {
            TunnelKind::Gretap | TunnelKind::Gre => Encapsulation::Gre,
            TunnelKind::Vxlan => Encapsulation::Vxlan(self.vxlan.unwrap_or_default().options()),
            TunnelKind::Ipip => Encapsulation::Ipip,
            TunnelKind::Sit => Encapsulation::Sit,
        }
    }

    /// Outer field by which its packets are known.
    pub fn carrier(&self) -> Carrier {
        self.encapsulation().carrier()
    }

    /// Number of bytes that encapsulation adds to a packet, from the outer IP header to the inner Ethernet header, if
    /// there is one, included.
    pub fn overhead_bytes(&self) -> u16 {
        const IPV4: u16 = 20;
        const IPV6: u16 = 40;
        const LIMIT: u16 = 8;
        const ETHERNET: u16 = 14;
        let options = [self.key.is_some(), self.checksum, self.sequence];
        let limit = if self.encapsulation_limit.is_some() { LIMIT } else { 0 };
        let ip = if self.is_v6() { IPV6 + limit } else { IPV4 };
        let ethernet = if self.is_routed() { 0 } else { ETHERNET };
        let header = self.encapsulation().header_bytes(options.map(u8::from).iter().sum());
        ip + ethernet + u16::from(header)
    }
}

/// TTL of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ttl {
    /// That of the inner packet; 64 if that has none.
    Inherit,
    /// This one.
    Fixed(u8),
}

/// Flow label of outer IPv6 packets (RFC 6437).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowLabel {
    /// One for each flow inside.
    #[default]
    Flow,
    /// That of the inner IPv6 packet; 0 if there is none.
    Inherit,
    /// This one.
    Fixed(u32),
}

/// DSCP of outer packets (RFC 2983).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dscp {
    /// That of the inner packet; 0 if that has none.
    Inherit,
    /// This one.
    Fixed(u8),
}

choices! {
    /// Handling of congestion marks.
    pub enum Ecn {
        /// Inner marks are copied out, outer marks are brought in (RFC 6040).
        #[default]
        Rfc6040 = "rfc6040",
        /// Outer packets are not ECN-capable, and outer marks are ignored.
        None = "none",
    }
}

/// Handling of the MSS option of TCP connections through a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TcpMss {
    /// Lowered to what the tunnel's MTU allows.
    #[default]
    Clamp,
    /// Left alone.
    Off,
    /// Lowered to this many bytes.
    Bytes(u16),
}
