//! `lan78xx = { … }` in a port: a USB Ethernet adapter that Polder drives itself.

use super::model::Mac;
use super::section::{At, Kind, Refusal, Section};
use super::values::{boolean, integer, station, text};
use super::write::quoted;
use polder_devices::Receiving;
use polder_devices::lan78xx::{Options, Techniques};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use toml::de::DeValue;

/// The keys of an adapter.
pub(super) const KIND: Kind = Kind {
    noun: "`lan78xx`",
    keys: &[
        "usb",
        "usbip",
        "busid",
        "mac",
        "flow_control",
        "vlan_offload",
        "gather_us",
        "receive_urbs",
        "send_urbs",
        "refill_below_percent",
        "pending",
        "poll_cycle",
        "urb_pools",
        "pending_queue",
        "resubmit_in_cycle",
        "frame_is_unit",
    ],
};

/// Most URBs in flight in one direction.
const MAX_URBS: u16 = 256;
/// What the adapter can count to, in microseconds.
const MAX_GATHER_US: u16 = 1092;
/// Most packets that wait for a URB.
const MAX_PENDING: u16 = 4096;
/// Longest bus id (USB/IP has 32 bytes with a final zero).
const MAX_BUSID: usize = 31;
/// What a place may be.
const PLACES: &str = "write `lan78xx = { usb = \"1-1.4\" }` for an adapter of this machine, or \
                      `lan78xx = { usbip = \"host:3240\", busid = \"1-1\" }` for one of another";

/// A LAN78xx adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Adapter {
    /// Where it is.
    pub place: AdapterLocation,
    /// The address to use in place of its own.
    pub mac: Option<Mac>,
    /// How it is driven.
    pub driving: Driving,
    /// Which techniques are on.
    #[serde(with = "Switches")]
    pub techniques: Techniques,
}

/// Where an adapter is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdapterLocation {
    /// At a USB port of this machine (`1-1.4`).
    Usb(String),
    /// Behind a USB/IP server on TCP.
    Tcp {
        /// Host and port (`host:3240`).
        server: String,
        /// The device's name there.
        busid: String,
    },
    /// Behind a USB/IP server on a local socket.
    Unix {
        /// The socket.
        socket: PathBuf,
        /// The device's name there.
        busid: String,
    },
}

/// How an adapter is driven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Driving {
    /// True if pause frames are offered to the partner.
    pub flow_control: bool,
    /// True if the adapter takes tags out of frames and puts them in.
    pub vlan_offload: bool,
    /// Time for which the adapter holds a short transfer back, in the hope of more frames, in microseconds.
    pub gather_us: u16,
    /// Bulk-in URBs in flight; as the bus needs them if none.
    pub receive_urbs: Option<u16>,
    /// Bulk-out URBs in flight.
    pub send_urbs: Option<u16>,
    /// Percent of the bulk-in URBs below which they are asked for again (C5); 100, after every poll, is its off.
    pub refill_below_percent: u8,
    /// Packets that wait for a bulk-out URB, at most.
    pub pending: u16,
}

#[derive(Serialize)]
#[serde(remote = "Techniques")]
struct Switches {
    poll_cycle: bool,
    urb_pools: bool,
    pending_queue: bool,
    resubmit_in_cycle: bool,
    frame_is_unit: bool,
}

impl fmt::Display for AdapterLocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usb(port) => write!(formatter, "usb {port}"),
            Self::Tcp { server, busid } => write!(formatter, "{busid} of {server}"),
            Self::Unix { socket, busid } => write!(formatter, "{busid} of {}", socket.display()),
        }
    }
}

impl Adapter {
    /// How the driver is asked to open it.
    pub fn options(&self, mtu: Option<u16>) -> Options {
        let usual = Options::default();
        Options {
            mtu: mtu.unwrap_or(usual.mtu),
            mac: self.mac.map(|mac| mac.0),
            flow_control: self.driving.flow_control,
            vlan_offload: self.driving.vlan_offload,
            gather_us: self.driving.gather_us,
            receive_urbs: self.driving.receive_urbs.map(usize::from),
            send_urbs: self.driving.send_urbs.map(usize::from),
            pending: usize::from(self.driving.pending),
            receiving: Receiving {
                refill_below_percent: self.driving.refill_below_percent,
                ..usual.receiving
            },
            techniques: self.techniques,
            ..usual
        }
    }

