//! Reasons why a device cannot be opened, and VFIO's files.

use crate::pci::Address;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The driver that gives devices to processes.
pub(super) const DRIVER: &str = "vfio-pci";

/// Directory of the PCI buses.
pub(super) const BUS: &str = "/sys/bus/pci";
/// Directory of VFIO's files.
pub const DIRECTORY: &str = "/dev/vfio";

/// Reason why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VfioError {
    /// There is no device at the address.
    #[error("there is no PCI device {0}; `lspci -D` lists all devices")]
    Missing(Address),
    /// Another driver has the device, or none.
    #[error(
        "{address} is bound to {}, but has to be bound to vfio-pci: {}",
        driver.as_ref().map_or("no driver".to_owned(), |driver| format!("the driver {driver}")),
        commands(*address)
    )]
    Bound {
        /// The device.
        address: Address,
        /// Its driver.
        driver: Option<String>,
    },
    /// The device has no IOMMU group, so no IOMMU limits its memory access.
    #[error(
        "{0} has no IOMMU group, so no IOMMU restricts its memory access: switch the IOMMU (VT-d, AMD-Vi, \
         SMMU) on in the firmware, and on the kernel's command line, with Intel's `intel_iommu=on`"
    )]
    NoIommu(Address),
    /// The device is in VFIO's no-IOMMU mode.
    #[error(
        "{0} is bound in VFIO's no-IOMMU mode, in which it could write to all memory of the host; Polder \
         refuses that: switch the IOMMU on in the firmware and on the kernel's command line"
    )]
    WithoutIommu(Address),
    /// The kernel's drivers have other devices of the IOMMU group.
    #[error(
        "IOMMU group {group} of {address} contains devices that are bound to kernel drivers: {}; bind these \
         to vfio-pci, too, or put the card into another slot",
        others.join(", ")
    )]
    Shared {
        /// The device.
        address: Address,
        /// Number of the group.
        group: u32,
        /// The other devices, with their drivers.
        others: Vec<String>,
    },
    /// Another program has the group open.
    #[error(
        "IOMMU group {group} of {address} is in use by another program, or another port: `fuser -v {DIRECTORY}/{group}` \
         names it; stop it"
    )]
    InUse {
        /// The device.
        address: Address,
        /// Number of the group.
        group: u32,
    },
    /// A file may not be opened.
    #[error("no permission to open {}: run as root, or give the file to the user (udev rule)", .0.display())]
    Permission(PathBuf),
    /// A file of VFIO is missing.
    #[error("{} is missing: run `modprobe vfio-pci`; into a container, pass this file by `--device`", .0.display())]
    NoVfio(PathBuf),
    /// The kernel's VFIO is of another version.
    #[error("the kernel's VFIO has no type 1 IOMMU, version 2; run `modprobe vfio_iommu_type1`")]
    OldVfio,
    /// The IOMMU does not remap interrupts, so they could be forged.
    #[error(
        "the IOMMU does not remap interrupts, so the kernel refuses VFIO, because the device could forge \
         interrupts: switch interrupt remapping on in the firmware (x2APIC), and remove `intremap=off` from \
         the kernel's command line"
    )]
    Remapping,
    /// VFIO shows no registers or no interrupt of the device.
    #[error("VFIO reports no {what} of {address}; see `lspci -vs {address}`")]
    Lacks {
        /// The device.
        address: Address,
        /// Missing part.
        what: &'static str,
    },
    /// A request failed.
    #[error("VFIO cannot {what}: {errno}; see the kernel's log (`dmesg`)")]
    Request {
        /// Request, in words that follow "cannot".
        what: &'static str,
        /// Error of the system.
        errno: Errno,
    },
}

pub(super) fn open_file(path: &Path, busy: &dyn Fn() -> VfioError) -> Result<OwnedFd, VfioError> {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => VfioError::NoVfio(path.to_owned()),
        Errno::ACCESS | Errno::PERM => VfioError::Permission(path.to_owned()),
        Errno::BUSY => busy(),
        errno => VfioError::Request { what: "open a file", errno },
    })
}

/// Returns the commands that bind a device to vfio-pci.
fn commands(address: Address) -> String {
    format!(
        "`modprobe vfio-pci && driverctl set-override {address} {DRIVER}`, or without driverctl, until the \
         next boot: `modprobe vfio-pci; cd {BUS}/devices/{address}; echo {DRIVER} > driver_override; echo \
         {address} > driver/unbind; echo {address} > {BUS}/drivers_probe`; its interface disappears"
    )
}
