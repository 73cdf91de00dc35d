//! PCI devices: opening by VFIO, checks of the host, and rows.

use super::contract::{Driver, Finding, Handle, Link, OpenPort, PortProperties, Severity, receiving};
use crate::config::model::{Configuration, Port};
use crate::show::nic::NicRow;
use anyhow::{Result, ensure};
use polder_buffers::Region;
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::Queue;
use polder_devices::e1000::{self, CHIPS, E1000, End, MacSource, Options};
use polder_devices::pci::Address;
use polder_devices::pci::vfio::{self, Slot, VfioError};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::path::Path;

/// The PCI device at an address.
pub(super) struct PciDevice(pub(super) Address);

impl Driver for PciDevice {
    fn open(&self, port: &Port, configuration: &Configuration, region: &Region) -> Result<OpenPort> {
        let address = self.0;
        let slot = Slot::find(address)?;
        let chip = chip(slot.id);
        ensure!(chip.is_some(), "{}", unknown(&slot));
        let chip = chip.unwrap_or_default();
        let usual = Options::default();
        let options = Options {
            mtu: port.mtu.unwrap_or(usual.mtu),
            mac: port.mac.map(|mac| mac.0),
            receiving: receiving(configuration),
            ..usual
        };
        let opened = e1000::open(vfio::open(address)?, region, &options)?;
        let abilities = E1000::ABILITIES;
        let takes = Takes {
            partial_checksums: abilities.partial_checksums,
            segments: abilities.segments,
            // IPv6 segmentation is off: QEMU's devices write wrong lengths, and Linux's driver does not
            // offer it.
            only_ipv4_segments: true,
            ..Takes::default()
        };
        let (mac, mtu) = (MacAddress(opened.mac), opened.mtu.into());
        let facts = PortProperties {
            takes,
            ..PortProperties::new(address.to_string(), mac, mtu, format!("{chip}, VFIO"))
        };
        let handle = Open { address, chip, port: opened.port };
        Ok(OpenPort::held(port.id, facts, vec![Queue::boxed(opened.queue)], handle))
    }

    fn inspect(&self, _: &Port, configuration: &Configuration) -> Vec<Finding> {
        let bytes = u64::from(configuration.gateway.memory_mib) << 20;
        let rights = || rights(bytes);
        inspect(Slot::find(self.0), rights)
    }

    fn describe(&self) -> String {
        "a PCI device".to_owned()
    }
}

/// Message about a missing device that may appear later, if that is why opening failed.
pub(super) fn missing(error: &anyhow::Error) -> Option<String> {
    let error = error.downcast_ref::<VfioError>().filter(|error| matches!(error, VfioError::Missing(_)));
    error.map(ToString::to_string)
}

fn chip(id: (u16, u16)) -> Option<&'static str> {
    CHIPS.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

fn unknown(slot: &Slot) -> String {
    let known = CHIPS.iter().map(|((vendor, device), name)| format!("{name} ({vendor:04x}:{device:04x})"));
    let known = known.collect::<Vec<_>>().join(", ");
    let (address, (vendor, device)) = (slot.address, slot.id);
    format!("{address} is {vendor:04x}:{device:04x}, for which Polder has no driver; supported are {known}")
}

/// Findings about a device, which is not opened; `rights` returns the rights that this process lacks.
fn inspect(slot: Result<Slot, VfioError>, rights: impl FnOnce() -> Option<String>) -> Vec<Finding> {
    let slot = match slot {
        Ok(slot) => slot,
        Err(error @ VfioError::Missing(_)) => {
            let text = format!("{error}; the port waits for the device");
            return vec![Finding::new(Severity::Warning, "device", text)];
        }
        Err(error) => return vec![Finding::new(Severity::Problem, "device", error.to_string())],
    };
    let Some(chip) = chip(slot.id) else {
        return vec![Finding::new(Severity::Problem, "device", unknown(&slot))];
    };
    let driver = slot.driver.as_deref().map_or("no driver".to_owned(), |driver| format!("driver {driver}"));
    let text = format!("{chip} at {}, {driver}, {}", slot.address, group(&slot));
    let mut findings = vec![Finding::new(Severity::Fine, "device", text)];
    let problem = slot.obstacle().map(|obstacle| (topic(&obstacle), obstacle.to_string()));
    let problem = problem.or_else(|| missing_files(&slot)).or_else(|| rights().map(|text| ("memory", text)));
    findings.extend(problem.map(|(topic, text)| Finding::new(Severity::Problem, topic, text)));
    findings
}

/// The IOMMU group with its other members, as text.
fn group(slot: &Slot) -> String {
    let Some(group) = slot.group() else { return "no IOMMU group".to_owned() };
    let others = slot.members().iter().map(|member| {
        let driver = member.driver.as_deref().unwrap_or("no driver");
        let bridge = if member.is_bridge { "bridge " } else { "" };
        format!("{bridge}{} ({driver})", member.address)
    });
    let others = others.collect::<Vec<_>>();
    match others.as_slice() {
        [] => format!("alone in IOMMU group {group}"),
        others => format!("in IOMMU group {group} with {}", others.join(", ")),
    }
}

fn topic(obstacle: &VfioError) -> &'static str {
    match obstacle {
        VfioError::Bound { .. } => "driver",
        VfioError::NoIommu(_) | VfioError::WithoutIommu(_) | VfioError::Remapping => "IOMMU",
        VfioError::Shared { .. } | VfioError::InUse { .. } => "group",
        VfioError::Permission(_) => "rights",
        VfioError::Missing(_) | VfioError::Lacks { .. } => "device",
        VfioError::NoVfio(_) | VfioError::OldVfio | VfioError::Request { .. } => "VFIO",
    }
}

