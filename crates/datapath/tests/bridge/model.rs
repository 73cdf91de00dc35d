//! Model of a learning bridge, written a second time as plainly as possible: maps, sets and frames
//! as vectors of bytes; no table, no batch, no cleverness.

use crate::bench::{Arrival, Departure};
use polder_datapath::drops::DropReason;
use polder_datapath::forward::LinkLocalGroup;
use polder_datapath::units::Nanos;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub(crate) const SECOND: i128 = 1_000_000_000;
/// Number of the limit on what is reflected, behind those of the kinds of floods.
const HAIRPIN: usize = 3;

#[derive(Clone, Debug)]
pub(crate) enum Vlans {
    Transparent,
    Access(u16),
    Trunk { allowed: BTreeSet<u16>, native: Option<u16> },
}

/// By kind: unknown station, group, all.
pub(crate) type Limits = [Option<u32>; 3];

#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    pub(crate) vlans: Vlans,
    pub(crate) learning: bool,
    pub(crate) flood: bool,
    pub(crate) isolated: bool,
    /// The first port of its split-horizon group; itself if it is in none.
    pub(crate) split_horizon: u16,
    pub(crate) limits: Limits,
    pub(crate) hairpin: Option<u32>,
    pub(crate) own_address: Option<[u8; 6]>,
}

#[derive(Clone, Debug)]
pub(crate) struct Lan {
    pub(crate) ageing: u32,
    pub(crate) ports: Vec<Port>,
    /// Address, VLAN, port.
    pub(crate) statics: Vec<([u8; 6], u16, u16)>,
    pub(crate) groups: Vec<LinkLocalGroup>,
}

/// Address and VLAN.
pub(crate) type Key = ([u8; 6], u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelEntry {
    pub(crate) port: u16,
    pub(crate) seen: u32,
    pub(crate) is_static: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) learned: u64,
    pub(crate) moved: u64,
    pub(crate) pinned: u64,
    pub(crate) flooded: u64,
    pub(crate) own_addresses: u64,
    pub(crate) looped: u64,
    pub(crate) cloned: u64,
    pub(crate) drops: BTreeMap<DropReason, u64>,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) lans: Vec<Lan>,
    /// By bridge.
    pub(crate) places: Vec<HashMap<Key, ModelEntry>>,
    pub(crate) down: BTreeSet<u16>,
    /// By port and kind: when the limit's debt is paid, in nanoseconds times the limit.
    paid: HashMap<(u16, usize), i128>,
    /// By port: until when known stations' reflected frames go by the limit.
    suspected: HashMap<u16, u64>,
    pub(crate) now: Nanos,
    pub(crate) counts: Counts,
}

/// A frame between ingress and egress.
struct Bridged<'a> {
    arrival: &'a Arrival,
    vlan: u16,
}

impl Bridged<'_> {
    fn source(&self) -> Key {
        (address(&self.arrival.bytes, 6), self.vlan)
    }
}

impl Lan {
    /// Ports whose address it is, in rising order, unless it is bound.
    fn owners(&self, to: [u8; 6]) -> impl Iterator<Item = u16> + '_ {
        let is_bound = self.statics.iter().any(|&(address, ..)| address == to);
        let mut owners: Vec<_> = self.ports.iter().filter(|port| port.own_address == Some(to)).collect();
        owners.sort_by_key(|port| port.number);
        owners.into_iter().map(|port| port.number).filter(move |_| !is_bound)
    }

    fn is_elsewhere(&self, source: [u8; 6], port: u16) -> bool {
        let owners: Vec<_> = self.owners(source).collect();
        !owners.is_empty() && !owners.contains(&port)
    }

    /// Static entries, those of own addresses included.
    fn all_statics(&self) -> Vec<([u8; 6], u16, u16)> {
        let mut statics = self.statics.clone();
        for port in &self.ports {
            let vlan = match &port.vlans {
                Vlans::Transparent => Some(0),
                Vlans::Access(vlan) => Some(*vlan),
                Vlans::Trunk { native, .. } => *native,
            };
            let own = port.own_address.filter(|&own| self.owners(own).next() == Some(port.number));
            statics.extend(own.zip(vlan).map(|(own, vlan)| (own, vlan, port.number)));
        }
        statics
    }
}

