//! `lan78xx = { … }` in a port: a USB Ethernet adapter that Polder drives itself.

use super::diagnostics::Diagnostic;
use super::keys::Draft;
use super::keys::Reload::Reopen;
use super::model::Mac;
use super::notation::{Boolean, Given, Inner, Integer, Text, text as shown};
use super::port::ATTACHED;
use super::section::{Refusal, Section};
use super::values::{STATION, text};
use polder_devices::Receiving;
use polder_devices::lan78xx::{Options, Techniques};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;
use toml::de::DeValue;

/// Most URBs in flight in one direction.
const MAX_URBS: u16 = 256;
/// Largest time that the adapter can count, in microseconds.
const MAX_GATHER_US: u16 = 1092;
/// Most packets that wait for a URB.
const MAX_PENDING: u16 = 4096;
/// Packets that wait for a URB when nothing is said.
const PENDING: u16 = 128;
/// Longest bus id (USB/IP has 32 bytes with a final zero).
const MAX_BUSID: usize = 31;
/// Remedy for a missing place.
const PLACES: &str = "write `lan78xx = { usb = \"1-1.4\" }` for an adapter of this machine, or \
                      `lan78xx = { usbip = \"host:3240\", busid = \"1-1\" }` for one of another";
const USB: Text<String> = shown("", "a USB port, as `ls /sys/bus/usb/devices` shows it", bus_id);
const SERVER: Text<String> = shown("", "`HOST:PORT`, or the path of a socket", server);
const BUSID: Text<String> = shown("", "as `usbip list -r HOST` shows it", bus_id);

/// Notation of an adapter.
pub(super) const NOTATION: Inner<Adapter> = Inner(PLACES, check);

section! {
    /// A LAN78xx adapter.
    pub struct Adapter("`lan78xx`", "lan78xx") {
        /// Place of the adapter.
        place: AdapterLocation = AdapterLocation::Usb(String::new());
        /// Techniques that are on.
        #[serde(with = "Switches")]
        techniques: Techniques = Techniques::ON;
        keys:
        /// USB port of the adapter; the kernel's driver is asked to let go of it.
        usb as String, USB, |adapter| adapter.place.usb(), |adapter, port| adapter.place = AdapterLocation::Usb(port) => Reopen(ATTACHED), usual("");
        /// USB/IP server that has the adapter.
        usbip as String, SERVER, |adapter| adapter.place.server(), |adapter, server| adapter.place = AdapterLocation::behind(server) => Reopen(ATTACHED);
        /// Name of the adapter at its server.
        busid as String, BUSID, |adapter| adapter.place.busid(), |adapter, busid| adapter.place.set_busid(busid) => Reopen(ATTACHED), usual("required with `usbip`");
        /// Address to use in place of the adapter's own.
        mac: Option<Mac> = None, Given(STATION) => Reopen(ATTACHED), usual("the adapter's own");
        /// True if pause frames are offered to the link partner.
        flow_control: bool = Options::default().flow_control, Boolean => Reopen(ATTACHED);
        /// True if the adapter takes VLAN tags out of frames and puts them in; nobody sees a difference.
        vlan_offload: bool = Options::default().vlan_offload, Boolean => Reopen(ATTACHED);
        /// Time for which the adapter holds a short transfer back, in the hope of more frames.
        gather_us: u16 = Options::default().gather_us, Integer(0..=MAX_GATHER_US, "microseconds") => Reopen(ATTACHED);
        /// Bulk-in transfers in flight; the adapter's own memory lasts for 98 µs.
        receive_urbs: Option<u16> = None, Given(Integer(1..=MAX_URBS, "URBs")) => Reopen(ATTACHED), usual("30, on USB 2 10");
        /// Bulk-out transfers in flight.
        send_urbs: Option<u16> = None, Given(Integer(1..=MAX_URBS, "URBs")) => Reopen(ATTACHED), usual("4");
        /// Part of the bulk-in transfers in flight below which they are asked for again; 100: after every poll.
        refill_below_percent: u8 = Options::default().receiving.refill_below_percent, Integer(1..=100, "percent") => Reopen(ATTACHED);
        /// Packets that wait for a bulk-out transfer, at most.
        pending: u16 = PENDING, Integer(1..=MAX_PENDING, "packets") => Reopen(ATTACHED);
        /// Received transfers are read in the worker's turn, under its budget; off: all at once, and no budget applies.
        poll_cycle as bool, Boolean, |adapter| Some(adapter.techniques.poll_cycle), |adapter, on| adapter.techniques.poll_cycle = on => Reopen(ATTACHED);
        /// Transfers have memory from a pool; off: memory of their own, for the life of one.
        urb_pools as bool, Boolean, |adapter| Some(adapter.techniques.urb_pools), |adapter, on| adapter.techniques.urb_pools = on => Reopen(ATTACHED);
        /// Several packets in a bulk-out transfer; off: one.
        pending_queue as bool, Boolean, |adapter| Some(adapter.techniques.pending_queue), |adapter, on| adapter.techniques.pending_queue = on => Reopen(ATTACHED);
        /// A bulk-in transfer is asked for again when its frames were handled; off: when it completes.
        resubmit_in_cycle as bool, Boolean, |adapter| Some(adapter.techniques.resubmit_in_cycle), |adapter, on| adapter.techniques.resubmit_in_cycle = on => Reopen(ATTACHED);
        /// A frame is a unit of the budget; off: a transfer is.
        frame_is_unit as bool, Boolean, |adapter| Some(adapter.techniques.frame_is_unit), |adapter, on| adapter.techniques.frame_is_unit = on => Reopen(ATTACHED);
    }
}

