//! Cost of a tunnel per packet, in and out.
//!
//! `cargo bench -p polder-datapath --bench tunnel`
//!
//! Batches of 32 frames go into a tunnel, are sequenced, and come out at its other end, over and over, in
//! the frames of memory that they began in. Beside them, the same bytes are copied once: what a tunnel
//! that has to make room in front would pay for that alone. All frames are in the caches, and the
//! time of reading the clock is taken off. The median tells what to expect; the tenth percentile tells
//! what is left when the machine does nothing else.
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_buffers::{Batch, NO_PORT, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::drops::{Context, DropCounters, Ledger};
use polder_datapath::sequence::{SequenceState, assign};
use polder_datapath::tunnel::{
    Carries, DecapsulateState, EncapsulateState, Encapsulation, ReassemblyLimits, Stations, TunnelOptions,
    TunnelState, Tunnels, Underlay, VxlanOptions, decapsulate, encapsulate,
};
use polder_datapath::units::Nanos;
use polder_datapath::wire::{
    EtherType, EthernetHeader, IpProtocol, Ipv4Header, MacAddress, TrafficClass, UdpHeader,
};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 20_000;
const BATCH: usize = 32;
const TUNNEL: PortId = PortId(1);
const UNDERLAY: PortId = PortId(0);
const ENDS: [(Ipv4Addr, MacAddress); 2] = [
    (Ipv4Addr::new(192, 168, 10, 1), MacAddress([2, 0, 0, 0, 0, 1])),
    (Ipv4Addr::new(192, 168, 20, 1), MacAddress([2, 0, 0, 0, 0, 2])),
];

/// A change to a tunnel's options.
type Change = fn(&mut TunnelOptions);

/// Options that are measured beside the defaults.
const VARIANTS: [(&str, Change); 8] = [
    ("fragments allowed", |_| {}),
    ("don't fragment", |options| options.dont_fragment = true),
    ("vxlan", |options| {
        options.dont_fragment = true;
        options.encapsulation = Encapsulation::Vxlan(VxlanOptions::new(42));
    }),
    ("key", |options| {
        options.dont_fragment = true;
        options.key = Some(7);
    }),
    ("sequence", |options| {
        options.dont_fragment = true;
        options.sequence = true;
    }),
    ("checksum", |options| {
        options.dont_fragment = true;
        options.checksum = true;
    }),
    ("packets", |options| {
        options.dont_fragment = true;
        options.carries = Carries::Packets(Stations { near: ENDS[0].1, far: ENDS[1].1 });
    }),
    ("all", |options| {
        options.key = Some(7);
        options.sequence = true;
        options.checksum = true;
    }),
];

fn main() {
    println!(
        "{:>6} {:>18} {:>14} {:>14} {:>14} {:>14}",
        "bytes", "tunnel", "encapsulate", "sequence", "decapsulate", "copy"
    );
    let only = std::env::args().skip(1).find(|argument| argument != "--bench");
    for length in [64, 1514] {
        for (name, change) in VARIANTS {
            if only.as_ref().is_none_or(|only| name == only) {
                let [into, sequence, out, copy] = Bench::new(length, change).run();
                println!("{length:>6} {name:>18} {into:>14} {sequence:>14} {out:>14} {copy:>14}");
            }
        }
    }
    println!("nanoseconds a packet: median (tenth percentile)");
}

/// Both ends of a tunnel in one worker.
struct Bench {
    pool: Pool,
    tunnels: [Tunnels; 2],
    into: EncapsulateState,
    sequence: SequenceState,
    out: DecapsulateState,
    expanded: Vec<Packet>,
    drops: DropCounters,
    ledger: Ledger,
    batch: Batch,
    copies: Batch,
}

impl Bench {
    fn new(length: usize, change: Change) -> Self {
        let region = Region::new(RegionOptions { slots: 256, slot_bytes: 2048 }).expect("memory");
        let mut pool = region.pool();
        let frame = frame(length);
        let mut batches = [Batch::new(), Batch::new()];
        for batch in &mut batches {
            for _ in 0..BATCH {
                let packet = Packet::copy_from(&frame, &mut pool).expect("256 slots");
                batch.push(packet).expect("room for 64");
            }
        }
        let [batch, copies] = batches;
        let tunnels = [0, 1].map(|end| tunnels(end, change));
        Self {
            expanded: Vec::with_capacity(tunnels[0].longest_expansion()),
            pool,
            tunnels,
            into: EncapsulateState::new(0),
            sequence: SequenceState::default(),
            out: DecapsulateState::new(0, ReassemblyLimits::default()),
            drops: DropCounters::default(),
            ledger: Ledger::default(),
            batch,
            copies,
        }
    }

    fn run(mut self) -> [Times; 4] {
        let mut times = [const { Vec::new() }; 4];
        let mut overheads = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let now = Nanos(1_000_000 * (round as u64 + 1));
            let Self { pool, tunnels, into, sequence: state, out, expanded, drops, ledger, batch, copies } =
                &mut self;
            let mut context = Context { now, pool, drops, ledger };
            batch.iter_mut().for_each(|packet| packet.egress = TUNNEL);
            let before = read_clock();
            let start = read_clock();
            encapsulate(black_box(batch), &tunnels[0], into, expanded, &mut context);
            let encapsulated = read_clock();
            assign(black_box(batch), &tunnels[0], state, &context);
            let sequenced = read_clock();
            batch.iter_mut().for_each(|packet| (packet.ingress, packet.egress) = (UNDERLAY, NO_PORT));
            let begin = read_clock();
            decapsulate(black_box(batch), &tunnels[1], out, &mut context);
            let decapsulated = read_clock();
            for (from, to) in batch.iter().zip(copies.iter_mut()) {
                to.bytes_mut().copy_from_slice(black_box(from.bytes()));
            }
            let copied = read_clock();
            assert!(batch.iter().all(|packet| packet.ingress == TUNNEL), "all come out");
            overheads.push((start - before).as_nanos());
            let spans =
                [encapsulated - start, sequenced - encapsulated, decapsulated - begin, copied - decapsulated];
            for (times, span) in times.iter_mut().zip(spans) {
                times.push(span.as_nanos());
            }
        }
        assert_eq!(self.drops.total(), 0, "nothing is dropped");
        self.pool.release(&mut self.batch);
        self.pool.release(&mut self.copies);
        overheads.sort_unstable();
        times.map(|times| Times::new(times, overheads[overheads.len() / 2]))
    }
}

