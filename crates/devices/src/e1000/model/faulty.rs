//! Faults of a broken device: permanent ([`FaultyDevice`]), or once ([`Fault`]).

/// Permanent faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultyDevice {
    /// A reset never ends.
    pub never_resets: bool,
    /// The EEPROM's checksum is wrong.
    pub bad_eeprom: bool,
    /// The EEPROM has no address.
    pub no_address: bool,
    /// The EEPROM does not answer.
    pub silent_eeprom: bool,
    /// The PHY does not answer.
    pub no_phy: bool,
    /// Accesses to the PHY never complete.
    pub silent_phy: bool,
}

/// Deviation of the model from the manual, one at a time: a judge of the model has to detect each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The EEPROM's serial port returns the bytes of a word in the wrong order.
    SwapsEeprom,
    /// The last byte of each received frame is changed.
    ChangesByte,
    /// A wrong transport checksum is reported as right.
    PassesChecksums,
    /// Every frame passes the filter.
    AcceptsAll,
    /// The tag of a descriptor is not inserted.
    LeavesTagOut,
    /// The transport checksum is not computed.
    LeavesChecksum,
    /// All segments of a packet have the sequence number of the first.
    KeepsSequence,
    /// FCS bytes of sent frames are not counted.
    CountsShort,
    /// Missed frames are not counted.
    ForgetsMissed,
    /// The throttle delays nothing.
    IgnoresThrottle,
    /// A link change raises no interrupt.
    HidesLink,
}

/// Fault of the next received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its last descriptor has this length.
    Length(u16),
    /// Its last descriptor has these error bits.
    Errors(u8),
    /// Its last descriptor has these status bits instead of its own.
    Status(u8),
    /// The address in its last descriptor is overwritten.
    ForeignBuffer(u64),
}
