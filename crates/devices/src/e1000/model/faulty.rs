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
