//! Cost of handing packets from one core to another.
//!
//! Two threads, each on its core, send the same packets to and fro through two rings as workers use
//! them; who receives looks at every packet. Each packet is handed over twice a round, by each of the two
//! once, so the time of a round for each packet, halved, is what one hand-over takes of the two cores
//! together at most.

use anyhow::{Context as _, anyhow, ensure};
use polder_buffers::ring::{self, Consumer, Producer};
use polder_buffers::{Batch, Packet, Region, RegionOptions};
use polder_testbed::clock;
use polder_testbed::topology::pin_here;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const RING: usize = 512;
/// Number of packets in flight, in batches: enough that no worker waits for a single packet.
const BATCHES_UNDER_WAY: usize = 8;

/// Nanoseconds for each packet and hand-over, `batch` packets at a time.
#[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
pub(super) fn run(batch: usize, cores: [usize; 2], time: Duration) -> anyhow::Result<f64> {
    let region = Region::new(RegionOptions { slots: 1024, slot_bytes: 512 })?;
    let (mut there, mut from_here) = ring::channel::<Packet>(RING);
    let (mut back, mut from_there) = ring::channel::<Packet>(RING);
    let mut pool = region.pool();
    for _ in 0..batch * BATCHES_UNDER_WAY {
        let packet = Packet::new(pool.take().context("no memory")?);
        ensure!(there.push(packet).is_ok(), "the ring holds what is under way");
    }
    let stop = AtomicBool::new(false);
    let (handed, elapsed) = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            pin_here(cores[1])?;
            pass_on(&mut from_here, &mut back, batch, || stop.load(Ordering::Relaxed));
            anyhow::Ok(())
        });
        let own = scope.spawn(|| {
            pin_here(cores[0])?;
            let (start, mut looks) = (clock::now(), 0_u32);
            let handed = pass_on(&mut from_there, &mut there, batch, || {
                looks = looks.wrapping_add(1);
                looks.is_multiple_of(1024) && clock::now() - start >= time
            });
            anyhow::Ok((handed, clock::now() - start))
        });
        let measured = own.join().map_err(|_| anyhow!("this side panicked"))?;
        // Relaxed: the flag orders nothing.
        stop.store(true, Ordering::Relaxed);
        other.join().map_err(|_| anyhow!("the other side panicked"))??;
        measured
    })?;
    ensure!(handed > 0, "nothing was handed over");
    Ok(elapsed.as_nanos() as f64 / handed as f64 / 2.0)
}

/// Hands waiting packets on, a batch at a time; returns their number.
fn pass_on(
    from: &mut Consumer<Packet>,
    to: &mut Producer<Packet>,
    batch: usize,
    mut is_over: impl FnMut() -> bool,
) -> u64 {
    let (mut handed, mut hand) = (0, Batch::new());
    while !is_over() {
        let taken = from.pop_all(batch, |mut packet| {
            packet.ticket = packet.ticket.wrapping_add(1);
            let pushed = hand.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room");
        });
        if taken == 0 {
            std::hint::spin_loop();
            continue;
        }
        handed += to.push_all(taken, hand.drain()) as u64;
    }
    black_box(handed)
}
