//! Memory of datagrams that come in blocks (source C): ready frames and ready fragments, one of the two, or none, when
//! the platform's allocator is called for each datagram.

use crate::clock;
use crate::interrupt;
use crate::meters::statistics::Samples;
use crate::report::Better;
use crate::scenarios::contrast::gains;
use crate::scenarios::testbed::cores;
use crate::scenarios::{Goal, Promise, Run};
use crate::topology::pin_here;
use anyhow::{Context as _, anyhow, ensure};
use polder_buffers::{BufferManager, BufferOptions, Class, FragmentOptions, HEADROOM, Packet, Pool, Segment};
use polder_devices::cdc::Format;
use polder_devices::cdc::model::{Style, encode};
use polder_devices::cdc::ntb::{Block, Cursor, Signatures};
use std::collections::VecDeque;

/// Kinds of datagrams whose memory is ready: long ones in frames, short ones in fragments.
#[derive(Clone, Copy, Debug)]
struct Ready {
    frames: bool,
    fragments: bool,
}

/// Columns: the first is the source's own state before the pools.
const COLUMNS: [Ready; 4] = [
    Ready { frames: false, fragments: false },
    Ready { frames: true, fragments: false },
    Ready { frames: false, fragments: true },
    Ready { frames: true, fragments: true },
];

const fn row(name: &'static str, unit: &'static str, better: Better) -> Promise {
    Promise { name, unit, better, goal: Goal::None }
}

/// Rows of a size of blocks: the columns, and the gains of all but the first.
macro_rules! rows {
    ($size:literal) => {
        [
            row(concat!("usb.ncm.memory_", $size, ".none.ns"), "ns", Better::Lower),
            row(concat!("usb.ncm.memory_", $size, ".frames.ns"), "ns", Better::Lower),
            row(concat!("usb.ncm.memory_", $size, ".fragments.ns"), "ns", Better::Lower),
            row(concat!("usb.ncm.memory_", $size, ".both.ns"), "ns", Better::Lower),
            row(concat!("usb.ncm.memory_", $size, ".frames.gain"), "%", Better::Higher),
            row(concat!("usb.ncm.memory_", $size, ".fragments.gain"), "%", Better::Higher),
            row(concat!("usb.ncm.memory_", $size, ".both.gain"), "%", Better::Higher),
        ]
    };
}

/// Sizes of blocks in bytes, and the rows of each.
const SIZES: [usize; 2] = [16 << 10, 32 << 10];
pub(super) const ROWS: [[Promise; 7]; 2] = [rows!("16_kib"), rows!("32_kib")];

/// Bytes of datagrams, long and short in turn.
const LENGTHS: [usize; 2] = [1400, 100];
/// Longest datagram that is short.
const SHORT: usize = 256;
const SLOT_BYTES: u32 = 2048;
const SLOTS: u32 = 4096;
/// Datagrams in queues at a time.
const LIVE: usize = 512;

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    for (bytes, rows) in SIZES.into_iter().zip(ROWS) {
        let names = rows.map(|row| row.name);
        if !run.wants_any(&names) {
            continue;
        }
        let (rounds, blocks) = run.quick_or((6, 500), (10, 20_000));
        let block = block(bytes);
        let (mut columns, mut datagrams) = (COLUMNS.map(|_| Samples::new()), 0);
        for round in 1..=rounds {
            run.says(&format!("memory of datagrams in blocks of {bytes} bytes, round {round} of {rounds}"));
            for (ready, samples) in COLUMNS.iter().zip(&mut columns) {
                interrupt::check()?;
                let cost = apart(*ready, &block, blocks)?;
                samples.push(cost.nanos);
                datagrams = cost.datagrams;
            }
        }
        run.place("datagrams of blocks", cores().0, "thread, pinned");
        let (costs, effects) = names.split_at(COLUMNS.len());
        for (name, samples) in costs.iter().zip(&columns) {
            run.record_interval(name, samples);
        }
        for (name, samples) in effects.iter().zip(&columns[1..]) {
            run.record_interval(name, &gains(samples, &columns[0], Better::Lower));
        }
        let text = format!(
            "{datagrams} datagrams of {LENGTHS:?} bytes in a block: read, copied and released; {LIVE} wait; memory that is not ready is malloc's"
        );
        run.remark(names[0], text);
    }
    Ok(())
}

