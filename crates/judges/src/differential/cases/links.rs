//! Frames: addresses that are not the router's, tags, lengths in place of types, padding.

use super::{Cases, FAR, FAR_V6};
use crate::differential::packet::{ARP, IPV4, IPV6, V4, V6, link};
use crate::differential::twin::Side;

const SINGLE: u16 = 0x8100;
const OUTER: u16 = 0x88a8;

pub(super) fn add(cases: &mut Cases) {
    let (own, station) = (Side::West.router_mac(), Side::West.station_mac());
    let packets = [("v4", IPV4, V4::udp(FAR).bytes()), ("v6", IPV6, V6::udp(FAR_V6).bytes())];
    let destinations = [
        ("other-station", [2, 0x90, 0, 0, 9, 9]),
        ("other-side", Side::East.router_mac()),
        ("zero", [0; 6]),
        ("bridges", [1, 0x80, 0xc2, 0, 0, 0]),
        ("group-of-own", [own[0] | 1, own[1], own[2], own[3], own[4], own[5]]),
    ];
    let sources = [
        ("own", own),
        ("zero", [0; 6]),
        ("broadcast", [0xff; 6]),
        ("group", [1, 0, 0x5e, 0, 0, 5]),
        ("unknown", [2, 0x90, 0, 0, 9, 9]),
    ];
    for (family, kind, packet) in &packets {
        for (name, to) in destinations {
            cases.raw(format!("link/to-{name}/{family}"), link(to, station, *kind, packet));
        }
        for (name, from) in sources {
            cases.raw(format!("link/from-{name}/{family}"), link(own, from, *kind, packet));
        }
        tags(cases, family, *kind, packet);
        for (name, odd) in [
            ("length", u16::try_from(packet.len()).unwrap_or(0)),
            ("length-0", 0),
            ("length-1535", 1535),
            ("type-1536", 1536),
            ("arp", ARP),
            ("mpls", 0x8847),
            ("pppoe", 0x8864),
            ("ieee-local", 0x88b5),
        ] {
            cases.raw(format!("link/type-{name}/{family}"), link(own, station, odd, packet));
        }
        let other = if *kind == IPV4 { IPV6 } else { IPV4 };
        cases.raw(format!("link/type-of-other-family/{family}"), link(own, station, other, packet));
        let padded = [packet.clone(), vec![0; 60_usize.saturating_sub(14 + packet.len())]].concat();
        cases.raw(format!("link/padded/{family}"), link(own, station, *kind, &padded));
    }
    let snap = [vec![0xaa, 0xaa, 3, 0, 0, 0, 8, 0], packets[0].2.clone()].concat();
    let length = u16::try_from(snap.len()).unwrap_or(0);
    cases.raw("link/snap/v4", link(own, station, length, &snap));
}

fn tags(cases: &mut Cases, family: &str, kind: u16, packet: &[u8]) {
    let (own, station) = (Side::West.router_mac(), Side::West.station_mac());
    let tagged = |tags: &[(u16, u16)]| {
        let mut inside = Vec::new();
        for (index, (_, control)) in tags.iter().enumerate() {
            inside.extend(control.to_be_bytes());
            inside.extend(tags.get(index + 1).map_or(kind, |(next, _)| *next).to_be_bytes());
        }
        inside.extend_from_slice(packet);
        link(own, station, tags[0].0, &inside)
    };
    let table: [(&str, &[(u16, u16)]); 9] = [
        ("priority", &[(SINGLE, 0)]),
        ("priority-5", &[(SINGLE, 5 << 13)]),
        ("vlan-1", &[(SINGLE, 1)]),
        ("vlan-99", &[(SINGLE, 99)]),
        ("vlan-4095", &[(SINGLE, 4095)]),
        ("outer-0", &[(OUTER, 0)]),
        ("outer-7", &[(OUTER, 7)]),
        ("both-0", &[(SINGLE, 0), (SINGLE, 0)]),
        ("outer-and-inner", &[(OUTER, 7), (SINGLE, 8)]),
    ];
    for (name, list) in table {
        cases.raw(format!("link/tag-{name}/{family}"), tagged(list));
    }
}
