//! Published status of an adapter, readable from any thread.

use super::init::{DeviceProperties, MacSource};
use super::phy::Phy;
use super::statistics::{Block, Totals};
use crate::Link;
use crate::usb::{Connection, Speed};
use polder_datapath::counters::Counter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Published status of a port.
pub type PortStatus = crate::usb::PortStatus<AdapterStatus>;

/// Published status of an adapter.
#[derive(Debug, Default)]
pub struct AdapterStatus {
    properties: Mutex<Properties>,
    /// Checksums of received frames.
    pub checksums: Arc<ChecksumCounters>,
}

/// Counters of checksums of received frames.
#[derive(Debug, Default)]
pub struct ChecksumCounters {
    /// Received frames in which the adapter found a wrong checksum of IP, TCP or UDP.
    pub errors: Counter,
    /// Received frames whose bytes do not match the adapter's sum, though it reported no error.
    pub mismatches: Counter,
}

/// Properties that seldom change.
#[derive(Clone, Debug, Default)]
struct Properties {
    chip: Option<(&'static str, u16)>,
    mac: Option<([u8; 6], MacSource)>,
    phy: Option<Phy>,
    statistics: Option<Totals>,
}

/// Properties of an open port that seldom change.
#[derive(Clone, Debug, Default)]
pub struct PortProperties {
    /// Bus and address of the device.
    pub place: String,
    /// Speed of the bus; `None` before the port is open.
    pub bus: Option<Speed>,
    /// The chip's name and revision.
    pub chip: Option<(&'static str, u16)>,
    /// Its MAC address and the source of it.
    pub mac: Option<([u8; 6], MacSource)>,
    /// The PHY, if there is one.
    pub phy: Option<Phy>,
    /// The link.
    pub link: Link,
    /// True if the port is closed.
    pub closed: bool,
    /// The adapter's own counters since the port was opened.
    pub statistics: Option<Totals>,
}

impl AdapterStatus {
    fn lock(&self) -> MutexGuard<'_, Properties> {
        self.properties.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_found(&self, found: &DeviceProperties) {
        *self.lock() = Properties {
            chip: Some((found.chip.name(), found.revision)),
            mac: Some((found.mac, found.mac_source)),
            phy: found.phy,
            statistics: Some(Totals::new(found.statistics)),
        };
    }

    pub(super) fn update_statistics(&self, block: Block) {
        if let Some(totals) = &mut self.lock().statistics {
            totals.update(block);
        }
    }
}

impl PortStatus {
    /// Returns the properties that seldom change.
    pub fn facts(&self) -> PortProperties {
        let Connection { place, bus, link, closed } = self.connection();
        let Properties { chip, mac, phy, statistics } = self.function.lock().clone();
        PortProperties { place, bus, chip, mac, phy, link, closed, statistics }
    }
}
