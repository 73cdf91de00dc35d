//! From one batch to one batch a port.
//!
//! In: a batch whose packets have an egress device port or are dropped. Out: each port's packets, in
//! order, given to [`Egress::send`]; dropped packets released. Exits: `TxFull`, `PortDown`.
//! Cost: a move of 64 bytes a packet when ports are mixed, none when all leave by one port; one branch a
//! batch for ports that nothing is merged for. A batch for each port would be 4 KiB and a page of its own, so ports are
//! served a few at a time, from the same ones.

use crate::coalesce::Coalescer;
use crate::counters::{Stage, WorkerCounters};
use crate::drops::{Context, DropReason, is_dropped};
use crate::offload::Outlet;
use crate::stage::StageState;
use polder_buffers::{BATCH, Batch, Deal, Packet, Pool, PortId, wire_packets};

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

/// Ports that are served together: few enough for their batches to stay in the first-level cache, and enough for a
/// stage's time to be read once for several of them.
const TOGETHER: usize = 4;
/// Stands for no place in a batch.
const NONE: u8 = u8::MAX;

/// Output batches of one worker.
#[derive(Debug)]
pub struct Dispatch {
    outputs: [Batch; TOGETHER],
    /// By port: the place of its first packet in the batch.
    firsts: Vec<u8>,
    /// Ports of a batch, a bit each: with many ports, most have no packet of it.
    used: Vec<u64>,
    coalescer: Coalescer,
}

impl StageState for Dispatch {
    type Table = ();

    fn begin(worker: usize, (): &(), _: &WorkerCounters) -> Self {
        let outputs = core::array::from_fn(|_| Batch::new());
        Self { outputs, firsts: Vec::new(), used: Vec::new(), coalescer: Coalescer::new(worker) }
    }
}

impl Dispatch {
    /// Number of its worker.
    pub(crate) fn worker(&self) -> usize {
        self.coalescer.worker()
    }

    /// Makes room for ports 0 to `ports` − 1. Allocates only when there are more than before.
    pub fn grow_to(&mut self, ports: usize) {
        self.firsts.resize(ports.max(self.firsts.len()), NONE);
        self.used.resize(ports.div_ceil(64).max(self.used.len()), 0);
    }

    /// Empties `batch` to its ports; what may be merged is merged before. `lap` is told of each part of a stage with its
    /// packets; the number that it was told of for [`Stage::Transmit`] is given back: the last part is the caller's.
    pub fn dispatch(
        &mut self,
        batch: &mut Batch,
        outlets: &[Outlet],
        egress: &mut impl Egress,
        context: &mut Context<'_>,
        mut lap: impl FnMut(Stage, usize),
    ) -> usize {
        let Some(first) = batch.first().map(|packet| packet.egress) else { return 0 };
        let is_open = usize::from(first.0) < self.firsts.len();
        if is_open && batch.iter().all(|packet| packet.egress == first) {
            lap(Stage::Coalesce, coalesce(first, batch, outlets, &mut self.coalescer));
            deliver(first, batch, egress, context);
            return 0;
        }
        let (nexts, refused) = self.chain(batch);
        let mut deal = batch.deal();
        gather(refused, &nexts, &mut deal, &mut self.outputs[0]);
        refuse(&mut self.outputs[0], context);
        let (mut ports, mut told, mut untold) = (ports(&self.used), 0, 0);
        loop {
            let (mut tried, mut gathered) = (0, 0);
            let mut together = [PortId(0); TOGETHER];
            // In this order: what ends first asks first.
            for ((output, place), port) in self.outputs.iter_mut().zip(&mut together).zip(&mut ports) {
                let first = core::mem::replace(&mut self.firsts[usize::from(port.0)], NONE);
                gather(first, &nexts, &mut deal, output);
                *place = port;
                gathered += output.len();
                tried += coalesce(port, output, outlets, &mut self.coalescer);
            }
            if gathered == 0 {
                return told;
            }
            if tried > 0 {
                lap(Stage::Transmit, untold);
                told += core::mem::take(&mut untold);
                lap(Stage::Coalesce, tried);
            }
            for (port, output) in
                together.into_iter().zip(&mut self.outputs).filter(|(_, output)| !output.is_empty())
            {
                deliver(port, output, egress, context);
            }
            untold += gathered;
        }
    }

    /// Chains the packets of each port, and notes which ports those are. Gives the place of the next one by that of each,
    /// and the first one that was dropped, or is for no port that is there.
    fn chain(&mut self, batch: &Batch) -> ([u8; BATCH], u8) {
        let mut nexts = [NONE; BATCH];
        // One in memory that is changed for each packet makes the next one wait.
        let (mut low, mut refused) = (0_u64, NONE);
        self.used.fill(0);
        // From the end on, so that the first one is the last that is seen.
        for (place, packet) in (0..NONE).zip(batch.iter()).rev() {
            let port = usize::from(packet.egress.0);
            let Some(first) = self.firsts.get_mut(port) else {
                nexts[usize::from(place)] = core::mem::replace(&mut refused, place);
                continue;
            };
            nexts[usize::from(place)] = core::mem::replace(first, place);
            if port < 64 {
                low |= 1 << port;
            } else {
                self.used[port / 64] |= 1 << (port % 64);
            }
        }
        if let Some(first) = self.used.first_mut() {
            *first |= low;
        }
        (nexts, refused)
    }
}

/// Moves a chain of packets to a batch.
#[inline(always)]
fn gather(first: u8, nexts: &[u8; BATCH], deal: &mut Deal<'_>, output: &mut Batch) {
    let mut next = usize::from(first);
    while deal.move_to(next, output) {
        next = usize::from(nexts[next]);
    }
}

/// Releases packets that no port takes, and counts those that were not dropped before.
fn refuse(batch: &mut Batch, context: &mut Context<'_>) {
    for packet in batch.iter().filter(|packet| !is_dropped(packet)) {
        context.drops.count(DropReason::PortDown, packet.wire_packets.into());
    }
    context.pool.release(batch);
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
fn deliver(port: PortId, batch: &mut Batch, egress: &mut impl Egress, context: &mut Context<'_>) {
    let open = egress.send(port, batch, context.pool);
    if !batch.is_empty() {
        let reason = if open { DropReason::TxFull } else { DropReason::PortDown };
        context.drops.count(reason, wire_packets(batch));
        context.pool.release(batch);
    }
}
