//! Models of USB devices, each with a port of the datapath as its wire, so that real traffic flows.

pub(crate) use super::transport::{CLEAR_FEATURE, GET_DESCRIPTOR, SET_CONFIGURATION, SET_INTERFACE};
use super::transport::{Completion, Speed, Urb};
use crate::AnyQueue;
use polder_buffers::{BATCH, Batch, Packet, Pool};
use polder_datapath::port::{Armed, Budget, Turn};
use polder_datapath::units::Nanos;

/// Maximum lag of a frame behind the clock on a paced wire. A longer lag is the thread's, not the link's, and
/// is not caught up.
const SLACK: Nanos = Nanos(50_000);

/// Standard requests of hosts (USB 2.0, 9.4) besides those of drivers.
pub(crate) const GET_STATUS: u8 = 0;
pub(crate) const SET_FEATURE: u8 = 3;
pub(crate) const SET_ADDRESS: u8 = 5;
pub(crate) const GET_CONFIGURATION: u8 = 8;
pub(crate) const GET_INTERFACE: u8 = 10;
pub(crate) const SET_SEL: u8 = 48;
pub(crate) const SET_ISOCH_DELAY: u8 = 49;

/// Copies the answer to a control request into its buffer, as far as there is room; returns the number of
/// bytes.
pub(crate) fn answer(urb: &mut Urb, answer: &[u8]) -> usize {
    if !urb.setup.is_in() {
        return urb.length;
    }
    let limit = urb.length.min(usize::from(urb.setup.length));
    let bytes = urb.buffer.bytes_mut();
    let count = answer.len().min(limit).min(bytes.len());
    bytes[..count].copy_from_slice(&answer[..count]);
    count
}

/// Identity of a device, for a server that exports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Product ID.
    pub product: u16,
    /// Speed of its bus.
    pub speed: Speed,
    /// Class, subclass and protocol of the device.
    pub class: [u8; 3],
    /// Class, subclass and protocol of each interface.
    pub interfaces: &'static [[u8; 3]],
    /// Address of its interrupt endpoint.
    pub interrupt: u8,
}

/// A device in software, without clock and threads: URBs and frames go in, completions and frames come out,
/// the time is an argument.
pub trait Model: Send {
    /// Returns the identity of the device.
    fn identity(&self) -> Identity;

    /// Takes a URB from the host; it completes at once, later, or never.
    fn submit(&mut self, urb: Urb);

    /// Cancels a URB; returns `false` if it is not pending.
    fn cancel(&mut self, id: u32) -> bool;

    /// Cancels all URBs of an endpoint.
    fn cancel_endpoint(&mut self, endpoint: u8);

    /// Takes the next completed transfer.
    fn complete(&mut self) -> Option<Completion>;

    /// Advances the time, and handles all due events.
    fn advance(&mut self, now: Nanos);

    /// Returns the time of the next event without outside input; `None` if there is none.
    fn next_event(&self) -> Option<Nanos>;

    /// True if the device is plugged in.
    fn is_plugged(&self) -> bool;

    /// Plugs the device in again, in its reset state.
    fn plug(&mut self);

    /// Unplugs the device: every URB ends, and no further one is taken.
    fn unplug(&mut self);

    /// True if frames from the wire are taken.
    fn has_link(&self) -> bool {
        true
    }

    /// True if frames take their transmission time on the wire.
    fn is_paced(&self) -> bool;

    /// Returns the time at which the wire towards the device is free.
    fn wire_free_at(&self) -> Nanos;

    /// True if the device has paused its link partner.
    fn holds_partner(&self) -> bool;

    /// Takes a frame from the wire, which began at `start`; returns `false` without a link.
    fn wire_in(&mut self, frame: &[u8], start: Nanos) -> bool;

    /// Returns the next frame to the wire.
    fn wire_out(&mut self) -> Option<Vec<u8>>;
}

/// Counters of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Frames towards the adapter.
    pub to_adapter: u64,
    /// Frames towards the adapter while the link was down.
    pub no_link: u64,
    /// Frames from the adapter.
    pub from_adapter: u64,
    /// Frames from the adapter that the port did not take.
    pub refused: u64,
}

