//! Drivers of a guest's PCI devices: the kernel's, and vfio-pci, by which a process has them.

use anyhow::ensure;
use polder_testbed::guest::Guest;
use polder_testbed::guest::agent::Request;

/// Address on the bus of the device with a link-layer address.
pub(super) fn slot(guest: &mut Guest, mac: [u8; 6]) -> anyhow::Result<String> {
    let name = guest.interface(mac)?;
    let link = guest.ask(&Request::Link(format!("/sys/class/net/{name}/device")))?;
    Ok(link.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Binds devices to vfio-pci, by the commands that `polder check` prints.
pub(super) fn take(guest: &mut Guest, slots: &[String]) -> anyhow::Result<()> {
    for module in ["vfio-pci", "vfio_iommu_type1"] {
        guest.ask(&Request::Load(module.to_owned()))?;
    }
    let mut write = |path: &str, text: &str| guest.ask(&Request::Write(path.to_owned(), text.to_owned()));
    for slot in slots {
        let device = format!("/sys/bus/pci/devices/{slot}");
        write(&format!("{device}/driver_override"), "vfio-pci")?;
        write(&format!("{device}/driver/unbind"), slot)?;
        write("/sys/bus/pci/drivers_probe", slot)?;
    }
    Ok(())
}

/// Returns devices to the kernel's driver, with `polder release`.
pub(super) fn give_back(guest: &mut Guest, polder: &str, slots: &[String]) -> anyhow::Result<()> {
    for slot in slots {
        let said = guest.run(&format!("{polder} release {slot}"))?;
        ensure!(said.contains("bound to driver e1000 again"), "`polder release` says: {said}");
    }
    Ok(())
}
