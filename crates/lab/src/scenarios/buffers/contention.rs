//! Two threads that take and release buffers at the same time: from one pool behind a lock, from the platform's
//! allocator, or from a pool each. One call a buffer in all three.

use super::windows::Windows;
use anyhow::anyhow;
use polder_buffers::{Frame, Pool, Region, RegionOptions};
use polder_testbed::clock;
use polder_testbed::topology::pin_here;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

const BATCH: usize = 32;
/// Buffers that each thread has at a time.
const LIVE: usize = 512;
const SLOT_BYTES: usize = 2048;
const SLOTS: u32 = 8192;

/// Source of the buffers of two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Supply {
    OwnPools,
    OnePool,
    NoPool,
}

/// Nanoseconds of a buffer, its first line written, of the slower thread.
pub(super) fn cost(supply: Supply, batches: usize, cores: (usize, usize)) -> anyhow::Result<f64> {
    let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 })?;
    let shared = Mutex::new(region.pool());
    let one = |core: usize| {
        pin_here(core)?;
        anyhow::Ok(match supply {
            Supply::OwnPools => of_pool(region.pool(), batches),
            Supply::OnePool => of_shared(&shared, batches),
            Supply::NoPool => of_allocator(batches),
        })
    };
    std::thread::scope(|scope| {
        let threads = [cores.0, cores.1].map(|core| scope.spawn(move || one(core)));
        let mut slowest = 0.0_f64;
        for thread in threads {
            slowest = slowest.max(thread.join().map_err(|_| anyhow!("a measurement panicked"))??);
        }
        Ok(slowest)
    })
}

fn of_pool(pool: Pool, batches: usize) -> f64 {
    let pool = std::cell::RefCell::new(pool);
    work(
        batches,
        || pool.borrow_mut().take(),
        |frame: Frame| pool.borrow_mut().release_frame(frame),
        |frame| frame.slot_mut()[..64].fill(1),
    )
}

fn of_shared(pool: &Mutex<Pool>, batches: usize) -> f64 {
    let lock = || pool.lock().unwrap_or_else(PoisonError::into_inner);
    work(
        batches,
        || lock().take(),
        |frame: Frame| lock().release_frame(frame),
        |frame| frame.slot_mut()[..64].fill(1),
    )
}

fn of_allocator(batches: usize) -> f64 {
    work(batches, || Some(Vec::<u8>::with_capacity(SLOT_BYTES)), drop, |buffer| buffer.extend([1; 64]))
}

/// Allocates a batch, writes the first cache lines, and releases the oldest buffers.
fn work<T>(
    batches: usize,
    mut take: impl FnMut() -> Option<T>,
    put: impl FnMut(T),
    mut write: impl FnMut(&mut T),
) -> f64 {
    let (mut windows, mut put) = (Windows::new(), put);
    let mut live = VecDeque::<T>::with_capacity(LIVE + BATCH);
    for _ in 0..batches {
        let (before, start) = (live.len(), clock::nanos());
        for _ in 0..BATCH {
            live.extend(take().map(|mut buffer| {
                write(&mut buffer);
                buffer
            }));
        }
        let taken = live.len() - before;
        let over = live.len().saturating_sub(LIVE);
        live.drain(..over).for_each(&mut put);
        windows.add(start, taken);
    }
    live.drain(..).for_each(put);
    windows.nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_supply_gives_buffers() {
        let cores = crate::scenarios::testbed::cores();
        for supply in [Supply::OwnPools, Supply::OnePool, Supply::NoPool] {
            let nanos = cost(supply, 200, cores).unwrap();
            assert!(nanos > 0.1 && nanos < 1e6, "{supply:?}: {nanos}");
        }
    }
}
