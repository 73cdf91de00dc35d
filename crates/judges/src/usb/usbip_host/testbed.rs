//! A guest whose `usbip-host` exports the model that its virtual host has, and a port of our driver on it.

use super::super::bed::{Bed, IMPATIENCE, PATIENCE};
use super::super::inside;
use super::super::mutants::{Fault, Wrapped};
use super::super::served::{Door, Served};
use super::super::station::request;
use super::super::turns::Turns;
use anyhow::{Context as _, ensure};
use polder_buffers::{Region, RegionOptions};
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::model::{Adapter, Options as Model};
use polder_devices::lan78xx::{self, Lan78xx, Options};
use polder_devices::usb::Transport;
use polder_devices::usb::model::Bench;
use polder_devices::usb::usbip::ServerAddress;
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Attached, Guest, Kernel};
use polder_testbed::{clock, interrupt};
use std::path::Path;
use std::time::Duration;

/// Modules of the guest: none of them drives the adapter.
pub(super) const MODULES: &[&str] = &["vhci-hcd", "usbip_host"];
/// Name of the model at its own server, and in the guest at SuperSpeed.
const MODEL: &str = "1-1";
pub(super) const PLACE: &str = "2-1";
/// Frames that are handed over together.
const TOGETHER: usize = 64;
/// Bytes of frames that the adapter is given together: below the level at which it asks for a pause.
const ROOM: usize = 8 << 10;
/// Bytes that a frame takes in the adapter beside its own.
const BESIDE: usize = 16;
/// Status of an adapter that a client has, and the time between two looks at it.
const IN_USE: &str = "2";
const PAUSE: Duration = Duration::from_millis(20);
/// The shortest frame on the wire.
const SHORTEST: usize = 60;

/// A model that the guest's virtual host has.
struct Plugged {
    served: Served<Adapter>,
    attached: Attached,
}

/// A guest, the model that it exports, and a port of ours.
pub(super) struct Testbed {
    /// First, so that the adapter is put to rest while it is there.
    port: Option<Lan78xx>,
    pub(super) guest: Guest,
    plugged: Option<Plugged>,
    pub(super) server: ServerAddress,
    turns: Turns,
    pub(super) fault: Option<Fault>,
    number: u32,
}

impl Testbed {
    pub(super) fn boot(kernel: &Kernel, program: &Path) -> anyhow::Result<Self> {
        let mut guest = inside::boot(kernel, program, MODULES, &["ip"])?;
        let server = inside::serve(&mut guest, ["guest-export", PLACE])?;
        let _ = guest.log()?;
        let turns = Turns::new()?;
        Ok(Self { port: None, guest, plugged: None, server, turns, fault: None, number: 0 })
    }

