//! The testbed of all examinations of USB: a guest, a model that it attaches, or a port of our driver, or both; and a
//! station of ours, whose frames the guest's network stack or the model's wire gives back.

use super::inside;
use super::mutants::{Fault, Wrapped};
use super::served::{Door, Served};
use super::station::{ECHO_HEADERS, is_echo, is_same, reply, request};
use super::turns::Turns;
use anyhow::{Context as _, ensure};
use polder_buffers::{Region, RegionOptions};
use polder_devices::AnyQueue;
use polder_devices::usb::model::{Bench, Model};
use polder_devices::usb::usbip::ServerAddress;
use polder_devices::usb::{Speed, Techniques, Transport};
use polder_testbed::clock;
use polder_testbed::guest::{Attached, Guest, Kernel};
use std::path::Path;
use std::time::Duration;

/// Time that a check waits for what is not yet there: the guest is emulated.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// Time limit for a frame of a broken device, which is not expected to arrive.
const IMPATIENCE: Duration = Duration::from_millis(1000);
/// Techniques of a driver, each of them off once.
pub(super) const ONE_OFF: [Techniques; 5] = {
    let on = Techniques::ON;
    [
        Techniques { urb_pools: false, ..on },
        Techniques { pending_queue: false, ..on },
        Techniques { resubmit_in_cycle: false, ..on },
        Techniques { poll_cycle: false, ..on },
        Techniques { frame_is_unit: false, ..on },
    ]
};
/// Name of a model at its own server.
const MODEL: &str = "1-1";

/// Port of our driver.
pub(super) trait Port {
    /// Its queue.
    fn queue(&mut self) -> &mut AnyQueue;

    /// True if its device is gone.
    fn is_closed(&self) -> bool;

    /// True if it has a link.
    fn has_link(&self) -> bool;
}

/// Driver or model that is examined.
pub(super) trait Subject: Sized + 'static {
    /// Port of our driver.
    type Port: Port;
    /// Model that the guest attaches.
    type Model: Model + 'static;
    /// Fault of the subject.
    type Fault: Copy;
    /// Echoes that are under way at most. A guest drops replies when more than 57 of the longest wait for its device:
    /// its socket for ICMP has no more memory.
    const WINDOW: usize = 48;

    /// Brings the subject into the state in which most checks find it, unless it is.
    fn ready(bed: &mut Testbed<Self>) -> anyhow::Result<()>;

    /// Sends frames; fails if a frame does not fit into the queue.
    fn send(bed: &mut Testbed<Self>, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let port = bed.port.as_mut().context("no port is open")?;
        bed.turns.send(port.queue(), frames)
    }

    /// Frames that have come.
    fn turn(bed: &mut Testbed<Self>) -> anyhow::Result<Vec<Vec<u8>>> {
        let port = bed.port.as_mut().context("no port is open")?;
        Ok(bed.turns.receive(port.queue()))
    }

    /// Waits for an event, not for long.
    fn doze(bed: &mut Testbed<Self>) -> anyhow::Result<()> {
        Turns::doze(bed.port()?.queue())
    }
}

/// Model that is plugged in.
pub(super) struct Plugged<M> {
    pub(super) served: Served<M>,
    pub(super) attached: Attached,
    /// Its interface, where the guest has a driver.
    pub(super) interface: String,
}

/// Guest with the tools of its examination.
pub(super) struct Testbed<S: Subject> {
    /// First, so that the device is put to rest while it is there.
    pub(super) port: Option<S::Port>,
    pub(super) guest: Guest,
    pub(super) plugged: Option<Plugged<S::Model>>,
    /// The guest's `usbip-host`, where it exports a device.
    server: Option<ServerAddress>,
    turns: Turns,
    pub(super) subject: S,
    pub(super) fault: Option<S::Fault>,
    number: u32,
}

impl<S: Subject> Testbed<S> {
    /// Boots a guest with these modules.
    pub(super) fn boot(
        kernel: &Kernel,
        program: &Path,
        modules: &[&str],
        subject: S,
    ) -> anyhow::Result<Self> {
        let guest = inside::boot(kernel, program, modules, &["ip"])?;
        let turns = Turns::new()?;
        Ok(Self { port: None, guest, plugged: None, server: None, turns, subject, fault: None, number: 0 })
    }

    /// Starts the guest's USB/IP server by these words of `polder-lab`.
    pub(super) fn serve(&mut self, words: [&str; 2]) -> anyhow::Result<()> {
        self.server = Some(inside::serve(&mut self.guest, words)?);
        Ok(())
    }

    pub(super) fn server(&self) -> anyhow::Result<&ServerAddress> {
        self.server.as_ref().context("the guest exports nothing")
    }

    /// Imports a device of the guest's USB/IP server.
    pub(super) fn import_named(&self, device: &str) -> anyhow::Result<Box<dyn Transport>> {
        inside::import(&self.guest, self.server()?, device)
    }

