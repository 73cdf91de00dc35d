//! The sending end of a queue that has none.

use polder_buffers::{Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Turn, TxQueue};
use std::sync::Arc;

/// The sending end of a queue that has none.
#[derive(Debug, Default)]
pub(in crate::af_xdp) struct Mute {
    counters: Arc<QueueCounters>,
}

impl TxQueue for Mute {
    fn transmit(&mut self, _batch: &mut Batch, _pool: &mut Pool) {}

    fn reclaim(&mut self, _pool: &mut Pool) -> Turn {
        Turn::Drained
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}
