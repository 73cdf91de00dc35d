//! Packets around the MTU of links and routes, in both families.

use super::{Cases, DF, FAR, FAR_V6, NARROW, NARROW_V6, doc};
use crate::differential::packet::{Sum, Upper, V4, V6};

/// A network whose route has an MTU of 1280, and one that is locked to it.
const PATH: [u8; 4] = [100, 64, 7, 7];
const LOCKED: [u8; 4] = [100, 65, 7, 7];

pub(super) fn add(cases: &mut Cases) {
    let sizes = [1279, 1280, 1281, 1300, 1399, 1400, 1401, 1404, 1499, 1500];
    for (name, destination) in [("far", FAR), ("narrow", NARROW), ("path", PATH), ("locked", LOCKED)] {
        for size in sizes {
            for (flag, fragment) in [("cut", 0), ("df", DF)] {
                let upper = Upper::Udp(Sum::Right, size - 28);
                let packet = V4 { fragment, upper, ..V4::udp(destination) };
                cases.v4(format!("v4/size/{name}/{size}/{flag}"), &packet);
            }
        }
        let upper = Upper::Tcp(Sum::Right, 1460);
        let packet = V4 { fragment: DF, upper, ..V4::udp(destination) };
        cases.v4(format!("v4/size/{name}/tcp"), &packet);
        let upper = Upper::Icmp(8, 0, [0; 4], vec![7; 1472]);
        cases.v4(format!("v4/size/{name}/echo"), &V4 { fragment: DF, upper, ..packet.clone() });
        let upper = Upper::Icmp(3, 3, [0; 4], vec![7; 1472]);
        cases.v4(format!("v4/size/{name}/icmp-error"), &V4 { fragment: DF, upper, ..packet.clone() });
        cases.v4(format!("v4/size/{name}/expired"), &V4 { hops: 1, ..packet });
    }
    let (path, locked) = (doc(0x64), doc(0x65));
    for (name, destination) in [("far", FAR_V6), ("narrow", NARROW_V6), ("path", path), ("locked", locked)] {
        for size in sizes {
            let upper = Upper::Udp(Sum::Right, size - 48);
            cases.v6(format!("v6/size/{name}/{size}"), &V6 { upper, ..V6::udp(destination) });
        }
        let packet = V6 { upper: Upper::Tcp(Sum::Right, 1440), ..V6::udp(destination) };
        cases.v6(format!("v6/size/{name}/tcp"), &packet);
        let upper = Upper::Icmp(128, 0, [0; 4], vec![7; 1452]);
        cases.v6(format!("v6/size/{name}/echo"), &V6 { upper, ..packet.clone() });
        let upper = Upper::Icmp(1, 4, [0; 4], vec![7; 1452]);
        cases.v6(format!("v6/size/{name}/icmp-error"), &V6 { upper, ..packet.clone() });
        let headers = vec![(44, vec![0, 0, 0, 1, 0, 0, 0, 9])];
        let upper = Upper::Raw(17, vec![1; 1448]);
        cases.v6(format!("v6/size/{name}/fragment"), &V6 { headers, upper, ..packet.clone() });
        cases.v6(format!("v6/size/{name}/expired"), &V6 { hops: 1, ..packet });
    }
}
