//! Inputs of the headers before GRE in IPv6: a byte of options, then packets. The oracle defines the
//! options.

use super::Seeds;
use polder_datapath::wire::Ipv6Options;
use polder_datapath::wire::{EtherType, GreHeader, GreMut, IpProtocol};

const GRE: u8 = 47;
const FRAGMENT: u8 = 44;
const OPTIONS: u8 = 60;
const ALL: u8 = 7;

fn gre(choice: u8, sequence: u32) -> Vec<u8> {
    let header = GreHeader {
        protocol: EtherType::TRANSPARENT_ETHERNET,
        checksum: choice & 1 != 0,
        key: (choice & 2 != 0).then_some(0x0102_0304),
        sequence: (choice & 4 != 0).then_some(sequence),
    };
    let mut bytes = vec![0x5a; header.header_bytes() + 60];
    header.emit(&mut bytes).expect("room");
    GreMut::parse(&mut bytes).expect("a header of ours").set_checksum([]);
    bytes
}

fn packet(next: u8, claimed: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let words = u8::try_from(content.len() / 4).expect("a short packet");
    [&[next, claimed, words][..], &content].concat()
}

pub(crate) fn seeds() -> Seeds {
    let limit = |next: u8| Ipv6Options::with_limit(IpProtocol(next), 4);
    let fragment = |next: u8, word: u8| [next, 0, 0, word, 1, 2, 3, 4];
    let one = |choice: u8, packet: Vec<u8>| [vec![choice], packet].concat();
    vec![
        ("empty", Vec::new()),
        ("plain", one(0, packet(GRE, 0, &[&gre(0, 0)]))),
        ("all", one(ALL, packet(OPTIONS, 0, &[&limit(GRE), &gre(ALL, 7)]))),
        ("late", {
            let packets = [8, 9, 9, 7].map(|number| packet(GRE, 0, &[&gre(ALL, number)])).concat();
            one(ALL, packets)
        }),
        ("atomic", one(0, packet(FRAGMENT, 0, &[&fragment(GRE, 0), &gre(0, 0)]))),
        ("fragment", one(0, packet(OPTIONS, 0, &[&limit(FRAGMENT), &fragment(GRE, 1), &gre(0, 0)]))),
        ("to-be-understood", one(0, packet(OPTIONS, 0, &[&[GRE, 0, 0xc2, 4, 0, 0, 0, 0], &gre(0, 0)]))),
        ("option-beyond", one(0, packet(OPTIONS, 0, &[&[GRE, 0, 1, 5, 0, 0, 0, 0], &gre(0, 0)]))),
        ("routing", one(0, packet(43, 0, &[&[GRE, 0, 0, 0, 0, 0, 0, 0], &gre(0, 0)]))),
        ("too-many", one(0, packet(OPTIONS, 0, &[&limit(OPTIONS).repeat(4), &limit(GRE), &gre(0, 0)]))),
        ("claims-more", one(0, packet(GRE, 255, &[&gre(0, 0)]))),
        ("claims-less", one(0, packet(GRE, 17, &[&gre(0, 0)]))),
    ]
}
