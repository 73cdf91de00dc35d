//! A guest with a gadget, and a port of our driver on it.

use super::bed::{Bed, IMPATIENCE, PATIENCE};
use super::gadget::{BUSID, CONTROLLER, DUMMY};
use super::inside;
use super::mutants::{Fault, Wrapped};
use super::turns::Turns;
use anyhow::{Context as _, ensure};
use polder_devices::cdc::{self, Cdc, NetworkFunction, Options, Subclass, network_function};
use polder_devices::usb::usbip::ServerAddress;
use polder_devices::usb::{Transport, identify};
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Guest, Kernel};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Modules of the guest.
pub(super) const MODULES: &[&str] = &["dummy_hcd", "usb_f_ncm", "usb_f_ecm", "usbip_host"];
/// Names of the guest's counters.
pub(super) const COUNTERS: [&str; 4] = ["rx_packets", "tx_packets", "rx_errors", "tx_errors"];

/// An attached device: its transport, its network function, vendor and product.
type Attached = (Box<dyn Transport>, NetworkFunction, (u16, u16));

/// A guest with a gadget, and a port of ours.
pub(super) struct Testbed {
    /// First, so that the function is put to rest while it is there.
    port: Option<Cdc>,
    pub(super) guest: Guest,
    server: ServerAddress,
    turns: Turns,
    pub(super) subclass: Subclass,
    pub(super) fault: Option<Fault>,
    number: u32,
}

impl Testbed {
    /// Starts a guest with a gadget of that subclass.
    pub(super) fn boot(kernel: &Kernel, program: &Path, subclass: Subclass) -> anyhow::Result<Self> {
        let mut guest = inside::boot(kernel, program, MODULES, &["ip"])?;
        let function = match subclass {
            Subclass::Ncm => "ncm",
            Subclass::Ecm => "ecm",
            Subclass::Mbim => anyhow::bail!("Linux has no gadget of MBIM"),
        };
        let before = guest.interfaces()?;
        let server = inside::serve(&mut guest, ["guest-gadget", function])?;
        guest.new_interface(&before, PATIENCE).context("the gadget has none")?;
        inside::bring_up(&mut guest, "usb0")?;
        let _ = guest.log()?;
        Ok(Self { port: None, guest, server, turns: Turns::new()?, subclass, fault: None, number: 0 })
    }

    /// Attaches the device, and reads what it is.
    fn attach(&self) -> anyhow::Result<Attached> {
        let mut transport = inside::import(&self.guest, &self.server, BUSID)?;
        let identified = identify(&mut *transport, &AtomicBool::new(false))?;
        let functions = identified.configurations.iter().map(|one| network_function(one));
        let functions = functions.collect::<Result<Vec<_>, _>>()?;
        let function =
            functions.into_iter().flatten().next().context("the device has no network function")?;
        Ok((transport, function, (identified.vendor, identified.product)))
    }

    /// The function, as its descriptors have it.
    pub(super) fn describe(&mut self) -> anyhow::Result<(NetworkFunction, (u16, u16))> {
        self.close();
        let (_transport, function, identity) = self.attach()?;
        Ok((function, identity))
    }

    /// Opens the port anew, and waits for the link.
    pub(super) fn open(&mut self, options: &Options) -> anyhow::Result<()> {
        self.close();
        let (transport, function, identity) = self.attach()?;
        let transport = match self.fault {
            Some(fault) => Box::new(Wrapped::new(transport, fault)),
            None => transport,
        };
        self.port = Some(cdc::open(transport, function, identity, options)?);
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

    pub(super) fn port(&mut self) -> anyhow::Result<&mut Cdc> {
        self.port.as_mut().context("no port is open")
    }

    /// True if all frames are in their memory.
    pub(super) fn is_home(&mut self) -> bool {
        self.turns.is_home()
    }

    /// Sent frames, and what the guest counts as sent: frames of ECM, and blocks of NCM.
    pub(super) fn counted(&mut self) -> anyhow::Result<[u64; 2]> {
        let subclass = self.subclass;
        let port = self.port()?;
        let received = match subclass {
            Subclass::Ncm => port.status.received_transfers.get(),
            Subclass::Ecm | Subclass::Mbim => port.queue.rx.counters().received.get(),
        };
        Ok([port.queue.tx.counters().transmitted.get(), received])
    }

    /// Counters of the guest's interface.
    pub(super) fn counters(&mut self) -> anyhow::Result<[u64; 4]> {
        let mut counters = [0; 4];
        for (count, name) in counters.iter_mut().zip(COUNTERS) {
            let path = format!("/sys/class/net/usb0/statistics/{name}");
            *count = self.guest.ask(&Request::Read(path))?.trim().parse()?;
        }
        Ok(counters)
    }

    /// Connects the gadget to its controller, or disconnects it.
    pub(super) fn plug(&mut self, plugged: bool) -> anyhow::Result<()> {
        let name = if plugged { DUMMY } else { "\n" };
        self.guest.ask(&Request::Write(CONTROLLER.to_owned(), name.to_owned())).map(drop)
    }

    pub(super) fn power_off(self) -> anyhow::Result<()> {
        let Self { port, guest, .. } = self;
        drop(port);
        guest.power_off()
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
