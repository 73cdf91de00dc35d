//! A port under test with its wire and memory, and a count of its packets.

use super::contract::{Fault, Limits, Wire};
use crate::AnyQueue;
use core::time::Duration;
use polder_buffers::{Batch, Packet, Pool, Region};
use polder_datapath::port::{Budget, Turn};
use std::time::Instant;

/// Polling interval of awaited conditions.
const PAUSE: Duration = Duration::from_micros(200);

/// One check: its name, and its function on a new port.
pub(super) type Check = (&'static str, fn(&mut Stand) -> Result<(), Fault>);

/// A port under test.
pub struct Stand {
    pub(super) queue: AnyQueue,
    pub(super) wire: Box<dyn Wire>,
    pub(super) pool: Pool,
    pub(super) limits: Limits,
    /// Number of packets that `receive` returned.
    delivered: u64,
    /// Number of packets that `transmit` took.
    taken: u64,
}

impl Stand {
    /// Lets the port fill its rings, as a worker does in its first turn.
    pub(super) fn new(
        region: &Region,
        queue: AnyQueue,
        wire: Box<dyn Wire>,
        limits: Limits,
    ) -> Result<Self, String> {
        let pool = region.pool();
        let mut stand = Self { queue, wire, pool, limits, delivered: 0, taken: 0 };
        let (_, frames) = stand.receive(0);
        if frames.is_empty() { Ok(stand) } else { Err("a fresh port received something".to_owned()) }
    }

    /// Runs one turn with an empty batch; returns the frames received.
    pub(super) fn receive(&mut self, budget: u32) -> (Turn, Vec<Vec<u8>>) {
        let mut batch = Batch::new();
        let turn = self.receive_into(&mut Budget::new(budget), &mut batch);
        let frames = batch.iter().map(content).collect();
        self.pool.release(&mut batch);
        (turn, frames)
    }

    /// Runs one turn.
    pub(super) fn receive_into(&mut self, budget: &mut Budget, batch: &mut Batch) -> Turn {
        let before = batch.len();
        let turn = self.queue.rx.receive(budget, batch, &mut self.pool);
        self.delivered += batch.len().saturating_sub(before) as u64;
        turn
    }

    /// Runs turns until `count` frames have arrived; more frames are an error, and so is a timeout.
    pub(super) fn receive_all(&mut self, count: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut frames = Vec::new();
        within(self.limits.patience, || {
            let (turn, mut more) = self.receive(64);
            frames.append(&mut more);
            frames.len() >= count || turn == Turn::Closed
        });
        if frames.len() == count {
            Ok(frames)
        } else {
            Err(format!("{} of {count} frames came", frames.len()))
        }
    }

    /// Injects frames; an error if the wire refuses a frame.
    pub(super) fn inject(&mut self, frames: &[Vec<u8>]) -> Result<(), String> {
        for (index, frame) in frames.iter().enumerate() {
            if !self.wire.inject(frame) {
                return Err(format!("the wire took {index} of {} frames", frames.len()));
            }
        }
        self.wire.settle();
        Ok(())
    }

    /// Returns a packet with the bytes of `frame`.
    pub(super) fn packet(&mut self, frame: &[u8]) -> Result<Packet, String> {
        Packet::copy_from(frame, &mut self.pool).ok_or_else(|| "no free frame for a packet".to_owned())
    }

    /// Returns frame `number`, valid for the port's link.
    pub(super) fn frame(&self, number: u32, length: usize) -> Vec<u8> {
        dressed(&*self.wire, number, length)
    }

    /// Returns the frames `numbers`, of different lengths.
    pub(super) fn frames(&self, numbers: core::ops::Range<u32>) -> Vec<Vec<u8>> {
        numbers.map(|number| self.frame(number, 60 + (number as usize * 131) % 1400)).collect()
    }

    /// Returns a batch with the bytes of `frames`, at most 64.
    pub(super) fn batch(&mut self, frames: &[Vec<u8>]) -> Result<Batch, String> {
        let mut batch = Batch::new();
        for frame in frames {
            let packet = self.packet(frame)?;
            batch.push(packet).map_err(|_| "more than a batch".to_owned())?;
        }
        Ok(batch)
    }

    /// Passes `batch` to the port, which takes the packets that it has room for, and reclaims.
    pub(super) fn transmit(&mut self, batch: &mut Batch) -> Turn {
        let before = batch.len();
        self.queue.tx.transmit(batch, &mut self.pool);
        self.taken += before.saturating_sub(batch.len()) as u64;
        self.queue.tx.reclaim(&mut self.pool)
    }

    /// Passes `batch` to the port until all packets were taken.
    pub(super) fn transmit_all(&mut self, batch: &mut Batch) -> Result<(), String> {
        let done = within(self.limits.patience, || {
            let _ = self.transmit(batch);
            batch.is_empty()
        });
        if done { Ok(()) } else { Err(format!("{} packets were never taken", batch.len())) }
    }

    /// Returns the first `count` frames that the port has sent.
    pub(super) fn extract(&mut self, count: usize) -> Result<Vec<Vec<u8>>, String> {
        let mut frames = Vec::new();
        within(self.limits.patience, || {
            frames.extend(core::iter::from_fn(|| self.wire.extract()));
            let _ = self.queue.tx.reclaim(&mut self.pool);
            frames.len() >= count
        });
        if frames.len() == count {
            Ok(frames)
        } else {
            Err(format!("{} of {count} frames left", frames.len()))
        }
    }

    /// Waits until no sent packet holds a frame.
    pub(super) fn reclaim_all(&mut self) -> Result<(), String> {
        let done = within(self.limits.patience, || {
            let turn = self.queue.tx.reclaim(&mut self.pool);
            turn != Turn::OutOfBudget && self.queue.tx.held() == 0
        });
        if done { Ok(()) } else { Err(format!("{} packets are still held", self.queue.tx.held())) }
    }

    /// Checks that every packet is in exactly one of the port's counters.
    pub(super) fn counters_add_up(&self) -> Result<(), String> {
        let (rx, tx) = (self.queue.rx.counters(), self.queue.tx.counters());
        let (received, refused) = (rx.received.get(), rx.drops.total());
        if received != self.delivered + refused {
            return Err(format!("received {received} ≠ delivered {} + drops {refused}", self.delivered));
        }
        let (sent, dropped, unsent) = (tx.transmitted.get(), tx.drops.total(), tx.unsent.get());
        if self.taken != sent + dropped + unsent {
            let taken = self.taken;
            return Err(format!("taken {taken} ≠ transmitted {sent} + drops {dropped} + unsent {unsent}"));
        }
        let (gauge, held) = (tx.in_flight.get(), self.queue.tx.held());
        if gauge != u64::from(held) {
            return Err(format!("in flight {gauge} ≠ held {held}"));
        }
        Ok(())
    }
}

/// Returns all bytes of a packet.
pub(super) fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Waits until every slot of `region` is free.
pub(super) fn all_home(region: &Region, patience: Duration) -> Result<(), String> {
    if within(patience, || region.free_slots() == region.slots()) {
        return Ok(());
    }
    Err(format!("{} of {} frames came home", region.free_slots(), region.slots()))
}

/// Returns frame number `number` of `length` bytes, different from every other.
pub(super) fn dressed(wire: &dyn Wire, number: u32, length: usize) -> Vec<u8> {
    let mut frame = plain(number, length);
    wire.dress(&mut frame);
    frame
}

fn plain(number: u32, length: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    let mut random = fastrand::Rng::with_seed(u64::from(number));
    frame.extend((frame.len()..length).map(|_| random.u8(..)));
    frame
}

/// Checks that the received packets are the sent packets, in order.
pub(super) fn same(came: &[Vec<u8>], sent: &[Vec<u8>]) -> Result<(), String> {
    let differs = came.iter().zip(sent).position(|(came, sent)| came != sent);
    if let Some(index) = differs {
        let number = came[index].get(14..18).and_then(|bytes| bytes.try_into().ok());
        let number = number.map_or(u32::MAX, u32::from_be_bytes);
        return Err(format!("frame {index} is another one (number {number}, {} bytes)", came[index].len()));
    }
    if came.len() != sent.len() {
        return Err(format!("{} frames came, {} were sent", came.len(), sent.len()));
    }
    Ok(())
}

/// Calls `done` until it returns true; returns `false` on a timeout.
#[expect(
    clippy::disallowed_methods,
    reason = "a check of a device ends by the clock; nothing here is a datapath"
)]
pub(super) fn within(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if done() {
            return true;
        }
        if start.elapsed() > limit {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}
