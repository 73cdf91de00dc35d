//! The smallest forwarder that can be: addresses exchanged, out by the other port. What DPDK's
//! `testpmd` does in its mode `macswap`, through the seam that every device has here.

use super::harness::FRAME_BYTES;
use polder_buffers::{BATCH, Batch, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue, Turn, TxQueue};
use polder_testbed::meters::cpu::thread_time;
use polder_testbed::topology::pin_here;
use polder_testbed::traffic::memory::{Drain, Source};
use polder_testbed::traffic::packet::Talk;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SLOTS: u32 = 16_384;

/// One direction of traffic.
struct Direction {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
}

/// Forwards for a while on core `core`; returns CPU time for each packet, in nanoseconds.
pub(crate) fn run(core: usize, time: Duration) -> anyhow::Result<f64> {
    let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 })?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let forwarding = scope.spawn(|| {
            pin_here(core)?;
            forward(&region, &stop)
        });
        let slept = polder_testbed::interrupt::sleep(time);
        // Relaxed: the flag orders nothing.
        stop.store(true, Ordering::Relaxed);
        let forwarded = forwarding.join().map_err(|_| anyhow::anyhow!("the forwarder panicked"))?;
        slept?;
        forwarded
    })
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
fn forward(region: &Region, stop: &AtomicBool) -> anyhow::Result<f64> {
    let (mut pool, mut batch) = (region.pool(), Batch::new());
    let mut directions = [direction(), direction()];
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    let start = thread_time(own)?;
    while !stop.load(Ordering::Relaxed) {
        for direction in &mut directions {
            turn(direction, &mut batch, &mut pool);
        }
    }
    let cpu = thread_time(own)?.saturating_sub(start);
    let packets = directions.iter().map(|direction| direction.tx.counters().transmitted.get()).sum::<u64>();
    Ok(cpu.as_nanos() as f64 / packets as f64)
}

fn direction() -> Direction {
    let end = |last| ([2, 0, 0, 0, 0, last], Ipv4Addr::new(10, 0, 0, last));
    let (source, tap) = Source::new(Talk::simple(end(1), end(2)), FRAME_BYTES);
    tap.set_open(true);
    Direction { rx: Box::new(source), tx: Box::new(Drain::new()) }
}

fn turn(direction: &mut Direction, batch: &mut Batch, pool: &mut Pool) {
    let mut budget = Budget::new(BUDGET);
    // There is always more, and it is always polled again.
    let (Turn::Drained | Turn::OutOfBudget | Turn::Closed) = direction.rx.receive(&mut budget, batch, pool);
    for packet in batch.iter_mut() {
        swap(packet.bytes_mut());
    }
    direction.tx.transmit(batch, pool);
    let (Turn::Drained | Turn::OutOfBudget | Turn::Closed) = direction.tx.reclaim(pool);
}

/// Exchanges destination and source.
#[inline]
fn swap(frame: &mut [u8]) {
    if let Some(addresses) = frame.first_chunk_mut::<12>() {
        let [a, b, c, d, e, f, u, v, w, x, y, z] = *addresses;
        *addresses = [u, v, w, x, y, z, a, b, c, d, e, f];
    }
}

#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const BUDGET: u32 = BATCH as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_exchanged() {
        let mut frame = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];
        swap(&mut frame);
        assert_eq!(frame, [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 13, 14]);
    }

    #[test]
    fn it_forwards() {
        let nanos = run(0, Duration::from_millis(50)).unwrap();
        assert!((0.1..10_000.0).contains(&nanos), "{nanos}");
    }
}
