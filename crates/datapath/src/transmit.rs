//! From one batch to one batch a port.
//!
//! In: a batch whose packets have an egress device port or are dropped. Out: each port's packets, in
//! order, given to [`Egress::send`]; dropped packets released. Exits: `TxFull`, `PortDown`.
//! Cost: a move of 64 bytes a packet when ports are mixed, none when all leave by one port; one branch a
//! batch for ports that nothing is merged for.

use crate::coalesce::Coalescer;
use crate::counters::Stage;
use crate::drops::{Context, DropReason, is_dropped};
use crate::offload::Outlet;
use polder_buffers::{Batch, Packet, Pool, PortId, wire_packets};

/// Destination of batches whose egress port is known.
pub trait Egress {
    /// Takes packets from the front of `batch` for `port`; leaves what there is no room for.
    ///
    /// `false` when the port is closed; then it takes nothing.
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool;

    /// True if this worker writes the sequence numbers into packets that leave by `port`. One
    /// worker does, on one queue, so that numbers are in the order on the wire (RFC 2890).
    fn assigns_sequence(&self, _port: PortId) -> bool {
        true
    }

    /// Takes packets for the worker that writes their sequence numbers; leaves what there is no room
    /// for.
    fn hand_to_sequencer(&mut self, _batch: &mut Batch) {}

    /// Shows the packets that have been dropped from queues of ports since the last time, at most a batch at once, and releases
    /// them. There are some only while somebody captures.
    fn show_dropped(&mut self, _pool: &mut Pool, _look: &mut dyn FnMut(PortId, &[Packet])) {}

    /// Told of the packets that a stage leaves, those included whose journey it has ended. Who forwards
    /// does not listen, and nothing is left of the call; a [`trace`](crate::trace) does.
    #[inline(always)]
    fn passed(&mut self, _stage: Stage, _packets: &[Packet]) {}
}

/// Output batches of one worker.
#[derive(Debug)]
pub struct Dispatch {
    outputs: Vec<Batch>,
    /// Ports of a batch, a bit each: with many ports, most have no packet of it.
    used: Vec<u64>,
    coalescer: Coalescer,
}

impl Dispatch {
    /// No batches yet, for worker `worker`.
    pub fn new(worker: usize) -> Self {
        Self { outputs: Vec::new(), used: Vec::new(), coalescer: Coalescer::new(worker) }
    }

    /// Number of its worker.
    pub(crate) fn worker(&self) -> usize {
        self.coalescer.worker()
    }

    /// Makes room for ports 0 to `ports` − 1. Allocates only when there are more than before.
    pub fn grow_to(&mut self, ports: usize) {
        while self.outputs.len() < ports {
            self.outputs.push(Batch::new());
        }
        self.used.resize(ports.div_ceil(64).max(self.used.len()), 0);
    }

    /// Empties `batch` to its ports; what may be merged is merged before. `merged` is told of how many
    /// packets that was tried, if it was. Returns the number of packets that were sent.
    pub fn dispatch(
        &mut self,
        batch: &mut Batch,
        outlets: &[Outlet],
        egress: &mut impl Egress,
        context: &mut Context<'_>,
        merged: impl FnOnce(usize),
    ) -> u64 {
        let Some(first) = batch.first().map(|packet| packet.egress) else { return 0 };
        if usize::from(first.0) < self.outputs.len() && batch.iter().all(|packet| packet.egress == first) {
            let tried = coalesce(first, batch, outlets, &mut self.coalescer);
            if tried > 0 {
                merged(tried);
            }
            return deliver(first, batch, egress, context);
        }
        self.sort(batch, context);
        let mut tried = 0;
        for port in ports(&self.used) {
            let output = &mut self.outputs[usize::from(port.0)];
            tried += coalesce(port, output, outlets, &mut self.coalescer);
        }
        if tried > 0 {
            merged(tried);
        }
        let mut sent = 0;
        for port in ports(&self.used) {
            sent += deliver(port, &mut self.outputs[usize::from(port.0)], egress, context);
        }
        sent
    }

    /// Moves packets to the outputs of their ports, and notes which those are.
    fn sort(&mut self, batch: &mut Batch, context: &mut Context<'_>) {
        let Context { pool, drops, .. } = context;
        let ports = self.outputs.len();
        self.note_used(batch);
        let refuse = |packet: Packet| {
            // Outputs are emptied after every batch, and a batch fits into one.
            let is_open = usize::from(packet.egress.0) < ports;
            let reason = if is_open { DropReason::TxFull } else { DropReason::PortDown };
            if !is_dropped(&packet) {
                drops.count(reason, packet.wire_packets.into());
            }
            pool.release_packet(packet);
        };
        batch.scatter(&mut self.outputs, |packet| usize::from(packet.egress.0), refuse);
    }

    /// Notes the ports that packets of the batch leave by. The bits of the first 64 ports are gathered in a
    /// register: one in memory that is changed for each packet makes the next one wait.
    fn note_used(&mut self, batch: &Batch) {
        let (count, mut low) = (self.outputs.len(), 0_u64);
        self.used.fill(0);
        for port in batch.iter().map(|packet| usize::from(packet.egress.0)).filter(|&port| port < count) {
            if port < 64 {
                low |= 1 << port;
            } else {
                self.used[port / 64] |= 1 << (port % 64);
            }
        }
        if let Some(first) = self.used.first_mut() {
            *first |= low;
        }
    }
}

/// The ports whose bits are set, in ascending order.
fn ports(used: &[u64]) -> impl Iterator<Item = PortId> {
    (0..).step_by(64).zip(used).flat_map(|(first, &word)| {
        let rest = core::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
        rest.take_while(|&rest| rest != 0).map(move |rest| PortId(first + low_bit(rest)))
    })
}

/// Position of the lowest bit that is set.
fn low_bit(word: u64) -> u16 {
    u16::try_from(word.trailing_zeros()).unwrap_or(0)
}

/// Merges packets that a port takes merged; returns the number of packets for which that was tried.
#[inline]
fn coalesce(port: PortId, batch: &mut Batch, outlets: &[Outlet], coalescer: &mut Coalescer) -> usize {
    let Some(outlet) = outlets.get(usize::from(port.0)).filter(|outlet| outlet.coalesce) else { return 0 };
    let tried = batch.len();
    coalescer.coalesce(batch, outlet);
    tried
}

/// Sends one port's batch and drops the packets that the port leaves.
fn deliver(port: PortId, batch: &mut Batch, egress: &mut impl Egress, context: &mut Context<'_>) -> u64 {
    let before = batch.len() as u64;
    let open = egress.send(port, batch, context.pool);
    let left = batch.len() as u64;
    if left > 0 {
        let reason = if open { DropReason::TxFull } else { DropReason::PortDown };
        context.drops.count(reason, wire_packets(batch));
        context.pool.release(batch);
    }
    before - left
}
