//! A service that panics at every request beside traffic of others: it is begun anew, and nothing of theirs is lost.

use super::{Bench, STATION, request};
use polder_buffers::{Batch, Packet};
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_testbed::services::consumer::Service;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::time::{Duration, Instant};

/// Panics at every request.
struct Hysterical;

impl Service for Hysterical {
    fn answer(&mut self, request: &[u8], _: &mut Vec<u8>) -> bool {
        assert!(request.is_empty(), "every request is one too many");
        false
    }
}

/// Frames to the station.
const COUNT: u32 = 2_000;

/// A frame to the station, of that number.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = [&STATION.0[..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

#[test]
fn a_service_that_panics_is_counted_and_begun_anew_while_traffic_goes_on() {
    let allowed = sched_getaffinity(None).expect("some cores");
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("one at least");
    let Bench { _alone, memory, mut near, mut second, mut gateway, done } =
        Bench::start("panics", cpu, Box::new(|| Box::new(Hysterical)));
    let (mut pool, mut batch) = (memory.region().pool(), Batch::new());
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut sent, mut seen) = (0, 0);
    while seen < COUNT {
        assert!(Instant::now() < deadline, "{seen} of {COUNT} have arrived, {sent} were sent");
        if sent < COUNT && sent - seen < 32 {
            for bytes in [frame(sent), request(1)] {
                batch.push(Packet::copy_from(&bytes, &mut pool).expect("memory")).expect("room");
            }
            near[0].tx.transmit(&mut batch, &mut pool);
            assert!(batch.is_empty(), "the cable has room for what is under way");
            sent += 1;
        }
        let _ = second[0].rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
        for packet in batch.iter().filter(|packet| packet.bytes()[..6] == STATION.0) {
            assert_eq!(packet.bytes(), frame(seen), "none is missing");
            seen += 1;
        }
        pool.release(&mut batch);
        let _ = near[0].rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
        pool.release(&mut batch);
    }
    gateway.stop();
    assert_eq!(gateway.accounts().unaccounted(), 0);
    // Some requests may have been refused when more waited than it wants.
    let (panics, unanswered) = (done.panics.get(), done.unanswered.get());
    assert!(
        panics > 0 && panics == unanswered && done.answered.get() == 0,
        "{panics}, {unanswered}: {done:?}"
    );
}
