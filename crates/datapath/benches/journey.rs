//! Cost of a journey through the stages per packet, in memory.
//!
//! `cargo bench -p polder-datapath --bench journey -- [PATH [ROUNDS]]`
//!
//! Frames of 64 bytes, of 1000 flows between 500 and 500 stations, are copied into the frames of a pool, go
//! through all stages of an engine, and are copied out and released: bridged, put into a tunnel, taken
//! out of one, over IPv4 and over IPv6. Rows that begin with `all` hash each packet's flow for steering before, and
//! ask rules on the way in and out. No device, no thread, no clock within a run; the lab's scenario `engine` measures
//! the same with a whole worker around it. In valgrind, the difference of runs of 1 and 11 rounds is 320 000 packets.
//! Buffers of the benchmark begin at cache lines and stand apart from packets in their pages: otherwise a store
//! delays a load of the same offset in another page, and a row costs up to 6 ns more for a change of some allocation.
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, HEADROOM, Packet, Pool, PortId, Region, RegionOptions, Segment};
use polder_datapath::engine::{Engine, Tables, TurnContext};
use polder_datapath::filter::{Action, Direction, Filters, Rule, RuleCounts};
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions, StaticEntry};
use polder_datapath::parse::HeaderSummary;
use polder_datapath::steer::Hasher;
use polder_datapath::transmit::Egress;
use polder_datapath::tunnel::{Encapsulation, TunnelOptions, TunnelState, Tunnels, Underlay, VxlanOptions};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{Checksum, MacAddress};
use std::hint::black_box;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

const STATIONS: u16 = 500;
const FLOWS: usize = 1000;
const BATCH: usize = 64;
const ROUNDS: usize = 400;
/// Network identifier of VXLAN.
const NETWORK: u32 = 5;
const BATCHES_A_ROUND: usize = 500;
const ETHERNET: PortId = PortId(0);
const RADIO: PortId = PortId(1);
const TUNNEL: PortId = PortId(2);
const HERE: MacAddress = MacAddress([2, 0, 0, 0, 8, 1]);
const THERE: MacAddress = MacAddress([2, 0, 0, 0, 8, 2]);
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 168, 10, 1), Ipv4Addr::new(192, 168, 20, 1)];
const ENDS_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 2, 0, 0, 0, 1)];

/// Offset in a page at which no packet is: they begin near the start of a half.
const APART: usize = 1024;

/// Bytes of a frame, from the start of a cache line.
#[repr(align(128))]
struct Frame([u8; 128], usize);

/// Memory that begins with a page.
#[repr(align(4096))]
struct Page([u8; 4096]);

impl Frame {
    fn of(bytes: &[u8]) -> Self {
        let mut frame = Self([0; 128], bytes.len());
        frame.0[..bytes.len()].copy_from_slice(bytes);
        frame
    }
}

/// Encapsulation of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outer {
    Gretap,
    GretapV6,
    Vxlan,
}

/// A path through the stages.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    from: PortId,
    to: PortId,
    outer: Outer,
    /// True if packets are hashed for steering, and rules asked.
    all: bool,
}

const fn row(name: &'static str, from: PortId, to: PortId, outer: Outer) -> Row {
    Row { name, from, to, outer, all: false }
}

const ROWS: [Row; 10] = [
    row("bridge", ETHERNET, RADIO, Outer::Gretap),
    row("encapsulate", ETHERNET, TUNNEL, Outer::Gretap),
    row("decapsulate", RADIO, ETHERNET, Outer::Gretap),
    row("decapsulate6", RADIO, ETHERNET, Outer::GretapV6),
    row("vxlan", ETHERNET, TUNNEL, Outer::Vxlan),
    row("devxlan", RADIO, ETHERNET, Outer::Vxlan),
    Row { all: true, ..row("all_bridge", ETHERNET, RADIO, Outer::Gretap) },
    Row { all: true, ..row("all_encapsulate", ETHERNET, TUNNEL, Outer::Gretap) },
    Row { all: true, ..row("all_decapsulate", RADIO, ETHERNET, Outer::Gretap) },
    Row { all: true, ..row("all_vxlan", ETHERNET, TUNNEL, Outer::Vxlan) },
];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let only = arguments.next();
    let rounds = arguments.next().map_or(ROUNDS, |rounds| rounds.parse().expect("a number of rounds"));
    for row in ROWS {
        if only.as_ref().is_none_or(|only| only == row.name) {
            let mut times = Bench::new(row).run(rounds);
            times.sort_by(f64::total_cmp);
            println!(
                "{:>15} {:6.1} ns a packet, median; least {:5.1}",
                row.name,
                times[rounds / 2],
                times[0]
            );
        }
    }
}

