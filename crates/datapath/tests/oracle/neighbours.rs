//! ARP and neighbour discovery: what stations say of themselves, as frames for a router.
//!
//! An input is records of a kind and 64 bytes. A kind says by which port the frame comes (bits 4 and 5), whether
//! it is ARP or IPv6 (bit 0), and how far its headers are mended (bits 1 to 3): else the bytes stand as they are.
//! Frames of IPv6 have a right checksum, which no fuzzer finds.

use super::{ethernet, naive_pseudo_sum, route};

const RECORD: usize = 65;
const IS_ND: u8 = 1;
/// Fields that have one value in Ethernet, and the operation.
const MEND_HEADER: u8 = 2;
/// The router's address is asked for.
const MEND_TARGET: u8 = 4;
/// The sender is a station of the link.
const MEND_SENDER: u8 = 8;

/// Every frame through the oracles of Ethernet, and all of them through those of the routing stage.
pub(crate) fn neighbours(bytes: &[u8]) {
    let mut steps = Vec::new();
    for record in bytes.chunks(RECORD).take(40) {
        let (kind, rest) = (record[0], &record[1..]);
        let frame = if kind & IS_ND == 0 { arp(kind, rest) } else { nd(kind, rest) };
        ethernet(&frame);
        steps.extend([kind & 0x30, u8::try_from(frame.len()).expect("a short frame")]);
        steps.extend(frame);
    }
    route(&steps);
}

fn arp(kind: u8, rest: &[u8]) -> Vec<u8> {
    let network = kind >> 4 & 3;
    let source = [2, 0, 0, 0, network, 9];
    let mut payload = rest.to_vec();
    if let Some(header) = payload.first_chunk_mut::<28>() {
        if kind & MEND_HEADER != 0 {
            header[..7].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0]);
            header[7] &= 3;
        }
        if kind & MEND_TARGET != 0 {
            header[24..].copy_from_slice(&[10, 0, network, 1]);
        }
        if kind & MEND_SENDER != 0 {
            header[8..14].copy_from_slice(&source);
            header[14..17].copy_from_slice(&[10, 0, network]);
        }
    }
    [&[0xff; 6], &source[..], &[8, 6], &payload].concat()
}

fn nd(kind: u8, rest: &[u8]) -> Vec<u8> {
    let network = kind >> 4 & 3;
    let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, network, 0, 0, 0, 0, 0, 0, 0, last];
    let (own, mut sender, mut message) = (address(1), address(9), rest.to_vec());
    if kind & MEND_SENDER == 0 {
        message.iter().zip(&mut sender).for_each(|(byte, field)| *field ^= byte & 0x81);
    }
    if let Some(head) = message.first_chunk_mut::<24>() {
        if kind & MEND_HEADER != 0 {
            // A solicitation or an advertisement.
            (head[0], head[1]) = (135 + (head[0] & 1), 0);
        }
        if kind & MEND_TARGET != 0 {
            let target = if head[0] == 136 { sender } else { own };
            head[8..].copy_from_slice(&target);
        }
    }
    if message.len() >= 4 {
        message[2..4].fill(0);
        let sum = !naive_pseudo_sum(&sender, &own, 58, &message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    let length = u8::try_from(message.len()).expect("64 bytes at most");
    let ip = [&[0x60, 0, 0, 0, 0, length, 58, 255], &sender[..], &own[..]].concat();
    let mac = [2, 0, 0, 0, 0, [0, 1, 2, 2][usize::from(network)]];
    [&mac, &[2, 0, 0, 0, network, 9][..], &[0x86, 0xdd], &ip, &message].concat()
}
