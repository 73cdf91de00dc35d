//! Properties of the imitated device.

use super::{FaultyDevice, Mutant};

/// Properties of the imitated device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its MAC address, in the EEPROM.
    pub mac: [u8; 6],
    /// True if the partner takes part in flow control.
    pub partner_pauses: bool,
    /// True if the throttle delays interrupts, for which time has to pass by [`Nic::advance`](super::Nic::advance).
    pub throttles: bool,
    /// True if statistics stay when they are read, as those of an emulated device may.
    pub keeps_statistics: bool,
    /// Permanent faults.
    pub faulty: FaultyDevice,
    /// Deviation from the manual, if there is one.
    pub mutant: Option<Mutant>,
}

impl Default for Options {
    /// An honest device on a gigabit link, whose interrupts come at once.
    fn default() -> Self {
        Self {
            mac: [0x52, 0x54, 0x00, 0x0e, 0x10, 0x00],
            partner_pauses: true,
            throttles: false,
            keeps_statistics: false,
            faulty: FaultyDevice::default(),
            mutant: None,
        }
    }
}
