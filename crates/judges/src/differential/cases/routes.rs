//! Routes that lead nowhere, and errors that are sent or must not be sent, in both families.

use super::{BACK, BACK_V6, Cases, FAR, FAR_V6, doc};
use crate::differential::packet::{IPV4, IPV6, Sum, TCP, Upper, V4, V6, frame, link};
use crate::differential::twin::Side;

pub(super) fn add(cases: &mut Cases) {
    let v4 = [
        ("unreachable", [203, 0, 113, 7]),
        ("prohibit", [198, 51, 100, 7]),
        ("blackhole", [198, 51, 100, 200]),
        ("throw", [192, 0, 2, 7]),
        ("none", [193, 0, 0, 7]),
        ("back", BACK),
        ("far", FAR),
    ];
    for (route, destination) in v4 {
        for (name, packet) in troubles(destination) {
            cases.v4(format!("v4/route/{route}/{name}"), &packet);
            cases.v4(format!("v4/route/{route}/{name}/expired"), &V4 { hops: 1, ..packet });
        }
    }
    let v6 = [
        ("unreachable", doc(0x203)),
        ("prohibit", doc(0x198)),
        ("blackhole", doc(0x199)),
        ("throw", doc(0x192)),
        ("none", doc(0x193)),
        ("back", BACK_V6),
        ("far", FAR_V6),
    ];
    for (route, destination) in v6 {
        for (name, packet) in troubles_v6(destination) {
            cases.v6(format!("v6/route/{route}/{name}"), &packet);
            cases.v6(format!("v6/route/{route}/{name}/expired"), &V6 { hops: 1, ..packet });
        }
    }
    by_groups(cases);
}

/// Packets for an unreachable `destination`; for some of these an ICMP error must never be sent.
fn troubles(destination: [u8; 4]) -> Vec<(String, V4)> {
    let good = V4::udp(destination);
    let mut list = vec![
        ("udp".to_owned(), good.clone()),
        ("tcp".to_owned(), V4 { upper: Upper::Tcp(Sum::Right, 9), ..good.clone() }),
        ("long".to_owned(), V4 { upper: Upper::Udp(Sum::Right, 1000), ..good.clone() }),
        ("longest-quote".to_owned(), V4 { upper: Upper::Udp(Sum::Right, 520), ..good.clone() }),
        ("later-fragment".to_owned(), V4 { fragment: 0x2010, ..good.clone() }),
        ("unspecified".to_owned(), V4 { source: [0; 4], ..good.clone() }),
        ("from-group".to_owned(), V4 { source: [224, 0, 0, 9], ..good.clone() }),
    ];
    for kind in [0, 3, 4, 5, 8, 9, 10, 11, 12, 13, 17, 41, 255] {
        let inside = V4::udp([192, 0, 2, 99]).bytes();
        let upper = Upper::Icmp(kind, 0, [0; 4], inside);
        list.push((format!("icmp-{kind}"), V4 { upper, ..good.clone() }));
    }
    let short = Upper::Raw(1, vec![3]);
    list.push(("icmp-of-one-byte".to_owned(), V4 { upper: short, ..good.clone() }));
    list.push(("icmp-of-no-byte".to_owned(), V4 { upper: Upper::Raw(1, Vec::new()), ..good }));
    list
}

fn troubles_v6(destination: [u8; 16]) -> Vec<(String, V6)> {
    let good = V6::udp(destination);
    let group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9];
    let later = vec![(44, vec![0, 0, 0, 0x81, 0, 0, 0, 5])];
    let mut list = vec![
        ("udp".to_owned(), good.clone()),
        ("tcp".to_owned(), V6 { upper: Upper::Tcp(Sum::Right, 9), ..good.clone() }),
        ("long".to_owned(), V6 { upper: Upper::Udp(Sum::Right, 1300), ..good.clone() }),
        ("longest-quote".to_owned(), V6 { upper: Upper::Udp(Sum::Right, 1184), ..good.clone() }),
        ("later-fragment".to_owned(), V6 { headers: later, ..good.clone() }),
        ("unspecified".to_owned(), V6 { source: [0; 16], ..good.clone() }),
        ("from-group".to_owned(), V6 { source: group, ..good.clone() }),
        ("class".to_owned(), V6 { class: 0xb8, ..good.clone() }),
        ("label".to_owned(), V6 { label: 0x12345, ..good.clone() }),
    ];
    for kind in [1, 2, 3, 4, 5, 127, 128, 129, 130, 133, 135, 136, 137, 255] {
        let inside = V6::udp(doc(0x99)).bytes();
        let upper = Upper::Icmp(kind, 0, [0; 4], inside);
        list.push((format!("icmp-{kind}"), V6 { upper, ..good.clone() }));
    }
    let short = Upper::Raw(58, vec![1]);
    list.push(("icmp-of-one-byte".to_owned(), V6 { upper: short, ..good.clone() }));
    let options = vec![(60, vec![0, 0, 1, 4, 0, 0, 0, 0])];
    let upper = Upper::Icmp(1, 0, [0; 4], vec![0; 48]);
    list.push(("icmp-error-behind-options".to_owned(), V6 { headers: options, upper, ..good }));
    list
}

/// Multicast and broadcast frames with invalid contents; no ICMP error is sent for them.
fn by_groups(cases: &mut Cases) {
    let groups = [
        ("broadcast", [0xff; 6]),
        ("multicast", [1, 0, 0x5e, 0, 0, 5]),
        ("multicast-v6", [0x33, 0x33, 0, 0, 0, 5]),
    ];
    let tcp = Upper::Tcp(Sum::Right, 0);
    for (name, to) in groups {
        let source = Side::West.station_mac();
        for (what, hops, destination) in
            [("far", 64, FAR), ("expired", 1, FAR), ("unreachable", 64, [203, 0, 113, 7])]
        {
            let packet = V4 { hops, upper: tcp.clone(), ..V4::udp(destination) };
            debug_assert_eq!(packet.bytes()[9], TCP);
            cases.raw(format!("link/{name}/v4/{what}"), link(to, source, IPV4, &packet.bytes()));
        }
        for (what, hops, destination) in
            [("far", 64, FAR_V6), ("expired", 1, FAR_V6), ("unreachable", 64, doc(0x203))]
        {
            let packet = V6 { hops, upper: tcp.clone(), ..V6::udp(destination) };
            cases.raw(format!("link/{name}/v6/{what}"), link(to, source, IPV6, &packet.bytes()));
        }
    }
    // A packet whose sender is on another link than it came by.
    let odd = V4 { source: Side::South.station_v4(), hops: 1, ..V4::udp(FAR) };
    cases.raw("v4/route/far/of-another-link/expired", frame(Side::West, IPV4, &odd.bytes()));
    let odd = V6 { source: Side::South.station_v6(), hops: 1, ..V6::udp(FAR_V6) };
    cases.raw("v6/route/far/of-another-link/expired", frame(Side::West, IPV6, &odd.bytes()));
}
