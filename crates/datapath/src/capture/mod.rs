//! Capture: copies matching packets for an operator.
//!
//! In: batches, at three points of the packet path. Out: the same, unchanged. Exits: none; a packet without
//! room in the queue to the writer is missing only from the file. Source: E6.
//!
//! Without a capture each point costs one test per batch. With one, packets of other ports cost a comparison,
//! packets of the port the evaluation of the program over the whole batch ([`Runner`]), and matching packets
//! a copy. A program is classic BPF, checked when it is loaded; the compiler of expressions is elsewhere.
//!
//! A program reads the bytes of a packet's first frame, which contains all headers.

mod captured;
mod gate;
mod program;
mod run;
mod tap;

pub use captured::{CapturePoint, CapturePoints, CapturedPacket};
pub use program::{
    Arithmetic, BadProgram, Instruction, MOST_INSTRUCTIONS, Operand, Program, Step, Test, Width,
};
use run::pack;
pub use run::{Runner, View};
pub use tap::{CHUNK_BYTES, Tap, TapCounters, TapOptions, TapReader, tap};

use crate::drops::{DropReason, is_dropped};
use crate::transmit::Egress;
use crate::units::Nanos;
use polder_buffers::{BATCH, Batch, Packet, Pool, PortId};

/// All captures of one worker.
#[derive(Debug, Default)]
pub struct Captures {
    taps: Vec<Tap>,
    runner: Box<Runner>,
}

impl Captures {
    /// Starts a capture.
    pub fn add(&mut self, tap: Tap) {
        self.runner.prepare(&tap.options().program);
        tap.begin();
        self.taps.push(tap);
    }

    /// Ends a capture. Returns true if others remain.
    pub fn remove(&mut self, capture: u64) -> bool {
        self.taps.retain(|tap| tap.options().capture != capture);
        !self.taps.is_empty()
    }

    /// Captures packets that a device queue has delivered.
    pub fn received(&mut self, batch: &[Packet], port: PortId, queue: u16, now: Nanos) {
        let all = all(batch);
        self.look(
            batch,
            CapturePoint::Rx,
            now,
            Some(queue),
            |tap| tap.places.rx && tap.port == port,
            |_| all,
        );
    }

    /// Captures decapsulated packets.
    pub(crate) fn decapsulated(&mut self, batch: &[Packet], now: Nanos) {
        let is_there = |packet: &Packet, port| packet.ingress == port && !is_dropped(packet);
        self.look(
            batch,
            CapturePoint::Rx,
            now,
            None,
            |tap| tap.places.rx,
            |port| find(batch, port, is_there),
        );
    }

    /// Captures packets before encapsulation or transmission. `leaves` returns for a port true if all packets
    /// leave by that port, false if none does, `None` if unknown.
    pub(crate) fn leaving(&mut self, batch: &[Packet], now: Nanos, leaves: impl Fn(PortId) -> Option<bool>) {
        let wanted = |port| match leaves(port) {
            Some(true) => all(batch),
            Some(false) => 0,
            None => find(batch, port, |packet: &Packet, port| packet.egress == port),
        };
        self.look(batch, CapturePoint::Tx, now, None, |tap| tap.places.tx, wanted);
    }

    /// Captures packets that stages have dropped.
    pub(crate) fn dropped(&mut self, batch: &[Packet], now: Nanos) {
        let is_there = |packet: &Packet, port| is_dropped(packet) && packet.ingress == port;
        let place = CapturePoint::Dropped(DropReason::DeviceError);
        self.look(batch, place, now, None, |tap| tap.places.drops, |port| find(batch, port, is_there));
    }

    /// Captures packets that `port` did not take.
    pub(crate) fn refused(&mut self, batch: &[Packet], port: PortId, reason: DropReason, now: Nanos) {
        let is_there = |packet: &Packet, tapped| packet.ingress == tapped || port == tapped;
        let place = CapturePoint::Dropped(reason);
        self.look(batch, place, now, None, |tap| tap.places.drops, |port| find(batch, port, is_there));
    }

    /// Captures packets that were dropped from the queue of `port`, at most a batch.
    pub fn dropped_from_queue(&mut self, packets: &[Packet], port: PortId, now: Nanos) {
        self.refused(packets, port, DropReason::QueueFull, now);
    }

    #[inline]
    fn look(
        &mut self,
        batch: &[Packet],
        place: CapturePoint,
        now: Nanos,
        queue: Option<u16>,
        applies: impl Fn(&TapOptions) -> bool,
        wanted: impl Fn(PortId) -> u64,
    ) {
        let Self { taps, runner } = self;
        for tap in taps.iter_mut().filter(|tap| applies(tap.options())) {
            let wanted = wanted(tap.options().port);
            let matching = if wanted == 0 { 0 } else { tap.matching(batch, wanted, runner) };
            if matching == 0 {
                continue;
            }
            let worker = tap.options().worker;
            tap.take(batch, matching, runner, |packet| {
                let place = DropReason::of(packet).map_or(place, CapturePoint::Dropped);
                CapturedPacket { at: now, place, worker, queue, ticket: packet.ticket, length: 0 }
            });
        }
    }
}

/// Bit set of all packets.
#[inline(always)]
fn all(batch: &[Packet]) -> u64 {
    match batch.len() {
        0 => 0,
        count => u64::MAX >> (BATCH - count.min(BATCH)),
    }
}

/// Bit set of the packets that concern a tap on `port`.
#[inline(always)]
fn find(batch: &[Packet], port: PortId, is_there: impl Fn(&Packet, PortId) -> bool) -> u64 {
    // Bytes first: a branch per packet would take twice as long.
    let mut flags = [0; BATCH];
    for (flag, packet) in flags.iter_mut().zip(batch) {
        *flag = u8::from(is_there(packet, port));
    }
    pack(&flags)
}

/// Egress that also captures the packets that the inner egress does not take; these are dropped.
pub(crate) struct Watched<'a, E> {
    pub(crate) egress: &'a mut E,
    pub(crate) captures: &'a mut Captures,
    pub(crate) now: Nanos,
}

impl<E: Egress> Egress for Watched<'_, E> {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        let open = self.egress.send(port, batch, pool);
        if !batch.is_empty() {
            let reason = if open { DropReason::TxFull } else { DropReason::PortDown };
            self.captures.refused(batch, port, reason, self.now);
        }
        let (captures, now) = (&mut *self.captures, self.now);
        self.egress.show_dropped(pool, &mut |port, packets| captures.dropped_from_queue(packets, port, now));
        open
    }

    fn assigns_sequence(&self, port: PortId) -> bool {
        self.egress.assigns_sequence(port)
    }

    fn hand_to_sequencer(&mut self, batch: &mut Batch) {
        self.egress.hand_to_sequencer(batch);
    }
}
