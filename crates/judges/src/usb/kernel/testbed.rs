//! A guest with the kernel's driver, and a model of ours that it drives.

use crate::usb::bed::{PATIENCE, Plugged, Subject};
use crate::usb::inside;
use crate::usb::station::GUEST_MAC;
use anyhow::ensure;
use polder_datapath::units::Nanos;
use polder_devices::cdc::model::{Device, FaultyDevice, Options};
use polder_devices::cdc::{Cdc, Subclass};
use polder_devices::usb::model::Model as _;
use polder_testbed::guest::agent::Request;
use polder_testbed::interrupt;
use std::time::Duration;

/// Modules of the guest.
pub(super) const MODULES: &[&str] = &["vhci-hcd", "cdc_ncm", "cdc_ether"];
/// Between two looks at the wire.
const PAUSE: Duration = Duration::from_millis(1);

/// A guest with the kernel's driver.
pub(super) type Testbed = crate::usb::bed::Testbed<Function>;

/// Our model of a network function.
pub(super) struct Function {
    pub(super) subclass: Subclass,
}

impl Subject for Function {
    /// Unused: the guest's driver opens the device.
    type Port = Cdc;
    type Model = Device;
    type Fault = FaultyDevice;
    /// Number of frames in flight; with the gadget's maximum, the guest sometimes loses an answer on a loaded
    /// machine.
    const WINDOW: usize = 16;

    fn ready(bed: &mut Testbed) -> anyhow::Result<()> {
        if bed.plugged.is_some() { Ok(()) } else { bed.plug(bed.usual()) }
    }

    fn send(bed: &mut Testbed, frames: &[Vec<u8>]) -> anyhow::Result<()> {
        let is_taken = bed.model(|model| frames.iter().all(|frame| model.wire_in(frame, Nanos(0))))?;
        ensure!(is_taken, "the model does not take a frame");
        Ok(())
    }

    fn turn(bed: &mut Testbed) -> anyhow::Result<Vec<Vec<u8>>> {
        let subclass = bed.subject.subclass;
        bed.model(|model| {
            let packet = model.options().speed.bulk_packet();
            let frames = core::iter::from_fn(|| model.wire_out());
            match subclass {
                Subclass::Ncm => frames.collect(),
                Subclass::Ecm | Subclass::Mbim => frames.map(|frame| without_end(frame, packet)).collect(),
            }
        })
    }

    fn doze(_: &mut Testbed) -> anyhow::Result<()> {
        Ok(interrupt::sleep(PAUSE)?)
    }
}

impl Testbed {
    /// The usual function: 1514 bytes in a frame, so that the kernel has an MTU of 1500.
    pub(super) fn usual(&self) -> Options {
        Options {
            subclass: self.subject.subclass,
            mac: GUEST_MAC,
            longest: 1514,
            faulty: self.fault,
            ..Options::default()
        }
    }

    /// Plugs a function in, in place of another, and waits for its interface and its carrier.
    pub(super) fn plug(&mut self, options: Options) -> anyhow::Result<()> {
        self.unplug()?;
        let before = self.guest.interfaces()?;
        let speed = options.speed;
        let plugged = self.attach(Device::new(options), speed)?;
        let interface = self.guest.new_interface(&before, PATIENCE)?;
        inside::bring_up(&mut self.guest, &interface)?;
        self.plugged = Some(Plugged { interface, ..plugged });
        self.wait_for_carrier(true)
    }

    /// Pulls the function out.
    pub(super) fn unplug(&mut self) -> anyhow::Result<()> {
        let Some(plugged) = self.plugged.take() else { return Ok(()) };
        self.guest.detach(plugged.attached.port)?;
        let interface = plugged.interface.clone();
        drop(plugged);
        self.guest.until_gone(&interface, PATIENCE)
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
        let interface = self.plugged()?.interface.clone();
        inside::counters(&mut self.guest, &interface)
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
