//! USB adapters with LAN78xx chips: opening, checks of the host, and rows.

use super::contract::{
    Driver, Finding, Handle, Link, OpenPort, PortProperties, Severity, SlowOpening, receiving,
};
use crate::config::lan78xx::{Adapter, AdapterLocation};
use crate::config::model::{Configuration, Port};
use crate::show::adapter::AdapterRow;
use crate::show::buffers::TransferRow;
use crate::shutdown::shutdown_flag;
use anyhow::{Context as _, Result};
use polder_buffers::Region;
use polder_datapath::offload::Takes;
use polder_datapath::wire::MacAddress;
use polder_devices::Receiving;
use polder_devices::lan78xx::descriptor::Chip;
use polder_devices::lan78xx::{self, Lan78xx, MacSource, PortStatus};
use polder_devices::usb::usbfs::{self, Access, UsbError, Usbfs};
use polder_devices::usb::usbip::{self, Client, ClientError, Listed, ServerAddress};
use polder_devices::usb::{self, Connection, Speed, Transport, UrbMemory};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for the answer of a USB/IP server.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// A configured USB adapter.
pub(super) struct UsbAdapter<'a>(pub(super) &'a Adapter);

impl Driver for UsbAdapter<'_> {
    fn open(&self, port: &Port, configuration: &Configuration, _: &Region) -> Result<OpenPort> {
        open(self.0, port, receiving(configuration))
    }

    /// Opening a remote or unresponsive adapter takes seconds.
    fn slow_opening(&self, port: &Port, configuration: &Configuration) -> Option<SlowOpening> {
        let (adapter, port, receiving) = (self.0.clone(), port.clone(), receiving(configuration));
        Some(Box::new(move || open(&adapter, &port, receiving)))
    }

    fn inspect(&self, _: &Port, _: &Configuration) -> Vec<Finding> {
        let found = inspect(&self.0.place).into_iter();
        found.map(|(severity, topic, text)| Finding::new(severity, topic, text)).collect()
    }

    fn describe(&self) -> String {
        "a USB adapter".to_owned()
    }
}

fn open(adapter: &Adapter, port: &Port, receiving: Receiving) -> Result<OpenPort> {
    let place = adapter.place.to_string();
    open_over(reach(&adapter.place)?, place, adapter.options(port.mtu), port, receiving)
}

/// Opens the adapter behind `transport`.
pub(super) fn open_over(
    transport: Box<dyn Transport>,
    place: String,
    options: lan78xx::Options,
    port: &Port,
    receiving: Receiving,
) -> Result<OpenPort> {
    let speed = transport.speed();
    // An adapter has few transfers of many packets each, so their refill threshold is a separate option.
    let refill_below_percent = options.receiving.refill_below_percent;
    let receiving = Receiving { refill_below_percent, ..receiving };
    let options = lan78xx::Options { receiving, cancelled: shutdown_flag(), ..options };
    let opened = lan78xx::open(transport, &options)?;
    let chip = opened.status.facts().chip.map_or("LAN78xx", |(name, _)| name);
    let takes = Takes { partial_checksums: Lan78xx::ABILITIES.partial_checksums, ..Takes::default() };
    let mode = format!("{chip}, {}", bus(speed));
    let facts = PortProperties {
        takes,
        ..PortProperties::new(place, MacAddress(opened.mac), opened.mtu.into(), mode)
    };
    Ok(OpenPort::held(port.id, facts, vec![opened.queue], opened.status))
}

impl Handle for Arc<PortStatus> {
    fn refresh(&self, _: &mut PortProperties, _: Option<u32>) -> Result<Option<Link>, Errno> {
        Ok(Some(Link::new(true, self.carries())))
    }

    fn carries(&self) -> bool {
        self.facts().link.up
    }

    fn why_closed(&self) -> &'static str {
        "the adapter was unplugged, or the connection to it was lost"
    }

    fn adapter_row(&self) -> Option<AdapterRow> {
        Some(row(self))
    }

    fn transfers(&self, port: &str) -> Vec<TransferRow> {
        transfers(self, port)
    }
}

