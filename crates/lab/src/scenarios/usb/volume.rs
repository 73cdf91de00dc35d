//! Many frames both ways through NCM, each compared. Driver and model in one thread.

use super::packing;
use crate::scenarios::Run;
use anyhow::{Context as _, ensure};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Budget, Turn};
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::cdc::Options;
use polder_devices::cdc::model::{Device, Options as NcmOptions};
use polder_devices::usb::local::{Clock, Host, Local, connect};
use polder_devices::usb::model::{Bench, Model};
use polder_testbed::interrupt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const LOST: &str = "usb.ncm.lost_unaccounted";
/// Shortest and longest frame.
const SHORTEST: usize = 60;
const LONGEST: usize = 1514;
/// Offset of a frame's number.
const NUMBER_AT: usize = 14;
/// Frames of a turn.
const TURN: usize = 64;
/// Time between two turns, and turns until the link is up.
const STEP: Nanos = Nanos(500_000);
const START_TURNS: u32 = 10_000;
/// Turns in which nothing moves before all has ended, and the time of a turn.
pub(super) const CALM: u32 = 50;
pub(super) const TURN_TIME: Nanos = Nanos(100_000);

/// Fills the rows.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if run.wants(LOST) {
        let frames = run.quick_or(100_000, 1_000_000);
        run.says(&format!("{frames} frames each way through NCM"));
        let volume = through_ncm(frames, 0)?;
        run.record_one(LOST, f64::from(volume.unaccounted));
        let Volume { arrived: [out, back], .. } = volume;
        run.remark(
            LOST,
            format!("{frames} frames each way between driver and model in memory; {out} and {back} arrived as they were sent"),
        );
    }
    Ok(())
}

/// A driver and its model in this thread, on a clock of their own.
pub(super) struct Pair<M: Model> {
    host: Arc<Mutex<Host<M>>>,
    pub(super) clock: Clock,
    pub(super) queue: AnyQueue,
    pub(super) pool: Pool,
    _region: Region,
}

impl<M: Model + 'static> Pair<M> {
    /// Calls `open` to open a port on `model`, and waits for its link.
    pub(super) fn new(
        model: M,
        open: impl FnOnce(Local) -> anyhow::Result<AnyQueue>,
    ) -> anyhow::Result<Self> {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 })?;
        let clock = Clock::at_zero();
        let bench = Bench::new(model, None, region.pool());
        let (local, host) = connect(bench, clock.clone(), Nanos(0))?;
        let host = Arc::new(Mutex::new(host));
        let queue = open(local.pumped(Arc::clone(&host)))?;
        let mut pair = Self { host, clock, queue, pool: region.pool(), _region: region };
        for _ in 0..START_TURNS {
            pair.clock.pass(STEP);
            let _ = pair.turn(&mut |_| ());
        }
        Ok(pair)
    }

    pub(super) fn host(&self) -> MutexGuard<'_, Host<M>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn: what was received goes to `take`.
    pub(super) fn turn(&mut self, take: &mut impl FnMut(&[u8])) -> Turn {
        let mut batch = Batch::new();
        let _ = self.queue.rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
        let turn = self.queue.tx.reclaim(&mut self.pool);
        batch.iter().for_each(|packet| take(packet.bytes()));
        self.pool.release(&mut batch);
        turn
    }

    /// Hands a batch of frames over, up to frame number `end`.
    pub(super) fn send(&mut self, frames: &mut Frames, end: u32, batch: &mut Batch) -> anyhow::Result<()> {
        while frames.next < end && !batch.is_full() {
            let packet =
                Packet::copy_from(frames.next(), &mut self.pool).context("no packet memory is left")?;
            ensure!(batch.push(packet).is_ok(), "more packets than a batch has");
        }
        self.queue.tx.transmit(batch, &mut self.pool);
        Ok(())
    }

    /// Compares the frames that are on the model's wire.
    pub(super) fn look_at_wire(&self, frames: &mut Frames) {
        let mut host = self.host();
        while let Some(frame) = host.bench.adapter.wire_out() {
            frames.take(&frame);
        }
    }
}

/// The function of NCM and its port.
pub(super) fn ncm() -> anyhow::Result<Pair<Device>> {
    Pair::new(
        Device::new(NcmOptions::default()),
        |local| Ok(packing::open(local, &Options::default())?.queue),
    )
}