    /// The table in one line, with every default written out.
    pub(super) fn to_toml(&self) -> String {
        let mut keys = match &self.place {
            AdapterLocation::Usb(port) => vec![("usb", quoted(port))],
            AdapterLocation::Tcp { server, busid } => {
                vec![("usbip", quoted(server)), ("busid", quoted(busid))]
            }
            AdapterLocation::Unix { socket, busid } => {
                vec![("usbip", quoted(&socket.to_string_lossy())), ("busid", quoted(busid))]
            }
        };
        let Driving { flow_control, vlan_offload, gather_us, receive_urbs, send_urbs, .. } = self.driving;
        let Techniques { poll_cycle, urb_pools, pending_queue, resubmit_in_cycle, frame_is_unit } =
            self.techniques;
        keys.extend(self.mac.map(|mac| ("mac", quoted(&mac.to_string()))));
        keys.extend([("flow_control", flow_control), ("vlan_offload", vlan_offload)].map(word));
        keys.push(("gather_us", gather_us.to_string()));
        keys.extend(receive_urbs.map(|urbs| ("receive_urbs", urbs.to_string())));
        keys.extend(send_urbs.map(|urbs| ("send_urbs", urbs.to_string())));
        keys.push(("refill_below_percent", self.driving.refill_below_percent.to_string()));
        keys.push(("pending", self.driving.pending.to_string()));
        let techniques = [
            ("poll_cycle", poll_cycle),
            ("urb_pools", urb_pools),
            ("pending_queue", pending_queue),
            ("resubmit_in_cycle", resubmit_in_cycle),
            ("frame_is_unit", frame_is_unit),
        ];
        keys.extend(techniques.map(word));
        let keys = keys.into_iter().map(|(key, value)| format!("{key} = {value}"));
        format!("{{ {} }}", keys.collect::<Vec<_>>().join(", "))
    }
}

fn word((key, value): (&'static str, bool)) -> (&'static str, String) {
    (key, value.to_string())
}

/// Reads the adapter of a port.
pub(super) fn read(port: &Section<'_>) -> Option<At<Adapter>> {
    let span = port.value("lan78xx")?.span();
    let section = port.open_key("lan78xx", "`lan78xx`".to_owned(), KIND)?;
    let usual = Options::default();
    let on = |key, usual| section.read(key, boolean).map_or(usual, |at| at.value);
    let urbs = |key| section.read(key, integer(1..=MAX_URBS, "URBs")).map(|at| at.value);
    let percent = section.read("refill_below_percent", integer(1..=100, "percent")).map(|at| at.value);
    let pending = section.read("pending", integer(1..=MAX_PENDING, "packets")).map(|at| at.value);
    let gather_us = section.read("gather_us", integer(0..=MAX_GATHER_US, "microseconds"));
    let driving = Driving {
        flow_control: on("flow_control", usual.flow_control),
        vlan_offload: on("vlan_offload", usual.vlan_offload),
        gather_us: gather_us.map_or(usual.gather_us, |at| at.value),
        receive_urbs: urbs("receive_urbs"),
        send_urbs: urbs("send_urbs"),
        refill_below_percent: percent.unwrap_or(usual.receiving.refill_below_percent),
        pending: pending.unwrap_or_else(|| u16::try_from(usual.pending).unwrap_or(MAX_PENDING)),
    };
    let techniques = Techniques {
        poll_cycle: on("poll_cycle", true),
        urb_pools: on("urb_pools", true),
        pending_queue: on("pending_queue", true),
        resubmit_in_cycle: on("resubmit_in_cycle", true),
        frame_is_unit: on("frame_is_unit", true),
    };
    let mac = section.read("mac", station).map(|at| at.value);
    Some(At { value: Adapter { place: place(&section)?, mac, driving, techniques }, span })
}

fn place(section: &Section<'_>) -> Option<AdapterLocation> {
    let usb = section.read("usb", bus_id);
    let server = section.read("usbip", server);
    let busid = section.read("busid", bus_id);
    match (section.has("usb"), section.has("usbip")) {
        (true, false) => {
            if let Some(span) = section.key_span("busid") {
                section.error(span, "`busid` belongs to `usbip`", PLACES);
            }
            usb.map(|at| AdapterLocation::Usb(at.value))
        }
        (false, true) => {
            if !section.has("busid") {
                let remedy = "add `busid = \"…\"`; `usbip list -r HOST` prints those of a server";
                section.error(section.span.clone(), "`lan78xx` has no `busid`", remedy);
            }
            Some(server?.value.with(busid?.value))
        }
        (true, true) => {
            let span = section.key_span("usbip").unwrap_or_default();
            section.error(span, "`lan78xx` has both `usb` and `usbip`", PLACES);
            None
        }
        (false, false) => {
            section.error(section.span.clone(), "`lan78xx` says not where the adapter is", PLACES);
            None
        }
    }
}

enum Server {
    Tcp(String),
    Unix(PathBuf),
}

impl Server {
    fn with(self, busid: String) -> AdapterLocation {
        match self {
            Self::Tcp(server) => AdapterLocation::Tcp { server, busid },
            Self::Unix(socket) => AdapterLocation::Unix { socket, busid },
        }
    }
}

/// Host and port, or the absolute path of a socket.
fn server(value: &DeValue<'_>) -> Result<Server, Refusal> {
    const REMEDY: &str = "write host and port as in \"192.0.2.1:3240\", or the absolute path of a socket";
    let name = text(value)?;
    if name.starts_with('/') {
        return Ok(Server::Unix(PathBuf::from(name)));
    }
    let parts = name.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        let bare = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && bare && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !good || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Refusal::new("is neither a host with its port nor a path").remedy(REMEDY));
    }
    Ok(Server::Tcp(name))
}

