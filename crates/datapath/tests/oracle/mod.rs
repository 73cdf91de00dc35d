//! Results of the parsers for any bytes, checked against etherparse, smoltcp and references written
//! from the RFCs.
//!
//! One function a target takes bytes and panics where they disagree. The property tests, the replay
//! of the committed inputs and the fuzzer run the same functions. Where the rules of an oracle differ
//! from ours, the comparison says so in a comment that starts with "Differs".

mod bpf;
mod checksum;
pub(crate) mod coalesce;
pub(crate) mod ends;
mod ethernet;
mod gre;
mod ip;
mod neighbours;
mod outer_v6;
mod route;
mod summary;
mod tcp;
mod tunnel;
pub(crate) mod vxlan;

pub(crate) use bpf::bpf;
pub(crate) use checksum::checksum_chain;
pub(crate) use coalesce::coalesce;
pub(crate) use ethernet::ethernet;
pub(crate) use gre::gre;
pub(crate) use ip::{ipv4, ipv6};
pub(crate) use neighbours::neighbours;
pub(crate) use outer_v6::outer_v6;
pub(crate) use route::route;
pub(crate) use tcp::tcp;
pub(crate) use tunnel::tunnel;

/// The name of a fuzz target and of its folder of inputs, and its oracles.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target.
pub(crate) const TARGETS: [Target; 12] = [
    ("ethernet", ethernet),
    ("ipv4", ipv4),
    ("ipv6", ipv6),
    ("gre", gre),
    ("tcp", tcp),
    ("checksum_chain", checksum_chain),
    ("tunnel", tunnel),
    ("outer_v6", outer_v6),
    ("route", route),
    ("neighbours", neighbours),
    ("coalesce", coalesce),
    ("bpf", bpf),
];

/// The one's complement sum of RFC 1071, word by word, an odd last byte padded with zero.
pub(crate) fn naive_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for word in bytes.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded after every word")
}

/// The sum over a pseudo-header, as bytes, and the message behind it.
pub(crate) fn naive_pseudo_sum(source: &[u8], destination: &[u8], protocol: u8, message: &[u8]) -> u16 {
    let length = u32::try_from(message.len()).expect("a small message");
    let pseudo = [source, destination, &length.to_be_bytes(), &[0, 0, 0, protocol]].concat();
    naive_sum(&[&pseudo, message].concat())
}
