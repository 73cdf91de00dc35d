//! USB network functions: choice of the driver by descriptors, and findings about plugged-in devices.

use super::contract::{
    Driver, Finding, Handle, Link, OpenPort, PortProperties, Severity, SlowOpening, receiving,
};
use super::function::{TAKES, blocks, numbers, options};
use super::lan78xx::{self, DeviceFinding, PATIENCE, awaited, bus, common_row, held, reach, slow, transfers};
use super::modem;
use crate::config::lan78xx::AdapterLocation;
use crate::config::model::{Configuration, Port};
use crate::config::usb::UsbPlace;
use crate::show::adapter::AdapterRow;
use crate::show::buffers::TransferRow;
use crate::shutdown::shutdown_flag;
use anyhow::{Context as _, Result, bail};
use polder_buffers::Region;
use polder_datapath::counters::QueueCounters;
use polder_datapath::wire::MacAddress;
use polder_devices::Receiving;
use polder_devices::cdc::{self, PortStatus, Subclass, network_function};
use polder_devices::lan78xx::Options;
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::usb::usbfs::{self, Access, UsbError};
use polder_devices::usb::usbip::{self, ClientError, Listed};
use polder_devices::usb::{Identified, Transport, identify};
use rustix::io::Errno;
use std::sync::Arc;

/// A USB device by its place.
pub(super) struct UsbDevice<'a>(pub(super) &'a UsbPlace);

impl Driver for UsbDevice<'_> {
    fn open(&self, port: &Port, configuration: &Configuration, _: &Region) -> Result<OpenPort> {
        open(self.0, port, receiving(configuration))
    }

    /// Opening a remote or unresponsive device takes seconds.
    fn slow_opening(&self, port: &Port, configuration: &Configuration) -> Option<SlowOpening> {
        let (place, port, receiving) = (self.0.clone(), port.clone(), receiving(configuration));
        Some(Box::new(move || open(&place, &port, receiving)))
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        let found = inspect(self.0).into_iter();
        found.map(|(severity, topic, text)| Finding::new(severity, topic, text)).collect()
    }

    fn describe(&self) -> String {
        "a USB device".to_owned()
    }
}

fn open(place: &UsbPlace, port: &Port, receiving: Receiving) -> Result<OpenPort> {
    let mut transport = reach(&location(place)?)?;
    let identified = identify(&mut *transport, &shutdown_flag()).with_context(|| transport.place())?;
    let name = place.to_string();
    if Chip::of(identified.vendor, identified.product).is_some() {
        let usual = Options::default();
        let (mtu, mac) = (port.mtu.unwrap_or(usual.mtu), port.mac.map(|mac| mac.0));
        return lan78xx::open_over(transport, name, Options { mtu, mac, ..usual }, port, receiving);
    }
    open_function(transport, &identified, name, port, receiving)
}

/// Location of a local device; one given by vendor and product id is looked up.
fn location(place: &UsbPlace) -> Result<AdapterLocation> {
    match place {
        UsbPlace::At(location) => Ok(location.clone()),
        &UsbPlace::Identity(vendor, product) => {
            let devices = usbfs::devices()?;
            let found =
                devices.into_iter().find(|device| (device.vendor, device.product) == (vendor, product));
            let found = found.ok_or_else(|| UsbError::Missing(place.to_string()))?;
            Ok(AdapterLocation::Usb(found.place))
        }
    }
}

fn open_function(
    transport: Box<dyn Transport>,
    identified: &Identified,
    place: String,
    port: &Port,
    receiving: Receiving,
) -> Result<OpenPort> {
    let speed = transport.speed();
    let identity = (identified.vendor, identified.product);
    let functions = identified.configurations.iter().map(|one| network_function(one));
    let functions = functions.collect::<Result<Vec<_>, _>>().with_context(|| transport.place())?;
    let Some(function) = functions.into_iter().flatten().min_by_key(|function| function.subclass) else {
        let (vendor, product) = identity;
        bail!(
            "the USB device {} ({vendor:04x}:{product:04x}) has no network function that Polder drives: {DRIVEN}",
            transport.place()
        );
    };
    if function.subclass == Subclass::Mbim {
        return modem::open(transport, function, identity, (place, port, receiving));
    }
    if port.modem.is_some() {
        bail!(
            "the USB device {} is not a modem but {}; remove `modem` of the port",
            transport.place(),
            function.subclass.name()
        );
    }
    let subclass = function.subclass;
    let opened = cdc::open(transport, function, identity, &options(port, receiving))?;
    let mode = format!("{}, {}", subclass.name(), bus(speed));
    let facts = PortProperties {
        takes: TAKES,
        ..PortProperties::new(place, MacAddress(opened.mac), opened.mtu.into(), mode)
    };
    let sent = Arc::clone(opened.queue.tx.counters());
    let handle = Open { status: opened.status, sent };
    Ok(OpenPort::held(port.id, facts, vec![opened.queue], handle))
}

