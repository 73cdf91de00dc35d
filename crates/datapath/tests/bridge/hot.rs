//! Published decisions: a frame that a port's program would carry leaves as the stage itself would have sent it.
//!
//! Random histories pass frame by frame through the stage, whose ports all have fast paths. Before each frame the test
//! asks what a program would do with it, as `devices/src/bpf/flows/program.rs` has it.

use crate::bench::{Arrival, Bench, database, frame, member, one_bridge, station, trunk, vlan};
use crate::history::{Action, history, options_of};
use crate::model::Lan;
use polder_buffers::PortId;
use polder_datapath::fast_path::{
    FastPath, FastPathPort, FastPaths, FlowKey, Forwarding, StationPair, TagChange, Validity,
};
use polder_datapath::forward::{Fdb, FdbKey, FdbTime, MemberOptions, SweepCursor, VlanMode};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use proptest::test_runner::{Config, TestRunner};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const PORTS: u16 = 8;

/// Knowledge of a port's program.
#[derive(Debug, Default)]
struct Table {
    moves: AtomicU64,
    entries: Mutex<HashMap<StationPair, (Forwarding, Validity)>>,
}

impl FastPath for Table {
    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    fn count_move(&self) {
        self.moves.fetch_add(1, Ordering::Relaxed);
    }

    fn publish(&self, flow: &FlowKey, forwarding: &Forwarding, validity: Validity) {
        let FlowKey::Stations(pair) = flow else { unreachable!("there is no router") };
        self.entries.lock().expect("one thread").insert(*pair, (*forwarding, validity));
    }
}

/// A bridge whose ports have fast paths.
struct Hot {
    bench: Bench,
    tables: Vec<Arc<Table>>,
    version: u64,
}

impl Hot {
    fn new(bench: Bench) -> Self {
        let tables = (0..PORTS).map(|_| Arc::default()).collect();
        let mut hot = Self { bench, tables, version: 0 };
        hot.renew();
        hot
    }

    /// Other tables are in use.
    fn renew(&mut self) {
        self.version += 1;
        let port = |(number, table): (u32, &Arc<Table>)| {
            let table: Arc<Table> = Arc::clone(table);
            Some(FastPathPort { table, interface: 100 + number, longest: 1514 })
        };
        self.bench.fast_paths = FastPaths::new(self.version, (0..).zip(&self.tables).map(port).collect());
    }

    /// Way of a frame by the program of its port; `None` when it goes to the stage.
    fn carried(&self, arrival: &Arrival) -> Option<(u16, Vec<u8>)> {
        // A frame without headroom is none that a device delivers.
        let is_ordinary = !arrival.dropped && !arrival.tight;
        let table = self.tables.get(usize::from(arrival.ingress)).filter(|_| is_ordinary)?;
        let (pair, rest) = read(&arrival.bytes)?;
        let entries = table.entries.lock().expect("one thread");
        let (forwarding, validity) = entries.get(&pair)?;
        if *validity != (Validity { version: self.version, moves: table.moves() }) {
            return None;
        }
        assert_eq!(forwarding.interface, 100 + u32::from(forwarding.port.0));
        let addresses = &arrival.bytes[..12];
        let bytes = match forwarding.tag {
            TagChange::Keep => arrival.bytes.clone(),
            TagChange::Pop => [addresses, rest].concat(),
            TagChange::Push(vlan) => [addresses, &[0x81, 0x00], &vlan.to_be_bytes(), rest].concat(),
            TagChange::Replace(_) => unreachable!("bridges keep priorities"),
        };
        Some((forwarding.port.0, bytes))
    }

    /// Passes a frame; says whether a program would have carried it.
    fn pass(&mut self, arrival: &Arrival) -> bool {
        let carried = self.carried(arrival);
        let sent = self.bench.pass(std::slice::from_ref(arrival));
        let sent = sent.into_iter().map(|departure| (departure.egress, departure.bytes)).collect::<Vec<_>>();
        if let Some(carried) = &carried {
            assert_eq!(&sent, std::slice::from_ref(carried), "{arrival:?}");
        }
        carried.is_some()
    }

