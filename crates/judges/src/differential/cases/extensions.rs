//! IPv6 extension headers: right, malformed, out of order and forbidden ones.

use super::{Cases, FAR_V6, NARROW_V6};
use crate::differential::packet::{Sum, Upper, V6};
use crate::differential::twin::Side;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION: u8 = 60;

type Chain = Vec<(u8, Vec<u8>)>;

pub(super) fn add(cases: &mut Cases) {
    for (name, headers) in options().into_iter().chain(chains()) {
        let packet = V6 { headers, ..V6::udp(FAR_V6) };
        cases.v6(format!("v6/header/{name}"), &packet);
        cases.v6(format!("v6/header/{name}/expired"), &V6 { hops: 1, ..packet.clone() });
        let upper = Upper::Udp(Sum::Right, 1390);
        let large = V6 { upper, destination: NARROW_V6, ..packet };
        cases.v6(format!("v6/header/{name}/too-big"), &large);
    }
    jumbo(cases);
    for next in [0, 43, 44, 51, 60, 135, 59] {
        // The header that is announced is not there.
        let packet = V6 { protocol: Some(next), upper: Upper::Raw(0, Vec::new()), ..V6::udp(FAR_V6) };
        cases.v6(format!("v6/header/missing-{next}"), &packet);
        cases.v6(format!("v6/header/missing-{next}/expired"), &V6 { hops: 1, ..packet });
    }
    for (name, group) in [("known", [0, 0, 0, 1]), ("unknown", [0, 0, 0x77, 0x77])] {
        let options = vec![(HOP_BY_HOP, vec![0, 0, 5, 2, 0, 0, 1, 0])];
        let destination = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, group[0], group[1], group[2], group[3]];
        let packet = V6 { headers: options, ..V6::udp(destination) };
        cases.v6(format!("v6/header/alert-to-group-{name}"), &packet);
    }
}

/// Headers with options: where an option is not known, its first two bits say what becomes of the packet.
fn options() -> Vec<(String, Chain)> {
    let mut list = Vec::new();
    let table = [
        ("padding", vec![0, 0, 1, 4, 0, 0, 0, 0]),
        ("padding-of-ones", vec![0, 0, 0, 0, 0, 0, 0, 0]),
        ("padding-too-long", [vec![0, 1, 1, 12], vec![0; 12]].concat()),
        ("padding-not-zero", vec![0, 0, 1, 4, 1, 2, 3, 4]),
        ("alert-0", vec![0, 0, 5, 2, 0, 0, 1, 0]),
        ("alert-1", vec![0, 0, 5, 2, 0, 1, 1, 0]),
        ("alert-of-3-bytes", vec![0, 0, 5, 3, 0, 0, 0, 0]),
        ("alert-twice", [vec![0, 1], vec![5, 2, 0, 0], vec![5, 2, 0, 0], vec![1, 4, 0, 0, 0, 0]].concat()),
        ("unknown-skip", vec![0, 0, 0x1e, 4, 1, 2, 3, 4]),
        ("unknown-drop", vec![0, 0, 0x5e, 4, 1, 2, 3, 4]),
        ("unknown-tell", vec![0, 0, 0x9e, 4, 1, 2, 3, 4]),
        ("unknown-tell-stations", vec![0, 0, 0xde, 4, 1, 2, 3, 4]),
        ("unknown-mutable", vec![0, 0, 0x3e, 4, 1, 2, 3, 4]),
        ("option-beyond", vec![0, 0, 0x1e, 40, 1, 2, 3, 4]),
        ("length-beyond", vec![0, 200, 1, 4, 0, 0, 0, 0]),
        ("tunnel-limit", vec![0, 0, 4, 1, 4, 1, 1, 0]),
        ("quick-start", vec![0, 1, 0x26, 6, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0]),
        ("calipso", [vec![0, 1, 7, 8], vec![0; 8], vec![1, 2, 0, 0]].concat()),
        ("rpl", vec![0, 0, 0x63, 4, 0, 0, 0, 0]),
        ("ioam", [vec![0, 1, 0x31, 10], vec![0; 10], vec![0, 0]].concat()),
    ];
    for (kind, place) in [(HOP_BY_HOP, "hop"), (DESTINATION, "destination")] {
        for (name, bytes) in &table {
            list.push((format!("{place}/{name}"), vec![(kind, bytes.clone())]));
        }
    }
    list
}