impl Port {
    fn takes(&self, tag: Option<u16>) -> Option<u16> {
        match (&self.vlans, tag.map(|control| control & 0xfff)) {
            (Vlans::Transparent, _) => Some(0),
            (Vlans::Access(vlan), None | Some(0)) => Some(*vlan),
            (Vlans::Access(_), Some(_)) => None,
            (Vlans::Trunk { native, .. }, None | Some(0)) => *native,
            (Vlans::Trunk { allowed, native }, Some(vlan)) => {
                (allowed.contains(&vlan) || *native == Some(vlan)).then_some(vlan)
            }
        }
    }

    pub(crate) fn carries(&self, vlan: u16) -> bool {
        match &self.vlans {
            Vlans::Transparent => vlan == 0,
            Vlans::Access(own) => vlan == *own,
            Vlans::Trunk { allowed, native } => allowed.contains(&vlan) || *native == Some(vlan),
        }
    }

    /// The frame, or its copy, as the port sends it.
    fn sends(&self, frame: &Bridged<'_>, is_copy: bool) -> Result<Departure, DropReason> {
        let Bridged { arrival, vlan } = *frame;
        let mut departure = Departure {
            egress: self.number,
            bytes: arrival.bytes.clone(),
            vlan,
            network_offset: arrival.network_offset,
            checksum_start: arrival.checksum_start,
        };
        let is_bare = match &self.vlans {
            Vlans::Transparent => return Ok(departure),
            Vlans::Access(_) => true,
            Vlans::Trunk { native, .. } => *native == Some(vlan),
        };
        let priority = tag_of(&arrival.bytes).map(|control| control & 0xf000);
        if priority.is_some() {
            departure.bytes.drain(12..16);
            departure.network_offset -= 4;
            departure.checksum_start = departure.checksum_start.map(|start| start - 4);
        }
        if !is_bare {
            if priority.is_none() && arrival.tight && !is_copy {
                return Err(DropReason::NoHeadroom);
            }
            let [high, low] = (priority.unwrap_or(0) | vlan).to_be_bytes();
            departure.bytes.splice(12..12, [0x81, 0, high, low]);
            departure.network_offset += 4;
            departure.checksum_start = departure.checksum_start.map(|start| start + 4);
        } else if matches!(self.vlans, Vlans::Trunk { .. }) && has_tag_type(&departure.bytes) {
            return Err(DropReason::VlanNotAllowed);
        }
        Ok(departure)
    }
}

impl Model {
    pub(crate) fn new(lans: Vec<Lan>, now: Nanos) -> Self {
        let places = lans.iter().map(|_| HashMap::new()).collect();
        let (down, paid, counts) = (BTreeSet::new(), HashMap::new(), Counts::default());
        let suspected = HashMap::new();
        let mut model = Self { lans: Vec::new(), places, down, paid, suspected, now, counts };
        model.reload(lans);
        model
    }

    pub(crate) fn reload(&mut self, lans: Vec<Lan>) {
        let second = self.second();
        for (lan, places) in lans.iter().zip(&mut self.places) {
            let statics = lan.all_statics();
            let wants = |key: &Key, port| statics.contains(&(key.0, key.1, port));
            let is_own = |key: &Key, port| lan.is_elsewhere(key.0, port);
            let serves =
                |key: &Key, number| lan.ports.iter().any(|port| port.number == number && port.carries(key.1));
            let stays = |key: &Key, place: &ModelEntry| match place.is_static {
                true => wants(key, place.port),
                false => !is_own(key, place.port),
            };
            places.retain(|key, place| serves(key, place.port) && stays(key, place));
            for &(address, vlan, port) in &statics {
                places.insert((address, vlan), ModelEntry { port, seen: second, is_static: true });
            }
        }
        self.lans = lans;
    }

    fn second(&self) -> u32 {
        u32::try_from(self.now.0 / Nanos::SECOND.0).expect("a short history")
    }

    fn port(&self, number: u16) -> Option<(usize, &Port)> {
        let mut all = self.lans.iter().enumerate().flat_map(|(lan, l)| l.ports.iter().map(move |p| (lan, p)));
        all.find(|(_, port)| port.number == number)
    }

    pub(crate) fn is_fresh(&self, lan: usize, place: &ModelEntry) -> bool {
        place.is_static || self.second() - place.seen <= self.lans[lan].ageing
    }

