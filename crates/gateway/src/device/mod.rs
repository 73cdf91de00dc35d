//! Devices of ports: one module for each kind, with everything that the running gateway knows of it.
//!
//! Trait `Driver` is a device before it is open, trait [`Handle`] an open device. Methods that only some
//! kinds support have defaults. Properties that the configuration needs are in
//! [`Capabilities`](crate::config::device::Capabilities).

mod contract;
mod function;
mod interface;
mod lan78xx;
mod lock;
mod modem;
mod network;
mod pci;
mod punt;
mod skb;
mod tap;
mod tun;
mod usb;

pub use contract::{
    AwaitedLink, Finding, GONE, Handle, Link, OpenPort, Parts, PartsKind, PointToPoint, PortProperties,
    Severity, SlowOpening, TunnelLink, forward_groups, frames,
};
pub(crate) use interface::{Way, is_left, release, way};
pub use lock::{DIRECTORY as LOCKS, InterfaceLock, lock_all, set_file as set_lock_file};
pub use skb::Spares;
pub use tap::identify_machine;

use crate::config::model::{Configuration, Device, Port};
use anyhow::{Context as _, Result, anyhow};
use contract::Driver;
use polder_buffers::Region;

fn driver<'d>(device: &'d Device, spares: Option<&'d Spares>) -> Box<dyn Driver + 'd> {
    match device {
        Device::Interface(name) => Box::new(interface::Interface { name, spares }),
        Device::Tap(name) => Box::new(tap::Tap(name)),
        Device::Lan78xx(adapter) => Box::new(lan78xx::UsbAdapter(adapter)),
        Device::Usb(place) => Box::new(usb::UsbDevice(place)),
        Device::Pci(address) => Box::new(pci::PciDevice(*address)),
        Device::Tun(name) => Box::new(tun::Tun(name)),
        Device::Kernel => Box::new(punt::PuntPath),
    }
}

/// Opens the device of `port`, with a TAP of `spares` if one fits.
///
/// # Errors
/// When the device cannot be opened; the message has a remedy.
pub fn open(
    port: &Port,
    configuration: &Configuration,
    region: &Region,
    spares: &Spares,
) -> Result<OpenPort> {
    let driver = driver(&port.device, Some(spares));
    let opened = lock(port, configuration)
        .and_then(|lock| Ok(OpenPort { lock, ..driver.open(port, configuration, region)? }));
    opened.with_context(|| format!("cannot open port {}", port.name))
}

/// Locks the interface of `port`, if its device is one.
///
/// # Errors
/// When another gateway holds the lock.
pub fn lock(port: &Port, configuration: &Configuration) -> Result<Option<InterfaceLock>> {
    let locked = port.device.interface().map(|name| InterfaceLock::take(name, configuration));
    Ok(locked.transpose()?.flatten())
}

/// Adopts the device of `port` from another process, which holds its lock until it ends.
///
/// # Errors
/// When the descriptors do not fit, or the kernel refuses; the other process can continue.
pub fn adopt(
    port: &Port,
    configuration: &Configuration,
    region: &Region,
    (parts, spares): (Parts, &Spares),
) -> Result<OpenPort> {
    let Parts { kind, descriptors } = parts;
    let place = (port, configuration);
    let adopted = match (kind, &port.device) {
        (PartsKind::Skb { has_flows, .. }, Device::Interface(name)) => {
            let parts = polder_devices::skb::Parts::new(has_flows, descriptors)?;
            interface::Interface { name, spares: Some(spares) }.adopt(place, region, parts)
        }
        (PartsKind::Tap, Device::Tap(name)) => tap::Tap(name).adopt(place, region, descriptors),
        (PartsKind::Tun, Device::Tun(name)) => tun::Tun(name).adopt(place, region, descriptors),
        (PartsKind::Skb { .. } | PartsKind::Tap | PartsKind::Tun, _) => {
            Err(anyhow!("the previous program passed descriptors of another kind of device"))
        }
    };
    adopted.with_context(|| format!("cannot take over port {} from the previous program", port.name))
}

/// Reason why a device cannot be passed to a successor process.
pub fn why_not_passed(device: &Device) -> &'static str {
    match device {
        Device::Interface(_) => {
            "it is not open, or uses clsact or AF_XDP, which cannot be passed to another process"
        }
        Device::Tap(_) | Device::Tun(_) => "it is not open",
        Device::Kernel => "its eBPF program belongs to the ports of one process",
        Device::Pci(_) => "the adapter writes to this process's memory",
        Device::Lan78xx(_) | Device::Usb(_) => "USB transfers belong to one process",
    }
}

/// Function that opens the device of `port` on another thread; `None` if opening is fast.
pub fn slow_opening(port: &Port, configuration: &Configuration) -> Option<SlowOpening> {
    driver(&port.device, None).slow_opening(port, configuration)
}

/// Findings about the host and the device of `port`, without opening it.
pub fn inspect(port: &Port, configuration: &Configuration) -> Vec<Finding> {
    let taken = port.device.interface().and_then(|name| lock::other_gateway(name, configuration));
    let taken = taken.map(|text| Finding::new(Severity::Problem, "interface", text));
    driver(&port.device, None).inspect(port, configuration).into_iter().chain(taken).collect()
}

/// Description of a device, as text.
pub fn describe(device: &Device) -> String {
    driver(device, None).describe()
}

/// Message about a missing device that may appear later, if that is why opening failed.
pub fn missing(error: &anyhow::Error) -> Option<String> {
    [interface::missing, lan78xx::missing, pci::missing].into_iter().find_map(|missing| missing(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_devices::af_xdp::OpenError;
    use polder_devices::usb::usbfs::UsbError;

    #[test]
    fn only_what_may_come_is_missing() {
        let error = anyhow::Error::from(OpenError::NoInterface("pd-none".to_owned())).context("port lan");
        assert!(missing(&error).expect("it may come").contains("no interface pd-none"));
        let usb = anyhow::Error::from(UsbError::Missing("1-7".to_owned()));
        assert!(missing(&usb).expect("it may come").contains("1-7"));
        assert_eq!(missing(&OpenError::InUse("eth0".to_owned()).into()), None);
        assert_eq!(missing(&UsbError::Permission("1-7".to_owned()).into()), None);
    }
}
