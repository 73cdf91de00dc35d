//! Datagrams of one block, read by the driver's reader into ready frames, ready fragments, or memory of the platform's
//! allocator. Packets hold no memory of the allocator, so the URBs are left out, on both sides.

use super::buffers::{self, SLOT_BYTES};
use super::{Amount, SHORT};
use crate::scenarios::buffers::short::on_core;
use crate::scenarios::buffers::windows::Windows;
use crate::scenarios::testbed::cores;
use anyhow::{Context as _, anyhow, ensure};
use polder_buffers::{BufferManager, Class, Frame, HEADROOM, Packet, Pool, Segment, Switches};
use polder_devices::cdc::Format;
use polder_devices::cdc::ntb::{Block, Cursor, Signatures};
use polder_testbed::clock;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Kinds of datagrams whose memory is ready: long ones in frames, short ones in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) frames: bool,
    pub(super) fragments: bool,
}

impl Ready {
    /// The platform's allocator, one call a datagram.
    pub(super) const NONE: Self = Self { frames: false, fragments: false };
    pub(super) const FRAMES: Self = Self { frames: true, fragments: false };
    pub(super) const FRAGMENTS: Self = Self { frames: false, fragments: true };
    pub(super) const BOTH: Self = Self { frames: true, fragments: true };
}

/// Number of datagrams that are read together, and that wait afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// Blocks that are read before anything is released.
    blocks: usize,
    /// Datagrams that wait.
    held: usize,
}

impl Queue {
    /// Queues of five flows.
    pub(super) const STEADY: Self = Self { blocks: 1, held: super::LIVE };

    /// A burst of at least 4096 datagrams, of which none waits at its end.
    pub(super) const fn burst(bytes: usize) -> Self {
        // Blocks have one datagram for each 800 bytes, about.
        Self { blocks: 4096 * 800 / bytes, held: 0 }
    }
}

/// Nanoseconds of a datagram: read, copied into its memory, and released.
pub(super) fn cost(ready: Ready, queue: Queue, block: &[u8], amount: Amount) -> anyhow::Result<f64> {
    buffers::with(&Switches::default(), |manager| {
        let mut pool = manager.pool(Class::Data);
        Memory::new(ready, Supply::Own(&mut pool)).read(block, queue, amount.blocks)
    })
}

/// Pools of two threads that read blocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// A pool each.
    OwnPools,
    /// One pool with a lock.
    OnePool,
    /// The platform's allocator.
    NoPool,
}

/// Nanoseconds of a datagram, of the slower of two threads.
pub(super) fn contended(sharing: Sharing, block: &[u8], amount: Amount) -> anyhow::Result<f64> {
    let manager = BufferManager::new(buffers::options(&Switches::default()))?;
    let shared = Mutex::new(manager.pool(Class::Data));
    let one = |core: usize| {
        on_core(core, || {
            let mut pool = manager.pool(Class::Data);
            let (ready, supply) = match sharing {
                Sharing::OwnPools => (Ready::BOTH, Supply::Own(&mut pool)),
                Sharing::OnePool => (Ready::BOTH, Supply::Shared(&shared)),
                Sharing::NoPool => (Ready::NONE, Supply::Shared(&shared)),
            };
            Memory::new(ready, supply).read(block, Queue::STEADY, amount.blocks)
        })?
    };
    std::thread::scope(|scope| {
        let (core, other) = cores();
        let threads = [core, other].map(|core| scope.spawn(move || one(core)));
        let mut slowest = 0.0_f64;
        for thread in threads {
            slowest = slowest.max(thread.join().map_err(|_| anyhow!("a measurement panicked"))??);
        }
        Ok(slowest)
    })
}