/// A device and the port that is its wire.
pub struct Bench<M> {
    /// The device.
    pub adapter: M,
    wire: Option<AnyQueue>,
    pool: Pool,
    incoming: Batch,
    outgoing: Batch,
    counters: WireCounters,
}

impl<M: core::fmt::Debug> core::fmt::Debug for Bench<M> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Bench").field("adapter", &self.adapter).finish_non_exhaustive()
    }
}

impl<M: Model> Bench<M> {
    /// Connects `adapter` to `wire`; frames are taken from `pool`. Without a wire, the caller moves frames
    /// into and out of the adapter.
    pub fn new(adapter: M, wire: Option<AnyQueue>, pool: Pool) -> Self {
        Self {
            adapter,
            wire,
            pool,
            incoming: Batch::new(),
            outgoing: Batch::new(),
            counters: WireCounters::default(),
        }
    }

    /// Returns the counters of the wire.
    pub fn counters(&self) -> WireCounters {
        self.counters
    }

    /// Returns the port that is the wire.
    pub fn wire(&mut self) -> Option<&mut AnyQueue> {
        self.wire.as_mut()
    }

    /// Moves all frames that can be moved by `now`; returns `true` if more may follow at once.
    pub fn step(&mut self, now: Nanos) -> bool {
        self.adapter.advance(now);
        let more_in = self.bring_in(now);
        let more_out = self.take_out();
        self.adapter.advance(now);
        more_in || more_out
    }

    fn bring_in(&mut self, now: Nanos) -> bool {
        let paced = self.adapter.is_paced();
        for _ in 0..4 * BATCH {
            if self.adapter.holds_partner() || paced && self.adapter.wire_free_at() > now {
                return false;
            }
            if self.incoming.is_empty() && !self.receive_some() {
                return false;
            }
            let Some(packet) = self.incoming.drain_front(1).next() else { return false };
            self.counters.to_adapter += 1;
            let start = self.adapter.wire_free_at().max(now - SLACK);
            let start = if paced { start } else { now };
            let taken = if packet.is_contiguous() {
                self.adapter.wire_in(packet.bytes(), start)
            } else {
                let mut whole = vec![0; packet.len()];
                packet.copy_out(0, &mut whole);
                self.adapter.wire_in(&whole, start)
            };
            self.counters.no_link += u64::from(!taken);
            self.pool.release_packet(packet);
        }
        true
    }

    fn receive_some(&mut self) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let mut budget = Budget::new(64);
        match wire.rx.receive(&mut budget, &mut self.incoming, &mut self.pool) {
            Turn::Drained | Turn::OutOfBudget | Turn::Closed => !self.incoming.is_empty(),
        }
    }

    fn take_out(&mut self) -> bool {
        if self.wire.is_none() {
            return false;
        }
        for _ in 0..4 {
            self.gather_outgoing();
            let Some(wire) = self.wire.as_mut().filter(|_| !self.outgoing.is_empty()) else { return false };
            wire.tx.transmit(&mut self.outgoing, &mut self.pool);
            let _ = wire.tx.reclaim(&mut self.pool);
            if !self.outgoing.is_empty() {
                // The port is full; the wire waits, like a link whose partner is paused.
                return true;
            }
        }
        true
    }

    fn gather_outgoing(&mut self) {
        while !self.outgoing.is_full() {
            let Some(frame) = self.adapter.wire_out() else { return };
            self.counters.from_adapter += 1;
            match Packet::copy_from(&frame, &mut self.pool) {
                Some(packet) => self.outgoing.push(packet).expect("the batch is not full"),
                None => self.counters.refused += 1,
            }
        }
    }

    /// Requests an event of the wire, then checks for frames once more.
    pub fn arm(&mut self) -> Armed {
        match &mut self.wire {
            Some(wire) if self.incoming.is_empty() => wire.rx.arm(),
            _ => Armed::Waiting,
        }
    }
}

impl<M> Drop for Bench<M> {
    fn drop(&mut self) {
        self.pool.release(&mut self.incoming);
        self.pool.release(&mut self.outgoing);
    }
}
