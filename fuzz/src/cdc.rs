//! Inputs from a CDC network function: blocks and descriptors, valid and odd.

use super::Seeds;
use polder_devices::cdc::Subclass;
use polder_devices::cdc::model::{Device, Options, Style, encode};
use polder_devices::usb::model::Model as _;
use polder_devices::usb::{Setup, Speed, Urb, UrbBuffer};

fn frames(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| vec![0x5a; 60 + number]).collect()
}

pub(super) fn blocks() -> Seeds {
    let usual = Style::default();
    let one = encode(&frames(1), &usual);
    let mut looped = encode(&frames(2), &usual);
    let table = u16::from_le_bytes([looped[10], looped[11]]);
    let link = usize::from(table) + 6;
    looped[link..link + 2].copy_from_slice(&table.to_le_bytes());
    let mut beyond = one.clone();
    beyond[8] = 0xff;
    // Each entry is the whole of the nine frames.
    let mut overlapping = encode(&frames(9), &usual);
    let entries = usize::from(u16::from_le_bytes([overlapping[10], overlapping[11]])) + 8;
    for entry in overlapping[entries..entries + 9 * 4].chunks_exact_mut(4) {
        entry.copy_from_slice(&[12, 0, 0x3a, 2]);
    }
    vec![
        ("one", one.clone()),
        ("several", encode(&frames(9), &usual)),
        ("chained", encode(&frames(9), &Style { per_table: 2, ..usual })),
        ("table-in-front", encode(&frames(3), &Style { table_at_end: false, ..usual })),
        ("crc", encode(&frames(3), &Style { crc: true, ..usual })),
        ("wide", encode(&frames(3), &Style { wide: true, per_table: 1, ..usual })),
        ("wide-crc", encode(&frames(3), &Style { wide: true, crc: true, ..usual })),
        ("open-length", encode(&frames(2), &Style { open_length: true, ..usual })),
        ("aligned", encode(&frames(3), &Style { divisor: 64, remainder: 10, alignment: 32, ..usual })),
        ("no-frames", encode(&[], &usual)),
        ("loop", looped),
        ("length-beyond", beyond),
        ("overlapping", overlapping),
        ("cut", one[..one.len() - 1].to_vec()),
        ("header-alone", one[..12].to_vec()),
        ("empty", Vec::new()),
    ]
}

pub(super) fn descriptors() -> Seeds {
    let ncm = configuration(Options::default());
    let mut endless = ncm.clone();
    endless[9] = 0;
    vec![
        ("ncm", ncm.clone()),
        ("ncm-super", configuration(Options { speed: Speed::Super, ..Options::default() })),
        ("ecm", configuration(Options { subclass: Subclass::Ecm, ..Options::default() })),
        ("length-zero", endless),
        ("cut", ncm[..40].to_vec()),
        ("empty", Vec::new()),
    ]
}

/// The configuration of a model.
fn configuration(options: Options) -> Vec<u8> {
    let mut device = Device::new(options);
    let setup = Setup { kind: Setup::IN, request: 6, value: 0x0200, index: 0, length: 512 };
    device.submit(Urb::new(0, 0, setup, UrbBuffer::heap(512), 512));
    device.complete().map(|done| done.received().to_vec()).unwrap_or_default()
}
