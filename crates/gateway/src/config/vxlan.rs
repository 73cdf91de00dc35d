//! Keys that VXLAN tunnels alone have: network, UDP port and checksums.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::section::Findings;
use super::tunnel::{Tunnel, TunnelKind};
use polder_datapath::tunnel::VxlanOptions;
use polder_datapath::wire::Vxlan as Header;
use serde::Serialize;

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

impl Default for Vxlan {
    fn default() -> Self {
        Self { vni: 0, udp_port: Header::PORT, udp_checksum: false, accept_zero_checksum: false }
    }
}

impl Vxlan {
    /// The same for the datapath.
    pub fn options(&self) -> VxlanOptions {
        let Self { vni, udp_port: port, accept_zero_checksum, .. } = *self;
        VxlanOptions { vni, port, accept_zero_checksum }
    }
}

impl Draft<Tunnel> {
    /// Checks the keys of a VXLAN tunnel.
    pub(super) fn check_vxlan(&self, findings: &Findings) {
        if self.kind() != Some(TunnelKind::Vxlan) {
            return;
        }
        if !self.has("vni") {
            let finding = Diagnostic::error(self.span.clone(), format!("{} has no `vni`", self.title));
            findings.note(finding.remedy("add `vni = …`, the number of the network, the same at both ends"));
        }
        if let Some(span) = self.key("remote").filter(|_| self.has("remotes")) {
            findings.note(
                Diagnostic::error(span.clone(), "a tunnel has either `remote` or `remotes`")
                    .remedy("name all other ends in `remotes`, and remove `remote`"),
            );
        }
        let local = self.at("local").filter(|_| !self.value.is_v6());
        if let (Some(local), Some(span)) = (local, self.at("accept_zero_checksum")) {
            findings.note(
                Diagnostic::error(span.clone(), "`accept_zero_checksum` is for tunnels over IPv6 only")
                    .related(
                        local.clone(),
                        "this tunnel runs over IPv4, where packets without a checksum are always accepted",
                    )
                    .remedy("remove `accept_zero_checksum`"),
            );
        }
    }

    /// Network and port of a VXLAN tunnel, by which two of them between the same ends are told apart.
    pub(super) fn network(&self) -> Option<(u32, u16)> {
        let vxlan = self.value.vxlan.filter(|_| self.at("vni").is_some())?;
        Some((vxlan.vni, vxlan.udp_port))
    }
}
