//! Kinds of tunnels: what each carries, and which keys are for others.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::section::Findings;
use super::tunnel::{Tunnel, TunnelKind};

/// Keys of VXLAN alone.
const OF_VXLAN: [&str; 5] = ["remotes", "vni", "udp_port", "udp_checksum", "accept_zero_checksum"];

/// Properties of a kind of tunnel.
struct Declaration {
    /// True if Ethernet frames are inside.
    carries_frames: bool,
    /// True if outer packets may be cut into fragments.
    may_be_cut: bool,
    /// Keys that GRE has and it has not, and a reason for each; `None` for GRE.
    not_of_gre: Option<&'static [(&'static str, &'static str)]>,
}

const GRE: Declaration = Declaration { carries_frames: false, may_be_cut: true, not_of_gre: None };

const VXLAN: Declaration = Declaration {
    carries_frames: true,
    may_be_cut: false,
    not_of_gre: Some(&[
        ("key", "a VXLAN tunnel has a `vni`"),
        ("checksum", "a VXLAN tunnel has `udp_checksum`"),
        ("sequence", "VXLAN has no sequence numbers"),
        ("encapsulation_limit", "VXLAN is sent without extension headers"),
        ("dont_fragment", "VXLAN is never fragmented (RFC 7348, 4.3)"),
    ]),
};

impl TunnelKind {
    const fn declaration(self) -> Declaration {
        match self {
            Self::Gretap => Declaration { carries_frames: true, ..GRE },
            Self::Gre => GRE,
            Self::Vxlan => VXLAN,
        }
    }

    /// True if Ethernet frames are inside, so that it is a port of a bridge.
    pub fn carries_frames(self) -> bool {
        self.declaration().carries_frames
    }

    /// True if it has the header of GRE, with its optional fields.
    pub(super) fn is_gre(self) -> bool {
        self.declaration().not_of_gre.is_none()
    }

    /// True if outer packets may be cut into fragments.
    pub(super) fn may_be_cut(self) -> bool {
        self.declaration().may_be_cut
    }
}

impl Draft<Tunnel> {
    /// Refuses keys of one kind in a tunnel of another.
    pub(super) fn check_kind(&self, findings: &Findings) {
        let Some(kind) = self.kind() else { return };
        let refuse = |key: &str, message: String, remedy: String| {
            if let Some(span) = self.key(key) {
                findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
            }
        };
        for key in OF_VXLAN.into_iter().filter(|_| kind != TunnelKind::Vxlan) {
            let remedy = format!("remove `{key}`, or set `kind = \"vxlan\"`");
            refuse(key, format!("`{key}` is for VXLAN"), remedy);
        }
        for (key, instead) in kind.declaration().not_of_gre.into_iter().flatten() {
            refuse(key, format!("`{key}` is for GRE"), format!("remove `{key}`: {instead}"));
        }
    }
}
