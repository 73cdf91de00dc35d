//! Opening the devices of ports, and devices that are not there yet.

use super::ports::{self, Facts, OpenPort};
use super::preflight;
use crate::config::model::{Configuration, Port};
use anyhow::Result;
use polder_buffers::{PortId, Region};
use polder_devices::af_xdp::OpenError;
use polder_devices::lan78xx::usbfs::UsbError;
use polder_devices::lan78xx::usbip::ClientError;

/// Opens the device of a port.
pub type Opener = Box<dyn Fn(&Port, &Configuration, &Region) -> Result<OpenPort> + Send>;

/// Checks whether the device of a port can be opened, and touches nothing.
type Prober = fn(&Port, &Configuration) -> Result<Vec<String>>;

/// Source of devices.
pub(super) struct Devices {
    /// Opens one.
    pub(super) open: Opener,
    /// Checks for obstacles to that; returns warnings that are no obstacle.
    pub(super) probe: Prober,
}

/// Result of opening a port.
pub(super) enum Opening {
    /// The port is open.
    Open(OpenPort),
    /// Its device is not there; it is opened when it comes.
    Waiting {
        /// The port.
        id: PortId,
        /// The missing device.
        trouble: String,
    },
}

impl Devices {
    /// The devices of this machine.
    pub(super) fn of_machine() -> Self {
        Self { open: Box::new(ports::open), probe: preflight::probe }
    }

    /// Devices that are opened in another way, and that nothing is known of before.
    pub(super) fn opened_by(open: Opener) -> Self {
        Self { open, probe: |_, _| Ok(Vec::new()) }
    }

    /// Opens the device of `port`, unless it is not there.
    ///
    /// # Errors
    /// When it is there, and cannot be opened.
    pub(super) fn open_or_wait(
        &self,
        port: &Port,
        configuration: &Configuration,
        region: &Region,
    ) -> Result<Opening> {
        match (self.open)(port, configuration, region) {
            Ok(opened) => Ok(Opening::Open(opened)),
            Err(error) => match missing(&error) {
                Some(trouble) => Ok(Opening::Waiting { id: port.id, trouble }),
                None => Err(error),
            },
        }
    }
}

impl Opening {
    /// The port.
    pub(super) fn id(&self) -> PortId {
        match self {
            Self::Open(OpenPort { id, .. }) | Self::Waiting { id, .. } => *id,
        }
    }

    /// Properties of the port, if it is open.
    pub(super) fn facts(&self) -> Option<(PortId, Facts)> {
        match self {
            Self::Open(OpenPort { id, facts, .. }) => Some((*id, facts.clone())),
            Self::Waiting { .. } => None,
        }
    }
}

/// The missing device, when an opening failed because the device is not there and may come; else `None`.
pub(super) fn missing(error: &anyhow::Error) -> Option<String> {
    if let Some(OpenError::NoInterface(name)) = error.downcast_ref() {
        return Some(missing_interface(name));
    }
    let adapter = error.downcast_ref::<UsbError>().filter(|error| matches!(error, UsbError::Missing(_)));
    let remote = error
        .downcast_ref::<ClientError>()
        .filter(|error| matches!(error, ClientError::Reach(..) | ClientError::NoDevice(..)));
    adapter.map(ToString::to_string).or_else(|| remote.map(ToString::to_string))
}

/// Message about an interface that is not there, with names that look like it.
pub(super) fn missing_interface(name: &str) -> String {
    let known = interfaces();
    let like = similar(name, known.iter().map(String::as_str));
    let like = if like.is_empty() { String::new() } else { format!("; similar: {}", like.join(", ")) };
    format!("there is no interface {name} in this network namespace{like} (`ip link` lists all)")
}

/// The interfaces of the calling thread's network namespace.
fn interfaces() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = text.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// Names that `name` may be a slip of the pen for.
fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let most = if name.len() < 4 { 1 } else { 2 };
    let mut near = known.map(|other| (strsim::damerau_levenshtein(name, other), other)).collect::<Vec<_>>();
    near.retain(|(distance, _)| *distance <= most);
    near.sort_unstable();
    near.into_iter().map(|(_, other)| other).take(MOST_NAMES).collect()
}

/// Similar names that are told at most.
const MOST_NAMES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_told_the_nearest_names_first() {
        let known = ["lo", "eth0", "eth1", "radio0", "enp1s0"];
        assert_eq!(similar("eht0", known.into_iter()), ["eth0", "eth1"]);
        assert_eq!(similar("l0", known.into_iter()), ["lo"]);
        assert!(similar("wlan0", known.into_iter()).is_empty());
    }

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