/// Place of an adapter.
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

impl AdapterLocation {
    fn usb(&self) -> Option<String> {
        match self {
            Self::Usb(port) => Some(port.clone()),
            Self::Tcp { .. } | Self::Unix { .. } => None,
        }
    }

    /// The adapter behind a server that `server` says, without its name there.
    pub(super) fn behind(server: String) -> Self {
        let busid = String::new();
        if server.starts_with('/') {
            Self::Unix { socket: PathBuf::from(server), busid }
        } else {
            Self::Tcp { server, busid }
        }
    }

    fn server(&self) -> Option<String> {
        match self {
            Self::Usb(_) => None,
            Self::Tcp { server, .. } => Some(server.clone()),
            Self::Unix { socket, .. } => Some(socket.to_string_lossy().into_owned()),
        }
    }

    fn busid(&self) -> Option<String> {
        match self {
            Self::Usb(_) => None,
            Self::Tcp { busid, .. } | Self::Unix { busid, .. } => Some(busid.clone()),
        }
    }

    pub(super) fn set_busid(&mut self, name: String) {
        match self {
            Self::Usb(_) => {}
            Self::Tcp { busid, .. } | Self::Unix { busid, .. } => *busid = name,
        }
    }
}

impl Adapter {
    /// Options with which the driver opens it.
    pub fn options(&self, mtu: Option<u16>) -> Options {
        let usual = Options::default();
        Options {
            mtu: mtu.unwrap_or(usual.mtu),
            mac: self.mac.map(|mac| mac.0),
            flow_control: self.flow_control,
            vlan_offload: self.vlan_offload,
            gather_us: self.gather_us,
            receive_urbs: self.receive_urbs.map(usize::from),
            send_urbs: self.send_urbs.map(usize::from),
            pending: usize::from(self.pending),
            receiving: Receiving { refill_below_percent: self.refill_below_percent, ..usual.receiving },
            techniques: self.techniques,
            ..usual
        }
    }
}

/// Says where the adapter is, once.
fn check(draft: &Draft<Adapter>, section: &Section<'_>) -> bool {
    let error = |span, message: &str, remedy: &str| {
        section.findings.note(Diagnostic::error(span, message).remedy(remedy));
    };
    let key = |key| draft.key(key).cloned().unwrap_or_default();
    match (draft.has("usb"), draft.has("usbip")) {
        (true, false) => {
            if draft.has("busid") {
                error(key("busid"), "`busid` belongs to `usbip`", PLACES);
            }
            draft.at("usb").is_some()
        }
        (false, true) => {
            if !draft.has("busid") {
                let remedy = "add `busid = \"…\"`; `usbip list -r HOST` prints the bus ids of a server";
                error(draft.span.clone(), "`lan78xx` has no `busid`", remedy);
            }
            draft.at("usbip").is_some() && draft.at("busid").is_some()
        }
        (true, true) => {
            error(key("usbip"), "`lan78xx` has both `usb` and `usbip`", PLACES);
            false
        }
        (false, false) => {
            error(
                draft.span.clone(),
                "`lan78xx` has neither `usb` nor `usbip`, so the adapter is unknown",
                PLACES,
            );
            false
        }
    }
}

/// Host and port, or the absolute path of a socket.
pub(super) fn server(value: &DeValue<'_>) -> Result<String, Refusal> {
    const REMEDY: &str = "write host and port as in \"192.0.2.1:3240\", or the absolute path of a socket";
    let name = text(value)?;
    if name.starts_with('/') {
        return Ok(name);
    }
    let parts = name.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        let bare = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        !host.is_empty() && bare && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !good || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(Refusal::new("is neither a host with its port nor a path").remedy(REMEDY));
    }
    Ok(name)
}

/// The name of a USB port, as the kernel and USB/IP write it.
pub(super) fn bus_id(value: &DeValue<'_>) -> Result<String, Refusal> {
    let name = text(value)?;
    let good = (1..=MAX_BUSID).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    if !good {
        let remedy =
            "write bus and ports as in \"1-1.4\"; `ls /sys/bus/usb/devices` and `usbip list -l` show them";
        return Err(Refusal::new("is not a USB port").remedy(remedy));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
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
        Ok(loaded.configuration.ports[0].device.adapter().expect("the first port has one"))
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