/// The name of a USB port, as the kernel and USB/IP write it.
fn bus_id(value: &DeValue<'_>) -> Result<String, Refusal> {
    let name = text(value)?;
    let good = (1..=MAX_BUSID).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    if !good {
        let remedy =
            "write bus and ports as in \"1-1.4\"; `ls /sys/bus/usb/devices` and `usbip list -l` show them";
        return Err(Refusal::new("is no USB port").remedy(remedy));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::super::model::Device;
    use super::super::parse;
    use super::*;
    use std::path::Path;

    fn adapter(table: &str) -> Result<Adapter, String> {
        let file = format!(
            "version = 1\n[port.usb]\nlan78xx = {{ {table} }}\n[port.host]\ntap = \"host0\"\n\
             [bridge.br0]\nmembers = [\"usb\", \"host\"]\n"
        );
        let loaded = parse(&file, Path::new("gw.toml")).map_err(|report| report.to_string())?;
        // What is written out says the same.
        let again = parse(&loaded.configuration.to_toml(), Path::new("again.toml"));
        assert_eq!(
            again.map_err(|report| report.to_string())?.configuration.ports,
            loaded.configuration.ports
        );
        match &loaded.configuration.ports[0].device {
            Device::Lan78xx(adapter) => Ok((**adapter).clone()),
            other @ (Device::Interface(_) | Device::Tap(_)) => panic!("{other:?}"),
        }
    }

    #[test]
    fn places_are_told_apart() {
        let place = |table| adapter(table).map(|adapter| adapter.place.to_string());
        assert_eq!(place("usb = \"1-1.4\"").as_deref(), Ok("usb 1-1.4"));
        assert_eq!(place("usbip = \"host:3240\", busid = \"1-1\"").as_deref(), Ok("1-1 of host:3240"));
        assert_eq!(place("usbip = \"[::1]:3240\", busid = \"1-1\"").as_deref(), Ok("1-1 of [::1]:3240"));
        assert_eq!(place("usbip = \"/run/u\", busid = \"2-1\"").as_deref(), Ok("2-1 of /run/u"));
        for wrong in
            ["", "usbip = \"host\", busid = \"1-1\"", "usbip = \"h:0\", busid = \"1-1\"", "usb = \"\""]
        {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_switch_reaches_the_driver() {
        let usual = adapter("usb = \"1-1\"").map(|adapter| adapter.options(None));
        let usual = usual.expect("a place is enough");
        assert_eq!((usual.techniques, usual.mtu, usual.flow_control), (Techniques::ON, 1500, true));
        let changed = adapter(
            "usb = \"1-1\", mac = \"02:00:00:00:00:07\", flow_control = false, vlan_offload = true, gather_us = 300, \
             receive_urbs = 7, send_urbs = 3, refill_below_percent = 50, pending = 9, poll_cycle = false, urb_pools = false, \
             pending_queue = false, resubmit_in_cycle = false, frame_is_unit = false",
        );
        let changed = changed.expect("all keys").options(Some(8982));
        assert_eq!((changed.techniques, changed.mtu), (Techniques::OFF, 8982));
        assert_eq!((changed.flow_control, changed.vlan_offload, changed.gather_us), (false, true, 300));
        assert_eq!((changed.receive_urbs, changed.send_urbs, changed.pending), (Some(7), Some(3), 9));
        let percent = |options: &Options| options.receiving.refill_below_percent;
        assert_eq!((percent(&usual), percent(&changed)), (100, 50));
        assert_eq!(changed.mac, Some([2, 0, 0, 0, 0, 7]));
        for one in ["poll_cycle", "urb_pools", "pending_queue", "resubmit_in_cycle", "frame_is_unit"] {
            let techniques = adapter(&format!("usb = \"1-1\", {one} = false")).expect(one).techniques;
            assert!(techniques != Techniques::ON && techniques != Techniques::OFF, "{one}");
        }
    }
}
