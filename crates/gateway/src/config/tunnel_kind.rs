//! Kinds of tunnels: what each carries, over which family, and which keys are for others.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::section::Findings;
use super::tunnel::{Tunnel, TunnelKind};
use std::net::IpAddr;

/// Keys of VXLAN alone.
const OF_VXLAN: [&str; 5] = ["remotes", "vni", "udp_port", "udp_checksum", "accept_zero_checksum"];

/// Properties of a kind of tunnel.
struct Declaration {
    payload: Payload,
    /// True if outer packets may be IPv6.
    over_v6: bool,
    /// True if outer packets may be cut into fragments.
    may_be_cut: bool,
    has_keepalives: bool,
    /// Keys that GRE has and it has not, and a reason for each; `None` for GRE.
    not_of_gre: Option<&'static [(&'static str, &'static str)]>,
}

/// Payload of a kind of tunnel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Payload {
    Frames,
    Packets,
    /// IPv4 packets alone.
    Ipv4,
    /// IPv6 packets alone.
    Ipv6,
}

const GRE: Declaration = Declaration {
    payload: Payload::Packets,
    over_v6: true,
    may_be_cut: true,
    has_keepalives: true,
    not_of_gre: None,
};

const VXLAN: Declaration = Declaration {
    payload: Payload::Frames,
    over_v6: true,
    may_be_cut: false,
    has_keepalives: true,
    not_of_gre: Some(&[
        ("key", "a VXLAN tunnel has a `vni`"),
        ("checksum", "a VXLAN tunnel has `udp_checksum`"),
        ("sequence", "VXLAN has no sequence numbers"),
        ("encapsulation_limit", "VXLAN packets have no extension headers"),
        ("dont_fragment", "VXLAN is never fragmented (RFC 7348, 4.3)"),
    ]),
};

const IPIP: Declaration = Declaration {
    payload: Payload::Ipv4,
    over_v6: false,
    may_be_cut: true,
    has_keepalives: false,
    not_of_gre: Some(&[
        ("key", "there is no GRE header, which could have one"),
        ("checksum", "there is no GRE header, which could have one"),
        ("sequence", "there is no GRE header, which could have one"),
    ]),
};

impl TunnelKind {
    const fn declaration(self) -> Declaration {
        match self {
            Self::Gretap => Declaration { payload: Payload::Frames, ..GRE },
            Self::Gre => GRE,
            Self::Vxlan => VXLAN,
            Self::Ipip => IPIP,
            Self::Sit => Declaration { payload: Payload::Ipv6, ..IPIP },
        }
    }

    /// True if Ethernet frames are inside, so that it is a port of a bridge.
    pub fn carries_frames(self) -> bool {
        self.declaration().payload == Payload::Frames
    }

    /// True if packets of an address's family may be inside.
    pub fn carries(self, address: IpAddr) -> bool {
        match self.declaration().payload {
            Payload::Frames | Payload::Packets => true,
            Payload::Ipv4 => address.is_ipv4(),
            Payload::Ipv6 => address.is_ipv6(),
        }
    }

    /// True if it has the header of GRE, with its optional fields.
    pub(super) fn is_gre(self) -> bool {
        self.declaration().not_of_gre.is_none()
    }

    /// True if outer packets may be cut into fragments.
    pub(super) fn may_be_cut(self) -> bool {
        self.declaration().may_be_cut
    }

    /// True if keepalives can be sent into it.
    pub fn has_keepalives(self) -> bool {
        self.declaration().has_keepalives
    }
}

impl Draft<Tunnel> {
    /// Refuses keys of one kind in a tunnel of another, and addresses of a family that it does not carry or run over.
    pub(super) fn check_kind(&self, findings: &Findings) {
        let Some(kind) = self.kind() else { return };
        let refuse = |key: &str, message: String, remedy: String| {
            if let Some(span) = self.key(key) {
                findings.note(Diagnostic::error(span.clone(), message).remedy(remedy));
            }
        };
        let Declaration { not_of_gre, over_v6, .. } = kind.declaration();
        for key in OF_VXLAN.into_iter().filter(|_| kind != TunnelKind::Vxlan) {
            let remedy = format!("remove `{key}`, or set `kind = \"vxlan\"`");
            refuse(key, format!("`{key}` is for VXLAN"), remedy);
        }
        for (key, instead) in not_of_gre.into_iter().flatten() {
            refuse(key, format!("`{key}` is for GRE"), format!("remove `{key}`: {instead}"));
        }
        let word = kind.word();
        if let Some(local) = self.at("local").filter(|_| !over_v6 && self.value.is_v6()) {
            let message = format!("`{word}` runs over IPv4, and this end has an IPv6 address");
            let remedy =
                "give both ends IPv4 addresses, or give the tunnel `kind = \"gre\"` at both gateways";
            findings.note(Diagnostic::error(local.clone(), message).remedy(remedy));
        }
        self.check_families(kind, findings);
    }

    /// Addresses inside have to be of a family that is carried.
    fn check_families(&self, kind: TunnelKind, findings: &Findings) {
        for (index, own) in self.value.addresses.iter().enumerate() {
            if kind.carries(own.address) {
                continue;
            }
            let (word, other) = (kind.word(), if own.address.is_ipv6() { "IPv6" } else { "IPv4" });
            let message = format!("`{word}` carries no {other}");
            let remedy = format!("remove {own}, or give the tunnel `kind = \"gre\"` at both gateways");
            findings.note(Diagnostic::error(self.element("addresses", index), message).remedy(remedy));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_what_its_encapsulation_is() {
        let v4 = IpAddr::from([10, 0, 0, 1]);
        let v6 = IpAddr::from([0xfd; 16]);
        for (kind, frames, families, keepalives) in [
            (TunnelKind::Gretap, true, [true, true], true),
            (TunnelKind::Gre, false, [true, true], true),
            (TunnelKind::Vxlan, true, [true, true], true),
            (TunnelKind::Ipip, false, [true, false], false),
            (TunnelKind::Sit, false, [false, true], false),
        ] {
            assert_eq!(kind.carries_frames(), frames, "{kind:?}");
            assert_eq!([v4, v6].map(|address| kind.carries(address)), families, "{kind:?}");
            assert_eq!(kind.has_keepalives(), keepalives, "{kind:?}");
        }
    }
}
