//! Random histories: the stage and the model see the same frames, waits, links and reloads, and must
//! agree on every byte that leaves, every count, and everything that was learned.

use crate::bench::{Arrival, Bench, Departure, database, trunk, vlan};
use crate::model::{Key, Lan, Limits, Model, ModelEntry, Port, Vlans};
use polder_buffers::PortId;
use polder_datapath::forward::{
    BridgeOptions, Fdb, FdbKey, FdbTime, FloodLimits, LinkLocalGroup, MemberOptions, StaticEntry,
    SweepCursor, VlanMode,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Ports 0 to 7 are in one of two bridges or in none; ports 8 and 9 never are.
const PORTS: u16 = 8;

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Pass(Vec<Arrival>),
    Wait(u64),
    Link(u16, bool),
    Flush(usize, u16),
    Forget(usize, Key),
    Sweep(usize),
    Reload(Vec<Lan>),
}

fn station() -> impl Strategy<Value = [u8; 6]> {
    (1..=6_u8).prop_map(|number| [2, 0, 0, 0, 0, number])
}

fn destination() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        12 => station(),
        2 => Just([0xff; 6]),
        2 => select(vec![[1, 0, 0x5e, 0, 0, 0xfb], [0x33, 0x33, 0, 0, 0, 1], [1, 0x80, 0xc2, 0, 0, 0x10]]),
        2 => (0..=0xf_u8).prop_map(|last| [1, 0x80, 0xc2, 0, 0, last]),
        1 => select(vec![[0; 6], [0, 0x80, 0xc2, 0, 0, 0], [1, 0x80, 0xc2, 1, 0, 0], [1, 0x80, 0xc2, 0, 1, 0]]),
    ]
}

fn source() -> impl Strategy<Value = [u8; 6]> {
    prop_oneof![
        30 => station(),
        1 => select(vec![[0; 6], [0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0, 0, 0, 0, 0, 1]]),
    ]
}

fn number() -> impl Strategy<Value = u16> {
    select(vec![1_u16, 2, 3, 4094])
}

/// A tag: its type and control information.
fn tag() -> impl Strategy<Value = (u16, u16)> {
    let vlan = prop_oneof![6 => number(), 2 => Just(0), 1 => select(vec![7_u16, 4095])];
    let kind = prop_oneof![8 => Just(0x8100_u16), 1 => Just(0x88a8)];
    (kind, vlan, 0..16_u16).prop_map(|(kind, vlan, priority)| (kind, priority << 12 | vlan))
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let tags = prop_oneof![4 => Just(0_usize), 4 => Just(1), 1 => Just(2)];
    let tags = tags.prop_flat_map(|count| vec(tag(), count));
    let length = prop_oneof![12 => Just(usize::MAX), 1 => 0..30_usize];
    let cut = option::weighted(0.2, 0..24_usize);
    let ingress = prop_oneof![20 => 0..PORTS, 1 => PORTS..PORTS + 2];
    let flags = (prop::bool::weighted(0.03), prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    (ingress, destination(), source(), tags, any::<u8>(), length, cut, flags).prop_map(
        |(ingress, to, from, tags, payload, length, cut, (dropped, tight, partial))| {
            let mut bytes = [to, from].concat();
            for (kind, control) in &tags {
                bytes.extend(kind.to_be_bytes());
                bytes.extend(control.to_be_bytes());
            }
            bytes.extend([0x88, 0xb5]);
            bytes.extend([payload; 46]);
            bytes.truncate(length);
            // The parse stage looks behind one tag of the bridge's kind.
            let inner = tags.first().is_some_and(|(kind, _)| *kind == 0x8100);
            let network_offset = if inner { 18 } else { 14 };
            let checksum_start = partial.then_some(network_offset + 20);
            Arrival { ingress, bytes, cut, dropped, tight, network_offset, checksum_start }
        },
    )
}

/// Frames in runs of one ingress, as devices deliver them.
fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let run = (0..PORTS + 1, vec(arrival(), 1..6), prop::bool::weighted(0.7)).prop_map(
        |(ingress, mut run, same)| {
            for arrival in run.iter_mut().filter(|_| same) {
                arrival.ingress = ingress;
            }
            run
        },
    );
    vec(run, 0..5).prop_map(|runs| runs.concat())
}

