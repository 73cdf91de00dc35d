//! The driver's port on a function that repeats one block: URBs, reader, packets, and the ring of URBs.
//!
//! Driver and model run in one thread. The model fills URBs outside of the measured time, as hardware does; submitting a
//! URB costs what a ring in memory costs.

use super::super::packing;
use super::super::volume::{Pair, TURN_TIME};
use super::buffers::{self, READY};
use super::{Amount, LIVE, SHORT};
use crate::scenarios::buffers::short::{beside_control, on_core, pss};
use crate::scenarios::buffers::windows::Windows;
use crate::scenarios::testbed::cores;
use anyhow::{Context as _, ensure};
use polder_buffers::{Batch, Class, Packet, Pool, Switches};
use polder_datapath::port::{Budget, Turn};
use polder_devices::Receiving;
use polder_devices::cdc::Options;
use polder_devices::cdc::model::{Device, Fault, Options as Model};
use polder_devices::cdc::request::NtbParameters;
use polder_devices::usb::{Speed, Techniques};
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Packets of a turn.
const BUDGET: u32 = 64;
/// Blocks that a turn finds.
const BLOCKS: usize = 4;
/// Datagrams of a burst: its long ones take three reserves of frames.
const BURST: usize = 6 * READY as usize;
/// Bursts of a sample.
const BURSTS: usize = 3;
/// Bytes a microsecond of a bus at SuperSpeed.
const BUS: usize = 400;
/// Time after which a burst is given up.
const LIMIT: Duration = Duration::from_secs(20);
/// Blocks that are received before anything counts.
const WARM_UP: usize = 64;
/// Datagrams that are asked for at a time: more than data have frames for.
const ALL: usize = 30_000;

/// Threshold below which the ring of URBs is refilled, and that of the reviewer's driver: after every poll.
pub(super) const TWO_THIRDS: u8 = 67;
pub(super) const EVERY_POLL: u8 = 100;

/// Supply of the ring of URBs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    pub(super) refill_below_percent: u8,
    /// True for URBs of a pool; false for memory of the platform's allocator.
    pub(super) urb_pools: bool,
}

impl Ring {
    pub(super) const USUAL: Self = Self { refill_below_percent: EVERY_POLL, urb_pools: true };

    fn options(self) -> Options {
        let Self { refill_below_percent, urb_pools } = self;
        Options {
            receiving: Receiving { refill_below_percent, copy_break: SHORT, ..Receiving::default() },
            techniques: Techniques { urb_pools, ..Techniques::ON },
            ..Options::default()
        }
    }
}

/// Nanoseconds of a datagram, while [`LIVE`] of them wait.
pub(super) fn steady(switches: &Switches, ring: Ring, block: &[u8], amount: Amount) -> anyhow::Result<f64> {
    buffers::with(switches, |manager| {
        let (mut port, mut pool) = (Port::open(block, ring)?, manager.pool(Class::Data));
        let mut live = VecDeque::with_capacity(2 * LIVE);
        for _ in 0..WARM_UP / BLOCKS {
            port.turn(BLOCKS, &mut pool, &mut live)?;
        }
        let mut windows = Windows::new();
        for _ in 0..amount.blocks / BLOCKS {
            port.fill(BLOCKS);
            let start = clock::nanos();
            let count = port.receive(&mut pool, &mut live);
            release(LIVE, &mut pool, &mut live);
            windows.add(start, count);
            port.pair.clock.pass(TURN_TIME);
        }
        release(0, &mut pool, &mut live);
        Ok(windows.nanos())
    })
}

