//! A PCI device in sysfs: its driver, its IOMMU group, and the group's other devices.

use super::error::{BUS, DIRECTORY, DRIVER, VfioError, open_file};
use crate::pci::Address;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Class of bus bridges, in the upper two bytes.
const BRIDGES: u32 = 0x0604;
/// Name of groups without an IOMMU.
const WITHOUT_IOMMU: &str = "vfio-noiommu";

/// A device as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Its address.
    pub address: Address,
    /// Vendor ID and device ID.
    pub id: (u16, u16),
    /// Its driver.
    pub driver: Option<String>,
    /// Number of its IOMMU group, and the group's other devices.
    group: Option<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    number: u32,
    without_iommu: bool,
    others: Vec<Member>,
}

/// Another device of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its address.
    pub address: Address,
    /// Its driver.
    pub driver: Option<String>,
    /// True for a bus bridge, which VFIO ignores.
    pub is_bridge: bool,
}

impl Member {
    /// True if the group is usable despite this device.
    fn is_harmless(&self) -> bool {
        self.is_bridge || self.driver.as_deref().is_none_or(|driver| driver.starts_with("vfio"))
    }
}

impl Slot {
    /// Returns the device at an address.
    ///
    /// # Errors
    /// [`VfioError::Missing`].
    pub fn find(address: Address) -> Result<Self, VfioError> {
        Self::find_in(Path::new(BUS), address)
    }

    fn find_in(bus: &Path, address: Address) -> Result<Self, VfioError> {
        let path = device(bus, address);
        let number = |name: &str| {
            let number = number(&path.join(name)).and_then(|number| u16::try_from(number).ok());
            number.ok_or(VfioError::Missing(address))
        };
        let id = (number("vendor")?, number("device")?);
        let group = std::fs::read_link(path.join("iommu_group")).ok();
        let group = group.and_then(|group| group.file_name()?.to_str()?.parse().ok());
        let group = group.map(|number| Group {
            number,
            without_iommu: text(&path.join("iommu_group/name")).as_deref() == Some(WITHOUT_IOMMU),
            others: members(bus, &path, address),
        });
        Ok(Self { address, id, driver: driver(&path), group })
    }

    /// Returns the number of its IOMMU group.
    pub fn group(&self) -> Option<u32> {
        self.group.as_ref().map(|group| group.number)
    }

    /// Returns the other devices of its IOMMU group.
    pub fn members(&self) -> &[Member] {
        self.group.as_ref().map_or(&[], |group| &group.others)
    }

    /// Returns the first reason why a process cannot open the device, as far as sysfs shows.
    pub fn obstacle(&self) -> Option<VfioError> {
        let address = self.address;
        let Some(group) = &self.group else { return Some(VfioError::NoIommu(address)) };
        if group.without_iommu {
            return Some(VfioError::WithoutIommu(address));
        }
        if self.driver.as_deref() != Some(DRIVER) {
            return Some(VfioError::Bound { address, driver: self.driver.clone() });
        }
        let others = self.others();
        (!others.is_empty()).then_some(VfioError::Shared { address, group: group.number, others })
    }

    /// Returns the group's devices that prevent its use, with their drivers.
    pub(super) fn others(&self) -> Vec<String> {
        let others = self.members().iter().filter(|member| !member.is_harmless());
        let name = |member: &Member| {
            format!("{} ({})", member.address, member.driver.as_deref().unwrap_or("no driver"))
        };
        others.map(name).collect()
    }
}

/// Opens the file of a device's group.
pub(super) fn open_group(address: Address, group: u32) -> Result<OwnedFd, VfioError> {
    let path = Path::new(DIRECTORY).join(group.to_string());
    open_file(&path, &|| VfioError::InUse { address, group })
}

/// Result of releasing a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// A driver of the kernel has the device.
    To(String),
    /// No driver of the kernel takes the device: its module may be missing.
    ToNobody,
    /// The device was not bound to VFIO; its driver.
    NotBound(Option<String>),
}

/// Returns a device to the kernel's own driver.
///
/// # Errors
/// [`VfioError`], whose text names the remedy.
pub fn release(address: Address) -> Result<Released, VfioError> {
    let bus = Path::new(BUS);
    let slot = Slot::find(address)?;
    if slot.driver.as_deref() != Some(DRIVER) {
        return Ok(Released::NotBound(slot.driver));
    }
    // Unbinding blocks while the device is open; the group's file shows if it is.
    if let Some(group) = slot.group.as_ref().filter(|group| !group.without_iommu) {
        drop(open_group(address, group.number)?);
    }
    let name = address.to_string();
    write(&device(bus, address).join("driver_override"), "\n")?;
    write(&bus.join("drivers").join(DRIVER).join("unbind"), &name)?;
    write(&bus.join("drivers_probe"), &name)?;
    let driver = Slot::find(address)?.driver;
    Ok(driver.map_or(Released::ToNobody, Released::To))
}