    fn drop(&mut self, reason: DropReason) {
        *self.counts.drops.entry(reason).or_default() += 1;
    }

    /// One batch. Frames that follow each other on one port are all learned from before the first
    /// of them is sent on.
    pub(crate) fn pass(&mut self, arrivals: &[Arrival]) -> Vec<Departure> {
        let mut departures = Vec::new();
        for run in arrivals.chunk_by(|a, b| a.ingress == b.ingress) {
            let mut frames = Vec::new();
            for arrival in run.iter().filter(|arrival| !arrival.dropped) {
                match self.take(arrival) {
                    Ok(vlan) => frames.push(Bridged { arrival, vlan }),
                    Err(reason) => self.drop(reason),
                }
            }
            let mut learnt = Vec::new();
            for same in frames.chunk_by(|a, b| a.source() == b.source()) {
                match self.learn(run[0].ingress, same[0].source()) {
                    Ok(()) => learnt.extend(same),
                    Err(reason) => same.iter().for_each(|_| self.drop(reason)),
                }
            }
            for frame in learnt {
                match self.verdict(frame) {
                    Ok(targets) => self.send(frame, &targets, &mut departures),
                    Err(reason) => self.drop(reason),
                }
            }
        }
        departures
    }

    /// The VLAN of a frame that comes in.
    fn take(&self, arrival: &Arrival) -> Result<u16, DropReason> {
        let (lan, port) = self.port(arrival.ingress).ok_or(DropReason::NoBridge)?;
        let bytes = &arrival.bytes;
        if bytes.len() < 14 {
            return Err(DropReason::EthernetTruncated);
        }
        if has_tag_type(bytes) && bytes.len() < 18 {
            return Err(DropReason::VlanTruncated);
        }
        if bytes[6] & 1 != 0 || bytes[6..12] == [0; 6] {
            return Err(DropReason::SourceMulticast);
        }
        let to = address(bytes, 0);
        let forwards = |group: &LinkLocalGroup| to[5] == *group as u8;
        if to[..5] == [1, 0x80, 0xc2, 0, 0] && to[5] < 0x10 && !self.lans[lan].groups.iter().any(forwards) {
            return Err(DropReason::ReservedMulticast);
        }
        port.takes(tag_of(bytes)).ok_or(DropReason::VlanNotAllowed)
    }

    fn learn(&mut self, ingress: u16, key: Key) -> Result<(), DropReason> {
        let (lan, port) = self.port(ingress).expect("it was there a moment ago");
        let (learning, hairpin) = (port.learning, port.hairpin);
        if self.lans[lan].is_elsewhere(key.0, ingress) {
            self.counts.own_addresses += 1;
            return Err(DropReason::OwnAddress);
        }
        if !learning {
            return Ok(());
        }
        let known = self.places[lan].get(&key).copied().filter(|place| self.is_fresh(lan, place));
        let now = self.second();
        if hairpin.is_some()
            && known.is_some_and(|place| place.port != ingress && (place.is_static || now - place.seen <= 3))
        {
            self.counts.looped += 1;
            self.suspect(ingress);
            return Err(DropReason::HairpinLoop);
        }
        let counter = match known {
            Some(ModelEntry { port, is_static: true, .. }) if port != ingress => &mut self.counts.pinned,
            Some(ModelEntry { port, is_static: false, .. }) if port != ingress => &mut self.counts.moved,
            Some(_) => &mut 0,
            None => &mut self.counts.learned,
        };
        *counter += 1;
        if !known.is_some_and(|place| place.is_static) {
            let seen = self.second();
            self.places[lan].insert(key, ModelEntry { port: ingress, seen, is_static: false });
        }
        Ok(())
    }

    fn suspect(&mut self, port: u16) {
        self.suspected.insert(port, self.now.0 + 10 * Nanos::SECOND.0);
    }