    /// Upkeep of the gateway, of entries that carried nothing since the last time.
    fn confirm(&mut self) {
        let second = u32::try_from(self.bench.now.0 / Nanos::SECOND.0).expect("a short test");
        for (port, table) in (0..).map(PortId).zip(&self.tables) {
            let mut entries = table.entries.lock().expect("one thread");
            entries.retain(|pair, (forwarding, _)| {
                let change = (forwarding.tag, forwarding.vlan);
                self.bench.bridges.confirm((port, pair), forwarding.port, change, (false, second))
            });
        }
    }

    fn count_moves(&self) {
        self.tables.iter().for_each(|table| table.count_move());
    }
}

/// The pair of stations of a frame, and what stands behind its addresses and its tag; `None` for one that programs leave
/// alone.
fn read(bytes: &[u8]) -> Option<(StationPair, &[u8])> {
    let address = |at: usize| bytes.get(at..at + 6)?.try_into().ok().map(MacAddress);
    let word = |at: usize| bytes.get(at..at + 2).map(|word| u16::from_be_bytes([word[0], word[1]]));
    let tag = (word(12)? == 0x8100).then(|| word(14).map(|control| control & 0xfff));
    let (tag, at) = match tag {
        Some(control) => (Some(control?), 16),
        None => (None, 12),
    };
    if tag == Some(0) || [0x8100, 0x88a8].contains(&word(at)?) {
        return None;
    }
    Some((StationPair { destination: address(0)?, source: address(6)?, tag, outer: None }, &bytes[at..]))
}

fn act(hot: &mut Hot, databases: &[Arc<Fdb>; 2], action: &Action) -> usize {
    match action {
        // The first frame is learned from, the second is published, the third carried.
        Action::Pass(arrivals) => {
            return arrivals.iter().map(|arrival| (0..3).filter(|_| hot.pass(arrival)).count()).sum();
        }
        Action::Wait(nanos) => hot.bench.now = hot.bench.now + Nanos(*nanos),
        Action::Link(port, up) => {
            hot.bench.links.set(PortId(*port), *up);
            hot.count_moves();
        }
        Action::Flush(lan, port) => drop(databases[*lan].flush_port(PortId(*port))),
        Action::Forget(lan, key) => {
            databases[*lan].remove(FdbKey::new(MacAddress(key.0), key.1));
        }
        Action::Sweep(_) => {}
        Action::Reload(lans) => {
            hot.bench.reload(options(lans, databases));
            hot.renew();
        }
    }
    hot.confirm();
    0
}

fn options(lans: &[Lan], databases: &[Arc<Fdb>; 2]) -> Vec<polder_datapath::forward::BridgeOptions> {
    lans.iter().zip(databases).map(|(lan, fdb)| options_of(lan, fdb)).collect()
}

#[test]
fn what_programs_carry_leaves_as_the_stage_sends_it() {
    let carried = AtomicUsize::new(0);
    let mut runner = TestRunner::new(Config { cases: 1_000, ..Config::default() });
    runner
        .run(&history(), |(lans, actions)| {
            let databases = [database(256), database(256)];
            let mut hot = Hot::new(Bench::new(options(&lans, &databases)));
            for action in &actions {
                carried.fetch_add(act(&mut hot, &databases, action), Ordering::Relaxed);
            }
            Ok(())
        })
        .expect("every frame leaves the same way");
    let carried = carried.load(Ordering::Relaxed);
    assert!(carried > 2_000, "only {carried} frames were carried: the test sees nothing");
}

fn pair(hot: &mut Hot, ingress: u16, bytes: Vec<u8>) -> [bool; 3] {
    [(); 3].map(|()| hot.pass(&Arrival::new(ingress, bytes.clone())))
}

fn of(members: Vec<MemberOptions>) -> Hot {
    Hot::new(Bench::new(vec![one_bridge(members)]))
}

fn transparent() -> Hot {
    of((0..3).map(|port| member(port, VlanMode::Transparent)).collect())
}

#[test]
fn a_pair_is_carried_from_its_third_frame_on() {
    let mut hot = transparent();
    let there = frame(station(2), station(1), &[], 0);
    assert_eq!(pair(&mut hot, 0, there.clone()), [false; 3], "flooded");
    assert_eq!(pair(&mut hot, 1, frame(station(1), station(2), &[], 0)), [false, false, true]);
    assert!(!hot.pass(&Arrival::new(0, there.clone())), "the first that is not flooded is published");
    assert!(hot.pass(&Arrival::new(0, there)));
}

