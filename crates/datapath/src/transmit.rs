//! Stage `transmit`: distributes a batch to its egress ports.
//!
//! In: a batch whose packets have a device port as egress or are dropped. Out: each port's packets, in order,
//! passed to [`Egress::send`]; dropped packets released. Exits: `TxFull`, `PortDown`. Cost: a move of 64
//! bytes per packet if ports are mixed, none if all packets leave by one port; one branch per batch for ports
//! without coalescing. A batch for each port would take 4 KiB and a page of its own, so a few batches are
//! reused for all ports.

use crate::coalesce::Coalescer;
use crate::counters::{Stage, WorkerCounters};
use crate::drops::{Context, DropReason, is_dropped};
use crate::offload::Outlet;
use crate::stage::StageState;
use polder_buffers::{BATCH, Batch, Deal, Packet, Pool, PortId, wire_packets};

/// Destination of packets whose egress port is known.
pub trait Egress {
    /// Takes packets from the front of `batch` for `port`; leaves packets without room in the batch.
    ///
    /// Returns false, and takes nothing, if the port is closed.
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool;

    /// True if this worker writes the sequence numbers of packets that leave by `port`. One worker does, on
    /// one queue, so that the numbers are in the order of transmission (RFC 2890).
    fn assigns_sequence(&self, _port: PortId) -> bool {
        true
    }

    /// Takes packets for the worker that writes their sequence numbers; leaves packets without room in the
    /// batch.
    fn hand_to_sequencer(&mut self, _batch: &mut Batch) {}

    /// Passes packets dropped from port queues since the last call to `look`, at most a batch at a time, then
    /// releases them. Dropped packets are kept only while a capture runs.
    fn show_dropped(&mut self, _pool: &mut Pool, _look: &mut dyn FnMut(PortId, &[Packet])) {}

    /// Called with the packets after each stage, including packets that it dropped. The default does nothing
    /// and is optimised away; a [`trace`](crate::trace) implements it.
    #[inline(always)]
    fn passed(&mut self, _stage: Stage, _packets: &[Packet]) {}
}

/// Number of ports that are served together: their batches fit into the first-level cache, and a stage's time
/// is read once for them.
const TOGETHER: usize = 4;
/// Index of no packet.
const NONE: u8 = u8::MAX;

/// Transmit state of one worker.
#[derive(Debug)]
pub struct Dispatch {
    outputs: [Batch; TOGETHER],
    /// By port: index of its first packet in the batch.
    firsts: Vec<u8>,
    /// Bit set of the ports of a batch, so that ports without packets cost nothing.
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
    /// Number of the worker.
    pub(crate) fn worker(&self) -> usize {
        self.coalescer.worker()
    }

    /// Makes room for ports 0 to `ports` − 1. Allocates only if the number grows.
    pub fn grow_to(&mut self, ports: usize) {
        self.firsts.resize(ports.max(self.firsts.len()), NONE);
        self.used.resize(ports.div_ceil(64).max(self.used.len()), 0);
    }

    /// Coalesces and sends the packets of `batch` by port; the batch is empty afterwards. `lap` is called at
    /// the end of each part of a stage with its number of packets. Returns the number already reported for
    /// [`Stage::Transmit`]; the caller reports the rest.
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
            // Outputs first: `zip` must not take a port from the iterator when no output is left.
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

    /// Chains the packets of each port, and collects the ports. Returns by packet the index of the next one,
    /// and the index of the first packet that is dropped or has no valid port.
    fn chain(&mut self, batch: &Batch) -> ([u8; BATCH], u8) {
        let mut nexts = [NONE; BATCH];
        // A local variable: a read-modify-write of memory for each packet would delay the next one.
        let (mut low, mut refused) = (0_u64, NONE);
        self.used.fill(0);
        // From the end on, so that the first packet of each port is stored last.
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

/// Releases packets without valid port; counts a drop unless the packet was dropped before.
fn refuse(batch: &mut Batch, context: &mut Context<'_>) {
    for packet in batch.iter().filter(|packet| !is_dropped(packet)) {
        context.drops.count(DropReason::PortDown, packet.wire_packets.into());
    }
    context.pool.release(batch);
}

/// Iterates over the ports whose bits are set, in ascending order.
fn ports(used: &[u64]) -> impl Iterator<Item = PortId> {
    (0..).step_by(64).zip(used).flat_map(|(first, &word)| {
        let rest = core::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
        rest.take_while(|&rest| rest != 0).map(move |rest| PortId(first + low_bit(rest)))
    })
}

/// Index of the lowest set bit.
fn low_bit(word: u64) -> u16 {
    u16::try_from(word.trailing_zeros()).unwrap_or(0)
}

/// Coalesces packets for a port that takes super-packets; returns the number of packets examined.
#[inline]
fn coalesce(port: PortId, batch: &mut Batch, outlets: &[Outlet], coalescer: &mut Coalescer) -> usize {
    let Some(outlet) = outlets.get(usize::from(port.0)).filter(|outlet| outlet.coalesce) else { return 0 };
    let tried = batch.len();
    coalescer.coalesce(batch, outlet);
    tried
}

/// Sends one port's batch, and drops the packets that the port does not take.
fn deliver(port: PortId, batch: &mut Batch, egress: &mut impl Egress, context: &mut Context<'_>) {
    let open = egress.send(port, batch, context.pool);
    if !batch.is_empty() {
        let reason = if open { DropReason::TxFull } else { DropReason::PortDown };
        context.drops.count(reason, wire_packets(batch));
        context.pool.release(batch);
    }
}
