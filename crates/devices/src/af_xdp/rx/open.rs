//! Opening and closing of a receiver.

use super::Receiver;
use super::guard::Guard;
use crate::Receiving;
use crate::af_xdp::drive::{Driver, QueueIdentity, SoftirqPause};
use crate::af_xdp::port::Statistics;
use crate::af_xdp::posted::Posted;
use crate::af_xdp::ring::{Consumer, Descriptor, Producer};
use crate::af_xdp::socket::Core;
use crate::af_xdp::transfer::single_frame;
use polder_buffers::Packet;
use polder_datapath::scheduler::{Ageing, WIRE};
use std::sync::Arc;

/// Parameters of receiving from a queue.
#[derive(Clone, Copy, Debug)]
pub(in crate::af_xdp) struct Wants {
    /// Identity of the queue.
    pub(in crate::af_xdp) place: QueueIdentity,
    /// Frames to keep posted.
    pub(in crate::af_xdp) target: u32,
    /// True if the socket drives the device when it is asked and nothing is there.
    pub(in crate::af_xdp) busy_poll: bool,
    /// True if the worker may drive the kernel's half by the arrivals.
    pub(in crate::af_xdp) adapts: bool,
    /// Pause between two polls in softirq, if the kernel receives where senders are, and the program drops what the worker
    /// has no use for.
    pub(in crate::af_xdp) softirq: Option<SoftirqPause>,
    /// True if a packet longer than a slot comes in parts.
    pub(in crate::af_xdp) multi_buffer: bool,
    /// True if senders may be on this machine, and leave checksums to a device that cannot say so.
    pub(in crate::af_xdp) local_senders: bool,
    /// True if the program gives packets numbers, so that each that the kernel has lost is to be known before sleeping.
    pub(in crate::af_xdp) numbered: bool,
    /// The link's longest packet, where the device itself writes into the slots.
    pub(in crate::af_xdp) longest: Option<u32>,
    /// Refill threshold of the ring, and treatment of small packets.
    pub(in crate::af_xdp) receiving: Receiving,
}

impl<const COPIES: bool> Receiver<COPIES> {
    pub(in crate::af_xdp) fn new(
        received: Consumer<Descriptor>,
        fill: Producer<u64>,
        wants: Wants,
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
            scant: false,
            few: WIRE,
            due: false,
            emptied: true,
            fresh: false,
            recent: false,
            came: 0,
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