    /// Shows a model, and lets the guest attach it.
    pub(super) fn attach(&mut self, model: S::Model, speed: Speed) -> anyhow::Result<Plugged<S::Model>> {
        let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 })?;
        let served = Served::start(Bench::new(model, None, memory.pool()), Door::loopback()?, MODEL)?;
        let attached = self.guest.attach(served.port(), MODEL, speed)?;
        Ok(Plugged { served, attached, interface: String::new() })
    }

    pub(super) fn plugged(&self) -> anyhow::Result<&Plugged<S::Model>> {
        self.plugged.as_ref().context("nothing is plugged in")
    }

    /// Looks at the model, or changes it.
    pub(super) fn model<T>(&self, look: impl FnOnce(&mut S::Model) -> T) -> anyhow::Result<T> {
        Ok(look(&mut self.plugged()?.served.bench().adapter))
    }

    /// Installs the port, and waits for the link.
    pub(super) fn opened(&mut self, port: S::Port) -> anyhow::Result<()> {
        self.port = Some(port);
        ensure!(self.until(|bed| Ok(bed.port()?.has_link()))?, "no link");
        Ok(())
    }

    /// True if a port is open whose device is there.
    pub(super) fn is_open(&self) -> bool {
        self.port.as_ref().is_some_and(|port| !port.is_closed())
    }

    pub(super) fn close(&mut self) {
        self.port = None;
    }

    pub(super) fn port(&mut self) -> anyhow::Result<&mut S::Port> {
        self.port.as_mut().context("no port is open")
    }

    /// True if all frames are in their memory.
    pub(super) fn is_home(&mut self) -> bool {
        self.turns.is_home()
    }

    /// Time that a check waits for what is not yet there.
    pub(super) fn patience(&self) -> Duration {
        if self.fault.is_some() { IMPATIENCE } else { PATIENCE }
    }

    /// The number of the next frame.
    pub(super) fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    /// Sends frames; fails if a frame does not fit into the queue.
    pub(super) fn send(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        S::send(self, frames)
    }

    /// Frames that have come.
    pub(super) fn turn(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        S::turn(self)
    }

    /// Works until something holds; `false` when it does not in time.
    pub(super) fn until(
        &mut self,
        mut holds: impl FnMut(&mut Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        let end = clock::now() + self.patience();
        while !holds(self)? {
            if clock::now() > end {
                return Ok(false);
            }
            S::turn(self)?;
            S::doze(self)?;
        }
        Ok(true)
    }

    /// Sends a frame and waits for one that is wanted.
    pub(super) fn ask(&mut self, frame: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> anyhow::Result<()> {
        S::send(self, &[frame.to_vec()])?;
        let end = clock::now() + self.patience();
        loop {
            if S::turn(self)?.iter().any(|frame| is_wanted(frame)) {
                return Ok(());
            }
            ensure!(clock::now() < end, "no answer");
            S::doze(self)?;
        }
    }

    /// Sends an echo request of each of these sizes, some at a time, and compares all answers, in order.
    pub(super) fn echoes(&mut self, sizes: &[usize]) -> anyhow::Result<()> {
        let first = self.number + 1;
        let numbered = || (first..).zip(sizes.iter().copied());
        self.number = numbered().last().map_or(self.number, |(number, _)| number);
        let (mut sent, mut answered) = (0, 0);
        let mut wanted = numbered();
        let mut end = clock::now() + self.patience();
        while answered < sizes.len() {
            // Half of the window at a time, so that there is something to pack.
            if sent < sizes.len() && sent - answered <= S::WINDOW / 2 {
                let some: Vec<_> = numbered().skip(sent).take(S::WINDOW / 2).collect();
                let frames: Vec<_> = some.iter().map(|&(number, size)| request(number, size)).collect();
                S::send(self, &frames)?;
                sent += some.len();
            }
            for frame in S::turn(self)?.iter().filter(|frame| is_echo(frame)) {
                let (number, size) = wanted.next().context("an answer to nothing")?;
                ensure!(
                    is_same(frame, &reply(number, size)),
                    "echo {number} of {size} bytes came back changed, or another one did, of {} bytes",
                    frame.len() - ECHO_HEADERS
                );
                answered += 1;
                end = clock::now() + self.patience();
            }
            ensure!(clock::now() < end, "{answered} of {} echoes came back", sizes.len());
            S::doze(self)?;
        }
        Ok(())
    }
}

/// The transport, with the fault of the driver in front of it.
pub(super) fn wrapped(transport: Box<dyn Transport>, fault: Option<Fault>) -> Box<dyn Transport> {
    match fault {
        Some(fault) => Box::new(Wrapped::new(transport, fault)),
        None => transport,
    }
}