    /// Plugs a model into the guest, in place of another.
    pub(super) fn plug(&mut self, model: Model) -> anyhow::Result<()> {
        self.unplug()?;
        let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 })?;
        let speed = model.speed;
        let bench = Bench::new(Adapter::new(model), None, memory.pool());
        let served = Served::start(bench, Door::loopback()?, MODEL)?;
        let attached = self.guest.attach(served.port(), MODEL, speed)?;
        self.plugged = Some(Plugged { served, attached });
        Ok(())
    }

    /// Closes the port and pulls the model out.
    pub(super) fn unplug(&mut self) -> anyhow::Result<()> {
        self.close();
        let Some(Plugged { served, attached }) = self.plugged.take() else { return Ok(()) };
        self.wait_until_free(&attached.place)?;
        self.guest.detach(attached.port)?;
        drop(served);
        Ok(())
    }

    /// Waits until `usbip-host` has reset the adapter behind its last client. One thread of the kernel serves that
    /// reset and the virtual host, so a reset of an adapter that is pulled out meanwhile holds up both for seconds.
    fn wait_until_free(&mut self, place: &str) -> anyhow::Result<()> {
        // An adapter that was not imported has no status.
        let status = Request::Read(format!("/sys/bus/usb/devices/{place}/usbip_status"));
        let end = clock::now() + PATIENCE;
        while self.guest.try_ask(&status, PATIENCE)?.text.trim() == IN_USE {
            ensure!(clock::now() < end, "usbip-host does not free the adapter");
            interrupt::sleep(PAUSE)?;
        }
        Ok(())
    }

    /// Hands frames over and pulls the model out before it has taken any of them; waits until the port has closed.
    pub(super) fn unplug_under(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let frames = self.frames(sizes);
        let Plugged { served, attached } = self.plugged.take().context("nothing is plugged in")?;
        let held = served.bench();
        self.send(&frames)?;
        self.guest.detach(attached.port)?;
        let is_closed = self.until(|bed| Ok(bed.port()?.status.facts().closed))?;
        drop(held);
        ensure!(is_closed, "the port does not close");
        Ok(())
    }

    fn plugged(&self) -> anyhow::Result<&Plugged> {
        self.plugged.as_ref().context("nothing is plugged in")
    }

    /// Looks at the model, or changes it.
    pub(super) fn model<T>(&self, look: impl FnOnce(&mut Adapter) -> T) -> anyhow::Result<T> {
        Ok(look(&mut self.plugged()?.served.bench().adapter))
    }

    /// Imports the adapter from `usbip-host`; a usual model is plugged in if there is none.
    pub(super) fn import(&mut self) -> anyhow::Result<Box<dyn Transport>> {
        self.close();
        if self.plugged.is_none() {
            self.plug(Model::default())?;
        }
        inside::import(&self.guest, &self.server, &self.plugged()?.attached.place)
    }

    /// Opens the port anew, and waits for the link.
    pub(super) fn open(&mut self, options: &Options) -> anyhow::Result<()> {
        let transport = self.import()?;
        let transport = match self.fault {
            Some(fault) => Box::new(Wrapped::new(transport, fault)),
            None => transport,
        };
        self.port = Some(lan78xx::open(transport, options)?);
        ensure!(self.until(|bed| Ok(bed.port()?.status.facts().link.up))?, "no link");
        Ok(())
    }

    /// Opens the port as usual, unless it is open.
    pub(super) fn is_open(&mut self) -> anyhow::Result<()> {
        let is_well = self.port.as_ref().is_some_and(|port| !port.status.facts().closed);
        if is_well { Ok(()) } else { self.open(&Options::default()) }
    }

    pub(super) fn close(&mut self) {
        self.port = None;
    }

    pub(super) fn port(&mut self) -> anyhow::Result<&mut Lan78xx> {
        self.port.as_mut().context("no port is open")
    }

    /// True if all frames are in their memory.
    pub(super) fn is_home(&mut self) -> bool {
        self.turns.is_home()
    }

    /// Frames with these payloads, each with a number of its own.
    pub(super) fn frames(&mut self, sizes: &[usize]) -> Vec<Vec<u8>> {
        let number = |size| {
            self.number += 1;
            request(self.number, size)
        };
        sizes.iter().copied().map(number).collect()
    }

    /// Frames with these payloads go to the wire and come from it.
    pub(super) fn both_ways(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let frames = self.frames(sizes);
        self.outwards(&frames)?;
        self.inwards(&frames)
    }

    /// Sends frames, and compares those on the wire.
    pub(super) fn outwards(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        for some in frames.chunks(TOGETHER) {
            self.send(some)?;
            let leaving = |bed: &mut Self| {
                bed.turn()?;
                bed.wire()
            };
            self.arrive(some, leaving).context("to the wire")?;
        }
        Ok(())
    }

    /// Puts frames on the wire, and compares those that are received.
    pub(super) fn inwards(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let mut rest = frames;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|frame| {
                bytes += frame.len().max(SHORTEST) + BESIDE;
                bytes <= ROOM
            });
            let (some, others) = rest.split_at(fit.count().max(1));
            self.put_on_wire(some)?;
            self.arrive(some, Self::turn).context("from the wire")?;
            rest = others;
        }
        Ok(())
    }

    /// Frames come to the adapter, in one go.
    pub(super) fn put_on_wire(&self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let taken = self.model(|adapter| frames.iter().all(|frame| adapter.wire_in(frame, Nanos(0))))?;
        ensure!(taken, "the model has no link");
        Ok(())
    }

    /// Frames that have left by the wire.
    pub(super) fn wire(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        self.model(|adapter| core::iter::from_fn(|| adapter.wire_out()).collect())
    }

    /// Waits for frames, and compares them.
    pub(super) fn arrive(
        &mut self,
        wanted: &[Vec<u8>],
        mut look: impl FnMut(&mut Self) -> anyhow::Result<Vec<Vec<u8>>>,
    ) -> anyhow::Result<()> {
        let mut wanted = wanted.iter();
        let mut end = clock::now() + self.patience();
        while wanted.len() > 0 {
            for found in look(self)? {
                let mut whole = wanted.next().context("more frames than were sent")?.clone();
                whole.resize(whole.len().max(SHORTEST), 0);
                let (expected, bytes) = (whole.len(), found.len());
                ensure!(found == whole, "a frame of {expected} bytes is another one, of {bytes} bytes");
                end = clock::now() + self.patience();
            }
            ensure!(clock::now() < end, "{} frames are missing", wanted.len());
            self.doze()?;
        }
        Ok(())
    }

    pub(super) fn power_off(mut self) -> anyhow::Result<()> {
        self.unplug()?;
        self.guest.power_off()
    }
}

impl Bed for Testbed {
    fn patience(&self) -> Duration {
        if self.fault.is_some() { IMPATIENCE } else { PATIENCE }
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let port = self.port.as_mut().context("no port is open")?;
        self.turns.send(&mut port.queue, frames)
    }

    fn turn(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let port = self.port.as_mut().context("no port is open")?;
        Ok(self.turns.receive(&mut port.queue))
    }

    fn doze(&mut self) -> anyhow::Result<()> {
        Turns::doze(&mut self.port()?.queue)
    }

    fn number(&mut self) -> &mut u32 {
        &mut self.number
    }
}
