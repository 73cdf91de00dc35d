//! The fault injector: transparent without faults, and each fault is noticed by the suite and counted.

use crate::pair::{FarEnd, LIMITS, cable};
use polder_buffers::{Batch, Pool, Region, RegionOptions};
use polder_datapath::port::{Armed, Budget, RxQueue as _, Turn};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::fault::{Faults, FaultyRx};
use polder_devices::{AnyQueue, Queue};
use std::time::Duration;

/// Cables whose near end has faults.
struct Faulty(Faults, Duration);

impl Fixture for Faulty {
    fn limits(&self) -> Limits {
        Limits { patience: self.1, ..LIMITS }
    }

    fn open(&mut self, _region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let (near, far) = cable(false);
        Ok((Queue { rx: Box::new(FaultyRx::new(near.rx, self.0)), tx: near.tx }, Box::new(far)))
    }
}

#[test]
fn without_faults_the_device_passes_the_suite() {
    let report = conformance::run(&mut Faulty(Faults::default(), LIMITS.patience));
    assert!(report.is_clean(), "\n{report}");
}

#[test]
fn the_suite_notices_each_fault() {
    for (fault, faults) in [
        ("loss", Faults { lose: 500, ..Faults::default() }),
        ("duplicates", Faults { duplicate: 500, ..Faults::default() }),
        ("damage", Faults { damage: 500, ..Faults::default() }),
        ("delay", Faults { delay: 500, delay_polls: 3, ..Faults::default() }),
        ("unplugged", Faults { unplug_after: Some(3), ..Faults::default() }),
    ] {
        let report = conformance::run(&mut Faulty(faults, Duration::from_millis(50)));
        assert!(!report.is_clean(), "{fault} is not noticed:\n{report}");
    }
}

/// A faulty port, the far end of its cable, and memory.
struct Bench {
    rx: FaultyRx,
    far: FarEnd,
    region: Region,
    pool: Pool,
}

impl Bench {
    fn new(faults: Faults) -> Self {
        let (near, far) = cable(false);
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory");
        Self { rx: FaultyRx::new(near.rx, faults), far, pool: region.pool(), region }
    }

    /// Sends `frames` frames, with their numbers as content, and returns the numbers that arrive,
    /// in their order.
    fn exchange(&mut self, frames: u32) -> Vec<u32> {
        let mut arrived = Vec::new();
        for number in 0..frames {
            assert!(self.far.inject(&[&number.to_be_bytes()[..], &[0; 56]].concat()));
            arrived.extend(self.poll());
        }
        while self.rx.held() > 0 {
            assert_eq!(self.rx.arm(), Armed::Raced, "delayed packets come only by polling");
            arrived.extend(self.poll());
        }
        arrived
    }

    fn poll(&mut self) -> Vec<u32> {
        let mut batch = Batch::new();
        let _ = self.rx.receive(&mut Budget::new(8), &mut batch, &mut self.pool);
        let number = |bytes: &[u8]| u32::from_be_bytes(*bytes.first_chunk().expect("four bytes"));
        let numbers = batch.iter().map(|packet| number(packet.bytes())).collect();
        self.pool.release(&mut batch);
        numbers
    }
}

#[test]
fn every_packet_is_accounted_for() {
    let shares = Faults {
        seed: 7,
        lose: 100,
        duplicate: 100,
        damage: 0,
        delay: 200,
        delay_polls: 5,
        unplug_after: None,
    };
    let mut bench = Bench::new(shares);
    let arrived = bench.exchange(2000);
    let counts = bench.rx.counts();
    let (lost, copies) = (counts.lost.get(), counts.duplicated.get());
    assert_eq!(arrived.len() as u64, 2000 + copies - lost);
    assert_eq!(bench.rx.counters().received.get(), arrived.len() as u64);
    for (what, count, share) in
        [("lost", lost, 100), ("duplicated", copies, 90), ("delayed", counts.delayed.get(), 180)]
    {
        assert!(count.abs_diff(2 * share) < share, "{count} of 2000 {what}");
    }
    assert!(!arrived.is_sorted(), "delayed packets are overtaken");
    let mut missing: Vec<u32> = (0..2000).filter(|number| !arrived.contains(number)).collect();
    missing.dedup();
    assert_eq!(missing.len() as u64, lost);
    let Bench { rx, far, region, pool } = bench;
    drop((rx, far, pool));
    assert_eq!(region.free_slots(), region.slots(), "no frame is lost with a packet");
}

#[test]
fn a_seed_repeats_a_run() {
    let faults = Faults { seed: 11, lose: 300, delay: 300, delay_polls: 2, ..Faults::default() };
    assert_eq!(Bench::new(faults).exchange(500), Bench::new(faults).exchange(500));
    let other = Faults { seed: 12, ..faults };
    assert_ne!(Bench::new(faults).exchange(500), Bench::new(other).exchange(500));
}

#[test]
fn an_unplugged_device_is_closed_and_what_it_held_is_counted() {
    let faults = Faults { delay: 1000, delay_polls: 50, unplug_after: Some(10), ..Faults::default() };
    let mut bench = Bench::new(faults);
    for number in 0..12_u32 {
        bench.far.inject(&number.to_be_bytes());
        bench.poll();
    }
    assert_eq!(bench.rx.receive(&mut Budget::new(8), &mut Batch::new(), &mut bench.pool), Turn::Closed);
    assert_eq!((bench.rx.counts().lost.get(), bench.rx.held()), (10, 0));
}
