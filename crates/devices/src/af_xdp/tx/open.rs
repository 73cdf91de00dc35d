//! Opening and closing of a transmitter.

use super::{Limits, Transmitter};
use crate::af_xdp::posted::Posted;
use crate::af_xdp::ring::{Consumer, Descriptor, Producer};
use crate::af_xdp::socket::Core;
use polder_datapath::counters::QueueCounters;
use polder_datapath::drops::DropReason;
use std::sync::Arc;

impl Transmitter {
    pub(in crate::af_xdp) fn new(
        (transmit, completion): (Producer<Descriptor>, Consumer<u64>),
        limits: Limits,
        (core, posted): (Arc<Core>, Posted),
    ) -> Self {
        Self {
            transmit,
            completion,
            inner: vec![0; posted.slots().div_ceil(64)].into_boxed_slice(),
            posted,
            limits,
            held: 0,
            behind: false,
            closed: false,
            counters: Arc::default(),
            core,
        }
    }

    /// Counts packets as drops that were counted as transmitted.
    #[cold]
    pub(super) fn take_back(&mut self, packets: u64, bytes: u64) {
        let QueueCounters { transmitted, transmitted_bytes, drops, .. } = &*self.counters;
        transmitted.set(transmitted.get().saturating_sub(packets));
        transmitted_bytes.set(transmitted_bytes.get().saturating_sub(bytes));
        drops.count(DropReason::TxError, packets);
    }
}

impl Drop for Transmitter {
    fn drop(&mut self) {
        let (mut packets, mut bytes) = (0, 0);
        for descriptor in self.transmit.untaken() {
            packets += u64::from(!descriptor.continues);
            bytes += u64::from(descriptor.length);
        }
        if packets > 0 {
            self.take_back(packets, bytes);
        }
        self.counters.in_flight.set(0);
        self.core.leave(self.posted.take_all());
    }
}
