//! Sources and destinations of IPv6 that no station has, or that are not to be routed.

use super::{Cases, FAR_V6, NARROW_V6};
use crate::differential::packet::{IPV6, Upper, V6, frame};
use crate::differential::twin::Side;
use std::net::Ipv6Addr;

const ODD: [&str; 38] = [
    "::",
    "::1",
    "::2",
    "::10.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:0:0",
    "64:ff9b::1",
    "100::1",
    "100::ffff",
    "1::1",
    "2001::1",
    "2001:db8:18::1",
    "2001:db8:ffff::1",
    "2002:7f00:1::1",
    "2002:a00:1::1",
    "2002:e000:1::1",
    "3fff::1",
    "fc00::1",
    "fd00::1",
    "fe80::",
    "fe80::1",
    "fe80::7",
    "febf::1",
    "fec0::1",
    "feff::1",
    "ff00::1",
    "ff01::1",
    "ff02::1",
    "ff02::2",
    "ff02::5",
    "ff02::1:ff00:1",
    "ff03::1",
    "ff05::2",
    "ff08::1",
    "ff0e::1",
    "ff1e::1",
    "ff32::8000:1",
];

fn list() -> Vec<(String, [u8; 16])> {
    let mut list = Vec::new();
    for text in ODD {
        list.extend(text.parse::<Ipv6Addr>().ok().map(|address| (text.to_owned(), address.octets())));
    }
    for side in Side::ALL {
        let name = side.name();
        list.push((format!("{name}-router"), side.router_v6()));
        list.push((format!("{name}-station"), side.station_v6()));
        let mut anycast = side.router_v6();
        anycast[15] = 0;
        list.push((format!("{name}-anycast"), anycast));
        list.push((format!("{name}-router-link-local"), side.router_link_local()));
        list.push((format!("{name}-station-link-local"), side.station_link_local()));
    }
    list
}

pub(super) fn add(cases: &mut Cases) {
    for (name, source) in list() {
        let packet = V6 { source, ..V6::udp(FAR_V6) };
        cases.v6(format!("v6/source/{name}"), &packet);
        cases.v6(format!("v6/source/{name}/expired"), &V6 { hops: 1, ..packet });
    }
    for (name, destination) in list() {
        // What reaches a machine's own ports is its own affair, and asked for elsewhere.
        if name.ends_with("router") || name.ends_with("anycast") {
            continue;
        }
        let packet = V6::udp(destination);
        cases.v6(format!("v6/destination/{name}"), &packet);
        cases.v6(format!("v6/destination/{name}/expired"), &V6 { hops: 1, ..packet.clone() });
        let upper = Upper::echo(true);
        cases.v6(format!("v6/destination/{name}/echo"), &V6 { upper, ..packet });
    }
    // Both ends are of one link.
    let (source, destination) = (Side::West.station_link_local(), Side::East.station_link_local());
    cases.v6("v6/both-link-local", &V6 { source, ..V6::udp(destination) });
    for (name, to) in [("far", FAR_V6), ("narrow", NARROW_V6), ("own", Side::East.router_v6())] {
        cases.v6(format!("v6/source-is-destination/{name}"), &V6 { source: to, ..V6::udp(to) });
    }
    for side in [Side::East, Side::South, Side::North] {
        for hops in [64, 1] {
            let packet = V6 { source: Side::West.station_v6(), hops, ..V6::udp(FAR_V6) };
            let frames = vec![frame(side, IPV6, &packet.bytes())];
            cases.several(format!("v6/source/of-west-by-{}/hops-{hops}", side.name()), side, frames);
        }
    }
}
