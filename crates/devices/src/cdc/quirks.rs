//! Devices that deviate from the specification, one row each.
//!
//! Source: the tables of `cdc_ncm` and `cdc_ether` of Linux, read for facts.

/// Deviations of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// A transfer that ends with a full packet is terminated by a zero-length packet instead of a byte of
    /// padding.
    pub zero_packet: bool,
    /// The table of a block follows its datagrams.
    pub table_at_end: bool,
}

/// Vendor ID, product ID if the row is for one product, and the deviations.
const TABLE: &[(u16, Option<u16>, Quirks)] = &[
    // DisplayLink docks.
    (0x17e9, None, Quirks { zero_packet: true, table_at_end: false }),
    // Huawei modems.
    (0x12d1, None, Quirks { zero_packet: false, table_at_end: true }),
];

/// Returns the deviations of a device.
pub fn quirks(vendor: u16, product: u16) -> Quirks {
    let row = TABLE.iter().find(|&&(one, of, _)| one == vendor && of.is_none_or(|of| of == product));
    row.map_or_else(Quirks::default, |&(_, _, quirks)| quirks)
}