/// Kinds of device with a driver.
const DRIVEN: &str = "MBIM, CDC-NCM, CDC-ECM, LAN7800, LAN7801 and LAN7850";

/// An open USB function.
struct Open {
    status: Arc<PortStatus>,
    sent: Arc<QueueCounters>,
}

impl Handle for Open {
    fn refresh(&self, _: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        Ok(Some(Link::new(true, self.carries())))
    }

    fn carries(&self) -> bool {
        self.status.connection().link.up
    }

    fn why_closed(&self) -> &'static str {
        "the device was unplugged, or the connection to it was lost"
    }

    fn adapter_row(&self) -> Option<AdapterRow> {
        Some(row(&self.status, &self.sent))
    }

    fn transfers(&self, port: &str) -> Vec<TransferRow> {
        transfers(&self.status, port)
    }
}

fn row(status: &PortStatus, sent: &QueueCounters) -> AdapterRow {
    let function = status.facts().function;
    let counters = &status.function.blocks;
    let blocks = function.and_then(|function| function.ntb).map(|ntb| blocks(&ntb, counters, sent));
    let chip = function.map(|function| numbers(function.identity));
    let class = function.map(|function| function.subclass.name().to_owned());
    AdapterRow { chip, class, blocks, ..common_row(status) }
}

/// Name of the driver for a device with these ids and interface classes.
fn driver_of(vendor: u16, product: u16, interfaces: &[[u8; 3]]) -> Option<&'static str> {
    let chip = Chip::of(vendor, product).map(Chip::name);
    let classes = interfaces.iter().copied().filter_map(Subclass::of);
    chip.or_else(|| classes.min().map(Subclass::name))
}

/// Findings about the connection to a device, which is not opened.
fn inspect(place: &UsbPlace) -> Vec<DeviceFinding> {
    match place {
        UsbPlace::At(AdapterLocation::Usb(_)) | UsbPlace::Identity(..) => {
            inspect_local(place, usbfs::devices())
        }
        UsbPlace::At(
            location @ (AdapterLocation::Tcp { busid, .. } | AdapterLocation::Unix { busid, .. }),
        ) => {
            let server = lan78xx::server(location);
            server.map(|server| inspect_remote(busid, usbip::list(&server, PATIENCE))).unwrap_or_default()
        }
    }
}

fn inspect_local(place: &UsbPlace, devices: Result<Vec<usbfs::Device>, UsbError>) -> Vec<DeviceFinding> {
    let devices = match devices {
        Ok(devices) => devices,
        Err(error) => return vec![(Severity::Problem, "USB", error.to_string())],
    };
    let is_wanted = |device: &&usbfs::Device| match place {
        UsbPlace::Identity(vendor, product) => (device.vendor, device.product) == (*vendor, *product),
        UsbPlace::At(_) => device.place == place.to_string(),
    };
    let Some(found) = devices.iter().find(is_wanted) else {
        let text = format!("no USB device is {place}; {}; the port waits for it", plugged_in(&devices));
        return vec![(Severity::Warning, "device", text)];
    };
    let name = describe(found);
    let Some(driver) = driver_of(found.vendor, found.product, &found.interfaces) else {
        let text =
            format!("{name} has no network function that Polder drives: {DRIVEN}; {}", plugged_in(&devices));
        return vec![(Severity::Problem, "device", text)];
    };
    let mut findings = vec![(Severity::Fine, "device", format!("{name}: {driver}"))];
    findings.extend(slow(found.speed));
    findings.extend(no_access(found));
    findings.extend(found.driver.as_deref().map(|driver| held(&found.place, driver)));
    findings
}

fn no_access(found: &usbfs::Device) -> Option<DeviceFinding> {
    let text = match found.access {
        Access::Granted => return None,
        Access::Denied => UsbError::Permission(found.place.clone()).to_string(),
        Access::Missing => {
            "the device's file in /dev/bus/usb is missing; pass this file into the container, as with `--device`".to_owned()
        }
    };
    Some((Severity::Problem, "rights", text))
}

fn describe(device: &usbfs::Device) -> String {
    let usbfs::Device { place, vendor, product, .. } = device;
    format!("{vendor:04x}:{product:04x} at USB port {place}")
}

