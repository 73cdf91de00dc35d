//! Sources and destinations of IPv4 that no station has, or that are not to be routed.

use super::{Cases, FAR, NARROW};
use crate::differential::packet::{IPV4, Upper, V4, frame};
use crate::differential::twin::{Side, dotted};

const ODD: [[u8; 4]; 27] = [
    [0, 0, 0, 0],
    [0, 0, 0, 1],
    [0, 255, 255, 255],
    [127, 0, 0, 0],
    [127, 0, 0, 1],
    [127, 9, 8, 7],
    [127, 255, 255, 255],
    [169, 254, 0, 1],
    [169, 254, 7, 7],
    [169, 254, 255, 255],
    [223, 255, 255, 255],
    [224, 0, 0, 0],
    [224, 0, 0, 1],
    [224, 0, 0, 5],
    [224, 0, 0, 251],
    [224, 0, 1, 1],
    [232, 1, 1, 1],
    [239, 255, 255, 250],
    [240, 0, 0, 0],
    [240, 0, 0, 1],
    [247, 255, 255, 255],
    [250, 1, 2, 3],
    [254, 254, 254, 254],
    [255, 0, 0, 0],
    [255, 255, 255, 0],
    [255, 255, 255, 254],
    [255, 255, 255, 255],
];

/// Addresses that are special in this network alone.
fn local() -> Vec<(String, [u8; 4])> {
    let mut list = Vec::new();
    for side in Side::ALL {
        let [a, b, c, _] = side.router_v4();
        for (name, host) in [("router", 1), ("station", 2), ("second", 3), ("network", 0), ("broadcast", 255)]
        {
            list.push((format!("{}-{name}", side.name()), [a, b, c, host]));
        }
    }
    list
}

pub(super) fn add(cases: &mut Cases) {
    let odd = ODD.map(|address| (dotted(address), address));
    for (name, source) in odd.clone().into_iter().chain(local()) {
        let packet = V4 { source, ..V4::udp(FAR) };
        cases.v4(format!("v4/source/{name}"), &packet);
        cases.v4(format!("v4/source/{name}/expired"), &V4 { hops: 1, ..packet });
    }
    for (name, destination) in odd.into_iter().chain(local()) {
        let packet = V4::udp(destination);
        // What reaches a machine's own ports is its own affair, and asked for elsewhere.
        if name.ends_with("-router") {
            continue;
        }
        cases.v4(format!("v4/destination/{name}"), &packet);
        cases.v4(format!("v4/destination/{name}/expired"), &V4 { hops: 1, ..packet.clone() });
        let upper = Upper::echo(false);
        cases.v4(format!("v4/destination/{name}/echo"), &V4 { upper, ..packet });
    }
    for (name, destination) in [("far", FAR), ("narrow", NARROW), ("own", Side::East.router_v4())] {
        let packet = V4 { source: destination, ..V4::udp(destination) };
        cases.v4(format!("v4/source-is-destination/{name}"), &packet);
    }
    // What one side's network says comes by another side.
    for side in [Side::East, Side::South, Side::North] {
        let packet = V4 { source: Side::West.station_v4(), ..V4::udp(FAR) };
        let frames = vec![frame(side, IPV4, &packet.bytes())];
        cases.several(format!("v4/source/of-west-by-{}", side.name()), side, frames);
        let expired = V4 { hops: 1, ..packet };
        let frames = vec![frame(side, IPV4, &expired.bytes())];
        cases.several(format!("v4/source/of-west-by-{}/expired", side.name()), side, frames);
    }
}
