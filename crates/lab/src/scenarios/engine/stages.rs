//! The stages alone, without a worker and without ports, as VPP's account of its graph's nodes is.

use super::harness::ETHERNET;
use anyhow::ensure;
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Pool, PortId, Region, RegionOptions};
use polder_datapath::engine::{Engine, Tables, TurnContext};
use polder_datapath::port::{Budget, RxQueue, Turn};
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use polder_testbed::clock;
use polder_testbed::topology::pin_here;
use std::time::{Duration, Instant};

const SLOTS: u32 = 4096;
/// Packets received in a turn.
const VECTOR: u32 = 64;
/// Turns between two looks at the clock.
const TURNS: u32 = 256;

/// An engine and the source of its packets.
pub(super) struct Stages {
    engine: Engine,
    pool: Pool,
    source: Box<dyn RxQueue>,
    held: Held,
    _tables: Snapshot<Tables>,
    _region: Region,
}

/// Ports that hold packets until the turn is over.
#[derive(Default)]
struct Held {
    batches: Vec<Batch>,
    filled: usize,
}

impl Egress for Held {
    fn send(&mut self, _: PortId, batch: &mut Batch, _: &mut Pool) -> bool {
        if self.filled == self.batches.len() {
            self.batches.push(Batch::new());
        }
        std::mem::swap(&mut self.batches[self.filled], batch);
        self.filled += 1;
        true
    }
}

impl Held {
    fn release(&mut self, pool: &mut Pool) -> usize {
        let filled = &mut self.batches[..self.filled];
        self.filled = 0;
        filled
            .iter_mut()
            .map(|batch| {
                let packets = batch.len();
                pool.release(batch);
                packets
            })
            .sum()
    }
}

impl Stages {
    /// An engine with these tables; all packets come from `source`.
    pub(super) fn new(tables: Tables, source: Box<dyn RxQueue>) -> anyhow::Result<Self> {
        let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 })?;
        let tables = Snapshot::new(tables);
        let mut engine = Engine::new(tables.reader(), 0);
        engine.grow_to(2);
        Ok(Self {
            engine,
            pool: region.pool(),
            source,
            held: Held::default(),
            _tables: tables,
            _region: region,
        })
    }

    /// Receives packets on core `core` for `time`; returns the time of the stages for each, in nanoseconds.
    ///
    /// # Errors
    /// When packets are dropped.
    pub(super) fn run(&mut self, core: usize, time: Duration) -> anyhow::Result<f64> {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                pin_here(core)?;
                self.turns(time)
            });
            running.join().map_err(|_| anyhow::anyhow!("the stages panicked"))?
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
    fn turns(&mut self, time: Duration) -> anyhow::Result<f64> {
        let (mut inside, mut packets, mut sent) = (Duration::ZERO, 0, 0);
        let mut batch = Batch::new();
        let end = clock::now() + time;
        while clock::now() < end {
            for _ in 0..TURNS {
                // There is always more.
                let (Turn::Drained | Turn::OutOfBudget | Turn::Closed) =
                    self.source.receive(&mut Budget::new(VECTOR), &mut batch, &mut self.pool);
                batch.iter_mut().for_each(|packet| packet.ingress = ETHERNET);
                packets += batch.len();
                inside += self.turn(&mut batch);
                sent += self.held.release(&mut self.pool);
            }
        }
        ensure!(sent == packets && packets > 0, "{sent} of {packets} packets leave");
        Ok(inside.as_nanos() as f64 / packets as f64)
    }

    #[expect(clippy::disallowed_methods, reason = "the time of a turn is measured")]
    fn turn(&mut self, batch: &mut Batch) -> Duration {
        let now = Nanos(clock::nanos());
        let start = Instant::now();
        let timed = self.engine.begin_turn();
        let with = TurnContext { now, pool: &mut self.pool, timed };
        self.engine.process(batch, ETHERNET, with, &mut self.held, &mut || now);
        start.elapsed()
    }
}
