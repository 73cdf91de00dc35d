//! USB devices of this machine.

use super::transport::Speed;
use nusb::{DeviceInfo, MaybeFuture};

/// Reason why a device of this machine could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum UsbError {
    /// There is no device of that name.
    #[error("there is no USB device {0}; `lsusb` and `ls /sys/bus/usb/devices` list all devices")]
    Missing(String),
    /// Devices cannot be listed.
    #[error("cannot list USB devices: {0}; mount /sys (in a container, too)")]
    List(nusb::Error),
    /// The process may not open the device.
    #[error(
        "no permission to open the USB device {0}: run as root, or install packaging/70-polder-usb.rules \
         and join the group `polder`"
    )]
    Permission(String),
    /// Another driver or program has the device.
    #[error(
        "the USB device {place} is in use{holder}: stop that program, or `echo {interface} > \
         /sys/bus/usb/drivers/{driver}/unbind`"
    )]
    Busy {
        /// Bus and address of the device.
        place: String,
        /// Driver or program that has it, if known.
        holder: String,
        /// Its kernel driver, or a placeholder.
        driver: String,
        /// Its interface, in the kernel's notation.
        interface: String,
    },
    /// The bus is too slow.
    #[error("the USB device {0} is on a USB 1 bus; plug the device into a USB 2 or 3 port")]
    Slow(String),
    /// Another step failed.
    #[error("cannot {step} of the USB device {place}: {error}")]
    Step {
        /// The operation that failed.
        step: &'static str,
        /// Bus and address of the device.
        place: String,
        /// Error of the system.
        error: nusb::Error,
    },
    /// The system provides no event descriptor.
    #[error("cannot create an event descriptor for USB devices: {0}; raise the limit of open files")]
    Event(rustix::io::Errno),
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The port that it is plugged into (`1-1.4`).
    pub place: String,
    /// Vendor ID.
    pub vendor: u16,
    /// Product ID.
    pub product: u16,
    /// Class, subclass and protocol of the interfaces of its active configuration.
    pub interfaces: Vec<[u8; 3]>,
    /// Speed of the bus; `None` if it is too slow.
    pub speed: Option<Speed>,
    /// The kernel's driver of one of its interfaces.
    pub driver: Option<String>,
    /// Access of this process to the device.
    pub access: Access,
}

/// Access of a process to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The process may open the device.
    Granted,
    /// The process may not open the device.
    Denied,
    /// The device file is missing.
    Missing,
}

/// Returns the devices of this machine.
///
/// # Errors
/// If devices cannot be listed.
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

/// Checks access without opening the device.
fn access(info: &DeviceInfo) -> Access {
    let file = format!("/dev/bus/usb/{:03}/{:03}", info.busnum(), info.device_address());
    let asked = rustix::fs::access(file, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK);
    match asked {
        Ok(()) => Access::Granted,
        Err(rustix::io::Errno::NOENT) => Access::Missing,
        Err(_) => Access::Denied,
    }
}

/// Returns the port's name in the kernel and in USB/IP.
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
