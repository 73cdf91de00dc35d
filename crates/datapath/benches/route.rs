//! Cost of a router per packet, in memory, and the ports' share of it.
//!
//! `cargo bench -p polder-datapath --bench route -- [ROW]`
//!
//! Frames of 64 bytes for a million random destinations inside random routes are copied into the frames of
//! a pool, go through all stages of an engine, and are copied out and released; half of the next hops are
//! on each of two ports. The row `ports` has no engine in between: addresses are exchanged, no more. No
//! device, no thread, no clock within a run; the lab's scenario `engine` measures the same with a whole
//! worker around it.
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, HEADROOM, Packet, Pool, PortId, Region, RegionOptions, Segment};
use polder_datapath::engine::{Engine, Tables, TurnContext};

use polder_datapath::route::{
    Interface, InterfaceId, Neighbours, NextHopEntry, Owner, Prefix, Router, RouterId, Routers, SourceCheck,
};
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use polder_datapath::wire::checksum::update_u32;
use polder_datapath::wire::{Checksum, MacAddress};
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const DESTINATIONS: usize = 1 << 20;
const HOPS: u8 = 200;
const BLOCKS_V6: u64 = 20_000;
const BATCH: usize = 64;
const ROUNDS: usize = 800;
/// Few, so that a round fits between two other turns of a core that is shared.
const BATCHES_A_ROUND: usize = 250;
const PORTS: [PortId; 2] = [PortId(0), PortId(1)];

fn main() {
    let only = std::env::args().skip(1).find(|argument| argument != "--bench");
    let rows =
        [("ports", 0, false), ("1k", 1000, false), ("1m", 1_000_000, false), ("v6_100k", 100_000, true)];
    for (name, routes, is_v6) in rows {
        if only.as_ref().is_none_or(|only| only == name) {
            let mut times = Bench::new(routes, is_v6).run();
            times.sort_by(f64::total_cmp);
            println!("{name:>8} {:6.1} ns a packet, median; least {:5.1}", times[ROUNDS / 2], times[0]);
        }
    }
}

struct Bench {
    engine: Engine,
    pool: Pool,
    template: Vec<u8>,
    destinations: Vec<[u8; 16]>,
    next: usize,
    is_v6: bool,
    has_engine: bool,
    sink: Sink,
    batch: Batch,
    _router: Router,
    _tables: Snapshot<Tables>,
    _region: Region,
}

/// Ports that copy frames out.
struct Sink {
    scratch: Box<[u8; 2048]>,
    sent: usize,
}

impl Egress for Sink {
    fn send(&mut self, _: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        for packet in batch.iter() {
            let bytes = packet.bytes();
            match bytes.as_array::<64>() {
                Some(bytes) => *self.scratch.first_chunk_mut().expect("2048 bytes") = *bytes,
                None => self.scratch[..bytes.len()].copy_from_slice(bytes),
            }
        }
        self.sent += batch.len();
        black_box(&self.scratch);
        pool.release(batch);
        true
    }
}

