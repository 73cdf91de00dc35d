//! A port of our driver on the emulated controller, and the wire of that.

use super::machine::{Chip, Machine};
use super::mutants::{Fault, Wrapped};
use anyhow::{Context as _, ensure};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Armed, Budget, RxQueue as _, TxQueue as _};
use polder_devices::e1000::{self, E1000, Options, PortStatus};
use polder_devices::pci::Device;
use polder_testbed::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// Packet memory.
const MEMORY: RegionOptions = RegionOptions { slots: 2048, slot_bytes: 2048 };
/// Frames that are on their way to the driver at most: as many of 9000 bytes as the ring has buffers for.
const WINDOW: usize = 16;
/// Time that a check waits for what is not yet there.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Time limit for a packet of a broken driver, which is not expected to arrive.
pub(super) const IMPATIENCE: Duration = Duration::from_millis(150);

/// An emulated controller with a port of ours.
pub(super) struct Bench {
    /// First, so that the device is put to rest while it is there.
    port: Option<E1000>,
    pub(super) machine: Machine,
    pub(super) region: Region,
    pub(super) pool: Pool,
    patience: Duration,
    fault: Option<Fault>,
}

impl Bench {
    /// Starts an emulator, for a driver with that fault.
    pub(super) fn start(chip: Chip, fault: Option<Fault>) -> anyhow::Result<Self> {
        let region = Region::new(MEMORY)?;
        let machine = Machine::start(chip, &region)?;
        let patience = if fault.is_some() { IMPATIENCE } else { PATIENCE };
        Ok(Self { port: None, machine, pool: region.pool(), region, patience, fault })
    }

    /// Opens the port anew.
    pub(super) fn open(&mut self, options: &Options) -> anyhow::Result<()> {
        self.close();
        let device = self.machine.device();
        let device = match self.fault {
            Some(fault) => Wrapped::device(device, fault),
            None => device,
        };
        self.port = Some(e1000::open(device, &self.region, options)?);
        self.turn(0, |_| {})?;
        // A broken driver, too, is to fail in what its check asks for.
        let patience = core::mem::replace(&mut self.patience, PATIENCE);
        let found = self.until(|bench| Ok(bench.status()?.is_link_up()))?;
        self.patience = patience;
        ensure!(found, "no link");
        Ok(())
    }

    pub(super) fn close(&mut self) {
        self.port = None;
    }

    pub(super) fn port(&mut self) -> anyhow::Result<&mut E1000> {
        self.port.as_mut().context("no port is open")
    }

    pub(super) fn status(&self) -> anyhow::Result<&PortStatus> {
        Ok(&self.port.as_ref().context("no port is open")?.port.status)
    }

    /// The way to the device, without the fault.
    pub(super) fn device(&self) -> Device {
        self.machine.device()
    }

    /// Runs one turn, and passes each received packet to `look`.
    pub(super) fn turn(&mut self, budget: u32, look: impl FnMut(&Packet)) -> anyhow::Result<()> {
        let port = self.port.as_mut().context("no port is open")?;
        let mut batch = Batch::new();
        let _ = port.queue.rx.receive(&mut Budget::new(budget), &mut batch, &mut self.pool);
        batch.iter().for_each(look);
        self.pool.release(&mut batch);
        Ok(())
    }