/// As many datagrams as a block of `bytes` holds.
fn block(bytes: usize) -> Vec<u8> {
    let (mut frames, mut block) = (Vec::new(), Vec::new());
    for (number, length) in (0..=u8::MAX).zip(LENGTHS.into_iter().cycle()) {
        frames.push(vec![number; length]);
        let longer = encode(&frames, &Style::default());
        if longer.len() > bytes {
            break;
        }
        block = longer;
    }
    block
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
struct Cost {
    nanos: f64,
    /// Datagrams of a block.
    datagrams: usize,
}

/// Reads a block so many times, on a thread and a core of its own.
fn apart(ready: Ready, block: &[u8], blocks: usize) -> anyhow::Result<Cost> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin_here(cores().0)?;
            Memory::new(ready)?.read(block, blocks)
        });
        thread.join().map_err(|_| anyhow!("a measurement panicked"))?
    })
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

/// The memory of a column, and the datagrams in it.
struct Memory {
    ready: Ready,
    pool: Pool,
    live: VecDeque<Held>,
    _manager: BufferManager,
}

impl Memory {
    fn new(ready: Ready) -> anyhow::Result<Self> {
        let mut options = BufferOptions::fixed(SLOT_BYTES, 0, SLOTS);
        options.data.fragments = Some(FragmentOptions::default());
        let manager = BufferManager::new(options)?;
        let live = VecDeque::with_capacity(2 * LIVE);
        Ok(Self { ready, pool: manager.pool(Class::Data), live, _manager: manager })
    }

    fn read(&mut self, block: &[u8], blocks: usize) -> anyhow::Result<Cost> {
        let reader = Block { format: Format::Ntb16, signatures: Signatures::Ncm, shortest: 14 };
        let (mut datagrams, mut taken, mut given) = (0, 0, 0);
        let before = clock::thread_cpu();
        for _ in 0..blocks {
            let mut cursor = Cursor::default();
            while let Some(datagram) = reader.next(&mut cursor, block) {
                let bytes = datagram?.bytes;
                let held = self.take(bytes).context("no packet memory is left")?;
                self.live.push_back(held);
                (datagrams, taken) = (datagrams + 1, taken + bytes.len());
            }
            while self.live.len() > LIVE
                && let Some(held) = self.live.pop_front()
            {
                given += held.len();
                self.give(held);
            }
        }
        let cpu = clock::thread_cpu() - before;
        while let Some(held) = self.live.pop_front() {
            given += held.len();
            self.give(held);
        }
        ensure!(taken > 0 && taken == given, "{taken} bytes were read, and {given} came back");
        let nanos = cpu.as_secs_f64() * 1e9 / f64::from(u32::try_from(datagrams)?);
        Ok(Cost { nanos, datagrams: datagrams / blocks })
    }

    fn take(&mut self, bytes: &[u8]) -> Option<Held> {
        let length = u16::try_from(bytes.len()).ok()?;
        let is_short = bytes.len() <= SHORT;
        let wanted = u32::from(HEADROOM) + u32::from(length);
        let frame = match (is_short, self.ready) {
            (true, Ready { fragments: true, .. }) => self.pool.take_for(wanted),
            (false, Ready { frames: true, .. }) => self.pool.take(),
            _ => {
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

    fn give(&mut self, held: Held) {
        match held {
            Held::Pooled(packet) => self.pool.release_packet(packet),
            Held::Allocated(bytes) => drop(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_datagrams_of_a_block_are_read_into_each_memory() {
        for (bytes, wanted) in SIZES.into_iter().zip([20, 42]) {
            let block = block(bytes);
            assert!(block.len() <= bytes && block.len() > bytes - 1500);
            for ready in COLUMNS {
                let cost = apart(ready, &block, 100).unwrap();
                assert!(cost.datagrams == wanted && cost.nanos > 1.0, "{ready:?}: {cost:?}");
            }
        }
    }
}