/// Finding about a VFIO file that is missing or not accessible.
fn missing_files(slot: &Slot) -> Option<(&'static str, String)> {
    let group = slot.group().map(|group| group.to_string())?;
    let paths = ["vfio", &group].map(|name| Path::new(vfio::DIRECTORY).join(name));
    let obstacle =
        paths.into_iter().find_map(|path| match access(&path, Access::READ_OK | Access::WRITE_OK) {
            Ok(()) => None,
            Err(Errno::NOENT) => Some(VfioError::NoVfio(path)),
            Err(_) => Some(VfioError::Permission(path)),
        })?;
    Some((topic(&obstacle), obstacle.to_string()))
}

/// Finding if this process may not lock `bytes` bytes of memory for a device.
fn rights(bytes: u64) -> Option<String> {
    let is_free = caps::has_cap(None, caps::CapSet::Effective, caps::Capability::CAP_IPC_LOCK);
    let limit = getrlimit(Resource::Memlock).current;
    let lacks = !is_free.unwrap_or(false) && limit.is_some_and(|limit| limit < bytes);
    let mib = |bytes: u64| bytes >> 20;
    lacks.then(|| {
        format!(
            "RLIMIT_MEMLOCK allows {} MiB of locked memory, but the packet memory for this device has {} \
             MiB: raise the limit (`ulimit -l`, in systemd `LimitMEMLOCK=`), or run with CAP_IPC_LOCK",
            mib(limit.unwrap_or(0)),
            mib(bytes)
        )
    })
}

/// Reason why a port has closed, as text.
fn why(end: Option<End>) -> &'static str {
    match end {
        None | Some(End::Gone) => {
            "the device does not answer: it was removed or lost its power; `lspci` shows whether it is \
             present"
        }
        Some(End::Lied) => {
            "the device reported an impossible packet length and was reset; if that happens again, replace \
             it"
        }
        Some(End::Refused) => {
            "a DMA transfer of the device was refused, and the device was reset: if the IOMMU refused it, \
             `dmesg` has the address (DMAR, AMD-Vi); if that happens again, use another slot or replace the \
             device"
        }
    }
}

/// An open device.
struct Open {
    address: Address,
    chip: &'static str,
    port: e1000::Port,
}

impl Handle for Open {
    fn refresh(&self, _: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        self.port.look_for_refusal();
        Ok(Some(Link::new(true, self.carries())))
    }

    fn carries(&self) -> bool {
        self.port.status.is_link_up()
    }

    fn why_closed(&self) -> &'static str {
        why(self.port.status.facts().end)
    }

    /// Requests the device's counters, which appear in the next row.
    fn nic_row(&self) -> Option<NicRow> {
        self.port.refresh();
        let status = &self.port.status;
        let facts = status.facts();
        let link = facts.link;
        let statistics = facts.statistics.counted();
        Some(NicRow {
            place: self.address.to_string(),
            chip: self.chip.to_owned(),
            mac_source: facts.found.map(|found| match found.mac_source {
                MacSource::Configuration => "configuration".to_owned(),
                MacSource::Eeprom => "eeprom".to_owned(),
            }),
            eeprom_is_good: facts.found.is_some_and(|found| found.eeprom_is_good),
            phy: facts.found.map(|found| format!("{:04x}:{:04x}", found.phy >> 16, found.phy & 0xffff)),
            link_up: link.up,
            link_mbit: link.up.then_some(link.speed),
            full_duplex: link.up.then_some(link.full_duplex),
            pause_transmit: link.pause_transmit,
            pause_receive: link.pause_receive,
            link_changes: facts.link_changes,
            rx_posted: status.rx_posted.get(),
            tx_used: status.tx_used.get(),
            throttle_nanos: status.throttle_nanos.get(),
            interrupts: status.interrupts.get(),
            spurious: status.spurious.get(),
            rx_doorbells: status.rx_doorbells.get(),
            tx_doorbells: status.tx_doorbells.get(),
            segmented: status.segmented.get(),
            copied: status.copied.get(),
            checksum_errors: status.checksum_errors.get(),
            statistics: statistics.map(|(statistic, count)| (statistic.name().to_owned(), count)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        "0000:00:03.0".parse().expect("an address")
    }

    #[test]
    fn a_device_that_is_not_there_is_waited_for() {
        let error = VfioError::Missing(address());
        let findings = inspect(Err(error.clone()), || None);
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert_eq!(finding.severity, Severity::Warning);
        for word in ["0000:00:03.0", "lspci -D", "waits for the device"] {
            assert!(finding.text.contains(word), "{word}: {}", finding.text);
        }
        assert!(missing(&error.into()).is_some());
        assert!(missing(&VfioError::NoIommu(address()).into()).is_none());
    }

    #[test]
    fn each_end_says_what_to_do() {
        let said = [End::Gone, End::Lied, End::Refused].map(|end| why(Some(end)));
        for (said, word) in said.into_iter().zip(["lspci", "replace it", "dmesg"]) {
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn chips_are_known_by_their_numbers() {
        assert_eq!((chip((0x8086, 0x100e)), chip((0x8086, 0x100f))), (Some("82540EM"), Some("82545EM")));
        assert_eq!(chip((0x8086, 0x10d3)), None);
    }

    #[test]
    fn locked_memory_is_bounded_by_the_limit_alone_where_the_right_is_missing() {
        assert_eq!(rights(0), None, "nothing to lock is never too much");
    }
}
