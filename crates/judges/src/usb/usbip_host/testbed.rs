//! A guest whose `usbip-host` exports the model that its virtual host has, and a port of our driver on it.

use crate::usb::bed::{PATIENCE, Plugged, Port, Subject, wrapped};
use crate::usb::mutants::Fault;
use crate::usb::station::request;
use anyhow::{Context as _, ensure};
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::lan78xx::model::{Adapter, Options as Model};
use polder_devices::lan78xx::{self, Lan78xx, Options};
use polder_devices::usb::Transport;
use polder_testbed::guest::Kernel;
use polder_testbed::guest::agent::Request;
use polder_testbed::{clock, interrupt};
use std::path::Path;
use std::time::Duration;

/// Modules of the guest: none of them drives the adapter.
pub(super) const MODULES: &[&str] = &["vhci-hcd", "usbip_host"];
/// Name of the model in the guest at SuperSpeed.
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

/// A guest, the model that it exports, and a port of ours.
pub(super) type Testbed = crate::usb::bed::Testbed<Driver>;

/// Our driver for LAN78xx.
pub(super) struct Driver;

impl Port for Lan78xx {
    fn queue(&mut self) -> &mut AnyQueue {
        &mut self.queue
    }

    fn is_closed(&self) -> bool {
        self.status.facts().closed
    }

    fn has_link(&self) -> bool {
        self.status.facts().link.up
    }
}

impl Subject for Driver {
    type Port = Lan78xx;
    type Model = Adapter;
    type Fault = Fault;

    fn ready(bed: &mut Testbed) -> anyhow::Result<()> {
        if bed.is_open() { Ok(()) } else { bed.open(&Options::default()) }
    }
}

/// Starts a guest that exports the adapter.
pub(super) fn boot(kernel: &Kernel, program: &Path) -> anyhow::Result<Testbed> {
    let mut bed = Testbed::boot(kernel, program, MODULES, Driver)?;
    bed.serve(["guest-export", PLACE])?;
    let _ = bed.guest.log()?;
    Ok(bed)
}

impl Testbed {
    /// Plugs a model into the guest, in place of another.
    pub(super) fn plug(&mut self, model: Model) -> anyhow::Result<()> {
        self.unplug()?;
        let speed = model.speed;
        self.plugged = Some(self.attach(Adapter::new(model), speed)?);
        Ok(())
    }

    /// Closes the port and pulls the model out.
    pub(super) fn unplug(&mut self) -> anyhow::Result<()> {
        self.close();
        let Some(Plugged { served, attached, .. }) = self.plugged.take() else { return Ok(()) };
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
        interrupt::retry(PATIENCE, PAUSE, || {
            let status = self.guest.try_ask(&status, PATIENCE)?.text;
            ensure!(status.trim() != IN_USE, "usbip-host does not free the adapter");
            Ok(())
        })
    }

    /// Hands frames over and pulls the model out before it has taken any of them; waits until the port has closed.
    pub(super) fn unplug_under(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let frames = self.frames(sizes);
        let Plugged { served, attached, .. } = self.plugged.take().context("nothing is plugged in")?;
        let held = served.bench();
        self.send(&frames)?;
        self.guest.detach(attached.port)?;
        let is_closed = self.until(|bed| Ok(bed.port()?.is_closed()))?;
        drop(held);
        ensure!(is_closed, "the port does not close");
        Ok(())
    }

    /// Imports the adapter from `usbip-host`; a usual model is plugged in if there is none.
    pub(super) fn import(&mut self) -> anyhow::Result<Box<dyn Transport>> {
        self.close();
        if self.plugged.is_none() {
            self.plug(Model::default())?;
        }
        self.import_named(&self.plugged()?.attached.place)
    }

    /// Opens the port anew, and waits for the link.
    pub(super) fn open(&mut self, options: &Options) -> anyhow::Result<()> {
        let transport = self.import()?;
        let port = lan78xx::open(wrapped(transport, self.fault), options)?;
        self.opened(port)
    }

    /// Frames with these payloads, each with a number of its own.
    pub(super) fn frames(&mut self, sizes: &[usize]) -> Vec<Vec<u8>> {
        sizes.iter().map(|&size| request(self.next_number(), size)).collect()
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

    /// Puts frames on the wire, and compares the received frames with them.
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
            Driver::doze(self)?;
        }
        Ok(())
    }

    pub(super) fn power_off(mut self) -> anyhow::Result<()> {
        self.unplug()?;
        self.guest.power_off()
    }
}
