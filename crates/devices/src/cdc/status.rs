//! Published status of a function, readable from any thread.

use super::descriptor::Subclass;
use super::init::{DeviceProperties, Ntb};
use super::ntb::Fault;
use crate::Link;
use crate::usb::{Connection, Speed};
use polder_datapath::counters::Counter;
use std::sync::{Arc, Mutex, PoisonError};

/// Published status of a port.
pub type PortStatus = crate::usb::PortStatus<FunctionStatus>;

/// Published status of a CDC network function.
#[derive(Debug, Default)]
pub struct FunctionStatus {
    found: Mutex<Option<Properties>>,
    /// Received blocks and datagrams.
    pub blocks: Arc<BlockCounters>,
}

/// Counters of received blocks.
#[derive(Debug, Default)]
pub struct BlockCounters {
    /// Number of datagrams that became packets.
    pub datagrams: Counter,
    /// Number of datagrams with a wrong checksum.
    pub wrong_crc: Counter,
    faults: [Counter; Fault::ALL.len()],
}

impl BlockCounters {
    pub(super) fn count(&self, fault: Fault) {
        if let Some(at) = Fault::ALL.iter().position(|&other| other == fault) {
            self.faults[at].add(1);
        }
    }

    /// Returns the number of blocks that could not be parsed to their end.
    pub fn faults(&self, fault: Fault) -> u64 {
        Fault::ALL.iter().position(|&other| other == fault).map_or(0, |at| self.faults[at].get())
    }
}

/// Constant properties of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Subclass.
    pub subclass: Subclass,
    /// Vendor ID and product ID of the device.
    pub identity: (u16, u16),
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Maximum frame length in bytes, Ethernet header included, FCS excluded.
    pub longest: u16,
    /// Its block parameters, if it uses blocks.
    pub ntb: Option<Ntb>,
}

/// Properties of an open port that seldom change.
#[derive(Clone, Debug, Default)]
pub struct PortProperties {
    /// Bus and address of the device.
    pub place: String,
    /// Speed of the bus; `None` before the port is open.
    pub bus: Option<Speed>,
    /// The link.
    pub link: Link,
    /// True if the port is closed.
    pub closed: bool,
    /// The function; `None` before the port is open.
    pub function: Option<Properties>,
}

impl FunctionStatus {
    pub(super) fn set_found(&self, found: &DeviceProperties) {
        let DeviceProperties { function, identity, mac, ntb, .. } = *found;
        let (subclass, longest) = (function.subclass, function.longest);
        let properties = Properties { subclass, identity, mac, longest, ntb };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(properties);
    }
}

impl PortStatus {
    /// Returns the properties that seldom change.
    pub fn facts(&self) -> PortProperties {
        let Connection { place, bus, link, closed } = self.connection();
        let function = *self.function.found.lock().unwrap_or_else(PoisonError::into_inner);
        PortProperties { place, bus, link, closed, function }
    }
}
