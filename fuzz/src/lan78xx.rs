//! Inputs from a USB adapter: transfers and descriptors, valid and odd.

use super::Seeds;
use polder_devices::lan78xx::descriptor::{self, Chip};
use polder_devices::lan78xx::frame::{RxStatus, TxCommand, rx_a};
use polder_devices::usb::Speed;

/// A bulk-in transfer of frames of these lengths.
fn transfer(lengths: &[u32], bits: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &length in lengths {
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(RxStatus { a: bits | (length + 4), b: 0x1234_0007, c: 0 }.write());
        bytes.resize(bytes.len() + length as usize + 4, 0x5a);
    }
    bytes
}

pub(super) fn receive() -> Seeds {
    let several = transfer(&[60, 61, 62, 63, 14], 0);
    let cut = several[..several.len() - 1].to_vec();
    let command_cut = several[..80 + 9].to_vec();
    let mut long = several.clone();
    long[1] |= 0x3f;
    let mut short = several.clone();
    short[0] = 17;
    vec![
        ("one", transfer(&[60], rx_a::PERFECT)),
        ("tagged", transfer(&[64], rx_a::VLAN)),
        ("errors", transfer(&[60, 60], rx_a::ERRORS)),
        ("several", several),
        ("full", transfer(&[1514, 1514, 1513], 0)),
        ("cut", cut),
        ("command-cut", command_cut),
        ("length-long", long),
        ("length-short", short),
        ("below-shortest", vec![0; 23]),
        ("empty", Vec::new()),
    ]
}

pub(super) fn transmit() -> Seeds {
    let mut several = Vec::new();
    for length in [60, 61, 62, 1514] {
        several.resize(several.len().next_multiple_of(4), 0);
        several.extend(TxCommand::plain(length).expect("a short frame").write());
        several.resize(several.len() + length, 1);
    }
    let cut = several[..several.len() - 1].to_vec();
    vec![("several", several), ("cut", cut), ("command-cut", vec![60; 7]), ("empty", Vec::new())]
}

pub(super) fn descriptors() -> Seeds {
    let high = descriptor::configuration(Speed::High);
    let mut endless = high.clone();
    endless[9] = 0;
    vec![
        ("device-high", descriptor::device(Chip::Lan7800, Speed::High).to_vec()),
        ("device-super", descriptor::device(Chip::Lan7801, Speed::Super).to_vec()),
        ("configuration-super", descriptor::configuration(Speed::Super)),
        ("configuration-cut", high[..30].to_vec()),
        ("length-zero", endless),
        ("configuration-high", high),
        ("store", polder_devices::usb::descriptor::bos().to_vec()),
        ("empty", Vec::new()),
    ]
}
