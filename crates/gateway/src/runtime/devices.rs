//! Opening of ports' devices, including devices that appear later.

use super::preflight;
use super::upgrade::{LowPriority, Predecessor};
use crate::config::model::{Configuration, Port};
use crate::device::{self, InterfaceLock, OpenPort, PortProperties, Spares, missing};
use anyhow::Result;
use polder_buffers::{PortId, Region};
use polder_devices::skb::connections::ConnectionTable;
use std::sync::Arc;

/// Function that opens the device of a port.
pub type Opener = Box<dyn Fn(&Port, &Configuration, &Region) -> Result<OpenPort> + Send>;

/// Function that checks whether the device of a port can be opened, without changing anything.
type Prober = fn(&Port, &Configuration) -> Result<Vec<String>>;

/// Function that locks the interfaces of ports until the result is dropped.
type Locker = fn(&[&Port], &Configuration) -> Result<Vec<InterfaceLock>>;

/// The functions that open devices.
pub(super) struct Devices {
    /// Opens a device.
    pub(super) open: Opener,
    /// Checks for obstacles to opening a device; returns warnings.
    pub(super) probe: Prober,
    /// Locks the interfaces of ports before they are opened.
    lock: Locker,
    /// Prepared TAP for the next port.
    spares: Spares,
    /// Gateway whose open devices this process takes over.
    inheritance: Option<Arc<Predecessor>>,
}

/// Result of opening a port.
pub(super) enum Opening {
    /// The port is open.
    Open(OpenPort),
    /// The device is missing; the port opens when the device appears.
    Waiting {
        /// The port.
        id: PortId,
        /// The missing device.
        trouble: String,
    },
}

impl Devices {
    /// Devices that this process opens itself.
    pub(super) fn of_machine() -> Self {
        let spares = Spares::default();
        let ready = spares.clone();
        let open: Opener =
            Box::new(move |port, configuration, region| device::open(port, configuration, region, &ready));
        Self { open, probe: preflight::probe, lock: lock_all, spares, inheritance: None }
    }

    /// Devices of this machine, where devices of the predecessor process are adopted.
    pub(super) fn inherited(inheritance: &Arc<Predecessor>) -> Self {
        let (parts, spares) = (Arc::clone(inheritance), Spares::default());
        let ready = spares.clone();
        let open: Opener = Box::new(move |port, configuration, region| match parts.parts(&port.name) {
            Some(parts) => device::adopt(port, configuration, region, (parts, &ready)),
            None => device::open(port, configuration, region, &ready),
        });
        let inheritance = Some(Arc::clone(inheritance));
        Self { open, probe: preflight::probe, lock: lock_all, spares, inheritance }
    }

    /// Devices opened by the caller's function, without probing and locking.
    pub(super) fn opened_by(open: Opener) -> Self {
        let spares = Spares::default();
        Self { open, probe: |_, _| Ok(Vec::new()), lock: |_, _| Ok(Vec::new()), spares, inheritance: None }
    }

    /// Table of the connections that ports carry; `None` if no port carries connections.
    pub(super) fn connections(&self) -> Option<Arc<ConnectionTable>> {
        self.spares.connections()
    }

    /// Prepares a TAP for a port that may be added later.
    pub(super) fn prepare(&self, region: &Region) {
        self.spares.prepare(region);
    }

    /// Lowers this thread's priority while devices are opened and the predecessor still forwards.
    pub(super) fn step_back(&self) -> Option<LowPriority> {
        self.inheritance.as_ref().and_then(|inheritance| inheritance.step_back())
    }

    /// Locks the interfaces of `ports` until the result is dropped; open ports hold locks of their own. A
    /// gateway that takes over inherits its predecessor's locks.
    ///
    /// # Errors
    /// When another gateway holds one of the locks.
    pub(super) fn lock<'a>(
        &self,
        ports: impl IntoIterator<Item = &'a Port>,
        configuration: &Configuration,
    ) -> Result<Vec<InterfaceLock>> {
        if self.inheritance.as_ref().is_some_and(|inheritance| !inheritance.is_gone()) {
            return Ok(Vec::new());
        }
        (self.lock)(&ports.into_iter().collect::<Vec<_>>(), configuration)
    }

    /// Opens the device of `port`. A port without a device waits, and so does the punt path if it fails.
    ///
    /// # Errors
    /// When the device exists and cannot be opened.
    pub(super) fn open_or_wait(
        &self,
        port: &Port,
        configuration: &Configuration,
        region: &Region,
    ) -> Result<Opening> {
        let obstacle = self.inheritance.as_ref().and_then(|inheritance| inheritance.obstacle(port));
        if let Some(trouble) = obstacle {
            return Ok(Opening::Waiting { id: port.id, trouble });
        }
        match (self.open)(port, configuration, region) {
            Ok(opened) => Ok(Opening::Open(opened)),
            Err(error) => match missing(&error) {
                Some(trouble) => Ok(Opening::Waiting { id: port.id, trouble }),
                None if port.device.is_punt_path() => {
                    Ok(Opening::Waiting { id: port.id, trouble: format!("{error:#}") })
                }
                None => Err(error),
            },
        }
    }
}

fn lock_all(ports: &[&Port], configuration: &Configuration) -> Result<Vec<InterfaceLock>> {
    device::lock_all(ports.iter().copied(), configuration)
}

impl Opening {
    /// The port.
    pub(super) fn id(&self) -> PortId {
        match self {
            Self::Open(OpenPort { id, .. }) | Self::Waiting { id, .. } => *id,
        }
    }

    /// Properties of the port, if it is open.
    pub(super) fn facts(&self) -> Option<(PortId, PortProperties)> {
        match self {
            Self::Open(OpenPort { id, facts, .. }) => Some((*id, facts.clone())),
            Self::Waiting { .. } => None,
        }
    }
}
