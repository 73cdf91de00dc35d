//! Fields of the IPv4 header, and frames that end within it.

use super::{BACK, Cases, DF, EVIL, FAR, MF, NARROW};
use crate::differential::packet::{IPV4, Sum, Upper, V4, frame};
use crate::differential::twin::Side;

pub(super) fn add(cases: &mut Cases) {
    let good = V4::udp(FAR);
    for version in (0..16).filter(|version| *version != 4) {
        cases.v4(format!("v4/version/{version}"), &V4 { version, ..good.clone() });
    }
    for words in [0, 1, 2, 3, 4, 6, 7, 14, 15] {
        cases.v4(format!("v4/header-words/{words}"), &V4 { header_words: Some(words), ..good.clone() });
    }
    let whole = 60_u16;
    for length in [0, 1, 10, 19, 20, 21, 27, 28, whole - 1, whole + 1, whole + 100, 1500, 32_768, 65_535] {
        cases.v4(format!("v4/length/{length}-of-{whole}"), &V4 { length: Some(length), ..good.clone() });
    }
    for checksum in [0, 1, 0xffff, 0x1234] {
        cases.v4(format!("v4/checksum/{checksum:04x}"), &V4 { checksum: Some(checksum), ..good.clone() });
    }
    zero_sums(cases);
    for (name, fragment) in
        [("none", 0), ("df", DF), ("evil", EVIL), ("evil-df", EVIL | DF), ("df-mf", DF | MF)]
    {
        cases.v4(format!("v4/flags/{name}"), &V4 { fragment, ..good.clone() });
    }
    for class in [1, 2, 3, 4, 0x10, 0x1c, 0x2e << 2, 0xc0, 0xe0, 0xfc, 0xff] {
        cases.v4(format!("v4/class/{class:02x}"), &V4 { class, ..good.clone() });
        cases.v4(format!("v4/class/{class:02x}/expired"), &V4 { class, hops: 1, ..good.clone() });
    }
    for id in [0, 1, 0xffff] {
        cases.v4(format!("v4/id/{id}"), &V4 { id, ..good.clone() });
    }
    for (name, destination) in [("far", FAR), ("narrow", NARROW), ("back", BACK)] {
        for hops in [0, 1, 2, 3, 254, 255] {
            cases.v4(format!("v4/hops/{hops}/{name}"), &V4 { hops, ..V4::udp(destination) });
        }
    }
    for end in (0..=20).chain([24, 27, 28, 40, 59]) {
        cases.raw(format!("v4/frame-ends/{end}"), frame(Side::West, IPV4, &good.bytes()[..end]));
    }
    for more in [1, 2, 4, 6, 46, 100, 1000] {
        let padded = [good.bytes(), vec![0xaa; more]].concat();
        cases.raw(format!("v4/trailing/{more}"), frame(Side::West, IPV4, &padded));
    }
    uppers(cases);
}

/// Header checksums that are zero by right, or all ones; both are sums of the same header.
fn zero_sums(cases: &mut Cases) {
    let base = V4 { id: 0, source: [10, 91, 255, 255], ..V4::udp(FAR) };
    let bytes = base.bytes();
    let rest = u16::from_be_bytes([bytes[10], bytes[11]]);
    for (name, checksum) in [("zero", 0), ("ones", 0xffff)] {
        let packet = V4 { id: rest, checksum: Some(checksum), ..base.clone() };
        cases.v4(format!("v4/checksum/right-{name}"), &packet);
        cases.v4(format!("v4/checksum/right-{name}/expired"), &V4 { hops: 1, ..packet });
    }
    // After the time to live is counted down, the checksum of one of these is 0 or 0xffff.
    for id in [rest.wrapping_sub(0x100), rest.wrapping_sub(0xff), rest.wrapping_sub(0x101)] {
        cases.v4(format!("v4/checksum/carries-{id:04x}"), &V4 { id, ..base.clone() });
    }
}

/// Protocols above, known and unknown, and their checksums, which a router must not check.
fn uppers(cases: &mut Cases) {
    for protocol in [0, 2, 4, 41, 46, 47, 50, 51, 58, 59, 89, 103, 112, 132, 136, 137, 253, 255] {
        let upper = Upper::Raw(protocol, vec![0x77; 24]);
        cases.v4(format!("v4/protocol/{protocol}"), &V4 { upper, ..V4::udp(FAR) });
    }
    for (name, sum) in
        [("right", Sum::Right), ("zero", Sum::Zero), ("wrong", Sum::Wrong), ("partial", Sum::Partial)]
    {
        for (kind, upper) in [("udp", Upper::Udp(sum, 31)), ("tcp", Upper::Tcp(sum, 31))] {
            let packet = V4 { upper, ..V4::udp(FAR) };
            cases.v4(format!("v4/{kind}-checksum/{name}"), &packet);
            cases.v4(format!("v4/{kind}-checksum/{name}/expired"), &V4 { hops: 1, ..packet });
        }
    }
    for data in [0, 1, 2, 3, 7, 8] {
        let upper = Upper::Raw(17, vec![0x11; data]);
        cases.v4(format!("v4/udp-of-bytes/{data}"), &V4 { upper: upper.clone(), ..V4::udp(FAR) });
        cases.v4(format!("v4/udp-of-bytes/{data}/expired"), &V4 { upper, hops: 1, ..V4::udp(FAR) });
    }
    let upper = Upper::Raw(59, Vec::new());
    cases.v4("v4/nothing-inside", &V4 { upper, ..V4::udp(FAR) });
}
