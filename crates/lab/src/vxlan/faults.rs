//! Encapsulators with one fault: what the wire does to packets of an honest one.

use super::outer::{Outer, VALID};
use super::tunnel::{CHECKED, OVER_V6, PLAIN, Tunnel};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The network identifier is another network's.
    Network,
    /// The flag is missing that says that there is a network identifier.
    Flag,
    /// The UDP checksum is wrong.
    Checksum,
    /// The UDP checksum is missing over IPv6.
    NoChecksum,
    /// The UDP length says more than there is.
    Length,
    /// The packet is for another port.
    Port,
    /// All flows have one source port.
    SourcePort,
    /// The outer header says nothing of congestion.
    Ecn,
}

impl Fault {
    /// All of them.
    pub(super) const ALL: [Self; 8] = [
        Self::Network,
        Self::Flag,
        Self::Checksum,
        Self::NoChecksum,
        Self::Length,
        Self::Port,
        Self::SourcePort,
        Self::Ecn,
    ];

    /// The tunnel that it is looked for in.
    pub(super) fn tunnel(self) -> &'static Tunnel {
        match self {
            Self::Checksum => &CHECKED,
            Self::NoChecksum => &OVER_V6,
            Self::Network | Self::Flag | Self::Length | Self::Port | Self::SourcePort | Self::Ecn => &PLAIN,
        }
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Network => "wrong-vni",
            Self::Flag => "no-flag",
            Self::Checksum => "wrong-checksum",
            Self::NoChecksum => "zero-checksum-over-ipv6",
            Self::Length => "long-length",
            Self::Port => "wrong-port",
            Self::SourcePort => "constant-source-port",
            Self::Ecn => "ecn-not-propagated",
        }
    }

    /// Spoils an outer packet.
    pub(super) fn spoil(self, frame: &mut [u8], outer: &Outer) {
        let (udp, vxlan) = (outer.udp, outer.vxlan());
        match self {
            Self::Network => frame[vxlan + 6] ^= 0x40,
            Self::Flag => frame[vxlan] &= !VALID,
            Self::Checksum => frame[udp + 6] ^= 0x10,
            Self::NoChecksum => frame[udp + 6..udp + 8].fill(0),
            Self::Length => outer.set_length(frame, outer.end - udp + 8),
            Self::Port => frame[udp + 3] ^= 0x01,
            Self::SourcePort => frame[udp..udp + 2].copy_from_slice(&[0xc0, 0]),
            Self::Ecn => {
                let (class, _) = outer.class_and_ttl(frame);
                outer.set_class(frame, class & !3);
            }
        }
        if !matches!(self, Self::Checksum | Self::NoChecksum) {
            outer.seal(frame);
        }
    }
}
