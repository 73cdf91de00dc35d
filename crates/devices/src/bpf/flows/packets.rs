//! Routed packets for tests of programs.

use polder_datapath::fast_path::AddressPair;
use polder_datapath::wire::{Checksum, MacAddress};
use std::net::IpAddr;

const ROUTER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];

pub(crate) fn pairs() -> [AddressPair; 2] {
    [("10.0.0.5", "20.0.0.1"), ("2001:db8::5", "3000::1")].map(|ends| {
        let [source, destination] =
            <[&str; 2]>::from(ends).map(|text| text.parse::<IpAddr>().expect("an address"));
        AddressPair { source, destination, tag: None, station: MacAddress(ROUTER) }
    })
}

/// An ordinary packet of each entry.
pub(crate) fn plain() -> [Vec<u8>; 2] {
    [v4(&[]), v6(&[])]
}

/// An IPv4 packet with changes of its header, of which the checksum takes account.
pub(crate) fn v4(changes: &[(usize, u8)]) -> Vec<u8> {
    let mut ip = [0x45, 0, 0, 60, 0, 7, 0, 0, 64, 17, 0, 0, 10, 0, 0, 5, 20, 0, 0, 1].to_vec();
    changes.iter().for_each(|&(at, value)| ip[at] = value);
    let mut sum = Checksum::new();
    sum.add(&ip);
    let sum = sum.finish().to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    frame([8, 0], &[&ip[..], &[0x5a; 40]].concat())
}

/// An IPv6 packet with changes of its header.
pub(crate) fn v6(changes: &[(usize, u8)]) -> Vec<u8> {
    let ends = pairs()[1];
    let octets = [ends.source, ends.destination].map(|address| match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(_) => unreachable!("the pair of IPv6"),
    });
    let mut ip = [&[0x6b, 0x80, 0, 0, 0, 40, 17, 64][..], octets.as_flattened()].concat();
    changes.iter().for_each(|&(at, value)| ip[at] = value);
    frame([0x86, 0xdd], &[&ip[..], &[0x5a; 40]].concat())
}

fn frame(kind: [u8; 2], ip: &[u8]) -> Vec<u8> {
    [&ROUTER[..], &SENDER, &kind, ip].concat()
}
