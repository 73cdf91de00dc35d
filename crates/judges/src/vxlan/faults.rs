//! Encapsulators with one fault: what the wire does to packets of an honest one.

use super::outer::{Outer, VALID};
use super::remotes::{SEVERAL, SITES, is_of_several, readdressed, source};
use super::tunnel::{CHECKED, OVER_V6, PLAIN, Tunnel};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// Link-layer address of each sender of outer IPv4 packets.
pub(super) type Stations = BTreeMap<Ipv4Addr, [u8; 6]>;

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
    /// Flooded frames do not get to one of several remotes.
    MissingCopy,
    /// One of several remotes gets everything twice.
    SecondCopy,
    /// Frames for one of several remotes go to another.
    WrongRemote,
    /// Frames for one of several remotes go to all.
    AllRemotes,
    /// Frames from one of several remotes go to another.
    Relay,
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

    /// Faults of a tunnel with several remotes.
    pub(super) const OF_REMOTES: [Self; 5] =
        [Self::MissingCopy, Self::SecondCopy, Self::WrongRemote, Self::AllRemotes, Self::Relay];

    /// The tunnel that it is looked for in.
    pub(super) fn tunnel(self) -> &'static Tunnel {
        match self {
            Self::Checksum => &CHECKED,
            Self::NoChecksum => &OVER_V6,
            Self::Network | Self::Flag | Self::Length | Self::Port | Self::SourcePort | Self::Ecn => &PLAIN,
            Self::MissingCopy | Self::SecondCopy | Self::WrongRemote | Self::AllRemotes | Self::Relay => {
                &SEVERAL
            }
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
            Self::MissingCopy => "missing-copy",
            Self::SecondCopy => "second-copy",
            Self::WrongRemote => "wrong-remote",
            Self::AllRemotes => "unicast-to-all-remotes",
            Self::Relay => "relay-between-remotes",
        }
    }

    /// Packets that a broken replicator sends in place of one of its own, given the stations of the remotes.
    pub(super) fn copies(self, frame: Vec<u8>, outer: &Outer, stations: &Stations) -> Vec<Vec<u8>> {
        if !is_of_several(&frame, outer) || matches!(self, Self::Relay) {
            return vec![frame];
        }
        let to = frame.get(..6).and_then(|mac| mac.first_chunk()).copied().unwrap_or_default();
        let is_last = stations.get(&SITES[SITES.len() - 1]) == Some(&to);
        let others = stations.iter().filter(|(ip, mac)| SITES.contains(ip) && **mac != to);
        let mut others = others.map(|(&ip, &mac)| readdressed(&frame, (ip, mac), outer));
        if self == Self::WrongRemote {
            others.next().into_iter().collect()
        } else if self == Self::AllRemotes {
            others.chain([frame.clone()]).collect()
        } else if self == Self::MissingCopy && is_last {
            Vec::new()
        } else if self == Self::SecondCopy && is_last {
            vec![frame.clone(), frame]
        } else {
            vec![frame]
        }
    }

    /// A remote's packet as a relaying replicator sends it on, if this is that fault.
    pub(super) fn relayed(self, frame: &[u8], outer: &Outer, stations: &Stations) -> Option<Vec<u8>> {
        if self != Self::Relay || !is_of_several(frame, outer) {
            return None;
        }
        let (from, _) = source(frame)?;
        let (ip, mac) = stations.iter().find(|(ip, _)| SITES.contains(ip) && **ip != from)?;
        let mut relayed = frame.to_vec();
        // The new source is Polder, whom the packet was for.
        relayed.copy_within(..6, 6);
        relayed.copy_within(30..34, 26);
        Some(readdressed(&relayed, (*ip, *mac), outer))
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
            Self::MissingCopy | Self::SecondCopy | Self::WrongRemote | Self::AllRemotes | Self::Relay => {
                return;
            }
        }
        if !matches!(self, Self::Checksum | Self::NoChecksum) {
            outer.seal(frame);
        }
    }
}