/// Nanoseconds of a datagram of a burst of three reserves at the pace of a bus; the median of several bursts, each with
/// memory of its own.
pub(super) fn burst(switches: &Switches, block: &[u8]) -> anyhow::Result<f64> {
    let one = |_| buffers::with(switches, |manager| paced(block, manager.pool(Class::Data)));
    let bursts = (0..BURSTS).map(one).collect::<anyhow::Result<Samples>>()?;
    bursts.median().context("there was no burst")
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of a burst need no 52 bits")]
fn paced(block: &[u8], mut pool: Pool) -> anyhow::Result<f64> {
    let mut port = Port::open(block, Ring::USUAL)?;
    let mut live = VecDeque::with_capacity(2 * BURST);
    let (start, mut spent) = (clock::nanos(), 0);
    let apart = u64::try_from(block.len() * 1000 / BUS)?;
    let mut due = start;
    while live.len() < BURST {
        while clock::nanos() < due {
            spin_loop();
        }
        due += apart;
        port.fill(1);
        let at = clock::nanos();
        port.receive(&mut pool, &mut live);
        spent += clock::nanos() - at;
        port.pair.clock.pass(TURN_TIME);
        ensure!(u128::from(at - start) < LIMIT.as_nanos(), "a burst found no packet memory for {LIMIT:?}");
    }
    let datagrams = live.len();
    release(0, &mut pool, &mut live);
    Ok(spent as f64 / datagrams as f64)
}

/// Percentage of the process's memory that is left some time after a burst, of that before it.
pub(super) fn left_after_burst(gives_back: bool, block: &[u8], amount: Amount) -> anyhow::Result<f64> {
    Ok(after_burst(gives_back, block, amount)?.0)
}

/// Measures after a burst; also returns the number of buffers whose memory returned to the system.
fn after_burst(gives_back: bool, block: &[u8], amount: Amount) -> anyhow::Result<(f64, u64)> {
    let switches = Switches { gives_back, ..Switches::default() };
    buffers::with_patience(&switches, amount.rest / 4, |manager| {
        let (mut port, mut pool) = (Port::open(block, Ring::USUAL)?, manager.pool(Class::Data));
        let mut live = VecDeque::with_capacity(2 * BURST);
        let (before, end) = (pss()?, clock::now() + LIMIT);
        while live.len() < BURST && clock::now() < end {
            port.turn(BLOCKS, &mut pool, &mut live)?;
        }
        ensure!(live.len() >= BURST, "a burst found no packet memory for {LIMIT:?}");
        release(0, &mut pool, &mut live);
        drop(live);
        pool.give_back();
        interrupt::sleep(amount.rest)?;
        let given_back = manager.accounts().iter().map(|account| account.events.given_back).sum();
        Ok((100.0 * pss()? / before, given_back))
    })
}

/// Percentage of control's allocations that succeed while received datagrams take all frames of data.
pub(super) fn control_beside_data(splits: bool, block: &[u8], amount: Amount) -> anyhow::Result<f64> {
    // Opened here: a measurement that has begun cannot refuse.
    let (core, _) = cores();
    on_core(core, || Port::open(block, Ring::USUAL).map(drop))??;
    let take = |pool: Pool, is_over: &AtomicBool| take_everything(pool, block, is_over);
    Ok(beside_control(splits, amount.rest, cores(), take)?.taken_percent())
}

fn take_everything(mut pool: Pool, block: &[u8], is_over: &AtomicBool) -> u64 {
    let Ok(mut port) = Port::open(block, Ring::USUAL) else { return 0 };
    let (mut live, mut taken) = (VecDeque::with_capacity(2 * ALL), 0);
    // Relaxed: the flag orders nothing.
    while !is_over.load(Ordering::Relaxed) {
        let until = clock::now() + Duration::from_millis(4);
        while live.len() < ALL && clock::now() < until {
            port.fill(BLOCKS);
            port.receive(&mut pool, &mut live);
        }
        taken += live.len() as u64;
        release(0, &mut pool, &mut live);
        pool.give_back();
        // So long that the system gets back what was superfluous, and has to bring it in again.
        std::thread::sleep(Duration::from_millis(6));
        port.pair.clock.pass(TURN_TIME);
    }
    taken
}

/// Releases the oldest packets until `left` are left.
fn release(left: usize, pool: &mut Pool, live: &mut VecDeque<Packet>) {
    while live.len() > left
        && let Some(packet) = live.pop_front()
    {
        pool.release_packet(packet);
    }
}

/// A port, and the block that its function repeats.
struct Port<'a> {
    pair: Pair<Device>,
    block: &'a [u8],
    batch: Batch,
    /// Blocks that the function was told to send.
    planned: u64,
}

