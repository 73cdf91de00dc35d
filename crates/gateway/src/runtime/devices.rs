//! Opening the devices of ports, and devices that are not there yet.

use super::preflight;
use super::upgrade::{Inheritance, SteppedBack};
use crate::config::model::{Configuration, Port};
use crate::device::{self, Facts, InterfaceLock, OpenPort, Spares, missing};
use anyhow::Result;
use polder_buffers::{PortId, Region};
use polder_devices::skb::connections::ConnectionTable;
use std::sync::Arc;

/// Opens the device of a port.
pub type Opener = Box<dyn Fn(&Port, &Configuration, &Region) -> Result<OpenPort> + Send>;

/// Checks whether the device of a port can be opened, and touches nothing.
type Prober = fn(&Port, &Configuration) -> Result<Vec<String>>;

/// Locks the interfaces of ports for as long as the result lives.
type Locker = fn(&[&Port], &Configuration) -> Result<Vec<InterfaceLock>>;

/// Source of devices.
pub(super) struct Devices {
    /// Opens one.
    pub(super) open: Opener,
    /// Checks for obstacles to that; returns warnings that are no obstacle.
    pub(super) probe: Prober,
    /// Locks the interfaces of ports before they are opened.
    lock: Locker,
    /// TAP for the next port.
    spares: Spares,
    /// Gateway whose ports are gone on with.
    inheritance: Option<Arc<Inheritance>>,
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
        let spares = Spares::default();
        let ready = spares.clone();
        let open: Opener =
            Box::new(move |port, configuration, region| device::open(port, configuration, region, &ready));
        Self { open, probe: preflight::probe, lock: lock_all, spares, inheritance: None }
    }

    /// The devices of this machine, with those that another process has open.
    pub(super) fn inherited(inheritance: &Arc<Inheritance>) -> Self {
        let (parts, spares) = (Arc::clone(inheritance), Spares::default());
        let ready = spares.clone();
        let open: Opener = Box::new(move |port, configuration, region| match parts.parts(&port.name) {
            Some(parts) => device::adopt(port, configuration, region, (parts, &ready)),
            None => device::open(port, configuration, region, &ready),
        });
        let inheritance = Some(Arc::clone(inheritance));
        Self { open, probe: preflight::probe, lock: lock_all, spares, inheritance }
    }

    /// Devices that are opened in another way, and that nothing is known of before.
    pub(super) fn opened_by(open: Opener) -> Self {
        let spares = Spares::default();
        Self { open, probe: |_, _| Ok(Vec::new()), lock: |_, _| Ok(Vec::new()), spares, inheritance: None }
    }

    /// Table of the connections that ports carry; `None` if no port does.
    pub(super) fn connections(&self) -> Option<Arc<ConnectionTable>> {
        self.spares.connections()
    }

    /// Prepares for a port that may come after those that a command has added.
    pub(super) fn prepare(&self, region: &Region) {
        self.spares.prepare(region);
    }

    /// Lets others have the CPU first while devices are opened, where another process still forwards.
    pub(super) fn step_back(&self) -> Option<SteppedBack> {
        self.inheritance.as_ref().and_then(|inheritance| inheritance.step_back())
    }

    /// Locks the interfaces of `ports` for as long as the result lives: each open port has its own after that. The locks of a
    /// gateway that is gone on with come with its state.
    ///
    /// # Errors
    /// When another gateway has one of them.
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

    /// Opens the device of `port`, unless it is not there, or is the punt path, without which the others can do.
    ///
    /// # Errors
    /// When it is there, and cannot be opened.
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
    pub(super) fn facts(&self) -> Option<(PortId, Facts)> {
        match self {
            Self::Open(OpenPort { id, facts, .. }) => Some((*id, facts.clone())),
            Self::Waiting { .. } => None,
        }
    }
}
