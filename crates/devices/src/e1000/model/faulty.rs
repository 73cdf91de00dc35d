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
    /// The EEPROM never answers.
    pub silent_eeprom: bool,
    /// No PHY answers.
    pub no_phy: bool,
    /// Accesses to the PHY never end.
    pub silent_phy: bool,
}

/// Deviation of the model from the manual, one at a time: a judge of the model has to find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The EEPROM's serial port gives the bytes of a word in the wrong order.
    SwapsEeprom,
    /// The last byte of each received frame is changed.
    ChangesByte,
    /// A wrong transport checksum is reported as right.
    PassesChecksums,
    /// Every frame passes the filter.
    AcceptsAll,
    /// A descriptor's tag is left out.
    LeavesTagOut,
    /// A transport checksum is left as the driver wrote it.
    LeavesChecksum,
    /// All segments of a packet have the sequence number of the first.
    KeepsSequence,
    /// Bytes of sent frames are counted without their FCS.
    CountsShort,
    /// Missed frames are not counted.
    ForgetsMissed,
    /// The throttle delays nothing.
    IgnoresThrottle,
    /// A change of the link is no cause of an interrupt.
    HidesLink,
}

/// Fault of the next received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Its last descriptor has this length.
    Length(u16),
    /// Its last descriptor has these error bits.
    Errors(u8),
    /// Its last descriptor has these status bits, in place of its own.
    Status(u8),
    /// The address in its last descriptor is written over.
    ForeignBuffer(u64),
}