fn write(path: &Path, text: &str) -> Result<(), VfioError> {
    std::fs::write(path, text).map_err(|error| {
        if error.kind() == std::io::ErrorKind::PermissionDenied {
            return VfioError::Permission(path.to_owned());
        }
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        VfioError::Request { what: "release the device", errno }
    })
}

fn device(bus: &Path, address: Address) -> PathBuf {
    bus.join("devices").join(address.to_string())
}

fn driver(device: &Path) -> Option<String> {
    let link = std::fs::read_link(device.join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

fn members(bus: &Path, path: &Path, own: Address) -> Vec<Member> {
    let entries = std::fs::read_dir(path.join("iommu_group/devices")).into_iter().flatten().flatten();
    let addresses = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<Address>().ok());
    let mut members: Vec<_> = addresses
        .filter(|&address| address != own)
        .map(|address| {
            let path = device(bus, address);
            let class = number(&path.join("class")).unwrap_or(0);
            Member { address, driver: driver(&path), is_bridge: class >> 8 == BRIDGES }
        })
        .collect();
    members.sort_unstable_by_key(|member| member.address);
    members
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &Path) -> Option<u32> {
    u32::from_str_radix(text(path)?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A directory as sysfs has it, removed at the end.
    struct Bus(PathBuf);

    impl Bus {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("polder-pci-{test}-{}", std::process::id()));
            std::fs::create_dir_all(path.join("devices")).expect("a directory");
            Self(path)
        }

        /// A device with its driver, in a group.
        fn add(&self, address: &str, class: &str, driver: Option<&str>, group: Option<&str>) {
            let path = self.0.join("devices").join(address);
            std::fs::create_dir_all(&path).expect("a directory");
            for (name, value) in [("vendor", "0x8086"), ("device", "0x100e"), ("class", class)] {
                std::fs::write(path.join(name), format!("{value}\n")).expect("a file");
            }
            if let Some(driver) = driver {
                symlink(self.0.join("drivers").join(driver), path.join("driver")).expect("a link");
            }
            let Some(group) = group else { return };
            let group = self.0.join("groups").join(group);
            std::fs::create_dir_all(group.join("devices").join(address)).expect("a directory");
            symlink(&group, path.join("iommu_group")).expect("a link");
        }

        fn slot(&self, address: &str) -> Result<Slot, VfioError> {
            Slot::find_in(&self.0, address.parse().expect("an address"))
        }

        fn obstacle(&self) -> String {
            let slot = self.slot(WAN).expect("a device");
            slot.obstacle().map(|obstacle| obstacle.to_string()).unwrap_or_default()
        }
    }

    impl Drop for Bus {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    const WAN: &str = "0000:00:03.0";
    const NETWORK: &str = "0x020000";
    const BRIDGE: &str = "0x060400";

    #[test]
    fn a_device_of_its_own_group_can_be_had() {
        let bus = Bus::new("free");
        bus.add(WAN, NETWORK, Some("vfio-pci"), Some("7"));
        bus.add("0000:00:02.0", BRIDGE, Some("pcieport"), Some("7"));
        bus.add("0000:00:04.0", NETWORK, None, Some("7"));
        let slot = bus.slot(WAN).expect("a device");
        assert_eq!((slot.id, slot.group(), slot.obstacle()), ((0x8086, 0x100e), Some(7), None));
        assert_eq!(slot.members().len(), 2);
    }

    #[test]
    fn obstacles_name_their_remedies() {
        let bus = Bus::new("bound");
        bus.add(WAN, NETWORK, Some("e1000"), Some("3"));
        let text = bus.obstacle();
        for word in ["driver e1000", "driverctl set-override 0000:00:03.0 vfio-pci", "driver_override"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(matches!(bus.slot("0000:09:00.0"), Err(VfioError::Missing(_))));
    }

    #[test]
    fn devices_of_others_in_the_group_are_named() {
        let bus = Bus::new("shared");
        bus.add(WAN, NETWORK, Some("vfio-pci"), Some("3"));
        bus.add("0000:00:03.1", NETWORK, Some("igb"), Some("3"));
        let text = bus.obstacle();
        assert!(text.contains("group 3") && text.contains("0000:00:03.1 (igb)"), "{text}");
    }

    #[test]
    fn without_an_iommu_there_is_no_way() {
        let bus = Bus::new("none");
        bus.add(WAN, NETWORK, Some("vfio-pci"), None);
        assert!(bus.obstacle().contains("intel_iommu=on"));
        let bus = Bus::new("unsafe");
        bus.add(WAN, NETWORK, Some("vfio-pci"), Some("0"));
        std::fs::write(bus.0.join("groups/0/name"), "vfio-noiommu\n").expect("a file");
        assert!(bus.obstacle().contains("no-IOMMU mode"));
    }
}
