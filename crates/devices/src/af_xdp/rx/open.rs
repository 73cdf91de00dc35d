//! Opening and closing of a receiver.

use super::guard::Guard;
use super::{ReceiveOptions, Receiver};
use crate::af_xdp::drive::Driver;
use crate::af_xdp::posted::Posted;
use crate::af_xdp::ring::{Consumer, Descriptor, Producer};
use crate::af_xdp::socket::Core;
use crate::af_xdp::socket::Statistics;
use crate::af_xdp::transfer::single_frame;
use polder_buffers::Packet;
use polder_datapath::scheduler::{Ageing, WIRE};
use std::sync::Arc;

impl<const COPIES: bool> Receiver<COPIES> {
    pub(in crate::af_xdp) fn new(
        received: Consumer<Descriptor>,
        fill: Producer<u64>,
        wants: ReceiveOptions,
        (core, posted): (Arc<Core>, Posted),
    ) -> Self {
        Self {
            received,
            fill,
            posted,
            driver: Driver::new(wants.place, wants.adapts, wants.softirq),
            guard: Guard::new(wants.multi_buffer, wants.longest, single_frame(core.slot_bytes())),
            wants,
            seen: Statistics::default(),
            lost: 0,
            turns: 0,
            unfinished: None,
            armed: false,
            closed: false,
            is_reduced: false,
            reduced_target: WIRE,
            flush_due: false,
            device_empty: true,
            flushed_since_napi: false,
            previously_flushed: false,
            arrived: 0,
            ageing: Ageing::default(),
            counters: Arc::default(),
            core,
        }
    }
}

impl<const COPIES: bool> Drop for Receiver<COPIES> {
    fn drop(&mut self) {
        self.settle();
        let unfinished = self.unfinished.take().into_iter().flat_map(Packet::into_segments);
        self.core.leave(unfinished.map(|segment| segment.frame));
        self.core.leave(self.posted.take_all());
    }
}
