//! A guest with a gadget, and a port of our driver on it.

use super::bed::{PATIENCE, Port, Subject, wrapped};
use super::gadget::{BUSID, CONTROLLER, DUMMY};
use super::inside;
use super::mutants::Fault;
use anyhow::Context as _;
use polder_devices::AnyQueue;
use polder_devices::cdc::model::Device;
use polder_devices::cdc::{self, Cdc, NetworkFunction, Options, Subclass, network_function};
use polder_devices::usb::{Transport, identify};
use polder_testbed::guest::Kernel;
use polder_testbed::guest::agent::Request;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Modules of the guest.
pub(super) const MODULES: &[&str] = &["dummy_hcd", "usb_f_ncm", "usb_f_ecm", "usbip_host"];

/// An attached device: its transport, its network function, vendor and product.
type Attached = (Box<dyn Transport>, NetworkFunction, (u16, u16));

/// A guest with a gadget, and a port of ours.
pub(super) type Testbed = super::bed::Testbed<Driver>;

/// Our driver of network functions.
pub(super) struct Driver {
    pub(super) subclass: Subclass,
}

impl Port for Cdc {
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
    type Port = Cdc;
    type Model = Device;
    type Fault = Fault;

    fn ready(bed: &mut Testbed) -> anyhow::Result<()> {
        if bed.is_open() { Ok(()) } else { bed.open(&Options::default()) }
    }
}

/// Starts a guest with a gadget of that subclass.
pub(super) fn boot(kernel: &Kernel, program: &Path, subclass: Subclass) -> anyhow::Result<Testbed> {
    let function = match subclass {
        Subclass::Ncm => "ncm",
        Subclass::Ecm => "ecm",
        Subclass::Mbim => anyhow::bail!("Linux has no gadget of MBIM"),
    };
    let mut bed = Testbed::boot(kernel, program, MODULES, Driver { subclass })?;
    let before = bed.guest.interfaces()?;
    bed.serve(["guest-gadget", function])?;
    bed.guest.new_interface(&before, PATIENCE).context("the gadget has none")?;
    inside::bring_up(&mut bed.guest, "usb0")?;
    let _ = bed.guest.log()?;
    Ok(bed)
}

impl Testbed {
    /// Imports the device, and reads its descriptors.
    fn import(&self) -> anyhow::Result<Attached> {
        let mut transport = self.import_named(BUSID)?;
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
        let (_transport, function, identity) = self.import()?;
        Ok((function, identity))
    }

    /// Opens the port anew, and waits for the link.
    pub(super) fn open(&mut self, options: &Options) -> anyhow::Result<()> {
        self.close();
        let (transport, function, identity) = self.import()?;
        let port = cdc::open(wrapped(transport, self.fault), function, identity, options)?;
        self.opened(port)
    }

    /// Sent frames, and what the guest counts as sent: frames of ECM, and blocks of NCM.
    pub(super) fn counted(&mut self) -> anyhow::Result<[u64; 2]> {
        let subclass = self.subject.subclass;
        let port = self.port()?;
        let received = match subclass {
            Subclass::Ncm => port.status.received_transfers.get(),
            Subclass::Ecm | Subclass::Mbim => port.queue.rx.counters().received.get(),
        };
        Ok([port.queue.tx.counters().transmitted.get(), received])
    }

    /// Counters of the guest's interface.
    pub(super) fn counters(&mut self) -> anyhow::Result<[u64; 4]> {
        inside::counters(&mut self.guest, "usb0")
    }

    /// Connects the gadget to its controller, or disconnects it.
    pub(super) fn plug(&mut self, plugged: bool) -> anyhow::Result<()> {
        let name = if plugged { DUMMY } else { "\n" };
        self.guest.ask(&Request::Write(CONTROLLER.to_owned(), name.to_owned())).map(drop)
    }

    pub(super) fn power_off(mut self) -> anyhow::Result<()> {
        self.close();
        self.guest.power_off()
    }
}
