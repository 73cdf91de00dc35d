//! Polder's own buffers: taken and released by one core, and taken by one and released by the other.

use super::windows::{BULK, WINDOW, Windows};
use anyhow::Context as _;
use polder_buffers::ring::{Consumer, Producer, channel};
use polder_buffers::{
    BATCH, Batch, FragmentMemory, FragmentOptions, Fragments, Frame, Packet, Pool, Region, RegionOptions,
};
use polder_testbed::clock;
use polder_testbed::topology::pin_here;
use std::hint::{black_box, spin_loop};
use std::time::Duration;

/// Slots; as many as the mempool of the peer.
const SLOTS: u32 = 16_384;
const SLOT_BYTES: u32 = 2048;
/// Cells of the ring between the cores.
const RING: usize = 1024;
/// Looks at an empty or full ring before the core is left to others.
const PATIENCE: u32 = 5000;

/// Nanoseconds an object, taken and put back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// Cost of single allocations.
    pub(super) single: f64,
    /// [`BULK`] at a time.
    pub(super) bulk: f64,
}

fn region() -> anyhow::Result<Region> {
    Ok(Region::new(RegionOptions { slots: SLOTS, slot_bytes: SLOT_BYTES })?)
}

/// Frames: what DPDK's mempool hands out.
pub(super) fn frames_alone(rounds: usize) -> anyhow::Result<Alone> {
    let state = (region()?.pool(), Vec::with_capacity(BULK));
    let once = |(pool, _): &mut (Pool, _)| {
        if let Some(mut frame) = pool.take() {
            black_box(&mut frame);
            pool.release_frame(frame);
        }
    };
    Ok(alone(rounds, state, once, |(pool, frames)| {
        pool.take_bulk(BULK, frames);
        black_box(&mut *frames);
        pool.release_bulk(frames);
    }))
}

/// Costs of taking an object and putting it back, one at a time and [`BULK`] at a time.
#[inline(always)]
fn alone<S>(rounds: usize, mut state: S, once: impl Fn(&mut S), many: impl Fn(&mut S)) -> Alone {
    let (mut single, mut bulk) = (Windows::new(), Windows::new());
    for _ in 0..rounds / WINDOW {
        single.time(WINDOW, || {
            for _ in 0..WINDOW {
                once(&mut state);
            }
        });
        bulk.time(WINDOW, || {
            for _ in 0..WINDOW / BULK {
                many(&mut state);
            }
        });
    }
    Alone { single: single.nanos(), bulk: bulk.nanos() }
}

/// Whole packets: what an mbuf is there.
pub(super) fn packets_alone(rounds: usize) -> anyhow::Result<Alone> {
    let once = |(pool, _): &mut (Pool, Batch)| {
        if let Some(frame) = pool.take() {
            let mut packet = Packet::new(frame);
            black_box(&mut packet);
            pool.release_packet(packet);
        }
    };
    Ok(alone(rounds, (region()?.pool(), Batch::new()), once, |(pool, batch)| {
        fill(batch, pool);
        black_box(&mut *batch);
        pool.release(batch);
    }))
}

#[inline]
fn fill(batch: &mut Batch, pool: &mut Pool) {
    for _ in 0..BULK.min(BATCH) {
        let Some(frame) = pool.take() else { return };
        if batch.push(Packet::new(frame)).is_err() {
            return;
        }
    }
}

/// Frames that are taken on the first core and released on the second.
pub(super) fn frames_across(rounds: usize, cores: (usize, usize)) -> anyhow::Result<f64> {
    let region = region()?;
    let (mut here, mut there) = (region.pool(), region.pool());
    across(
        rounds,
        cores,
        move |frames| {
            here.take_bulk(BULK - frames.len(), frames);
        },
        move |frames| there.release_bulk(frames),
    )
}

/// Cost of whole packets that cross two cores.
pub(super) fn packets_across(rounds: usize, cores: (usize, usize)) -> anyhow::Result<f64> {
    let region = region()?;
    let (mut here, mut there) = (region.pool(), region.pool());
    across(
        rounds,
        cores,
        move |packets: &mut Vec<Packet>| {
            while packets.len() < BULK
                && let Some(frame) = here.take()
            {
                packets.push(Packet::new(frame));
            }
        },
        move |packets| packets.drain(..).for_each(|packet| there.release_packet(packet)),
    )
}