impl<'a> Port<'a> {
    fn open(block: &'a [u8], ring: Ring) -> anyhow::Result<Self> {
        let usual = Model::default();
        let in_bytes = u32::try_from(block.len().next_power_of_two())?;
        let parameters = NtbParameters { in_bytes, ..usual.parameters };
        let model = Device::new(Model { speed: Speed::Super, parameters, ..usual });
        let pair = Pair::new(model, |local| Ok(packing::open(local, &ring.options())?.queue))?;
        let planned = pair.host().bench.adapter.blocks_to_host();
        Ok(Self { pair, block, batch: Batch::new(), planned })
    }

    /// Lets the function fill that many URBs, unless some of the previous ones are unfilled.
    fn fill(&mut self, blocks: usize) {
        let now = self.pair.clock.now();
        let mut host = self.pair.host();
        if host.bench.adapter.blocks_to_host() >= self.planned {
            for _ in 0..blocks {
                host.bench.adapter.plan(Fault::Replace(self.block.to_vec()));
                self.planned += 1;
            }
        }
        host.step(now);
    }

    /// Receives the datagrams that have come, a budget at a time, until there are no more or no memory is; their number.
    fn receive(&mut self, pool: &mut Pool, live: &mut VecDeque<Packet>) -> usize {
        let before = live.len();
        loop {
            let turn = self.pair.queue.rx.receive(&mut Budget::new(BUDGET), &mut self.batch, pool);
            let count = self.batch.len();
            live.extend(self.batch.drain());
            if count == 0 || turn != Turn::OutOfBudget {
                return live.len() - before;
            }
        }
    }

    /// Fills and receives once, untimed.
    fn turn(&mut self, blocks: usize, pool: &mut Pool, live: &mut VecDeque<Packet>) -> anyhow::Result<()> {
        interrupt::check()?;
        self.fill(blocks);
        self.receive(pool, live);
        self.pair.clock.pass(TURN_TIME);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{QUICK, SIZES, block};
    use super::*;

    /// Datagrams that ten turns receive.
    fn received(ring: Ring, block: &[u8]) -> anyhow::Result<usize> {
        buffers::with(&Switches::default(), |manager| {
            let (mut port, mut pool) = (Port::open(block, ring)?, manager.pool(Class::Data));
            let mut live = VecDeque::new();
            (0..10).try_for_each(|_| port.turn(BLOCKS, &mut pool, &mut live))?;
            let received = live.len();
            release(0, &mut pool, &mut live);
            Ok(received)
        })
    }

    /// Every datagram of every block reaches the queue, with every supplier of packets and URBs.
    #[test]
    fn all_datagrams_are_received() {
        let threshold = Ring { refill_below_percent: TWO_THIRDS, ..Ring::USUAL };
        for (size, datagrams) in SIZES.into_iter().zip([20, 42]) {
            let block = block(size.bytes);
            for ring in [Ring::USUAL, threshold, Ring { urb_pools: false, ..threshold }] {
                assert_eq!(received(ring, &block).unwrap(), 10 * BLOCKS * datagrams, "{ring:?}");
            }
        }
    }

    #[test]
    fn each_measurement_ends() {
        let (block, on) = (block(SIZES[0].bytes), Switches::default());
        let off = Switches { pools_frames: false, pools_fragments: false, reuses: false, ..on };
        for switches in [on, off] {
            assert!(steady(&switches, Ring::USUAL, &block, QUICK).unwrap() > 1.0);
        }
        for reloads in [true, false] {
            assert!(burst(&Switches { reloads, ..on }, &block).unwrap() > 1.0);
        }
        assert!(control_beside_data(true, &block, QUICK).unwrap() > 0.0);
    }

    #[test]
    fn memory_of_a_burst_goes_back() {
        let block = block(SIZES[0].bytes);
        let amount = Amount { rest: Duration::from_secs(1), ..QUICK };
        let given_back = |gives_back| after_burst(gives_back, &block, amount).unwrap().1;
        assert!((given_back(false), given_back(true) > 0) == (0, true));
    }
}
