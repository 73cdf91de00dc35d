//! Fields of the IPv6 header, and frames that end within it.

use super::{BACK_V6, Cases, FAR_V6, NARROW_V6};
use crate::differential::packet::{IPV6, Sum, Upper, V6, frame};
use crate::differential::twin::Side;

pub(super) fn add(cases: &mut Cases) {
    let good = V6::udp(FAR_V6);
    for version in (0..16).filter(|version| *version != 6) {
        cases.v6(format!("v6/version/{version}"), &V6 { version, ..good.clone() });
    }
    let whole = 40_u16;
    for length in [0, 1, 7, 8, whole - 1, whole + 1, whole + 100, 1460, 32_768, 65_535] {
        cases.v6(format!("v6/length/{length}-of-{whole}"), &V6 { length: Some(length), ..good.clone() });
    }
    for class in [1, 2, 3, 4, 0x2e << 2, 0xc0, 0xff] {
        cases.v6(format!("v6/class/{class:02x}"), &V6 { class, ..good.clone() });
    }
    for label in [1, 0xfffff, 0x80000] {
        cases.v6(format!("v6/label/{label:05x}"), &V6 { label, ..good.clone() });
    }
    for (name, destination) in [("far", FAR_V6), ("narrow", NARROW_V6), ("back", BACK_V6)] {
        for hops in [0, 1, 2, 3, 254, 255] {
            cases.v6(format!("v6/hops/{hops}/{name}"), &V6 { hops, ..V6::udp(destination) });
        }
    }
    for end in [0, 1, 2, 4, 6, 7, 8, 20, 24, 39, 40, 44, 47, 48, 79] {
        cases.raw(format!("v6/frame-ends/{end}"), frame(Side::West, IPV6, &good.bytes()[..end]));
    }
    for more in [1, 2, 6, 46, 100, 1000] {
        let padded = [good.bytes(), vec![0xaa; more]].concat();
        cases.raw(format!("v6/trailing/{more}"), frame(Side::West, IPV6, &padded));
    }
    for (name, sum) in
        [("right", Sum::Right), ("zero", Sum::Zero), ("wrong", Sum::Wrong), ("partial", Sum::Partial)]
    {
        for (kind, upper) in [("udp", Upper::Udp(sum, 31)), ("tcp", Upper::Tcp(sum, 31))] {
            let packet = V6 { upper, ..good.clone() };
            cases.v6(format!("v6/{kind}-checksum/{name}"), &packet);
            cases.v6(format!("v6/{kind}-checksum/{name}/expired"), &V6 { hops: 1, ..packet });
        }
    }
    for protocol in [1, 2, 4, 41, 47, 50, 59, 89, 103, 115, 132, 136, 139, 140, 253, 254, 255] {
        let upper = Upper::Raw(protocol, vec![0x77; 24]);
        cases.v6(format!("v6/protocol/{protocol}"), &V6 { upper: upper.clone(), ..good.clone() });
        cases.v6(format!("v6/protocol/{protocol}/expired"), &V6 { upper, hops: 1, ..good.clone() });
    }
    for data in [0, 1, 4, 7, 8] {
        let upper = Upper::Raw(17, vec![0x11; data]);
        cases.v6(format!("v6/udp-of-bytes/{data}"), &V6 { upper: upper.clone(), ..good.clone() });
        cases.v6(format!("v6/udp-of-bytes/{data}/expired"), &V6 { upper, hops: 1, ..good.clone() });
    }
    let nothing = V6 { upper: Upper::Raw(59, Vec::new()), ..good };
    cases.v6("v6/nothing-inside", &nothing);
    cases.v6("v6/nothing-inside/expired", &V6 { hops: 1, ..nothing });
}
