//! A guest with the kernel's driver, and a model of ours that it drives.

use crate::usb::bed::{Bed, IMPATIENCE, PATIENCE};
use crate::usb::inside;
use crate::usb::served::{Door, Served};
use crate::usb::station::GUEST_MAC;
use anyhow::{Context as _, ensure};
use polder_buffers::{Region, RegionOptions};
use polder_datapath::units::Nanos;
use polder_devices::cdc::Subclass;
use polder_devices::cdc::model::{Device, FaultyDevice, Options};
use polder_devices::usb::model::{Bench, Model as _};
use polder_testbed::guest::agent::Request;
use polder_testbed::guest::{Attached, Guest, Kernel};
use polder_testbed::interrupt;
use std::path::Path;
use std::time::Duration;

/// Modules of the guest.
pub(super) const MODULES: &[&str] = &["vhci-hcd", "cdc_ncm", "cdc_ether"];
/// Names of the guest's counters.
const COUNTERS: [&str; 4] = ["rx_packets", "tx_packets", "rx_errors", "tx_errors"];
/// The model's name.
const DEVICE: &str = "1-1";
/// Between two looks at the wire.
const PAUSE: Duration = Duration::from_millis(1);

/// A model that is plugged in, and its interface.
pub(super) struct Plugged {
    served: Served<Device>,
    /// The port of the guest's virtual host.
    port: u8,
    pub(super) interface: String,
}

/// A guest with the kernel's driver.
pub(super) struct Testbed {
    pub(super) guest: Guest,
    pub(super) plugged: Option<Plugged>,
    pub(super) subclass: Subclass,
    pub(super) faulty: Option<FaultyDevice>,
    number: u32,
}

impl Testbed {
    pub(super) fn boot(kernel: &Kernel, program: &Path, subclass: Subclass) -> anyhow::Result<Self> {
        let mut guest = inside::boot(kernel, program, MODULES, &["ip"])?;
        let _ = guest.log()?;
        Ok(Self { guest, plugged: None, subclass, faulty: None, number: 0 })
    }

    /// The usual function: 1514 bytes in a frame, so that the kernel has an MTU of 1500.
    pub(super) fn usual(&self) -> Options {
        Options {
            subclass: self.subclass,
            mac: GUEST_MAC,
            longest: 1514,
            faulty: self.faulty,
            ..Options::default()
        }
    }

    /// Plugs a function in, in place of another, and waits for its interface and its carrier.
    pub(super) fn plug(&mut self, options: Options) -> anyhow::Result<()> {
        self.plug_without_carrier(options)?;
        self.wait_for_carrier(true)
    }

    /// The same without the carrier.
    pub(super) fn plug_without_carrier(&mut self, options: Options) -> anyhow::Result<()> {
        self.unplug()?;
        let memory = Region::new(RegionOptions { slots: 64, slot_bytes: 2048 })?;
        let speed = options.speed;
        let bench = Bench::new(Device::new(options), None, memory.pool());
        let served = Served::start(bench, Door::loopback()?, DEVICE)?;
        let before = self.guest.interfaces()?;
        let Attached { port, .. } = self.guest.attach(served.port(), DEVICE, speed)?;
        let interface = self.guest.new_interface(&before, PATIENCE)?;
        inside::bring_up(&mut self.guest, &interface)?;
        self.plugged = Some(Plugged { served, port, interface });
        Ok(())
    }

    /// Plugs the usual function in, unless it is.
    pub(super) fn is_plugged(&mut self) -> anyhow::Result<()> {
        if self.plugged.is_some() { Ok(()) } else { self.plug(self.usual()) }
    }

    /// Pulls the function out.
    pub(super) fn unplug(&mut self) -> anyhow::Result<()> {
        let Some(Plugged { served, port, interface }) = self.plugged.take() else { return Ok(()) };
        self.guest.detach(port)?;
        drop(served);
        self.guest.until_gone(&interface, PATIENCE)
    }

    pub(super) fn plugged(&self) -> anyhow::Result<&Plugged> {
        self.plugged.as_ref().context("nothing is plugged in")
    }

    /// Looks at the model, or changes it.
    pub(super) fn model<T>(&self, look: impl FnOnce(&mut Device) -> T) -> anyhow::Result<T> {
        Ok(look(&mut self.plugged()?.served.bench().adapter))
    }

    /// Reads a file of the interface.
    pub(super) fn read(&mut self, file: &str) -> anyhow::Result<String> {
        let path = format!("/sys/class/net/{}/{file}", self.plugged()?.interface);
        Ok(self.guest.ask(&Request::Read(path))?.trim().to_owned())
    }

    /// Waits until the interface has a carrier, or none.
    pub(super) fn wait_for_carrier(&mut self, up: bool) -> anyhow::Result<()> {
        let wanted = if up { "1" } else { "0" };
        let is_there = self.until(|bed| Ok(bed.read("carrier")? == wanted))?;
        ensure!(is_there, "the carrier does not come to be {wanted}");
        Ok(())
    }

    /// Counters of the guest's interface.
    pub(super) fn counters(&mut self) -> anyhow::Result<[u64; 4]> {
        let mut counters = [0; 4];
        for (count, name) in counters.iter_mut().zip(COUNTERS) {
            *count = self.read(&format!("statistics/{name}"))?.parse()?;
        }
        Ok(counters)
    }

    pub(super) fn power_off(mut self) -> anyhow::Result<()> {
        self.unplug()?;
        self.guest.power_off()
    }
}

/// A frame without the byte with which `usbnet` of Linux ends transfers of whole packets. The length of the IP packet
/// says whether there is one.
fn without_end(mut frame: Vec<u8>, packet: usize) -> Vec<u8> {
    let is_longer = |frame: &[u8]| {
        let total = frame.get(16..18).map(|field| usize::from(u16::from_be_bytes([field[0], field[1]])));
        frame[12..14] == [8, 0] && total.is_some_and(|total| frame.len() == 14 + total + 1)
    };
    if frame.len() % packet == 1 && is_longer(&frame) {
        frame.pop();
    }
    frame
}

impl Bed for Testbed {
    fn patience(&self) -> Duration {
        if self.faulty.is_some() { IMPATIENCE } else { PATIENCE }
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let mut bench = self.plugged()?.served.bench();
        for frame in frames {
            ensure!(bench.adapter.wire_in(frame, Nanos(0)), "the model does not take a frame");
        }
        Ok(())
    }

    fn turn(&mut self) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut bench = self.plugged()?.served.bench();
        let packet = bench.adapter.options().speed.bulk_packet();
        let frames = core::iter::from_fn(|| bench.adapter.wire_out());
        Ok(match self.subclass {
            Subclass::Ncm => frames.collect(),
            Subclass::Ecm | Subclass::Mbim => frames.map(|frame| without_end(frame, packet)).collect(),
        })
    }

    fn doze(&mut self) -> anyhow::Result<()> {
        interrupt::sleep(PAUSE)?;
        Ok(())
    }

    /// With as many as a gadget bears, the guest loses an answer now and then while the machine is loaded.
    fn window(&self) -> usize {
        16
    }

    fn number(&mut self) -> &mut u32 {
        &mut self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usb::station::request;

    #[test]
    fn the_byte_at_the_end_goes_and_no_other() {
        let whole = request(1, 470);
        assert_eq!(whole.len(), 512);
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(without_end(longer, 512), whole);
        for payload in [470, 471, 472] {
            assert_eq!(without_end(request(1, payload), 512), request(1, payload));
        }
    }
}