/// Rows of transfer memory in both directions.
pub(super) fn transfers<S>(status: &usb::PortStatus<S>, port: &str) -> Vec<TransferRow> {
    let row = |direction: &str, memory: &UrbMemory, in_flight: u64| {
        let (total, free) = (memory.all.get(), memory.free.get());
        TransferRow {
            port: port.to_owned(),
            direction: direction.to_owned(),
            buffer_bytes: memory.bytes.get(),
            total,
            free,
            in_flight,
            // Neither free nor on the bus; the counters are read at slightly different times.
            held: total.saturating_sub(free + in_flight),
        }
    };
    let received = row("in", &status.receive_memory, status.receiving.get());
    vec![received, row("out", &status.send_memory, status.sending.get())]
}

/// Message about a missing adapter, if that is why opening failed.
pub(super) fn missing(error: &anyhow::Error) -> Option<String> {
    let adapter = error.downcast_ref::<UsbError>().filter(|error| matches!(error, UsbError::Missing(_)));
    let remote = error
        .downcast_ref::<ClientError>()
        .filter(|error| matches!(error, ClientError::Reach(..) | ClientError::NoDevice(..)));
    adapter.map(ToString::to_string).or_else(|| remote.map(ToString::to_string))
}

pub(super) fn reach(place: &AdapterLocation) -> Result<Box<dyn Transport>> {
    Ok(match place {
        AdapterLocation::Usb(port) => Box::new(Usbfs::open(port)?),
        AdapterLocation::Tcp { busid, .. } | AdapterLocation::Unix { busid, .. } => {
            let server = server(place).context("the adapter is configured without a USB/IP server")?;
            Box::new(Client::attach_unless(&server, busid, &shutdown_flag())?)
        }
    })
}

pub(super) fn server(place: &AdapterLocation) -> Option<ServerAddress> {
    match place {
        AdapterLocation::Usb(_) => None,
        AdapterLocation::Tcp { server, .. } => Some(ServerAddress::Tcp(server.clone())),
        AdapterLocation::Unix { socket, .. } => Some(ServerAddress::Unix(socket.clone())),
    }
}

pub(super) const fn bus(speed: Speed) -> &'static str {
    match speed {
        Speed::High => "USB 2",
        Speed::Super => "USB 3",
    }
}