struct Bench {
    engine: Engine,
    pool: Pool,
    frames: Vec<Frame>,
    row: Row,
    hasher: Hasher,
    sink: Sink,
    batch: Batch,
    _tables: Snapshot<Tables>,
    _region: Region,
}

/// A port that copies frames out.
struct Sink {
    scratch: Box<Page>,
    sent: usize,
}

impl Egress for Sink {
    fn send(&mut self, _: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        let (_, scratch) = self.scratch.0.split_at_mut(APART);
        for packet in batch.iter() {
            let bytes = packet.bytes();
            match bytes.as_array::<64>() {
                Some(bytes) => *scratch.first_chunk_mut().expect("3072 bytes") = *bytes,
                None => scratch[..bytes.len()].copy_from_slice(bytes),
            }
        }
        self.sent += batch.len();
        black_box(&self.scratch);
        pool.release(batch);
        true
    }
}

impl Bench {
    fn new(row: Row) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory");
        let tables = Snapshot::new(tables(row));
        let mut engine = Engine::new(tables.reader(), 0);
        engine.grow_to(2);
        let frames = (0..FLOWS).map(|flow| Frame::of(&frame(flow, row))).collect();
        Self {
            engine,
            pool: region.pool(),
            frames,
            row,
            hasher: Hasher::mixed(1, false),
            sink: Sink { scratch: Box::new(Page([0; 4096])), sent: 0 },
            batch: Batch::new(),
            _tables: tables,
            _region: region,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn run(&mut self, count: usize) -> Vec<f64> {
        let mut flow = 0;
        let mut now = Nanos(1_000_000_000);
        let mut rounds = Vec::new();
        for _ in 0..=count {
            let sent = self.sink.sent;
            let start = Instant::now();
            for _ in 0..BATCHES_A_ROUND {
                self.receive(&mut flow);
                self.steer();
                now.0 += 2_000;
                let timed = self.engine.begin_turn();
                let with = TurnContext { now, pool: &mut self.pool, timed };
                self.engine.process(&mut self.batch, self.row.from, with, &mut self.sink, &mut || now);
            }
            let nanos = start.elapsed().as_secs_f64() * 1e9;
            assert_eq!(self.sink.sent - sent, BATCH * BATCHES_A_ROUND, "all are forwarded");
            rounds.push(nanos / (BATCH * BATCHES_A_ROUND) as f64);
        }
        rounds.split_off(1)
    }

    /// Hashes flows, as the definition point of a port's order does.
    fn steer(&mut self) {
        if !self.row.all {
            return;
        }
        for packet in self.batch.iter_mut() {
            HeaderSummary::of(packet);
            packet.flow_hash = self.hasher.flow(packet, self.row.from == RADIO).hash;
        }
    }

    fn receive(&mut self, flow: &mut usize) {
        for _ in 0..BATCH {
            let Some(frame) = self.pool.take() else { return };
            let Frame(bytes, length) = &self.frames[*flow];
            let bytes = &bytes[..*length];
            let length = u16::try_from(bytes.len()).expect("a short frame");
            if self.batch.push(Packet::from_segment(Segment { frame, offset: HEADROOM, length })).is_err() {
                return;
            }
            let Some(packet) = self.batch.last_mut() else { return };
            match (bytes.as_array::<64>(), packet.bytes_mut().as_mut_array::<64>()) {
                (Some(from), Some(to)) => *to = *from,
                (_, _) => packet.bytes_mut().copy_from_slice(bytes),
            }
            packet.ingress = self.row.from;
            *flow = if *flow + 1 < FLOWS { *flow + 1 } else { 0 };
        }
    }
}

fn tables(row: Row) -> Tables {
    let (from, to) = (if row.from == RADIO { TUNNEL } else { row.from }, row.to);
    let entry = |station| StaticEntry { address: station_address(2, station), vlan: None, port: to };
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 65_536, seed: 0x5eed }));
    let members = [from, to].map(MemberOptions::new).to_vec();
    let static_entries = (0..STATIONS).map(entry).collect();
    let bridge = BridgeOptions { static_entries, ..BridgeOptions::new("lan", members, fdb) };
    let bridges = Bridges::new(vec![bridge], Arc::new(Links::new(8))).expect("valid");
    bridges.bind_static(1).expect("room");
    let tunnels = if [from, to].contains(&TUNNEL) {
        let state = Arc::new(TunnelState::new(1));
        state.next_hop.set_address(Some(THERE));
        let mut options = if row.outer == Outer::GretapV6 {
            TunnelOptions::new(TUNNEL, (ENDS_V6[0], ENDS_V6[1]), RADIO, state)
        } else {
            TunnelOptions::new(TUNNEL, (ENDS[0], ENDS[1]), RADIO, state)
        };
        if row.outer == Outer::Vxlan {
            options.encapsulation = Encapsulation::Vxlan(VxlanOptions::new(NETWORK));
            options.dont_fragment = true;
        }
        let underlay = Underlay { port: RADIO, mac: HERE, mtu: 1600, vlan: None, is_shared: false };
        Tunnels::new([underlay], [options]).expect("valid")
    } else {
        Tunnels::new([], []).expect("valid")
    };
    Tables {
        bridges,
        tunnels,
        filters: if row.all { filters() } else { Filters::none() },
        ..Tables::default()
    }
}