/// Pool of a thread.
enum Supply<'a> {
    Own(&'a mut Pool),
    Shared(&'a Mutex<Pool>),
}

impl Supply<'_> {
    #[inline]
    fn with<T>(&mut self, work: impl FnOnce(&mut Pool) -> T) -> T {
        match self {
            Self::Own(pool) => work(pool),
            Self::Shared(pool) => work(&mut pool.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// A datagram in its memory.
enum Held {
    Pooled(Packet),
    Allocated(Vec<u8>),
}

impl Held {
    fn len(&self) -> usize {
        match self {
            Self::Pooled(packet) => packet.len(),
            Self::Allocated(bytes) => bytes.len(),
        }
    }
}

/// The memory of datagrams, and the datagrams in it.
struct Memory<'a> {
    ready: Ready,
    supply: Supply<'a>,
    live: VecDeque<Held>,
    /// Bytes read, and bytes echoed.
    taken: usize,
    given: usize,
}

impl<'a> Memory<'a> {
    fn new(ready: Ready, supply: Supply<'a>) -> Self {
        Self { ready, supply, live: VecDeque::with_capacity(2 * super::LIVE), taken: 0, given: 0 }
    }

    /// Reads the block so many times, and at least one queue of them; nanoseconds of a datagram.
    fn read(&mut self, block: &[u8], queue: Queue, blocks: usize) -> anyhow::Result<f64> {
        let mut windows = Windows::new();
        for _ in 0..blocks.div_ceil(queue.blocks) {
            let (before, start) = (self.live.len(), clock::nanos());
            for _ in 0..queue.blocks {
                self.read_block(block)?;
            }
            let datagrams = self.live.len() - before;
            self.release(queue.held);
            windows.add(start, datagrams);
        }
        self.release(0);
        ensure!(
            self.taken > 0 && self.taken == self.given,
            "{} bytes were read, and {} came back",
            self.taken,
            self.given
        );
        Ok(windows.nanos())
    }

    fn read_block(&mut self, block: &[u8]) -> anyhow::Result<()> {
        let reader = Block { format: Format::Ntb16, signatures: Signatures::Ncm, shortest: 14 };
        let mut cursor = Cursor::default();
        while let Some(datagram) = reader.next(&mut cursor, block) {
            let bytes = datagram?.bytes;
            let held = self.take(bytes).context("no packet memory is left")?;
            self.taken += bytes.len();
            self.live.push_back(held);
        }
        Ok(())
    }

    /// Releases the oldest datagrams until `left` are left.
    fn release(&mut self, left: usize) {
        while self.live.len() > left
            && let Some(held) = self.live.pop_front()
        {
            self.given += held.len();
            match held {
                Held::Pooled(packet) => self.supply.with(|pool| pool.release_packet(packet)),
                Held::Allocated(bytes) => drop(bytes),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Option<Held> {
        let length = u16::try_from(bytes.len()).ok()?;
        let is_short = length <= SHORT;
        let wanted = u32::from(HEADROOM) + u32::from(length);
        let frame: Option<Frame> = match (is_short, self.ready) {
            (true, Ready { fragments: true, .. }) => self.supply.with(|pool| pool.take_for(wanted)),
            (false, Ready { frames: true, .. }) => self.supply.with(Pool::take),
            (true, Ready { fragments: false, .. }) | (false, Ready { frames: false, .. }) => {
                let wanted = if is_short { wanted } else { SLOT_BYTES };
                let mut copy = Vec::with_capacity(wanted as usize);
                copy.extend_from_slice(bytes);
                return Some(Held::Allocated(copy));
            }
        };
        let mut frame = frame?;
        let start = usize::from(HEADROOM);
        frame.slot_mut()[start..start + bytes.len()].copy_from_slice(bytes);
        Some(Held::Pooled(Packet::from_segment(Segment { frame, offset: HEADROOM, length })))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QUICK, SIZES, block};
    use super::*;

    /// Datagrams of a block, their bytes, and the echoed bytes.
    fn counts(ready: Ready, block: &[u8]) -> (usize, usize, usize) {
        let manager = BufferManager::new(buffers::options(&Switches::default())).unwrap();
        let mut pool = manager.pool(Class::Data);
        let mut memory = Memory::new(ready, Supply::Own(&mut pool));
        memory.read_block(block).unwrap();
        let datagrams = memory.live.len();
        memory.release(0);
        (datagrams, memory.taken, memory.given)
    }

    #[test]
    fn all_datagrams_of_a_block_are_read_into_each_memory() {
        for (size, datagrams) in SIZES.into_iter().zip([20, 42]) {
            let block = block(size.bytes);
            assert!(block.len() <= size.bytes && block.len() > size.bytes - 1500);
            for ready in [Ready::NONE, Ready::FRAMES, Ready::FRAGMENTS, Ready::BOTH] {
                let bytes = datagrams / 2 * 1500;
                assert_eq!(counts(ready, &block), (datagrams, bytes, bytes), "{ready:?}");
            }
        }
    }

    #[test]
    fn each_memory_and_each_sharing_has_its_cost() {
        let block = block(SIZES[0].bytes);
        for ready in [Ready::NONE, Ready::BOTH] {
            for queue in [Queue::STEADY, Queue::burst(SIZES[0].bytes)] {
                let nanos = cost(ready, queue, &block, QUICK).unwrap();
                assert!(nanos > 1.0, "{ready:?}, {queue:?}: {nanos}");
            }
        }
        for sharing in [Sharing::OwnPools, Sharing::OnePool, Sharing::NoPool] {
            let nanos = contended(sharing, &block, QUICK).unwrap();
            assert!(nanos > 1.0, "{sharing:?}: {nanos}");
        }
    }
}