    /// Works as a worker does, sleeping in between, until something holds; `false` when it does not in time.
    pub(super) fn until(
        &mut self,
        mut holds: impl FnMut(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let end = clock::now() + self.patience;
        while !holds(self)? {
            if clock::now() > end {
                return Ok(false);
            }
            if self.arm()? == Armed::Waiting {
                self.sleep(Duration::from_millis(5))?;
            }
            self.turn(64, |_| {})?;
        }
        Ok(true)
    }

    /// Asks for an event, as a worker does before it sleeps.
    pub(super) fn arm(&mut self) -> anyhow::Result<Armed> {
        Ok(self.port()?.queue.rx.arm())
    }

    /// Waits for the event of an armed queue; true if it arrived.
    pub(super) fn sleep(&mut self, limit: Duration) -> anyhow::Result<bool> {
        let event = self.port()?.queue.rx.event().context("a port has an event")?;
        let limit = Timespec::try_from(limit)?;
        let ready = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit))?;
        Ok(ready > 0)
    }

    /// Puts frames on the wire, and receives up to `count` frames until the time limit.
    pub(super) fn exchange(&mut self, frames: &[Vec<u8>], count: usize) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut received = Vec::with_capacity(count);
        let mut injected = 0;
        let mut end = clock::now() + self.patience;
        while injected < frames.len() || received.len() < count {
            let before = (received.len(), injected);
            while let Some(frame) = frames.get(injected)
                && injected < received.len() + WINDOW
                && self.machine.inject(frame)?
            {
                injected += 1;
            }
            self.turn(64, |packet| received.push(content(packet)))?;
            if before != (received.len(), injected) {
                end = clock::now() + self.patience;
            } else if clock::now() > end {
                break;
            }
        }
        Ok(received)
    }

    /// Puts frames on the wire, and fails unless all are received unchanged and in order.
    pub(super) fn receives(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let received = self.exchange(frames, frames.len())?;
        equal(&received, frames)
    }

    /// Sends packets in one batch; returns the frames that left, once `count` have.
    pub(super) fn send(&mut self, packets: Vec<Packet>, count: usize) -> anyhow::Result<Vec<Vec<u8>>> {
        let port = self.port.as_mut().context("no port is open")?;
        let mut batch = Batch::new();
        for packet in packets {
            ensure!(batch.push(packet).is_ok(), "more packets than a batch has");
        }
        let end = clock::now() + self.patience;
        let mut sent = Vec::new();
        while (!batch.is_empty() || sent.len() < count) && clock::now() <= end {
            port.queue.tx.transmit(&mut batch, &mut self.pool);
            let _ = port.queue.tx.reclaim(&mut self.pool);
            sent.extend(core::iter::from_fn(|| self.machine.extract()));
        }
        let left = batch.len();
        self.pool.release(&mut batch);
        ensure!(left == 0, "{left} packets found no room");
        Ok(sent)
    }

    /// Fails unless the device has reported all sent packets.
    pub(super) fn is_reported(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + self.patience;
        loop {
            let port = self.port.as_mut().context("no port is open")?;
            let _ = port.queue.tx.reclaim(&mut self.pool);
            let (held, posted) = (port.queue.tx.held(), port.queue.tx.posted());
            if held == 0 && posted == 0 {
                return Ok(());
            }
            ensure!(clock::now() <= end, "{held} packets and {posted} frames were not reported");
        }
    }

    /// Works until nothing more comes, and leaves the queue armed.
    pub(super) fn settle(&mut self) -> anyhow::Result<()> {
        loop {
            self.turn(64, |_| {})?;
            if self.arm()? == Armed::Waiting && !self.sleep(Duration::from_millis(20))? {
                return Ok(());
            }
        }
    }

    /// Sleeps until the event comes, for as long as patience lasts.
    pub(super) fn sleeps_until_woken(&mut self) -> anyhow::Result<bool> {
        self.sleep(self.patience)
    }

    /// Puts a frame on the wire; returns the headroom of the received packet.
    pub(super) fn headroom_of(&mut self, frame: &[u8]) -> anyhow::Result<u16> {
        ensure!(self.machine.inject(frame)?, "the wire is full");
        let end = clock::now() + self.patience;
        let mut room = None;
        while room.is_none() && clock::now() <= end {
            self.turn(1, |packet| room = Some(packet.headroom()))?;
        }
        room.context("the frame did not come")
    }

    /// True if all frames are in their memory, none by way of a detour.
    pub(super) fn home(&mut self) -> bool {
        self.pool = self.region.pool();
        (self.region.free_slots(), self.region.late_frees()) == (self.region.slots(), 0)
    }

    pub(super) fn packet(&mut self, frame: &[u8]) -> anyhow::Result<Packet> {
        Packet::copy_from(frame, &mut self.pool).context("no packet memory is left")
    }
}

/// All bytes of a packet.
pub(super) fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

/// Fails with the first difference between two lists of frames.
pub(super) fn equal(found: &[Vec<u8>], wanted: &[Vec<u8>]) -> anyhow::Result<()> {
    let lengths = |frame: Option<&Vec<u8>>| frame.map_or("none".to_owned(), |frame| frame.len().to_string());
    let place = (0..found.len().max(wanted.len())).find(|&place| found.get(place) != wanted.get(place));
    let Some(place) = place else { return Ok(()) };
    let (one, other) = (lengths(found.get(place)), lengths(wanted.get(place)));
    let count = (found.len(), wanted.len());
    anyhow::bail!("frame {place} differs: {one} bytes, {other} wanted; {} of {} frames", count.0, count.1)
}