/// Rules that read ports and let everything pass.
fn filters() -> Filters {
    let rule = |direction| Rule {
        direction,
        protocols: vec![17],
        destination_ports: vec![9..=9],
        action: Action::Drop,
        ..Rule::default()
    };
    let rules = [(rule(Direction::In), 0), (rule(Direction::Out), 1)];
    let mut counts = RuleCounts::new(1);
    counts.grow_to(rules.len());
    Filters::new(&rules, Vec::new(), counts).expect("two rules")
}

fn station_address(side: u8, station: u16) -> MacAddress {
    let [high, low] = station.to_be_bytes();
    MacAddress([2, 0, 0, side, high, low])
}

/// 64 bytes of UDP over IPv4, in a tunnel from there or not.
fn frame(flow: usize, row: Row) -> Vec<u8> {
    let flow = u16::try_from(flow).expect("few flows");
    let (to, from) = (station_address(2, flow % STATIONS), station_address(1, flow % STATIONS));
    let [high, low] = flow.to_be_bytes();
    let inner = ethernet(to, from, [8, 0], &ipv4(17, [[10, 1, high, low], [10, 2, 0, 1]], &[0; 30]));
    if row.from != RADIO {
        return inner;
    }
    if row.outer == Outer::Vxlan {
        let length = u8::try_from(16 + inner.len()).expect("short");
        let headers = [0xc0 | high, low, 0x12, 0xb5, 0, length, 0, 0, 8, 0, 0, 0, 0, 0, 5, 0];
        let udp = [&headers[..], &inner].concat();
        return ethernet(HERE, THERE, [8, 0], &ipv4(17, [ENDS[1].octets(), ENDS[0].octets()], &udp));
    }
    let gre = [&[0, 0, 0x65, 0x58][..], &inner].concat();
    if row.outer == Outer::GretapV6 {
        let length = u8::try_from(gre.len()).expect("short");
        let header =
            [&[0x60, 0, 0, 0, 0, length, 47, 64][..], &ENDS_V6[1].octets(), &ENDS_V6[0].octets()].concat();
        return ethernet(HERE, THERE, [0x86, 0xdd], &[header, gre].concat());
    }
    ethernet(HERE, THERE, [8, 0], &ipv4(47, [ENDS[1].octets(), ENDS[0].octets()], &gre))
}

fn ethernet(to: MacAddress, from: MacAddress, kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &kind, packet].concat()
}

fn ipv4(protocol: u8, [source, destination]: [[u8; 4]; 2], payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
    let length = u16::try_from(20 + payload.len()).expect("short");
    header[2..4].copy_from_slice(&length.to_be_bytes());
    header.extend([source, destination].concat());
    let checksum = Checksum::of(&header).to_be_bytes();
    header[10..12].copy_from_slice(&checksum);
    [header, payload.to_vec()].concat()
}