impl Bench {
    fn new(routes: usize, is_v6: bool) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory");
        let interfaces = PORTS.map(interface);
        let (mut router, mut neighbours) = (Router::new(), Neighbours::new());
        let mut ways = Vec::new();
        for number in 0..HOPS {
            let interface = &interfaces[usize::from(number % 2)];
            let address = IpAddr::from([169, 254, 0, number]);
            let hop = neighbours.hop(interface, address);
            let mac = MacAddress([2, 0, 0, 9, 0, number]);
            neighbours.set(&mut router, interface, address, mac, (Nanos(0), true));
            ways.extend(router.add_next_hop(NextHopEntry::Hop(hop)));
        }
        let mut random = Random(fastrand::Rng::with_seed(routes.max(1) as u64));
        let mut prefixes = Vec::new();
        while prefixes.len() < routes.max(1) {
            let prefix = if is_v6 { random.prefix_v6() } else { random.prefix_v4() };
            if router.insert(prefix, ways[prefixes.len() % ways.len()]).is_none() {
                prefixes.push(prefix);
            }
        }
        let template = frame(is_v6);
        let destination = |_| with_checksum(random.inside(&prefixes), is_v6, &template);
        let destinations = (0..DESTINATIONS).map(destination).collect();
        let tables = Snapshot::new(Tables {
            routers: Routers::new([router.access()], interfaces).expect("valid"),
            ..Tables::default()
        });
        let mut engine = Engine::new(tables.reader(), 0);
        engine.grow_to(2);
        Self {
            engine,
            pool: region.pool(),
            template,
            destinations,
            next: 0,
            is_v6,
            has_engine: routes > 0,
            sink: Sink { scratch: Box::new([0; 2048]), sent: 0 },
            batch: Batch::new(),
            _router: router,
            _tables: tables,
            _region: region,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    fn run(&mut self) -> Vec<f64> {
        let mut now = Nanos(1_000_000_000);
        let mut rounds = Vec::new();
        for _ in 0..=ROUNDS {
            let sent = self.sink.sent;
            let start = Instant::now();
            for _ in 0..BATCHES_A_ROUND {
                self.receive();
                now.0 += 2_000;
                self.forward(now);
            }
            let nanos = start.elapsed().as_secs_f64() * 1e9;
            assert_eq!(self.sink.sent - sent, BATCH * BATCHES_A_ROUND, "all are forwarded");
            rounds.push(nanos / (BATCH * BATCHES_A_ROUND) as f64);
        }
        rounds.split_off(1)
    }

    fn forward(&mut self, now: Nanos) {
        if self.has_engine {
            let timed = self.engine.begin_turn();
            let with = TurnContext { now, pool: &mut self.pool, timed };
            self.engine.process(&mut self.batch, PORTS[0], with, &mut self.sink, &mut || now);
        } else {
            self.batch.iter_mut().for_each(|packet| swap(packet.bytes_mut()));
            self.sink.send(PORTS[0], &mut self.batch, &mut self.pool);
        }
    }

    #[inline(never)]
    fn receive(&mut self) {
        for _ in 0..BATCH {
            let Some(frame) = self.pool.take() else { return };
            let length = u16::try_from(self.template.len()).expect("a short frame");
            if self.batch.push(Packet::from_segment(Segment { frame, offset: HEADROOM, length })).is_err() {
                return;
            }
            let Some(packet) = self.batch.last_mut() else { return };
            let destination = &self.destinations[self.next];
            self.next = if self.next + 1 < self.destinations.len() { self.next + 1 } else { 0 };
            if let (Some(from), Some(to)) =
                (self.template.as_array::<64>(), packet.bytes_mut().as_mut_array::<64>())
            {
                *to = *from;
                write(destination, self.is_v6, to);
            }
            packet.ingress = PORTS[0];
        }
    }
}

#[inline(always)]
fn write(destination: &[u8; 16], is_v6: bool, frame: &mut [u8; 64]) {
    if is_v6 {
        frame[38..54].copy_from_slice(destination);
        return;
    }
    frame[30..34].copy_from_slice(&destination[..4]);
    frame[24..26].copy_from_slice(&destination[4..6]);
}

/// An IPv4 destination with its header's checksum behind it: a port that copies has no sums to make.
fn with_checksum(mut destination: [u8; 16], is_v6: bool, template: &[u8]) -> [u8; 16] {
    if !is_v6 {
        let checksum = u16::from_be_bytes([template[24], template[25]]);
        let words = u32::from_be_bytes([destination[0], destination[1], destination[2], destination[3]]);
        destination[4..6].copy_from_slice(&update_u32(checksum, 0, words).to_be_bytes());
    }
    destination
}

fn swap(frame: &mut [u8]) {
    if let Some(addresses) = frame.first_chunk_mut::<12>() {
        let [a, b, c, d, e, f, u, v, w, x, y, z] = *addresses;
        *addresses = [u, v, w, x, y, z, a, b, c, d, e, f];
    }
}

fn mac(port: PortId) -> MacAddress {
    let [_, low] = port.0.to_be_bytes();
    MacAddress([2, 0, 0, 8, 0, low])
}

fn interface(port: PortId) -> Interface {
    Interface {
        id: InterfaceId::untagged(port),
        router: RouterId(0),
        mac: mac(port),
        mtu: 1500,
        addresses: Vec::new(),
        owner: Owner::Polder,
        sources: SourceCheck::default(),
    }
}

/// 64 bytes of UDP, without a destination.
fn frame(is_v6: bool) -> Vec<u8> {
    let link =
        [&mac(PORTS[0]).0[..], &[2, 0, 0, 7, 0, 1], if is_v6 { &[0x86, 0xdd] } else { &[8, 0] }].concat();
    let header = if is_v6 {
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).octets();
        [&[0x60, 0, 0, 0, 0, 10, 17, 64][..], &source, &[0; 16]].concat()
    } else {
        let mut header = [&[0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1][..], &[0; 4]].concat();
        let checksum = Checksum::of(&header).to_be_bytes();
        header[10..12].copy_from_slice(&checksum);
        header
    };
    let mut frame = [link, header].concat();
    frame.resize(64, 0);
    frame
}

/// Draws of a table and its traffic.
struct Random(fastrand::Rng);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// With the lengths of today's default-free tables, all over the unicast addresses.
    fn prefix_v4(&mut self) -> Prefix {
        let bits = match self.next() % 100 {
            0..60 => 24,
            60..72 => 22,
            72..80 => 23,
            80..86 => 20,
            86..91 => 21,
            91..95 => 19,
            95..97 => 18,
            97..99 => 16,
            _ => 28,
        };
        let [a, b, c, d, ..] = self.next().to_be_bytes();
        // Not where no packet goes.
        let first = Some(1 + a % 223).filter(|first| !matches!(first, 127 | 169)).unwrap_or(1);
        Prefix::new(Ipv4Addr::new(first, b, c, d).into(), bits).expect("at most 28 bits")
    }

    fn prefix_v6(&mut self) -> Prefix {
        let bits = [32, 36, 40, 44, 48, 48, 48, 48][usize::try_from(self.next() % 8).expect("small")];
        let block = 0x2000_0000 + (self.next() % BLOCKS_V6) * 26_843;
        let address = u128::from(block << 32 | self.next() >> 32) << 64;
        Prefix::new(Ipv6Addr::from_bits(address).into(), bits).expect("at most 48 bits")
    }

    /// A random address in a random one of the prefixes.
    fn inside(&mut self, prefixes: &[Prefix]) -> [u8; 16] {
        let index = usize::try_from(self.next() % prefixes.len() as u64).expect("an index");
        let prefix = prefixes[index];
        let random = u128::from(self.next()) << 64 | u128::from(self.next());
        let mask = u128::MAX.checked_shr(u32::from(prefix.bits())).unwrap_or(0);
        let first = match prefix.address() {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        };
        (first | random & mask).to_be_bytes()
    }
}
