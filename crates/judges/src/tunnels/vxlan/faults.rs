//! Encapsulators with one fault: what the wire does to packets of an honest one.

use super::header::{self, VALID};
use super::remotes::{SEVERAL, SITES, is_of_several, readdressed};
use super::tunnel::{CHECKED, OVER_V6, PLAIN, Tunnel};
use crate::tunnels::outer::{ETHERNET, Outer, Stations, sender, u16_at};
use crate::tunnels::wire::Faulty;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tunnels) enum Fault {
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
    pub(super) const ALL: [Self; 13] = [
        Self::Network,
        Self::Flag,
        Self::Checksum,
        Self::NoChecksum,
        Self::Length,
        Self::Port,
        Self::SourcePort,
        Self::Ecn,
        Self::MissingCopy,
        Self::SecondCopy,
        Self::WrongRemote,
        Self::AllRemotes,
        Self::Relay,
    ];

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
}

impl Faulty for Fault {
    fn name(self) -> &'static str {
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

    fn read(frame: &[u8]) -> Option<Outer> {
        header::read(frame)
    }

    fn inner(outer: &Outer, frame: &[u8]) -> Option<(u16, usize)> {
        let start = outer.inside().start;
        Some((u16_at(frame, start + 12)?, start + ETHERNET))
    }

    fn copies(self, frame: Vec<u8>, outer: &Outer, stations: &Stations) -> Vec<Vec<u8>> {
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

    fn relayed(self, frame: &[u8], outer: &Outer, stations: &Stations) -> Option<Vec<u8>> {
        if self != Self::Relay || !is_of_several(frame, outer) {
            return None;
        }
        let (from, _) = sender(frame)?;
        let (ip, mac) = stations.iter().find(|(ip, _)| SITES.contains(ip) && **ip != from)?;
        let mut relayed = frame.to_vec();
        // The new source is Polder, whom the packet was for.
        relayed.copy_within(..6, 6);
        relayed.copy_within(30..34, 26);
        Some(readdressed(&relayed, (*ip, *mac), outer))
    }

    fn spoil(self, frame: &mut Vec<u8>, outer: &Outer) {
        let (udp, vxlan) = (outer.payload, outer.vxlan());
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
            outer.seal_udp(frame);
        }
    }
}