fn chains() -> Vec<(String, Chain)> {
    let pad = || vec![0, 0, 1, 4, 0, 0, 0, 0];
    let routed = |kind: u8, left: u8| {
        let mut header = vec![0, 2, kind, left, 0, 0, 0, 0];
        header.extend(Side::East.station_v6());
        (ROUTING, header)
    };
    let mut list = Vec::new();
    for kind in [0, 1, 2, 3, 4, 5, 253, 255] {
        list.push((format!("routing-{kind}-left"), vec![routed(kind, 1)]));
        list.push((format!("routing-{kind}-done"), vec![routed(kind, 0)]));
    }
    let fragment = |word: u16| {
        let [high, low] = word.to_be_bytes();
        (FRAGMENT, vec![0, 0, high, low, 0, 0, 0, 9])
    };
    let more: Vec<(&str, Chain)> = vec![
        ("routing-beyond", vec![(ROUTING, vec![0, 9, 0, 1, 0, 0, 0, 0])]),
        ("fragment-atomic", vec![fragment(0)]),
        ("fragment-first", vec![fragment(1)]),
        ("fragment-middle", vec![fragment(0x41)]),
        ("fragment-last", vec![fragment(0x40)]),
        ("fragment-reserved-bits", vec![fragment(0x46)]),
        ("fragment-beyond-64k", vec![fragment(0xfff9)]),
        ("fragment-twice", vec![fragment(1), fragment(1)]),
        ("authentication", vec![(AUTHENTICATION, vec![0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2])]),
        ("hop-not-first", vec![(DESTINATION, pad()), (HOP_BY_HOP, pad())]),
        ("hop-twice", vec![(HOP_BY_HOP, pad()), (HOP_BY_HOP, pad())]),
        (
            "all",
            vec![(HOP_BY_HOP, pad()), (DESTINATION, pad()), routed(4, 0), fragment(1), (DESTINATION, pad())],
        ),
        ("eight-destinations", vec![(DESTINATION, pad()); 8]),
        ("mobility", vec![(135, vec![0, 0, 0, 0, 0, 0, 0, 0])]),
        ("shim", vec![(140, vec![0, 0, 0, 0, 0, 0, 0, 0])]),
        ("identity", vec![(139, vec![0, 0, 0, 0, 0, 0, 0, 0])]),
    ];
    list.extend(more.into_iter().map(|(name, chain)| (name.to_owned(), chain)));
    list
}

/// Jumbograms (RFC 2675), of which no link here is capable.
fn jumbo(cases: &mut Cases) {
    let table = [
        ("right-length", 0_u16, 48_u32),
        ("large", 0, 70_000),
        ("of-65536", 0, 65_536),
        ("small", 0, 100),
        ("with-both-lengths", 48, 70_000),
        ("with-both-small", 48, 48),
        ("of-nothing", 0, 0),
    ];
    for (name, length, payload) in table {
        let header = [vec![0, 0, 0xc2, 4], payload.to_be_bytes().to_vec()].concat();
        let packet = V6 { length: Some(length), headers: vec![(HOP_BY_HOP, header)], ..V6::udp(FAR_V6) };
        cases.v6(format!("v6/jumbo/{name}"), &packet);
        cases.v6(format!("v6/jumbo/{name}/expired"), &V6 { hops: 1, ..packet });
    }
    let misaligned = vec![(HOP_BY_HOP, vec![0, 1, 1, 0, 0xc2, 4, 0, 1, 0x11, 0x70, 1, 4, 0, 0, 0, 0])];
    cases.v6("v6/jumbo/misaligned", &V6 { length: Some(0), headers: misaligned, ..V6::udp(FAR_V6) });
    cases.v6("v6/jumbo/none-but-length-0", &V6 { length: Some(0), ..V6::udp(FAR_V6) });
    let padded = vec![(HOP_BY_HOP, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    let packet = V6 { length: Some(0), headers: padded, ..V6::udp(FAR_V6) };
    cases.v6("v6/jumbo/options-but-length-0", &packet);
}