/// A finding: severity, topic, and text with the remedy.
pub(super) type DeviceFinding = (Severity, &'static str, String);

/// Findings about the connection to an adapter, which is not opened.
fn inspect(place: &AdapterLocation) -> Vec<DeviceFinding> {
    match place {
        AdapterLocation::Usb(port) => inspect_local(port, usbfs::devices()),
        place @ (AdapterLocation::Tcp { busid, .. } | AdapterLocation::Unix { busid, .. }) => server(place)
            .map(|server| inspect_remote(busid, &server, usbip::list(&server, PATIENCE)))
            .unwrap_or_default(),
    }
}

fn inspect_local(port: &str, devices: Result<Vec<usbfs::Device>, UsbError>) -> Vec<DeviceFinding> {
    let devices = match devices {
        Ok(devices) => devices,
        Err(error) => return vec![(Severity::Problem, "USB", error.to_string())],
    };
    let adapters =
        || devices.iter().filter_map(|device| Some((Chip::of(device.vendor, device.product)?, device)));
    let Some((chip, found)) = adapters().find(|(_, device)| device.place == port) else {
        let others = adapters().map(|(chip, device)| format!("{} at {}", chip.name(), device.place));
        let others = others.collect::<Vec<_>>();
        let seen = match others.as_slice() {
            [] => "this process can see no such adapter".to_owned(),
            others => format!("there is a {}", others.join(", a ")),
        };
        let text =
            format!("no LAN78xx is at USB port {port}; {seen}: `lsusb -d 0424:`; the port waits for it");
        return vec![(Severity::Warning, "adapter", text)];
    };
    let mut findings = vec![(Severity::Fine, "adapter", format!("{} at USB port {port}", chip.name()))];
    findings.extend(slow(found.speed));
    match found.access {
        Access::Granted => {}
        Access::Denied => {
            findings.push((Severity::Problem, "rights", UsbError::Permission(port.to_owned()).to_string()))
        }
        Access::Missing => {
            let text = "the adapter's file in /dev/bus/usb is missing; pass this file into the container, as with `--device`";
            findings.push((Severity::Problem, "rights", text.to_owned()));
        }
    }
    findings.extend(found.driver.as_deref().map(|driver| held(port, driver)));
    findings
}

/// Finding about an adapter that is in use: by a kernel driver, which is detached at the start, or by another
/// program.
pub(super) fn held(port: &str, driver: &str) -> DeviceFinding {
    if driver == "usbfs" {
        let text = format!(
            "another program uses the adapter: `fuser -v /dev/bus/usb/*/*` names that program; stop it, or use \
             another USB port than {port}"
        );
        return (Severity::Problem, "driver", text);
    }
    let text = format!(
        "the kernel's driver {driver} has the adapter: Polder unbinds this driver at the start, and its \
         interface disappears. `echo {port}:1.0 > /sys/bus/usb/drivers/{driver}/unbind` does so by hand"
    );
    (Severity::Warning, "driver", text)
}

/// Finding about a bus that is slower than the adapter.
pub(super) fn slow(speed: Option<Speed>) -> Option<DeviceFinding> {
    match speed {
        Some(Speed::Super) => None,
        Some(Speed::High) => Some((
            Severity::Warning,
            "bus",
            "the adapter runs at USB 2 speed, some 300 Mbit/s: a USB 3 port (blue, or marked SS) and cable carry 1 \
             Gbit/s"
                .to_owned(),
        )),
        None => Some((
            Severity::Problem,
            "bus",
            "the adapter is on a USB 1 bus; plug the adapter into a USB 3 port, without a hub between".to_owned(),
        )),
    }
}

fn inspect_remote(
    busid: &str,
    server: &ServerAddress,
    listed: Result<Vec<Listed>, ClientError>,
) -> Vec<DeviceFinding> {
    let listed = match listed {
        Ok(listed) => listed,
        Err(error @ ClientError::Reach(..)) => return vec![awaited(&error)],
        Err(error) => return vec![(Severity::Problem, "USB/IP", error.to_string())],
    };
    let Some(found) = listed.iter().find(|device| device.busid == busid) else {
        let error = ClientError::NoDevice(server.clone(), busid.to_owned());
        return vec![awaited(&error)];
    };
    let Some(chip) = Chip::of(found.vendor, found.product) else {
        let ours = listed.iter().filter(|device| Chip::of(device.vendor, device.product).is_some());
        let ours = ours.map(|device| device.busid.as_str());
        let ours = ours.collect::<Vec<_>>();
        let ours = if ours.is_empty() { "none".to_owned() } else { ours.join(", ") };
        let text = format!(
            "the device {busid} of {server} is not a LAN78xx; the server's LAN78xx devices: \
                            {ours}"
        );
        return vec![(Severity::Problem, "USB/IP", text)];
    };
    let first = (Severity::Fine, "adapter", format!("{} {busid} of {server}", chip.name()));
    std::iter::once(first).chain(slow(found.speed)).collect()
}

/// Finding about an adapter that is not there yet.
pub(super) fn awaited(error: &ClientError) -> DeviceFinding {
    (Severity::Warning, "USB/IP", format!("{error}; the port waits for it"))
}

/// Row of an adapter. Requests its counters, which appear in the next row.
fn row(status: &PortStatus) -> AdapterRow {
    status.refresh();
    let facts = status.facts();
    let source = facts.mac.map(|(_, source)| match source {
        MacSource::Configuration => "configuration",
        MacSource::Registers => "registers",
        MacSource::Eeprom => "eeprom",
        MacSource::Otp => "otp",
        MacSource::Random => "random",
    });
    AdapterRow {
        chip: facts.chip.map(|(name, revision)| format!("{name} revision {revision}")),
        mac_source: source.map(str::to_owned),
        phy: facts.phy.map(|phy| format!("{:04x}:{:04x} at {}", phy.id >> 16, phy.id & 0xffff, phy.address)),
        checksum_errors: status.function.checksums.errors.get(),
        checksum_mismatches: status.function.checksums.mismatches.get(),
        statistics: facts
            .statistics
            .iter()
            .flat_map(|totals| totals.counted())
            .map(|(statistic, count)| (statistic.name().to_owned(), count))
            .collect(),
        ..common_row(status)
    }
}

/// Columns that every USB port has.
pub(super) fn common_row<S>(status: &usb::PortStatus<S>) -> AdapterRow {
    let Connection { place, bus: speed, link, .. } = status.connection();
    AdapterRow {
        place,
        bus: speed.map(|speed| bus(speed).to_owned()),
        link_up: link.up,
        link_mbit: link.up.then_some(link.speed),
        full_duplex: link.up.then_some(link.full_duplex),
        pause_transmit: link.pause_transmit,
        pause_receive: link.pause_receive,
        receive_urbs: status.receiving.get(),
        send_urbs: status.sending.get(),
        waiting_urbs: status.filled.get(),
        overflow: status.overflow.get(),
        overflow_most: status.overflow_most.get(),
        pending: status.pending.get(),
        received_transfers: status.received_transfers.get(),
        sent_transfers: status.sent_transfers.get(),
        sent_bytes: status.sent_bytes.get(),
        sent_room: status.sent_room.get(),
        bad_transfers: status.bad_transfers.get(),
        bad_requests: status.bad_requests.get(),
        lost_bytes: status.lost_bytes.get(),
        ..AdapterRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugged_in() -> usbfs::Device {
        usbfs::Device {
            place: "2-1.4".to_owned(),
            vendor: 0x0424,
            product: Chip::Lan7801.product(),
            interfaces: vec![[255, 0, 255]],
            speed: Some(Speed::Super),
            driver: None,
            access: Access::Granted,
        }
    }

    /// Findings about an adapter beside its presence.
    fn found(adapter: usbfs::Device) -> Vec<DeviceFinding> {
        let mut findings = inspect_local("2-1.4", Ok(vec![adapter]));
        let (severity, _, text) = findings.remove(0);
        assert_eq!(severity, Severity::Fine);
        assert!(text.contains("LAN7801 at USB port 2-1.4"), "{text}");
        findings
    }

    fn assert_found(findings: &[DeviceFinding], severity: Severity, what: &str, words: &[&str]) {
        let [(how, about, text)] = findings else { panic!("{findings:?}") };
        assert_eq!((*how, *about), (severity, what), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text} lacks one of {words:?}");
    }

    #[test]
    fn nothing_stands_in_the_way_of_a_free_adapter_on_usb_3() {
        assert_eq!(found(plugged_in()), []);
    }

    #[test]
    fn no_permission_names_the_rule_and_the_group() {
        let findings = found(usbfs::Device { access: Access::Denied, ..plugged_in() });
        let words = ["no permission", "2-1.4", "packaging/70-polder-usb.rules", "group `polder`"];
        assert_found(&findings, Severity::Problem, "rights", &words);
        let findings = found(usbfs::Device { access: Access::Missing, ..plugged_in() });
        assert_found(&findings, Severity::Problem, "rights", &["/dev/bus/usb", "container", "--device"]);
    }

    #[test]
    fn a_driver_of_the_kernel_lets_go_and_another_program_does_not() {
        let held_by = |driver: &str| found(usbfs::Device { driver: Some(driver.to_owned()), ..plugged_in() });
        let words = ["kernel's driver lan78xx", "echo 2-1.4:1.0 > /sys/bus/usb/drivers/lan78xx/unbind"];
        assert_found(&held_by("lan78xx"), Severity::Warning, "driver", &words);
        let words = ["another program", "fuser", "stop it"];
        assert_found(&held_by("usbfs"), Severity::Problem, "driver", &words);
    }

    #[test]
    fn a_bus_that_is_too_slow_names_the_right_port() {
        let on = |speed| found(usbfs::Device { speed, ..plugged_in() });
        assert_found(
            &on(Some(Speed::High)),
            Severity::Warning,
            "bus",
            &["USB 2", "300 Mbit/s", "USB 3 port"],
        );
        assert_found(&on(None), Severity::Problem, "bus", &["USB 1", "USB 3 port"]);
    }

    #[test]
    fn an_adapter_elsewhere_is_named_and_none_is_said() {
        let at = |adapters| inspect_local("1-7", Ok(adapters));
        let words = ["no LAN78xx is at USB port 1-7", "there is a LAN7801 at 2-1.4", "lsusb"];
        assert_found(&at(vec![plugged_in()]), Severity::Warning, "adapter", &words);
        assert_found(&at(vec![]), Severity::Warning, "adapter", &["can see no such adapter", "waits for it"]);
        let unlisted = inspect_local("1-7", Err(UsbError::Missing("1-7".to_owned())));
        assert_found(&unlisted, Severity::Problem, "USB", &["lsusb"]);
    }
}
