//! Cost of an egress queue per packet: enqueued, and dequeued again.
//!
//! `cargo bench -p polder-datapath --bench queue`
//!
//! As many packets wait as there are flows, at least 64; batches of 32 enter and 32 packets leave. Packets have
//! 128 bytes, their first bytes are in the cache if few wait, and nothing is dropped. *None* moves packets from
//! batch to batch. The time of reading the clock is part of what is measured, once for each batch.
#![expect(clippy::disallowed_methods, reason = "what is measured is time")]
#![expect(clippy::print_stdout, reason = "the output is the purpose")]

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::queue::{
    CakeOptions, CodelOptions, Discipline, EgressQueue, FqCodelOptions, QueueOptions,
};
use polder_datapath::units::Nanos;
use std::time::{Duration, Instant};

const BATCHES: usize = 20_000;
const BATCH: usize = 32;
const LENGTH: usize = 128;

fn main() {
    let region = Region::new(RegionOptions { slots: 16_384, slot_bytes: 512 }).expect("memory");
    let mut pool = region.pool();
    println!("{:>10} {:>8} {:>10} {:>10}", "discipline", "flows", "median ns", "p10 ns");
    let fq_codel = FqCodelOptions { seed: 1, ..FqCodelOptions::default() };
    let cake = CakeOptions { seed: 1, ..CakeOptions::default() };
    for flows in [1, 10_000] {
        print("none", flows, without(flows, &mut pool));
        for (name, discipline) in [
            ("drop-tail", Discipline::DropTail),
            ("codel", Discipline::Codel(CodelOptions::default())),
            ("fq_codel", Discipline::FqCodel(FqCodelOptions { flows: 65_536, ..fq_codel })),
            ("cake", Discipline::Cake(CakeOptions { flows: 16_384, ..cake })),
        ] {
            let options = QueueOptions::new(discipline, 8_000_000);
            print(name, flows, with(EgressQueue::new(&options), flows, &mut pool));
        }
    }
}

fn print(name: &str, flows: u32, mut times: Vec<Duration>) {
    times.sort_unstable();
    let nanos = |index: usize| times[index].as_nanos() as f64 / BATCH as f64;
    println!("{name:>10} {flows:>8} {:>10.1} {:>10.1}", nanos(times.len() / 2), nanos(times.len() / 10));
}

/// A UDP packet over IPv4 of a flow, from one of a hundred hosts.
fn packet(flow: u32, pool: &mut Pool) -> Packet {
    let mut bytes = [0; LENGTH];
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..18].copy_from_slice(&[0x45, 0, 0, 114]);
    bytes[22..24].copy_from_slice(&[64, 17]);
    bytes[26..30].copy_from_slice(&(0x0a00_0000 + flow % 100).to_be_bytes());
    bytes[30..34].copy_from_slice(&[10, 1, 0, 1]);
    bytes[34..38].copy_from_slice(&flow.to_be_bytes());
    Packet::copy_from(&bytes, pool).expect("enough slots")
}

fn without(flows: u32, pool: &mut Pool) -> Vec<Duration> {
    let (mut batch, mut other) = (Batch::new(), Batch::new());
    let mut times = Vec::with_capacity(BATCHES);
    for number in 0..BATCH {
        batch.push(packet(u32::try_from(number).expect("few") % flows, pool)).expect("a batch");
    }
    for _ in 0..BATCHES {
        let start = Instant::now();
        for packet in batch.drain() {
            other.push(packet).expect("a batch");
        }
        times.push(start.elapsed());
        core::mem::swap(&mut batch, &mut other);
    }
    pool.release(&mut batch);
    times
}

/// Packets that leave enter again, so that as many wait all the time.
fn with(mut queue: EgressQueue, flows: u32, pool: &mut Pool) -> Vec<Duration> {
    let mut batch = Batch::new();
    let mut times = Vec::with_capacity(BATCHES);
    let mut now = Nanos::SECOND;
    let refuse = |_, _| unreachable!("nothing is dropped");
    for number in 0..flows.max(64) {
        batch.push(packet(number % flows, pool)).expect("a batch");
        queue.put(&mut batch, now, refuse);
    }
    for _ in 0..BATCHES {
        // No packet waits for as long as CoDel's target.
        now = now + Nanos(1);
        let start = Instant::now();
        while batch.len() < BATCH
            && let Some(packet) = queue.take(now, refuse)
        {
            batch.push(packet).expect("room");
        }
        queue.put(&mut batch, now, refuse);
        times.push(start.elapsed());
    }
    queue.clear().for_each(|packet| pool.release_packet(packet));
    times
}