fn vlans() -> impl Strategy<Value = Vlans> {
    let allowed = proptest::collection::btree_set(number(), 1..4);
    prop_oneof![
        number().prop_map(Vlans::Access),
        (allowed, option::of(number())).prop_map(|(allowed, native)| Vlans::Trunk { allowed, native }),
    ]
}

/// Link-local groups that may be forwarded.
const GROUPS: [LinkLocalGroup; 4] =
    [LinkLocalGroup::Stp, LinkLocalGroup::Lacp, LinkLocalGroup::Dot1x, LinkLocalGroup::Lldp];

/// The first of the ports that may be in one split-horizon group; the others follow it.
const GROUP: u16 = 5;

/// A port; the number of its bridge, 2 for none.
fn port(number: u16, limits: Limits) -> impl Strategy<Value = (usize, Port)> {
    let lan = prop_oneof![5 => Just(0_usize), 2 => Just(1), 1 => Just(2)];
    let yes = || prop::bool::weighted(0.85);
    let some = || prop::bool::weighted(0.3);
    // As other limits, it is one throughout a history.
    let limit = [0_u32, 2, 100, 5000][usize::from(number) % 4];
    let hairpin = option::weighted(0.2, Just(limit));
    let own = option::weighted(0.15, station());
    (lan, vlans(), yes(), yes(), some(), some(), hairpin, own).prop_map(
        move |(lan, vlans, learning, flood, isolated, grouped, hairpin, own_address)| {
            let split_horizon = if grouped && number >= GROUP { GROUP } else { number };
            (
                lan,
                Port {
                    number,
                    vlans,
                    learning,
                    flood,
                    isolated,
                    split_horizon,
                    limits,
                    hairpin,
                    own_address,
                },
            )
        },
    )
}

/// Address, VLAN, and one of the ports that carry it.
type Wanted = ([u8; 6], u16, prop::sample::Index);

fn lans(limits: &[Limits]) -> impl Strategy<Value = Vec<Lan>> + use<> {
    // A group shares its limits.
    let limits = |number: u16| limits[usize::from(number.min(GROUP))];
    let ports: Vec<_> = (0..PORTS).map(|number| port(number, limits(number))).collect();
    let statics = || vec((station(), number(), any::<prop::sample::Index>()), 0..3);
    let group = select(GROUPS.to_vec());
    let lan = || (1..5_u32, any::<bool>(), statics(), vec(group.clone(), 0..3));
    (ports, [lan(), lan()]).prop_map(|(ports, lans)| {
        let of = |number| ports.iter().filter(move |(lan, _)| *lan == number).map(|(_, port)| port.clone());
        let lans = lans.into_iter().enumerate();
        lans.map(|(number, parts)| one_lan(of(number).collect(), parts)).collect()
    })
}

fn one_lan(
    mut ports: Vec<Port>,
    (ageing, aware, wanted, groups): (u32, bool, Vec<Wanted>, Vec<LinkLocalGroup>),
) -> Lan {
    if !aware {
        ports.iter_mut().for_each(|port| port.vlans = Vlans::Transparent);
    }
    let mut statics = Vec::new();
    for (address, vlan, index) in wanted {
        let vlan = if aware { vlan } else { 0 };
        let able: Vec<_> = ports.iter().filter(|port| port.carries(vlan)).collect();
        if !able.is_empty() {
            statics.push((address, vlan, index.get(&able).number));
        }
    }
    Lan { ageing, ports, statics, groups }
}

