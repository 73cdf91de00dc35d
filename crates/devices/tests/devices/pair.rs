//! Cables under the conformance suite.

use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, RxQueue, TxQueue};
use polder_devices::conformance::{self, Fixture, Limits, Wire};
use polder_devices::pair::{self, End, Options};
use polder_devices::{AnyQueue, Queue};
use std::time::Duration;

/// The longest frame of the cables here.
pub(crate) const LONGEST: usize = 9018;

/// Limits of every cable here.
pub(crate) const LIMITS: Limits = Limits {
    longest: LONGEST,
    longest_received: LONGEST,
    chains: true,
    backlog: 256,
    patience: Duration::from_secs(5),
};

/// The far end of a cable, with memory of its own.
pub(crate) struct FarEnd {
    end: Option<Queue<pair::PairRx, pair::PairTx>>,
    pool: Pool,
    batch: Batch,
}

impl FarEnd {
    pub(crate) fn new(mut end: End) -> Self {
        let region = Region::new(RegionOptions { slots: 2048, slot_bytes: 2048 }).expect("memory");
        Self { end: end.pop(), pool: region.pool(), batch: Batch::new() }
    }
}

impl Wire for FarEnd {
    fn inject(&mut self, frame: &[u8]) -> bool {
        let Some(end) = &mut self.end else { return false };
        let dropped = end.tx.counters().drops.total();
        let Some(packet) = Packet::copy_from(frame, &mut self.pool) else { return false };
        self.batch.push(packet).expect("the batch is empty between calls");
        end.tx.transmit(&mut self.batch, &mut self.pool);
        let taken = self.batch.is_empty() && end.tx.counters().drops.total() == dropped;
        self.pool.release(&mut self.batch);
        taken
    }

    fn extract(&mut self) -> Option<Vec<u8>> {
        let end = self.end.as_mut()?;
        let _ = end.rx.receive(&mut Budget::new(1), &mut self.batch, &mut self.pool);
        let frame = self.batch.first().map(|packet| packet.segments().flatten().copied().collect());
        self.pool.release(&mut self.batch);
        frame
    }

    fn unplug(&mut self) -> bool {
        self.end = None;
        true
    }
}

/// A fresh cable: the near end and the far one.
pub(crate) fn cable(copying: bool) -> (AnyQueue, FarEnd) {
    let options = Options { longest: LONGEST, ..Options::default() };
    let make = if copying { pair::copying } else { pair::cable };
    let (mut near, far) = make(options).expect("a cable");
    (near.pop().expect("one queue").boxed(), FarEnd::new(far))
}

struct Cables {
    copying: bool,
}

impl Fixture for Cables {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn open(&mut self, _region: &Region) -> Result<(AnyQueue, Box<dyn Wire>), String> {
        let (near, far) = cable(self.copying);
        Ok((near, Box::new(far)))
    }
}

#[test]
fn a_cable_passes_the_suite() {
    let report = conformance::run(&mut Cables { copying: false });
    println!("{report}");
    assert!(report.is_clean(), "\n{report}");
}

#[test]
fn a_copying_cable_passes_the_suite() {
    let report = conformance::run(&mut Cables { copying: true });
    assert!(report.is_clean(), "\n{report}");
}
