//! What a VXLAN tunnel has besides what all tunnels have: network, UDP port and checksums.

use super::diagnostics::Diagnostic;
use super::model::TunnelKind;
use super::section::{At, Findings, Section, Span};
use super::values::{boolean, integer};
use polder_datapath::tunnel::VxlanOptions;
use polder_datapath::wire::Vxlan as Header;
use serde::Serialize;

/// Keys of VXLAN alone.
const KEYS: [&str; 4] = ["vni", "udp_port", "udp_checksum", "accept_zero_checksum"];
/// Keys of GRE alone, and what a VXLAN tunnel has in their place.
const OF_GRE: [(&str, &str); 5] = [
    ("key", "a VXLAN tunnel has a `vni`"),
    ("checksum", "a VXLAN tunnel has `udp_checksum`"),
    ("sequence", "VXLAN has no sequence numbers"),
    ("encapsulation_limit", "VXLAN is sent without extension headers"),
    ("dont_fragment", "VXLAN is never fragmented (RFC 7348, 4.3)"),
];

/// Keys of a VXLAN tunnel beyond those of all tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Vxlan {
    /// Network identifier (VNI).
    pub vni: u32,
    /// UDP destination port, in both directions.
    pub udp_port: u16,
    /// True if packets are sent with a UDP checksum.
    pub udp_checksum: bool,
    /// True if packets over IPv6 are taken without a UDP checksum (RFC 6935).
    pub accept_zero_checksum: bool,
}

impl Vxlan {
    /// The same for the datapath.
    pub fn options(&self) -> VxlanOptions {
        let Self { vni, udp_port: port, accept_zero_checksum, .. } = *self;
        VxlanOptions { vni, port, accept_zero_checksum }
    }

    /// Keys and values, over IPv4 or IPv6.
    pub(super) fn keys(&self, is_v6: bool) -> Vec<(&'static str, String)> {
        let zero = is_v6.then(|| ("accept_zero_checksum", self.accept_zero_checksum.to_string()));
        let keys = [
            ("vni", self.vni.to_string()),
            ("udp_port", self.udp_port.to_string()),
            ("udp_checksum", self.udp_checksum.to_string()),
        ];
        keys.into_iter().chain(zero).collect()
    }
}

/// The keys as they stand in the file.
#[derive(Debug)]
pub(super) struct VxlanDraft {
    vni: Option<At<u32>>,
    udp_port: Option<u16>,
    udp_checksum: Option<bool>,
    accept_zero_checksum: Option<(bool, Span)>,
}

impl VxlanDraft {
    /// Reads the keys of VXLAN, and refuses those of one kind in a tunnel of another.
    pub(super) fn read(section: &Section<'_>, kind: Option<TunnelKind>) -> Option<Self> {
        let refuse = |key: &str, message: String, remedy: String| {
            if let Some(span) = section.key_span(key) {
                section.error(span, message, remedy);
            }
        };
        if kind != Some(TunnelKind::Vxlan) {
            for key in KEYS.into_iter().filter(|_| kind.is_some()) {
                refuse(
                    key,
                    format!("`{key}` is for VXLAN"),
                    format!("remove `{key}`, or set `kind = \"vxlan\"`"),
                );
            }
            return None;
        }
        for (key, instead) in OF_GRE {
            refuse(key, format!("`{key}` is for GRE"), format!("remove `{key}`: {instead}"));
        }
        let vni = "add `vni = …`, the number of the network, the same at both ends";
        Some(Self {
            vni: section.require("vni", vni, integer(0..=Header::MAX_VNI, "")),
            udp_port: section.read("udp_port", integer(1..=u16::MAX, "")).map(|at| at.value),
            udp_checksum: section.read("udp_checksum", boolean).map(|at| at.value),
            accept_zero_checksum: section.read("accept_zero_checksum", boolean).map(|at| (at.value, at.span)),
        })
    }

    /// Network and port, by which packets of two tunnels between the same ends are told apart.
    pub(super) fn identity(&self) -> Option<(u32, u16)> {
        Some((self.vni.as_ref()?.value, self.port()))
    }

    fn port(&self) -> u16 {
        self.udp_port.unwrap_or(Header::PORT)
    }

    /// Notes what is asked over IPv4 and means something over IPv6 alone.
    pub(super) fn check(&self, is_v6: bool, local: &Span, findings: &Findings) {
        if let Some((_, span)) = self.accept_zero_checksum.as_ref().filter(|_| !is_v6) {
            findings.note(
                Diagnostic::error(span.clone(), "`accept_zero_checksum` is for tunnels over IPv6")
                    .related(
                        local.clone(),
                        "this one runs over IPv4, where packets without a checksum are taken",
                    )
                    .remedy("remove `accept_zero_checksum`"),
            );
        }
    }

    /// The values, with defaults: over IPv4 without checksums (RFC 7348, 5), over IPv6 with (RFC 8200, 8.1).
    pub(super) fn resolved(&self, is_v6: bool) -> Option<Vxlan> {
        Some(Vxlan {
            vni: self.vni.as_ref()?.value,
            udp_port: self.port(),
            udp_checksum: self.udp_checksum.unwrap_or(is_v6),
            accept_zero_checksum: self.accept_zero_checksum.as_ref().is_some_and(|&(accepts, _)| accepts),
        })
    }
}