fn action(limits: &[Limits]) -> impl Strategy<Value = Action> + use<> {
    let wait = prop_oneof![0..1_000_000_u64, 0..200_000_000_u64, 0..3_000_000_000_u64];
    prop_oneof![
        12 => arrivals().prop_map(Action::Pass),
        3 => wait.prop_map(Action::Wait),
        1 => (0..PORTS, any::<bool>()).prop_map(|(port, up)| Action::Link(port, up)),
        1 => (0..2_usize, 0..PORTS).prop_map(|(lan, port)| Action::Flush(lan, port)),
        1 => (0..2_usize, station(), number()).prop_map(|(lan, to, vlan)| Action::Forget(lan, (to, vlan))),
        1 => (0..2_usize).prop_map(Action::Sweep),
        1 => lans(limits).prop_map(Action::Reload),
    ]
}

pub(crate) fn history() -> impl Strategy<Value = (Vec<Lan>, Vec<Action>)> {
    let limit = prop_oneof![6 => Just(None), 1 => select(vec![0_u32, 1, 3, 100, 2000]).prop_map(Some)];
    let limits = vec([limit.clone(), limit.clone(), limit], usize::from(PORTS));
    limits.prop_flat_map(|limits| (lans(&limits), vec(action(&limits), 1..40)))
}

pub(crate) fn options_of(lan: &Lan, fdb: &Arc<Fdb>) -> BridgeOptions {
    let mode = |vlans: &Vlans| match vlans {
        Vlans::Transparent => VlanMode::Transparent,
        Vlans::Access(number) => VlanMode::Access(vlan(*number)),
        Vlans::Trunk { allowed, native } => trunk(&allowed.iter().copied().collect::<Vec<_>>(), *native),
    };
    let limits = |[unknown_unicast, multicast, broadcast]: Limits| FloodLimits {
        unknown_unicast,
        multicast,
        broadcast,
    };
    let member = |port: &Port| MemberOptions {
        vlans: mode(&port.vlans),
        learning: port.learning,
        flood: port.flood,
        isolated: port.isolated,
        split_horizon: (port.split_horizon != port.number).then_some(PortId(port.split_horizon)),
        flood_limits: limits(port.limits),
        hairpin: port.hairpin,
        own_address: port.own_address.map(MacAddress),
        ..MemberOptions::new(PortId(port.number))
    };
    let bound = |&(address, number, port): &([u8; 6], u16, u16)| StaticEntry {
        address: MacAddress(address),
        vlan: VlanId::configured(number),
        port: PortId(port),
    };
    let members = lan.ports.iter().map(member).collect();
    BridgeOptions {
        ageing_seconds: lan.ageing,
        static_entries: lan.statics.iter().map(bound).collect(),
        forward_groups: lan.groups.iter().copied().collect(),
        ..BridgeOptions::new("lan", members, Arc::clone(fdb))
    }
}

/// The stage and the model, side by side.
struct Both {
    bench: Bench,
    model: Model,
    databases: [Arc<Fdb>; 2],
}

impl Both {
    fn new(lans: Vec<Lan>) -> Self {
        let databases = [database(256), database(256)];
        let options = lans.iter().zip(&databases).map(|(lan, fdb)| options_of(lan, fdb)).collect();
        let bench = Bench::new(options);
        let model = Model::new(lans, bench.now);
        Self { bench, model, databases }
    }

