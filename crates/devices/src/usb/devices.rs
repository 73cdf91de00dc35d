//! USB devices of this machine.

use super::transport::Speed;
use nusb::{DeviceInfo, MaybeFuture};

/// Reason why a device of this machine could not be had.
#[derive(Debug, thiserror::Error)]
pub enum UsbError {
    /// There is none of that name.
    #[error("there is no USB device {0}; `lsusb` and `ls /sys/bus/usb/devices` list those that there are")]
    Missing(String),
    /// Devices cannot be listed.
    #[error("cannot list USB devices: {0}; mount /sys, and in a container pass it in")]
    List(nusb::Error),
    /// No right to it.
    #[error(
        "no permission to open the USB device {0}: run as root, or install packaging/70-polder-usb.rules \
         and join the group `polder`"
    )]
    Permission(String),
    /// Another driver or program has the device.
    #[error(
        "the USB device {place} is in use{holder}: stop what uses it, or `echo {interface} > /sys/bus/usb/drivers/{driver}/unbind`"
    )]
    Busy {
        /// Bus and address of the device.
        place: String,
        /// Driver or program that has it, if known.
        holder: String,
        /// The kernel's driver that has it, or a word for one.
        driver: String,
        /// Its interface, as the kernel calls it.
        interface: String,
    },
    /// On a bus that is too slow.
    #[error("the USB device {0} is on a USB 1 bus; it needs USB 2 or 3")]
    Slow(String),
    /// Anything else.
    #[error("cannot {step} of the USB device {place}: {error}")]
    Step {
        /// The operation that failed.
        step: &'static str,
        /// Bus and address of the device.
        place: String,
        /// Error of the system.
        error: nusb::Error,
    },
    /// No event could be had.
    #[error("cannot make an event: {0}; raise the limit of open files")]
    Event(rustix::io::Errno),
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The port that it is plugged into (`1-1.4`).
    pub place: String,
    /// Its vendor.
    pub vendor: u16,
    /// Its product.
    pub product: u16,
    /// Class, subclass and protocol of the interfaces of its active configuration.
    pub interfaces: Vec<[u8; 3]>,
    /// The bus, if it is fast enough.
    pub speed: Option<Speed>,
    /// The kernel's driver that holds one of its interfaces.
    pub driver: Option<String>,
    /// Access of this process to it.
    pub access: Access,
}

/// Access of a process to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The process may open the device.
    Granted,
    /// The process may not open the device.
    Denied,
    /// There is no file to open.
    Missing,
}

/// The devices of this machine.
///
/// # Errors
/// When devices cannot be listed.
pub fn devices() -> Result<Vec<Device>, UsbError> {
    Ok(list()?.map(|info| describe(&info)).collect())
}

pub(super) fn list() -> Result<impl Iterator<Item = DeviceInfo>, UsbError> {
    nusb::list_devices().wait().map_err(UsbError::List)
}

pub(super) fn describe(info: &DeviceInfo) -> Device {
    let place = place(info);
    let driver = info.interfaces().find_map(|interface| {
        let name = format!("{place}:1.{}/driver", interface.interface_number());
        let driver = std::fs::read_link(info.sysfs_path().join(name)).ok()?;
        driver.file_name().map(|name| name.to_string_lossy().into_owned())
    });
    let class = |one: &nusb::InterfaceInfo| [one.class(), one.subclass(), one.protocol()];
    Device {
        place,
        vendor: info.vendor_id(),
        product: info.product_id(),
        interfaces: info.interfaces().map(class).collect(),
        speed: speed(info),
        driver,
        access: access(info),
    }
}

/// Asks, and opens nothing.
fn access(info: &DeviceInfo) -> Access {
    let file = format!("/dev/bus/usb/{:03}/{:03}", info.busnum(), info.device_address());
    let asked = rustix::fs::access(file, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK);
    match asked {
        Ok(()) => Access::Granted,
        Err(rustix::io::Errno::NOENT) => Access::Missing,
        Err(_) => Access::Denied,
    }
}

/// The name that the kernel and USB/IP give to the port.
pub(super) fn place(info: &DeviceInfo) -> String {
    info.sysfs_path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

pub(super) fn speed(info: &DeviceInfo) -> Option<Speed> {
    match info.speed() {
        Some(nusb::Speed::High) => Some(Speed::High),
        Some(nusb::Speed::Super | nusb::Speed::SuperPlus) => Some(Speed::Super),
        _ => None,
    }
}
