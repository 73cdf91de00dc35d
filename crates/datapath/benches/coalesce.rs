//! Cost of merging per packet, when nothing can be merged and when everything can.
//!
//! `cargo bench -p polder-datapath --bench coalesce`
//!
//! Batches of 64 packets of 1514 bytes whose bytes are in the cache, as they are behind the other stages. The time
//! of reading the clock is part of what is measured, once for each batch. Where nothing merges,
//! most batches are not looked at: there the mean tells what to expect, elsewhere the median.
#![expect(clippy::disallowed_methods, reason = "what is measured is time")]
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_buffers::{BATCH, Batch, ChecksumState, Packet, Pool, Region, RegionOptions};
use polder_datapath::coalesce::Coalescer;
use polder_datapath::offload::{Outlet, Takes};
use polder_datapath::wire::{IpProtocol, Ipv4Header, Pseudo, TrafficClass};
use std::net::Ipv4Addr;
use std::time::Instant;

const ROUNDS: usize = 20_000;
const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn main() {
    let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 2048 }).expect("memory");
    let mut pool = region.pool();
    println!(
        "{:>34} {:>10} {:>10} {:>10} {:>6}",
        "64 packets of 1514 bytes", "mean ns", "median ns", "p10 ns", "left"
    );
    let flows = |flows: u16| move |number: u16| (number % flows, number / flows);
    measure("64 flows, none merges", flows(64), ChecksumState::Unknown, &mut pool);
    measure("1 flow with holes, none merges", |number| (0, number * 2), ChecksumState::Unknown, &mut pool);
    measure("4 flows", flows(4), ChecksumState::Unknown, &mut pool);
    measure("1 flow", flows(1), ChecksumState::Unknown, &mut pool);
    measure("1 flow, checksums verified", flows(1), ChecksumState::Verified, &mut pool);
}

/// Merges batches in which packet *n* is of the flow and at the place that `place` says.
fn measure(name: &str, place: impl Fn(u16) -> (u16, u16), checksum: ChecksumState, pool: &mut Pool) {
    let takes = Takes {
        partial_checksums: true,
        segments: true,
        only_ipv4_segments: false,
        udp_segments: true,
        tunnel_segments: true,
        longest: None,
    };
    let outlet = Outlet { takes, coalesce: true, ..Outlet::plain() };
    let mut coalescer = Coalescer::new(0);
    let frames = (0_u16..).take(BATCH).map(|number| segment(place(number))).collect::<Vec<_>>();
    let (mut batch, mut times, mut left) = (Batch::new(), Vec::with_capacity(ROUNDS), 0);
    for _ in 0..ROUNDS {
        for frame in &frames {
            let mut packet = Packet::copy_from(frame, pool).expect("enough slots");
            packet.checksum = checksum;
            batch.push(packet).expect("a batch");
        }
        let start = Instant::now();
        coalescer.coalesce(&mut batch, &outlet);
        times.push(start.elapsed());
        left = batch.len();
        pool.release(&mut batch);
    }
    times.sort_unstable();
    let nanos = |index: usize| times[index].as_nanos() as f64 / BATCH as f64;
    let mean = times.iter().sum::<std::time::Duration>().as_nanos() as f64 / (ROUNDS * BATCH) as f64;
    let (median, p10) = (nanos(ROUNDS / 2), nanos(ROUNDS / 10));
    println!("{name:>34} {mean:>10.1} {median:>10.1} {p10:>10.1} {left:>6}");
}

/// A TCP segment of 1460 bytes over IPv4.
fn segment((flow, number): (u16, u16)) -> Vec<u8> {
    let mut tcp = vec![0_u8; 20 + 1460];
    tcp[..2].copy_from_slice(&(4000 + flow).to_be_bytes());
    tcp[2..4].copy_from_slice(&5001_u16.to_be_bytes());
    tcp[4..8].copy_from_slice(&(u32::from(number) * 1460).to_be_bytes());
    tcp[12..16].copy_from_slice(&[0x50, 0x10, 1, 0]);
    let pseudo = Pseudo::V4 { source: SOURCE, destination: DESTINATION };
    let checksum = pseudo.sum_over(IpProtocol::TCP, &tcp).finish();
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.resize(34, 0);
    let header = Ipv4Header {
        traffic_class: TrafficClass(0),
        total_length: 1500,
        identification: number,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 64,
        protocol: IpProtocol::TCP,
        source: SOURCE,
        destination: DESTINATION,
    };
    header.emit(&mut frame[14..]).expect("room");
    frame.extend(tcp);
    frame
}
