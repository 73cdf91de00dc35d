//! A receiver that sees the frames of an interface in order of arrival.
//!
//! A veth delivers frames that programs sent in batches, after packets that sockets sent later. Its XDP program sees
//! all of them one by one.

use anyhow::Context as _;
use core::fmt;
use polder_buffers::{Batch, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, Turn};
use polder_devices::AnyQueue;
use polder_devices::af_xdp::{self, Options};
use polder_testbed::topology::Namespace;

/// The AF_XDP socket of an interface with one queue.
pub struct Sink {
    queue: AnyQueue,
    batch: Batch,
    pool: Pool,
    _port: af_xdp::Port,
    _region: Region,
}

impl fmt::Debug for Sink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sink").finish_non_exhaustive()
    }
}

impl Sink {
    /// Captures all frames that the interface receives from now on.
    ///
    /// # Errors
    /// When the interface cannot be opened.
    pub fn open(namespace: &Namespace, interface: &str) -> anyhow::Result<Self> {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 })?;
        let opened = namespace.inside(|| af_xdp::open(&Options::whole(interface), &region))??;
        let queue = opened.queues.into_iter().next().context("the interface has no queue")?;
        let pool = region.pool();
        let mut sink = Self { queue, batch: Batch::new(), pool, _port: opened.port, _region: region };
        // The first look posts frames.
        sink.frames(|_| {});
        Ok(sink)
    }

    /// Calls `each` with the frames that have come.
    pub fn frames(&mut self, mut each: impl FnMut(&[u8])) {
        loop {
            let turn = self.queue.rx.receive(&mut Budget::new(64), &mut self.batch, &mut self.pool);
            for packet in self.batch.iter() {
                each(packet.bytes());
            }
            self.pool.release(&mut self.batch);
            if turn != Turn::OutOfBudget {
                return;
            }
        }
    }
}
