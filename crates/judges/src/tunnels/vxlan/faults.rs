//! Encapsulators with one fault: what the wire does to packets of an honest one.

use super::header::{self, VALID};
use super::remotes::{SEVERAL, SITES, is_of_several, readdressed};
use super::tunnel::{CHECKED, OVER_V6, PLAIN, Tunnel};
use crate::tunnels::outer::{ETHERNET, Outer, Stations, sender, u16_at};
use crate::tunnels::wire::Faulty;

/// Packets that a broken replicator sends in place of one, given the packets to the other remotes; the last argument is
/// true if the packet is for the last remote.
type Replicate = fn(Vec<u8>, &mut dyn Iterator<Item = Vec<u8>>, bool) -> Vec<Vec<u8>>;

/// Misdeed of a broken encapsulator.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Corrupts packets and corrects their checksum.
    Spoils(fn(&mut [u8], &Outer)),
    /// Corrupts the checksum.
    Checksum(fn(&mut [u8], &Outer)),
    /// Sends other packets in place of one into a tunnel with several remotes.
    Replicates(Replicate),
    /// Relays packets from one remote to another.
    Relays,
}

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnels) struct Fault {
    name: &'static str,
    /// The tunnel that it is looked for in.
    pub(super) tunnel: &'static Tunnel,
    deed: Deed,
}

const fn fault(name: &'static str, tunnel: &'static Tunnel, deed: Deed) -> Fault {
    Fault { name, tunnel, deed }
}

/// All faults.
pub(super) const FAULTS: &[Fault] = &[
    fault("wrong-vni", &PLAIN, Deed::Spoils(|frame, outer| frame[outer.vxlan() + 6] ^= 0x40)),
    fault("no-flag", &PLAIN, Deed::Spoils(|frame, outer| frame[outer.vxlan()] &= !VALID)),
    fault("wrong-checksum", &CHECKED, Deed::Checksum(|frame, outer| frame[outer.payload + 6] ^= 0x10)),
    fault(
        "zero-checksum-over-ipv6",
        &OVER_V6,
        Deed::Checksum(|frame, outer| frame[outer.payload + 6..outer.payload + 8].fill(0)),
    ),
    fault(
        "long-length",
        &PLAIN,
        Deed::Spoils(|frame, outer| outer.set_length(frame, outer.end - outer.payload + 8)),
    ),
    fault("wrong-port", &PLAIN, Deed::Spoils(|frame, outer| frame[outer.payload + 3] ^= 0x01)),
    fault(
        "constant-source-port",
        &PLAIN,
        Deed::Spoils(|frame, outer| frame[outer.payload..outer.payload + 2].copy_from_slice(&[0xc0, 0])),
    ),
    fault(
        "ecn-not-propagated",
        &PLAIN,
        Deed::Spoils(|frame, outer| {
            let (class, _) = outer.class_and_ttl(frame);
            outer.set_class(frame, class & !3);
        }),
    ),
    fault(
        "missing-copy",
        &SEVERAL,
        Deed::Replicates(|frame, _, is_last| if is_last { Vec::new() } else { vec![frame] }),
    ),
    fault(
        "second-copy",
        &SEVERAL,
        Deed::Replicates(|frame, _, is_last| vec![frame; if is_last { 2 } else { 1 }]),
    ),
    fault("wrong-remote", &SEVERAL, Deed::Replicates(|_, others, _| others.take(1).collect())),
    fault(
        "unicast-to-all-remotes",
        &SEVERAL,
        Deed::Replicates(|frame, others, _| others.chain([frame]).collect()),
    ),
    fault("relay-between-remotes", &SEVERAL, Deed::Relays),
];

impl Faulty for Fault {
    fn name(self) -> &'static str {
        self.name
    }

    fn read(frame: &[u8]) -> Option<Outer> {
        header::read(frame)
    }

    fn inner(outer: &Outer, frame: &[u8]) -> Option<(u16, usize)> {
        let start = outer.inside().start;
        Some((u16_at(frame, start + 12)?, start + ETHERNET))
    }

    fn spoil(self, frame: &mut Vec<u8>, outer: &Outer) {
        match self.deed {
            Deed::Spoils(spoil) => {
                spoil(frame, outer);
                outer.seal_udp(frame);
            }
            Deed::Checksum(spoil) => spoil(frame, outer),
            Deed::Replicates(_) | Deed::Relays => {}
        }
    }

    fn copies(self, frame: Vec<u8>, outer: &Outer, stations: &Stations) -> Vec<Vec<u8>> {
        let Deed::Replicates(replicate) = self.deed else { return vec![frame] };
        if !is_of_several(&frame, outer) {
            return vec![frame];
        }
        let to = frame.get(..6).and_then(|mac| mac.first_chunk()).copied().unwrap_or_default();
        let is_last = stations.get(&SITES[SITES.len() - 1]) == Some(&to);
        let others = stations.iter().filter(|(ip, mac)| SITES.contains(ip) && **mac != to);
        let others = others.map(|(&ip, &mac)| readdressed(&frame, (ip, mac), outer));
        let others = others.collect::<Vec<_>>();
        replicate(frame, &mut others.into_iter(), is_last)
    }

    fn relayed(self, frame: &[u8], outer: &Outer, stations: &Stations) -> Option<Vec<u8>> {
        if !matches!(self.deed, Deed::Relays) || !is_of_several(frame, outer) {
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
}
