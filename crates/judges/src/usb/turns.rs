//! Turns of a worker with an open port, and the memory of its packets.

use anyhow::{Context as _, ensure};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Armed, Budget};
use polder_devices::AnyQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// Packet memory.
const MEMORY: RegionOptions = RegionOptions { slots: 8192, slot_bytes: 2048 };
/// Longest sleep.
const NAP: Duration = Duration::from_millis(5);

/// The memory of a port's packets.
pub(super) struct Turns {
    region: Region,
    pool: Pool,
}

impl Turns {
    pub(super) fn new() -> anyhow::Result<Self> {
        let region = Region::new(MEMORY)?;
        let pool = region.pool();
        Ok(Self { region, pool })
    }

    /// True if all frames are in their memory.
    pub(super) fn is_home(&mut self) -> bool {
        self.pool = self.region.pool();
        self.region.free_slots() == self.region.slots()
    }

    /// Frames of one turn.
    pub(super) fn receive(&mut self, queue: &mut AnyQueue) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        let _ = queue.rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
        let frames = batch.iter().map(|packet| packet.segments().flatten().copied().collect()).collect();
        self.pool.release(&mut batch);
        let _ = queue.tx.reclaim(&mut self.pool);
        frames
    }

    /// Sends frames; fails if a frame does not fit into the queue.
    pub(super) fn send(&mut self, queue: &mut AnyQueue, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        for frames in frames.chunks(64) {
            let mut batch = Batch::new();
            for frame in frames {
                let packet = Packet::copy_from(frame, &mut self.pool).context("no packet memory is left")?;
                ensure!(batch.push(packet).is_ok(), "more packets than a batch has");
            }
            queue.tx.transmit(&mut batch, &mut self.pool);
            let _ = queue.tx.reclaim(&mut self.pool);
            let left = batch.len();
            self.pool.release(&mut batch);
            ensure!(left == 0, "{left} packets found no room");
        }
        Ok(())
    }

    /// Waits for an event as a worker does.
    pub(super) fn doze(queue: &mut AnyQueue) -> anyhow::Result<()> {
        if queue.rx.arm() == Armed::Waiting
            && let Some(event) = queue.rx.event()
        {
            let limit = Timespec::try_from(NAP)?;
            poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit))?;
        }
        Ok(())
    }
}