#[test]
fn a_station_that_moves_takes_all_entries_with_it() {
    let mut hot = transparent();
    let (there, back) = (frame(station(2), station(1), &[], 0), frame(station(1), station(2), &[], 0));
    hot.pass(&Arrival::new(0, there.clone()));
    assert_eq!(pair(&mut hot, 1, back.clone()), [false, false, true]);
    assert!(!hot.pass(&Arrival::new(2, there)), "the station is behind another port now");
    assert!(!hot.pass(&Arrival::new(1, back)), "and frames for it come to the stage");
}

#[test]
fn tags_change_as_the_stage_changes_them() {
    let mut hot = of(vec![member(0, VlanMode::Access(vlan(7))), member(1, trunk(&[7, 8], Some(8)))]);
    hot.pass(&Arrival::new(1, frame(station(2), station(1), &[7], 0)));
    hot.pass(&Arrival::new(1, frame(station(2), station(3), &[], 0)));
    assert_eq!(pair(&mut hot, 0, frame(station(1), station(2), &[], 0)), [false, false, true]);
    assert_eq!(pair(&mut hot, 1, frame(station(2), station(1), &[7], 0)), [false, true, true], "seen before");
    // A priority tag is read frame by frame, and so is a second tag.
    assert_eq!(pair(&mut hot, 0, frame(station(1), station(2), &[0], 0)), [false; 3]);
    assert_eq!(pair(&mut hot, 1, frame(station(2), station(1), &[7, 9], 0)), [false; 3]);
}

#[test]
fn a_source_that_is_not_learned_is_not_carried() {
    let mut members = (0..3).map(|port| member(port, VlanMode::Transparent)).collect::<Vec<_>>();
    members[0].fdb_max_learned = Some(1);
    members[1].learning = false;
    let mut hot = of(members);
    hot.pass(&Arrival::new(2, frame(station(9), station(8), &[], 0)));
    assert_eq!(pair(&mut hot, 0, frame(station(8), station(1), &[], 0)), [false, false, true]);
    assert_eq!(
        pair(&mut hot, 0, frame(station(8), station(2), &[], 0)),
        [false; 3],
        "beyond the port's limit"
    );
    assert_eq!(
        pair(&mut hot, 1, frame(station(8), station(3), &[], 0)),
        [false; 3],
        "a port that does not learn"
    );
}

/// A source whose frames are carried is not seen by the stage: the upkeep keeps it young, and what has aged ends.
#[test]
fn carried_frames_keep_their_source_young() {
    let mut hot = transparent();
    let there = frame(station(2), station(1), &[], 0);
    hot.pass(&Arrival::new(0, frame(station(9), station(1), &[], 0)));
    hot.pass(&Arrival::new(1, frame(station(1), station(2), &[], 0)));
    assert_eq!(pair(&mut hot, 0, there.clone()), [false, false, true]);
    let table = Arc::clone(&hot.tables[0]);
    let (pair, (forwarding, _)) = table
        .entries
        .lock()
        .expect("one thread")
        .iter()
        .next()
        .map(|(pair, entry)| (*pair, *entry))
        .expect("one");
    let (from, change) = ((PortId(0), &pair), (forwarding.tag, forwarding.vlan));
    for second in [1200, 1400, 1600] {
        // The other station answers by a way of its own.
        hot.bench.now = Nanos::from_seconds(second);
        let young = FdbTime { second: u32::try_from(second).expect("small"), ageing: 300 };
        let key = FdbKey::new(station(2), 0);
        let fdb = hot.bench.bridges.learned_by(PortId(1)).expect("a member").0;
        fdb.learn(key, PortId(1), young);
        let seen = (true, young.second);
        assert!(hot.bench.bridges.confirm(from, forwarding.port, change, seen), "at {second}");
        let fdb = hot.bench.bridges.learned_by(PortId(0)).expect("a member").0;
        fdb.sweep(&mut SweepCursor::default(), usize::MAX, young);
        assert_eq!(fdb.lookup(FdbKey::new(station(1), 0), young), Some(PortId(0)), "at {second}");
    }
    assert!(
        !hot.bench.bridges.confirm(from, forwarding.port, change, (true, 2000)),
        "the destination has aged"
    );
    hot.bench.now = Nanos::from_seconds(2000);
    hot.confirm();
    assert!(!hot.pass(&Arrival::new(0, there)));
}
