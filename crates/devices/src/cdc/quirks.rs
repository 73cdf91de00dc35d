//! Devices that need something else than the specification says, one row each.
//!
//! Source: the tables of `cdc_ncm` and `cdc_ether` of Linux, read for facts.

/// Departures from the usual way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// A transfer of whole packets is ended by one without data, not by a byte of padding.
    pub zero_packet: bool,
    /// The table of a block stands behind its datagrams.
    pub table_at_end: bool,
}

/// Vendor, product if only that one, and the departures.
const TABLE: &[(u16, Option<u16>, Quirks)] = &[
    // DisplayLink docks.
    (0x17e9, None, Quirks { zero_packet: true, table_at_end: false }),
    // Huawei modems.
    (0x12d1, None, Quirks { zero_packet: false, table_at_end: true }),
];

/// Departures of a device.
pub fn quirks(vendor: u16, product: u16) -> Quirks {
    let row = TABLE.iter().find(|&&(one, of, _)| one == vendor && of.is_none_or(|of| of == product));
    row.map_or_else(Quirks::default, |&(_, _, quirks)| quirks)
}