/// Frames that are made, and compared when they arrive.
pub(super) struct Frames {
    whole: Vec<u8>,
    pub(super) next: u32,
    /// Frames that arrived as they were sent.
    pub(super) taken: u32,
    /// Frames that did not.
    damaged: u32,
    /// Arriving frames that are not looked at.
    unseen: u32,
}

impl Frames {
    pub(super) fn new() -> Self {
        Self::without(0)
    }

    /// A meter that ignores the first `unseen` arriving frames.
    pub(super) fn without(unseen: u32) -> Self {
        let head = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
        let body = (0..LONGEST - head.len()).map(|at| {
            let [byte, ..] = (at * 7).to_le_bytes();
            byte
        });
        Self { whole: head.into_iter().chain(body).collect(), next: 0, taken: 0, damaged: 0, unseen }
    }

    /// The next frame: its number gives its length, and stands at its start and its end.
    fn next(&mut self) -> &[u8] {
        let number = self.next;
        self.next += 1;
        self.of(number)
    }

    fn of(&mut self, number: u32) -> &[u8] {
        let lengths = LONGEST - SHORTEST + 1;
        let length = SHORTEST + usize::try_from(number).unwrap_or(0) * 101 % lengths;
        let [low, ..] = number.to_le_bytes();
        self.whole[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&number.to_be_bytes());
        self.whole[NUMBER_AT + 4] = low ^ 0x5a;
        &self.whole[..length]
    }

    /// Compares a frame with the one of its number, byte by byte. Frames come in order; some may be missing.
    fn take(&mut self, frame: &[u8]) {
        if self.unseen > 0 {
            self.unseen -= 1;
            return;
        }
        let number = frame.get(NUMBER_AT..NUMBER_AT + 4).and_then(|octets| octets.try_into().ok());
        let number = number.map(u32::from_be_bytes).filter(|number| *number >= self.next);
        match number {
            Some(number) if self.of(number) == frame => {
                self.next = number + 1;
                self.taken += 1;
            }
            _ => self.damaged += 1,
        }
    }
}

/// Fate of the frames, out and back.
struct Volume {
    arrived: [u32; 2],
    unaccounted: u32,
}

/// Sends `frames` frames each way, in order. The far end of the wire does not look at the first `unseen`.
fn through_ncm(frames: u32, unseen: u32) -> anyhow::Result<Volume> {
    let mut pair = ncm()?;
    let (mut to_wire, mut on_wire, mut from_wire, mut received) =
        (Frames::new(), Frames::without(unseen), Frames::new(), Frames::new());
    let mut outgoing = Batch::new();
    let mut idle = 0;
    while idle < CALM {
        interrupt::check()?;
        let before = (on_wire.next, received.next);
        for _ in 0..TURN {
            let mut host = pair.host();
            if from_wire.next == frames || host.bench.adapter.holds_partner() {
                break;
            }
            ensure!(host.bench.adapter.wire_in(from_wire.next(), Nanos(0)), "the model has no link");
        }
        pair.send(&mut to_wire, frames, &mut outgoing)?;
        let _ = pair.turn(&mut |frame| received.take(frame));
        pair.look_at_wire(&mut on_wire);
        idle = if (on_wire.next, received.next) == before { idle + 1 } else { 0 };
        pair.clock.pass(TURN_TIME);
    }
    pair.pool.release(&mut outgoing);
    let dropped = pair.queue.tx.counters().drops.total() + pair.queue.rx.counters().drops.total();
    let lost = dropped + pair.host().bench.adapter.lost();
    let missing = u64::from(2 * frames - on_wire.taken - received.taken);
    let unaccounted = u32::try_from(missing.abs_diff(lost))?.max(on_wire.damaged + received.damaged);
    Ok(Volume { arrived: [on_wire.taken, received.taken], unaccounted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_arrives_as_it_was_sent() {
        let volume = through_ncm(3_000, 0).unwrap();
        assert_eq!((volume.unaccounted, volume.arrived), (0, [3_000, 3_000]));
    }

    #[test]
    fn seventeen_lost_frames_are_seventeen() {
        let volume = through_ncm(3_000, 17).unwrap();
        assert_eq!((volume.unaccounted, volume.arrived), (17, [2_983, 3_000]));
    }

    #[test]
    fn a_changed_frame_is_seen() {
        let (mut sent, mut received) = (Frames::new(), Frames::new());
        received.take(sent.next());
        let mut frame = sent.next().to_vec();
        *frame.last_mut().unwrap() ^= 1;
        received.take(&frame);
        assert_eq!((received.taken, received.damaged), (1, 1));
    }
}
