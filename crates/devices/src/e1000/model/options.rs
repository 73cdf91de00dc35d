//! Properties of the modelled device.

use super::{FaultyDevice, Mutant};

/// Properties of the modelled device.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its MAC address, in the EEPROM.
    pub mac: [u8; 6],
    /// True if the partner supports flow control.
    pub partner_pauses: bool,
    /// True if the throttle delays interrupts; [`Nic::advance`](super::Nic::advance) then has to advance the
    /// time.
    pub throttles: bool,
    /// True if reading does not clear statistics, as with some emulated devices.
    pub keeps_statistics: bool,
    /// Permanent faults.
    pub faulty: FaultyDevice,
    /// Deviation from the manual, if any.
    pub mutant: Option<Mutant>,
}

impl Default for Options {
    /// Returns a correct device on a gigabit link, with immediate interrupts.
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
