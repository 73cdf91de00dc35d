//! IPv4 options: right, malformed and forbidden ones.

use super::{Cases, DF, FAR, NARROW};
use crate::differential::packet::{Sum, Upper, V4};
use crate::differential::twin::Side;

pub(super) fn add(cases: &mut Cases) {
    for (name, options) in table() {
        let packet = V4 { options, ..V4::udp(FAR) };
        cases.v4(format!("v4/option/{name}"), &packet);
        cases.v4(format!("v4/option/{name}/expired"), &V4 { hops: 1, ..packet.clone() });
        let upper = Upper::Udp(Sum::Right, 1420);
        let large = V4 { destination: NARROW, upper, ..packet };
        cases.v4(format!("v4/option/{name}/fragmented"), &large);
        cases.v4(format!("v4/option/{name}/too-big"), &V4 { fragment: DF, ..large });
    }
    source_routes(cases);
}

fn table() -> Vec<(&'static str, Vec<u8>)> {
    let routed = |kind: u8, pointer: u8| {
        let mut option = vec![kind, 11, pointer];
        option.extend(FAR);
        option.extend(Side::East.station_v4());
        option
    };
    let stamps = |length: u8, pointer: u8, flags: u8| {
        let mut option = vec![68, length, pointer, flags];
        option.resize(usize::from(length), 0);
        option
    };
    let mut asked = vec![68, 12, 5, 3];
    asked.extend(Side::East.router_v4());
    asked.extend([0; 4]);
    vec![
        ("nops", vec![1; 4]),
        ("end", vec![0; 4]),
        ("end-then-junk", vec![0, 7, 7, 7]),
        ("nops-forty", vec![1; 40]),
        ("record-route", [vec![7, 11, 4], vec![0; 8]].concat()),
        ("record-route-one-filled", [vec![7, 11, 8], vec![10, 0, 0, 1, 0, 0, 0, 0]].concat()),
        ("record-route-full", [vec![7, 11, 12], vec![9; 8]].concat()),
        ("record-route-pointer-3", [vec![7, 11, 3], vec![0; 8]].concat()),
        ("record-route-pointer-5", [vec![7, 11, 5], vec![0; 8]].concat()),
        ("record-route-pointer-10", [vec![7, 11, 10], vec![0; 8]].concat()),
        ("record-route-empty", vec![7, 3, 4]),
        ("record-route-length-2", vec![7, 2, 0, 0]),
        ("record-route-twice", [vec![7, 7, 4, 0, 0, 0, 0], vec![7, 7, 4, 0, 0, 0, 0]].concat()),
        ("timestamp-only", stamps(12, 5, 0)),
        ("timestamp-full", stamps(12, 13, 0)),
        ("timestamp-overflow-15", stamps(12, 13, 0xf0)),
        ("timestamp-pointer-4", stamps(12, 4, 0)),
        ("timestamp-pointer-odd", stamps(12, 6, 0)),
        ("timestamp-addresses", stamps(12, 5, 1)),
        ("timestamp-asked", asked),
        ("timestamp-flags-2", stamps(12, 5, 2)),
        ("timestamp-short", stamps(4, 5, 0)),
        ("loose-route", routed(131, 4)),
        ("loose-route-used-up", routed(131, 12)),
        ("strict-route", routed(137, 4)),
        ("strict-route-used-up", routed(137, 12)),
        ("router-alert", vec![148, 4, 0, 0]),
        ("router-alert-value-1", vec![148, 4, 0, 1]),
        ("router-alert-long", vec![148, 6, 0, 0, 0, 0]),
        ("router-alert-short", vec![148, 3, 0]),
        ("security", [vec![130, 11], vec![0; 9]].concat()),
        ("cipso", vec![134, 6, 0, 0, 0, 1]),
        ("stream", vec![136, 4, 0, 9]),
        ("quick-start", vec![25, 8, 0x0f, 0, 0, 0, 0, 0]),
        ("mtu-probe", vec![11, 4, 5, 0xdc]),
        ("traceroute", [vec![82, 12], vec![0; 10]].concat()),
        ("unknown", vec![222, 4, 1, 2]),
        ("unknown-copied", vec![94, 4, 1, 2]),
        ("length-0", vec![222, 0, 1, 1]),
        ("length-1", vec![222, 1, 1, 1]),
        ("length-beyond", vec![222, 9, 1, 1]),
        ("no-length", vec![1, 1, 1, 222]),
    ]
}

/// A source route whose next stop the router is.
fn source_routes(cases: &mut Cases) {
    for (kind, name) in [(131, "loose"), (137, "strict")] {
        for (stop, next) in [("connected", Side::East.station_v4()), ("far", FAR)] {
            let options = [[kind, 7, 4].as_slice(), &next].concat();
            let packet = V4 { options, ..V4::udp(Side::West.router_v4()) };
            cases.v4(format!("v4/source-route/{name}/{stop}"), &packet);
            cases.v4(format!("v4/source-route/{name}/{stop}/expired"), &V4 { hops: 1, ..packet });
        }
    }
}
