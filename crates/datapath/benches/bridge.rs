//! Cost of the bridge stage per packet.
//!
//! `cargo bench -p polder-datapath --bench bridge`
//!
//! Batches of 32 (or as many as the first argument says) frames from one port to another, in either
//! direction; source and destination are drawn from so many stations. Two stations are one flow. The frames' headers are in the first-level cache, as after the receive stage's prefetch, and the
//! time of reading the clock is taken off. Between the batches of a "cold" row, a buffer as large as the
//! second-level cache is read, as other stages and other traffic do to the database. The median tells what to expect; the tenth percentile
//! tells what is left when the machine does nothing else.
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_buffers::{BATCH, Batch, Packet, PortId, Region, RegionOptions};
use polder_datapath::drops::{Context, DropCounters, Ledger};
use polder_datapath::fast_path::FastPaths;
use polder_datapath::forward::{
    BridgeCounters, BridgeOptions, BridgeState, Bridges, Fdb, FdbKey, FdbOptions, FdbTime, Links,
    MemberOptions, VlanMode, bridge,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{MacAddress, VlanId};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 20_000;

fn main() {
    let batch = std::env::args()
        .skip(1)
        .find(|argument| argument != "--bench")
        .and_then(|argument| argument.parse().ok());
    let batch = batch.unwrap_or(32).clamp(1, BATCH);
    println!("batches of {batch}");
    println!("{:>10} {:>14} {:>10} {:>12} {:>12}", "stations", "mode", "load", "median ns", "p10 ns");
    let access = VlanMode::Access(VlanId::configured(7).expect("7 is a VLAN"));
    for stations in [2, 16, 1_000, 65_536] {
        let scene = Scene { stations, name: "transparent", ..Scene::new(batch) };
        measure(&scene);
        measure(&Scene { name: "access", vlans: access.clone(), ..scene.clone() });
        measure(&Scene { name: "cold", is_cold: true, ..scene });
    }
    let second = Scene { nanos_a_round: 1_000_000, ..Scene::new(batch) };
    measure(&Scene { stations: 1_000, name: "second moves", ..second.clone() });
    measure(&Scene { stations: 65_536, name: "second moves", ..second });
    measure(&Scene { name: "flood to one", ..Scene::new(batch) });
}

/// Parameters of a measurement.
#[derive(Clone)]
struct Scene {
    batch: usize,
    /// 0: the destination is not known.
    stations: u32,
    name: &'static str,
    vlans: VlanMode,
    nanos_a_round: u64,
    is_cold: bool,
}

impl Scene {
    fn new(batch: usize) -> Self {
        let (vlans, name) = (VlanMode::Transparent, "");
        Self { batch, stations: 0, name, vlans, nanos_a_round: 1, is_cold: false }
    }
}

/// Bridges frames and prints the cost.
fn measure(scene: &Scene) {
    let Scene { stations, name, ref vlans, .. } = *scene;
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: stations.max(64), seed: 42 }));
    let vlan = if *vlans == VlanMode::Transparent { 0 } else { 7 };
    let time = FdbTime { second: 1, ageing: 300 };
    for station in 0..stations {
        fdb.learn(FdbKey::new(address(station), vlan), port_of(station), time);
    }
    let member = |port| MemberOptions { vlans: vlans.clone(), ..MemberOptions::new(port) };
    let members = vec![member(PortId(0)), member(PortId(1))];
    let options = BridgeOptions::new("lan", members, Arc::clone(&fdb));
    let bridges = Bridges::new(vec![options], Arc::new(Links::new(2))).expect("a valid configuration");
    let load = f64::from(fdb.occupied()) / (fdb.buckets() * 4) as f64;
    let (median, tenth) = run(&bridges, scene);
    println!("{stations:>10} {name:>14} {load:>10.2} {median:>12.1} {tenth:>12.1}");
}

fn run(bridges: &Bridges, scene: &Scene) -> (f64, f64) {
    let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory");
    let mut pool = region.pool();
    let (drops, ledger) = (DropCounters::default(), Ledger::default());
    let mut state = BridgeState::new(bridges, Arc::new(BridgeCounters::default()));
    let mut expanded = Vec::with_capacity(bridges.longest_expansion());
    let mut batch = Batch::new();
    let mut trash = vec![0_u64; 1 << 17];
    for _ in 0..scene.batch {
        batch.push(Packet::copy_from(&[0; 64], &mut pool).expect("256 slots")).expect("room for 64");
    }
    let mut random = fastrand::Rng::with_seed(42);
    let mut now = Nanos::from_seconds(1);
    let (mut times, mut overheads) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    for round in 0..ROUNDS {
        let direction = u32::try_from(round % 2).expect("0 or 1");
        for packet in batch.iter_mut() {
            let (from, to) = pair(scene.stations, direction, &mut random);
            packet.ingress = port_of(from);
            packet.egress = PortId(0);
            let mut header = [0; 16];
            header[..6].copy_from_slice(&address(to).0);
            header[6..12].copy_from_slice(&address(from).0);
            packet.bytes_mut()[..16].copy_from_slice(&header);
        }
        now = now + Nanos(scene.nanos_a_round);
        let mut context = Context { now, pool: &mut pool, drops: &drops, ledger: &ledger };
        if scene.is_cold {
            trash.iter_mut().step_by(8).for_each(|word| *word += 1);
            batch.iter().for_each(|packet| packet.prefetch());
        }
        let before = read_clock();
        let start = read_clock();
        bridge(
            black_box(&mut batch),
            (bridges, &FastPaths::default()),
            &mut state,
            &mut expanded,
            &mut context,
        );
        let end = read_clock();
        overheads.push((start - before).as_nanos());
        times.push((end - start).as_nanos());
        assert_eq!(batch.len(), scene.batch, "nothing goes to several ports");
    }
    assert_eq!(drops.total(), 0, "nothing is dropped");
    pool.release(&mut batch);
    overheads.sort_unstable();
    times.sort_unstable();
    let a_packet = |part: usize| {
        let nanos = times[times.len() * part / 100].saturating_sub(overheads[overheads.len() / 2]);
        nanos as f64 / scene.batch as f64
    };
    (a_packet(50), a_packet(10))
}

/// Two stations behind different ports.
fn pair(stations: u32, direction: u32, random: &mut fastrand::Rng) -> (u32, u32) {
    if stations == 0 {
        return (0, 999_999);
    }
    let mut draw = || random.u32(0..stations / 2) * 2;
    (draw() + direction, draw() + 1 - direction)
}

fn port_of(station: u32) -> PortId {
    PortId(u16::from(station % 2 == 1))
}

fn address(station: u32) -> MacAddress {
    let [a, b, c, d] = station.to_be_bytes();
    MacAddress([2, 0, a, b, c, d])
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn read_clock() -> Instant {
    Instant::now()
}