/// Nanoseconds a packet.
struct Times {
    median: f64,
    tenth: f64,
}

impl Times {
    fn new(mut times: Vec<u128>, overhead: u128) -> Self {
        times.sort_unstable();
        let a_packet = |part: usize| {
            let nanos = times[times.len() * part / 100].saturating_sub(overhead);
            nanos as f64 / BATCH as f64
        };
        Self { median: a_packet(50), tenth: a_packet(10) }
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(&format!("{:.1} ({:.1})", self.median, self.tenth))
    }
}

/// The tables of one end.
fn tunnels(end: usize, change: Change) -> Tunnels {
    let ((local, mac), (remote, next_hop)) = (ENDS[end], ENDS[1 - end]);
    let state = Arc::new(TunnelState::new(1));
    state.next_hop.set_address(Some(next_hop));
    let mut options = TunnelOptions::new(TUNNEL, (local, remote), UNDERLAY, state);
    change(&mut options);
    Tunnels::new([Underlay { port: UNDERLAY, mac, mtu: 1600, vlan: None, is_shared: false }], [options])
        .expect("valid tables")
}

/// A frame with a UDP datagram, this long.
fn frame(length: usize) -> Vec<u8> {
    let mut bytes = vec![0x5a; length];
    let ip = Ipv4Header {
        traffic_class: TrafficClass(0),
        total_length: u16::try_from(length - 14).expect("a short frame"),
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: Ipv4Addr::new(10, 0, 0, 1),
        destination: Ipv4Addr::new(10, 0, 0, 2),
    };
    let (source, destination) = (MacAddress([2, 0, 0, 0, 1, 1]), MacAddress([2, 0, 0, 0, 1, 2]));
    let link = EthernetHeader { destination, source, ether_type: EtherType::IPV4 };
    let packet = link.emit(&mut bytes).expect("room");
    let message = ip.emit(packet).expect("room");
    UdpHeader { source_port: 1000, destination_port: 2000 }.emit(message, None).expect("room");
    bytes
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn read_clock() -> Instant {
    Instant::now()
}
