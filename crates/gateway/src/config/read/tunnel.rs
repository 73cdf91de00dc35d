//! `[tunnel.NAME]`: a tunnel over an underlay port; the addresses of its ends say over which family.

use super::super::model::{Dscp, Ecn, FlowLabel, Mac, TcpMss, Ttl, TunnelKind};
use super::super::router::InterfaceAddress;
use super::super::section::{At, Kind, Refusal, Section};
use super::super::values::{boolean, choice, host, integer, neighbour, station, text, word_or};
use super::super::vxlan::VxlanDraft;
use super::port::MAX_MTU;
use polder_datapath::tunnel::LEAST_MTU;
use std::net::IpAddr;
use toml::de::DeValue;

/// The keys of a tunnel.
pub(super) const KIND: Kind = Kind {
    noun: "a tunnel",
    keys: &[
        "kind",
        "addresses",
        "local",
        "remote",
        "port",
        "next_hop",
        "next_hop_mac",
        "vni",
        "udp_port",
        "udp_checksum",
        "accept_zero_checksum",
        "key",
        "checksum",
        "sequence",
        "ttl",
        "dscp",
        "ecn",
        "flow_label",
        "encapsulation_limit",
        "dont_fragment",
        "mtu",
        "tcp_mss",
    ],
};

/// The kinds of tunnels.
const KINDS: &[(&str, TunnelKind)] =
    &[("gretap", TunnelKind::Gretap), ("gre", TunnelKind::Gre), ("vxlan", TunnelKind::Vxlan)];
const ECN: &[(&str, Ecn)] = &[("rfc6040", Ecn::Rfc6040), ("none", Ecn::None)];
/// Smallest and largest MSS that a clamp may set.
const MIN_MSS: u16 = 64;
const MAX_MSS: u16 = 9538;

/// `[tunnel.NAME]` as it stands in the file.
#[derive(Debug)]
pub(in super::super) struct TunnelDraft {
    pub(in super::super) name: At<String>,
    pub(in super::super) kind: Option<TunnelKind>,
    pub(in super::super) addresses: Option<At<Vec<At<InterfaceAddress>>>>,
    /// True if addresses stand there that could not be read.
    pub(in super::super) addresses_unreadable: bool,
    pub(in super::super) local: Option<At<IpAddr>>,
    pub(in super::super) remote: Option<At<IpAddr>>,
    pub(in super::super) port: Option<At<String>>,
    pub(in super::super) next_hop: Option<At<IpAddr>>,
    pub(in super::super) next_hop_mac: Option<Mac>,
    pub(in super::super) vxlan: Option<VxlanDraft>,
    pub(in super::super) key: Option<At<u32>>,
    /// True if a key stands there that could not be read.
    pub(in super::super) key_unreadable: bool,
    pub(in super::super) checksum: Option<bool>,
    pub(in super::super) sequence: Option<bool>,
    pub(in super::super) ttl: Option<Ttl>,
    pub(in super::super) dscp: Option<Dscp>,
    pub(in super::super) ecn: Option<Ecn>,
    pub(in super::super) flow_label: Option<At<FlowLabel>>,
    /// `None` within for no limit.
    pub(in super::super) encapsulation_limit: Option<At<Option<u8>>>,
    pub(in super::super) dont_fragment: Option<bool>,
    pub(in super::super) mtu: Option<At<u16>>,
    pub(in super::super) tcp_mss: Option<TcpMss>,
}

impl TunnelDraft {
    /// The addresses that it has as an interface of the router.
    pub(in super::super) fn own_addresses(&self) -> impl Iterator<Item = &At<InterfaceAddress>> {
        self.addresses.iter().flat_map(|addresses| &addresses.value)
    }
}

/// Reads one tunnel.
pub(super) fn read(section: &Section<'_>, name: At<String>) -> TunnelDraft {
    const KIND: &str = "add `kind = \"gretap\"`, which carries Ethernet frames, `kind = \"vxlan\"`, which does so over UDP, or `kind = \"gre\"`, which carries IP packets";
    let kind = section.require("kind", KIND, choice(KINDS)).map(|at| at.value);
    let addresses = section.read("addresses", super::router::addresses);
    let key = section.read("key", integer(0..=u32::MAX, ""));
    TunnelDraft {
        name,
        kind,
        addresses_unreadable: addresses.is_none() && section.has("addresses"),
        addresses,
        local: section.require("local", "add `local = \"…\"`, the address of this end", host),
        remote: section.require("remote", "add `remote = \"…\"`, the address of the other end", host),
        port: section.require("port", "add `port = \"…\"`, the underlay port that carries it", text),
        next_hop: section.read("next_hop", neighbour),
        next_hop_mac: section.read("next_hop_mac", station).map(|at| at.value),
        vxlan: VxlanDraft::read(section, kind),
        key_unreadable: key.is_none() && section.has("key"),
        key,
        checksum: section.read("checksum", boolean).map(|at| at.value),
        sequence: section.read("sequence", boolean).map(|at| at.value),
        ttl: section.read("ttl", word_or("inherit", Ttl::Inherit, ttl)).map(|at| at.value),
        dscp: section.read("dscp", word_or("inherit", Dscp::Inherit, dscp)).map(|at| at.value),
        ecn: section.read("ecn", choice(ECN)).map(|at| at.value),
        flow_label: section.read("flow_label", flow_label),
        encapsulation_limit: section.read("encapsulation_limit", word_or("none", None, limit)),
        dont_fragment: section.read("dont_fragment", boolean).map(|at| at.value),
        mtu: section.read("mtu", integer(LEAST_MTU..=MAX_MTU, "bytes")),
        tcp_mss: section.read("tcp_mss", tcp_mss).map(|at| at.value),
    }
}

fn ttl(value: &DeValue<'_>) -> Result<Ttl, Refusal> {
    integer(1..=u8::MAX, "hops")(value).map(Ttl::Fixed)
}

fn dscp(value: &DeValue<'_>) -> Result<Dscp, Refusal> {
    integer(0_u8..=63, "")(value).map(Dscp::Fixed)
}

fn limit(value: &DeValue<'_>) -> Result<Option<u8>, Refusal> {
    integer(0..=u8::MAX, "tunnels")(value).map(Some)
}

/// The largest flow label: 20 bits.
const MAX_LABEL: u32 = 0x000f_ffff;

fn flow_label(value: &DeValue<'_>) -> Result<FlowLabel, Refusal> {
    if matches!(value, DeValue::Integer(_)) {
        return integer(0..=MAX_LABEL, "")(value).map(FlowLabel::Fixed);
    }
    choice(&[("flow", FlowLabel::Flow), ("inherit", FlowLabel::Inherit)])(value)
        .map_err(|refusal| refusal.remedy("write \"flow\", \"inherit\" or a number up to 1048575"))
}

fn tcp_mss(value: &DeValue<'_>) -> Result<TcpMss, Refusal> {
    match value {
        DeValue::Integer(_) => integer(MIN_MSS..=MAX_MSS, "bytes")(value).map(TcpMss::Bytes),
        DeValue::String(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => {
            choice(&[("clamp", TcpMss::Clamp), ("off", TcpMss::Off)])(value).map_err(|refusal| match refusal
                .remedy
            {
                Some(ref remedy) if remedy.starts_with("did you mean") => refusal,
                Some(_) | None => refusal.remedy("write \"clamp\", \"off\" or a number of bytes"),
            })
        }
    }
}