/// Fragments of these bytes on one core.
pub(super) fn fragments_alone(rounds: usize, bytes: u32, options: FragmentOptions) -> anyhow::Result<Alone> {
    let state = (FragmentMemory::new(options)?.fragments(), Vec::with_capacity(BULK));
    let once = |(fragments, _): &mut (Fragments, Vec<Frame>)| {
        if let Some(mut frame) = fragments.take(bytes) {
            black_box(&mut frame);
            fragments.release(frame);
            fragments.settle();
        }
    };
    Ok(alone(rounds, state, once, |(fragments, frames)| {
        fragments.take_bulk(bytes, BULK, frames);
        black_box(&mut *frames);
        fragments.release_bulk(frames);
    }))
}

/// Fragments that are taken on the first core and released on the second.
pub(super) fn fragments_across(
    rounds: usize,
    cores: (usize, usize),
    bytes: u32,
    options: FragmentOptions,
) -> anyhow::Result<f64> {
    let memory = FragmentMemory::new(options)?;
    let (mut here, mut there) = (memory.fragments(), memory.fragments());
    across(
        rounds,
        cores,
        move |frames| {
            here.take_bulk(bytes, BULK - frames.len(), frames);
        },
        move |frames| there.release_bulk(frames),
    )
}

/// Memory of the platform's allocator, one call a buffer, on one core.
pub(super) fn mallocs_alone(rounds: usize, bytes: usize) -> Alone {
    let once = |_: &mut Vec<Vec<u8>>| drop(black_box(Vec::<u8>::with_capacity(bytes)));
    alone(rounds, Vec::with_capacity(BULK), once, |buffers| {
        buffers.extend((0..BULK).map(|_| Vec::with_capacity(bytes)));
        black_box(&mut *buffers);
        buffers.clear();
    })
}

/// Cost of malloc on the first core and free on the second.
pub(super) fn mallocs_across(rounds: usize, cores: (usize, usize), bytes: usize) -> anyhow::Result<f64> {
    across(
        rounds,
        cores,
        move |buffers: &mut Vec<Vec<u8>>| {
            let missing = BULK - buffers.len();
            buffers.extend((0..missing).map(|_| Vec::with_capacity(bytes)));
        },
        |buffers| buffers.clear(),
    )
}

/// Allocates on one core and frees on the other; the ring between them is not timed.
fn across<T: Send>(
    rounds: usize,
    (core, other): (usize, usize),
    take: impl FnMut(&mut Vec<T>),
    put: impl FnMut(&mut Vec<T>) + Send,
) -> anyhow::Result<f64> {
    let rounds = rounds / WINDOW * WINDOW;
    let (producer, consumer) = channel::<T>(RING);
    std::thread::scope(|scope| {
        let putting = scope.spawn(move || pin_here(other).map(|()| put_all(rounds, consumer, put)));
        pin_here(core)?;
        let here = take_all(rounds, producer, take);
        let there = putting.join().ok().context("the other core's thread panicked")??;
        Ok(here + there)
    })
}

/// Frees received objects.
fn put_all<T: Send>(rounds: usize, mut from: Consumer<T>, mut put: impl FnMut(&mut Vec<T>)) -> f64 {
    let (mut windows, mut objects) = (Windows::new(), Vec::with_capacity(BULK));
    let (mut done, mut tries) = (0, 0);
    while done < rounds {
        let count = from.pop_all(BULK, |object| objects.push(object));
        if count == 0 {
            wait(&mut tries);
        } else {
            windows.time(count, || put(&mut objects));
            done += count;
        }
    }
    windows.nanos()
}

/// Allocates as fast as the ring has room.
fn take_all<T: Send>(rounds: usize, mut to: Producer<T>, mut take: impl FnMut(&mut Vec<T>)) -> f64 {
    let (mut windows, mut objects) = (Windows::new(), Vec::with_capacity(BULK));
    let (mut done, mut tries) = (0, 0);
    while done < rounds {
        let (before, start) = (objects.len(), clock::nanos());
        take(&mut objects);
        // A look that finds nothing is not an allocation; nor is it one in the programs beside.
        match objects.len() - before {
            0 => wait(&mut tries),
            taken => windows.add(start, taken),
        }
        if objects.len() < BULK {
            continue;
        }
        while to.room(BULK) < BULK {
            wait(&mut tries);
        }
        done += to.push_all(BULK, objects.drain(..));
    }
    windows.nanos()
}

/// Looks again soon; after many looks the core is left to others for a moment.
fn wait(tries: &mut u32) {
    *tries += 1;
    if tries.is_multiple_of(PATIENCE) {
        std::thread::sleep(Duration::from_micros(20));
    } else {
        spin_loop();
    }
}