/// Plugged-in network devices, each with Polder's driver for it and the kernel driver that holds it, as text.
fn plugged_in(devices: &[usbfs::Device]) -> String {
    let network = devices.iter().filter_map(|device| {
        let driver = driver_of(device.vendor, device.product, &device.interfaces)?;
        let holder = device.driver.as_deref().map(|name| format!(", held by {name}")).unwrap_or_default();
        Some(format!("{} ({driver}{holder})", describe(device)))
    });
    let network = network.collect::<Vec<_>>();
    match network.as_slice() {
        [] => "this process can see no USB network device".to_owned(),
        network => format!("plugged in: {}", network.join(", ")),
    }
}

fn inspect_remote(busid: &str, listed: Result<Vec<Listed>, ClientError>) -> Vec<DeviceFinding> {
    let listed = match listed {
        Ok(listed) => listed,
        Err(error @ ClientError::Reach(..)) => return vec![awaited(&error)],
        Err(error) => return vec![(Severity::Problem, "USB/IP", error.to_string())],
    };
    let names = listed.iter().map(|device| {
        let driver = driver_of(device.vendor, device.product, &device.interfaces).unwrap_or("no driver");
        format!("{} ({:04x}:{:04x}, {driver})", device.busid, device.vendor, device.product)
    });
    let names = names.collect::<Vec<_>>().join(", ");
    let Some(found) = listed.iter().find(|device| device.busid == busid) else {
        let all = if names.is_empty() { "none".to_owned() } else { names };
        let text = format!(
            "the server has no device {busid}, or another client uses it; the server's devices: {all}; the \
             port waits for it"
        );
        return vec![(Severity::Warning, "USB/IP", text)];
    };
    let (vendor, product) = (found.vendor, found.product);
    if found.interfaces.is_empty() && Chip::of(vendor, product).is_none() {
        // A device bound to Linux's usbip-host is not configured, and lists no interfaces.
        let text = format!(
            "{vendor:04x}:{product:04x} {busid}: the driver is chosen when the device is \
                            attached"
        );
        return vec![(Severity::Fine, "device", text)];
    }
    let Some(driver) = driver_of(vendor, product, &found.interfaces) else {
        let text = format!(
            "{busid} is {vendor:04x}:{product:04x}, which has no network function that Polder drives: {DRIVEN}"
        );
        return vec![(Severity::Problem, "USB/IP", text)];
    };
    let first = (Severity::Fine, "device", format!("{vendor:04x}:{product:04x} {busid}: {driver}"));
    std::iter::once(first).chain(slow(found.speed)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::usb::Speed;

    fn gadget() -> usbfs::Device {
        usbfs::Device {
            place: "1-1".to_owned(),
            vendor: 0x0525,
            product: 0xa4a1,
            interfaces: vec![[2, 13, 0], [10, 0, 1]],
            speed: Some(Speed::Super),
            driver: Some("cdc_ncm".to_owned()),
            access: Access::Granted,
        }
    }

    fn at(port: &str) -> UsbPlace {
        UsbPlace::At(AdapterLocation::Usb(port.to_owned()))
    }

    #[test]
    fn the_driver_follows_from_the_descriptors() {
        for (identity, interfaces, driver) in [
            ((0x0525, 0xa4a1), &[[2, 13, 0], [10, 0, 1]][..], Some("CDC-NCM")),
            ((0x0525, 0xa4a2), &[[2, 6, 0], [10, 0, 0]], Some("CDC-ECM")),
            ((0x0525, 0xa4a3), &[[2, 6, 0], [10, 0, 0], [2, 13, 0], [10, 0, 1]], Some("CDC-NCM")),
            ((0x1199, 0x9091), &[[2, 14, 0], [10, 0, 2]], Some("MBIM")),
            ((0x0424, 0x7800), &[[255, 0, 255]], Some("LAN7800")),
            ((0x046d, 0xc077), &[[3, 1, 2]], None),
        ] {
            assert_eq!(driver_of(identity.0, identity.1, interfaces), driver);
        }
    }

    #[test]
    fn what_is_plugged_in_is_listed_with_driver_and_holder() {
        let findings = inspect_local(&at("1-7"), Ok(vec![gadget()]));
        let [(severity, _, text)] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(*severity, Severity::Warning);
        for word in ["1-7", "0525:a4a1 at USB port 1-1", "CDC-NCM", "held by cdc_ncm", "waits for it"] {
            assert!(text.contains(word), "{text} lacks {word}");
        }
        let findings = inspect_local(&UsbPlace::Identity(0x0525, 0xa4a1), Ok(vec![gadget()]));
        assert!(findings[0].2.contains("CDC-NCM"), "{findings:?}");
        assert!(findings[1].2.contains("drivers/cdc_ncm/unbind"), "{findings:?}");
        let mouse = usbfs::Device { interfaces: vec![[3, 1, 2]], ..gadget() };
        let findings = inspect_local(&at("1-1"), Ok(vec![mouse]));
        assert_eq!(findings[0].0, Severity::Problem, "{findings:?}");
    }
}