    fn act(&mut self, action: &Action) -> (Vec<Departure>, Vec<Departure>) {
        let (bench, model) = (&mut self.bench, &mut self.model);
        match action {
            Action::Pass(arrivals) => return (bench.pass(arrivals), model.pass(arrivals)),
            Action::Wait(nanos) => {
                bench.now = bench.now + Nanos(*nanos);
                model.now = bench.now;
            }
            Action::Link(port, true) => {
                bench.links.set(PortId(*port), true);
                model.down.remove(port);
            }
            Action::Link(port, false) => {
                bench.links.set(PortId(*port), false);
                model.down.insert(*port);
            }
            Action::Flush(lan, port) => {
                self.databases[*lan].flush_port(PortId(*port));
                model.places[*lan].retain(|_, place| place.port != *port || place.is_static);
            }
            Action::Forget(lan, key) => {
                let removed = self.databases[*lan].remove(FdbKey::new(MacAddress(key.0), key.1));
                // What is too old is gone for the model, and may still stand in the table.
                let known = model.places[*lan].remove(key);
                assert!(removed || known.is_none_or(|place| !model.is_fresh(*lan, &place)));
            }
            Action::Sweep(lan) => self.sweep(*lan),
            Action::Reload(lans) => {
                // With a longer ageing time, what was too old and is not swept comes back.
                (0..lans.len()).for_each(|lan| self.sweep(lan));
                let (bench, model) = (&mut self.bench, &mut self.model);
                let pairs = lans.iter().zip(&self.databases);
                bench.reload(pairs.map(|(lan, fdb)| options_of(lan, fdb)).collect());
                model.reload(lans.clone());
            }
        }
        (Vec::new(), Vec::new())
    }

    fn sweep(&mut self, lan: usize) {
        let time = FdbTime::new(self.bench.now, self.model.lans[lan].ageing);
        let fdb = &self.databases[lan];
        let mut cursor = SweepCursor::default();
        while !fdb.sweep(&mut cursor, 5, time).wrapped {}
        assert_eq!(fdb.occupied() as usize, fdb.entries().count(), "the count is that of the entries");
        let fresh = self.fresh(lan);
        assert_eq!(entries(fdb).collect::<HashMap<_, _>>(), fresh, "after a sweep");
        self.model.places[lan].retain(|key, _| fresh.contains_key(key));
    }

    /// Entries that the model has learned and that have not expired.
    fn fresh(&self, lan: usize) -> HashMap<Key, ModelEntry> {
        let fresh = self.model.places[lan].iter().filter(|(_, place)| self.model.is_fresh(lan, place));
        fresh.map(|(key, place)| (*key, visible(*place))).collect()
    }

    fn check(&self) {
        for (lan, fdb) in self.databases.iter().enumerate() {
            let entries = entries(fdb).filter(|(_, place)| self.model.is_fresh(lan, place));
            assert_eq!(entries.collect::<HashMap<_, _>>(), self.fresh(lan), "database {lan}");
        }
        let counters = self.bench.state.counters();
        let counts = &self.model.counts;
        assert_eq!(self.bench.drops.occurred().collect::<BTreeMap<_, _>>(), counts.drops);
        assert_eq!(counters.learn_failures.get(), 0);
        let ours = [&counters.learned, &counters.moved, &counters.pinned, &counters.flooded];
        let ours = ours.map(|counter| counter.get());
        assert_eq!(ours, [counts.learned, counts.moved, counts.pinned, counts.flooded]);
        let ours = [&counters.own_addresses, &counters.looped].map(|offences| offences.count.get());
        assert_eq!(ours, [counts.own_addresses, counts.looped]);
        assert_eq!(self.bench.ledger.cloned.get(), counts.cloned);
    }
}

fn entries(fdb: &Fdb) -> impl Iterator<Item = (Key, ModelEntry)> + '_ {
    fdb.entries().map(|entry| {
        let place = ModelEntry { port: entry.port.0, seen: entry.seen, is_static: entry.is_static };
        ((entry.address.0, entry.vlan), visible(place))
    })
}

/// Entry as it is compared: the time of a static entry does not matter.
fn visible(place: ModelEntry) -> ModelEntry {
    ModelEntry { seen: if place.is_static { 0 } else { place.seen }, ..place }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn the_stage_does_what_the_model_does((lans, actions) in history()) {
        let mut both = Both::new(lans);
        for action in &actions {
            let (ours, expected) = both.act(action);
            prop_assert_eq!(ours, expected, "after {:?}", action);
            both.check();
        }
    }
}