    /// The ports that a frame goes to.
    fn verdict(&mut self, frame: &Bridged<'_>) -> Result<Vec<u16>, DropReason> {
        let to = address(&frame.arrival.bytes, 0);
        let (lan, from) = self.port(frame.arrival.ingress).expect("it was there a moment ago");
        let from = from.clone();
        let is_group = to[0] & 1 != 0;
        let known = self.places[lan].get(&(to, frame.vlan)).filter(|place| self.is_fresh(lan, place));
        let known = known.map(|place| place.port).or_else(|| self.lans[lan].owners(to).next());
        let known = known.and_then(|port| self.port(port)).filter(|(its, _)| *its == lan);
        if let Some((_, to)) = known.map(|(lan, port)| (lan, port.clone())) {
            let is_back = to.number == from.number;
            return match () {
                () if to.split_horizon == from.split_horizon && !(is_back && from.hairpin.is_some()) => {
                    Err(DropReason::SamePort)
                }
                () if to.isolated && from.isolated => Err(DropReason::Isolated),
                () if !to.carries(frame.vlan) => Err(DropReason::VlanNotAllowed),
                () if self.down.contains(&to.number) => Err(DropReason::PortDown),
                () if is_back && !self.admits_known(&from) => Err(DropReason::HairpinLimit),
                () => Ok(vec![to.number]),
            };
        }
        self.counts.flooded += 1;
        let kind = if to == [0xff; 6] { 2 } else { usize::from(is_group) };
        if from.limits[kind].is_some_and(|limit| !self.admit(from.split_horizon, kind, limit)) {
            return Err(DropReason::FloodLimit);
        }
        let served = self.lans[lan]
            .ports
            .iter()
            .filter(|to| {
                to.split_horizon != from.split_horizon || from.hairpin.is_some() && to.number == from.number
            })
            .filter(|to| to.carries(frame.vlan) && (to.flood || is_group));
        let apart = served.clone().filter(|to| !(to.isolated && from.isolated));
        let mut targets: Vec<_> =
            apart.clone().map(|to| to.number).filter(|to| !self.down.contains(to)).collect();
        let (served, apart) = (served.count(), apart.count());
        if targets.contains(&from.number) && !self.admits_flood(&from) {
            targets.retain(|&to| to != from.number);
            if targets.is_empty() {
                return Err(DropReason::HairpinLimit);
            }
            self.counts.cloned += 1;
            self.drop(DropReason::HairpinLimit);
        }
        match (targets.is_empty(), served, apart) {
            (false, ..) => Ok(targets),
            (true, 0, _) => Err(DropReason::NoMember),
            (true, _, 0) => Err(DropReason::Isolated),
            (true, ..) => Err(DropReason::PortDown),
        }
    }

    fn admits_flood(&mut self, port: &Port) -> bool {
        let admitted = self.admit(port.number, HAIRPIN, port.hairpin.unwrap_or(0));
        if !admitted {
            self.suspect(port.number);
        }
        admitted
    }

    fn admits_known(&mut self, port: &Port) -> bool {
        let is_suspected = self.suspected.get(&port.number).is_some_and(|&until| self.now.0 < until);
        !is_suspected || self.admit(port.number, HAIRPIN, port.hairpin.unwrap_or(0))
    }

    /// The virtual scheduling algorithm (ITU-T I.371): each frame costs a second divided by the limit,
    /// and the debt may not exceed what the burst is worth.
    fn admit(&mut self, port: u16, kind: usize, limit: u32) -> bool {
        let limit = i128::from(limit);
        let burst = (limit / 10).max(limit.min(64));
        let now = i128::from(self.now.0) * limit;
        let paid = self.paid.entry((port, kind)).or_default();
        let admitted = *paid - now <= (burst - 1) * SECOND && burst > 0;
        if admitted {
            *paid = now.max(*paid) + SECOND;
        }
        admitted
    }

    fn send(&mut self, frame: &Bridged<'_>, targets: &[u16], departures: &mut Vec<Departure>) {
        self.counts.cloned += targets.len() as u64 - 1;
        for (place, &target) in targets.iter().enumerate() {
            let (_, port) = self.port(target).expect("a port of the bridge");
            // The last one gets the original.
            match port.sends(frame, place + 1 < targets.len()) {
                Ok(departure) => departures.push(departure),
                Err(reason) => self.drop(reason),
            }
        }
    }
}

fn address(bytes: &[u8], at: usize) -> [u8; 6] {
    bytes[at..at + 6].try_into().expect("six bytes")
}

fn has_tag_type(bytes: &[u8]) -> bool {
    bytes.get(12..14) == Some(&[0x81, 0])
}

fn tag_of(bytes: &[u8]) -> Option<u16> {
    has_tag_type(bytes).then(|| u16::from_be_bytes([bytes[14], bytes[15]]))
}
