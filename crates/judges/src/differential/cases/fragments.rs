//! Fragments of IPv4: first, middle, last, overlapping, impossible.

use super::{BACK, Cases, DF, FAR, MF, NARROW};
use crate::differential::packet::{IPV4, Sum, Upper, V4, frame};
use crate::differential::twin::Side;

pub(super) fn add(cases: &mut Cases) {
    let table = [
        ("first", MF, 64),
        ("first-of-8-bytes", MF, 8),
        ("first-odd", MF, 61),
        ("first-empty", MF, 0),
        ("middle", MF | 8, 64),
        ("middle-odd", MF | 8, 61),
        ("offset-1", MF | 1, 64),
        ("last", 16, 40),
        ("last-empty", 16, 0),
        ("last-of-1-byte", 16, 1),
        ("df-first", DF | MF, 64),
        ("df-middle", DF | MF | 8, 64),
        ("df-last", DF | 16, 40),
        ("beyond-64k", 0x1fff, 64),
        ("beyond-64k-more", MF | 0x1fff, 64),
    ];
    for (name, fragment, bytes) in table {
        let upper = Upper::Raw(17, vec![0x33; bytes]);
        let packet = V4 { fragment, upper, ..V4::udp(FAR) };
        cases.v4(format!("v4/fragment/{name}"), &packet);
        cases.v4(format!("v4/fragment/{name}/expired"), &V4 { hops: 1, ..packet.clone() });
        let large = V4 { upper: Upper::Raw(17, vec![0x33; 1448]), destination: NARROW, ..packet };
        cases.v4(format!("v4/fragment/{name}/narrow"), &large);
    }
    let part = |fragment: u16, byte: u8, count: usize, destination| {
        let upper = Upper::Raw(17, vec![byte; count]);
        frame(Side::West, IPV4, &V4 { fragment, upper, ..V4::udp(destination) }.bytes())
    };
    for (name, to) in [("far", FAR), ("narrow", NARROW), ("back", BACK)] {
        let overlapping = vec![part(MF, 1, 64, to), part(MF | 4, 2, 64, to), part(12, 3, 40, to)];
        cases.several(format!("v4/fragments/overlapping/{name}"), Side::West, overlapping);
        let backwards = vec![part(16, 3, 40, to), part(MF | 8, 2, 64, to), part(MF, 1, 64, to)];
        cases.several(format!("v4/fragments/backwards/{name}"), Side::West, backwards);
        let twice = vec![part(MF, 1, 64, to), part(MF, 1, 64, to), part(8, 2, 9, to)];
        cases.several(format!("v4/fragments/repeated/{name}"), Side::West, twice);
    }
    // What is cut again, at every length around a boundary of eight bytes.
    for bytes in [1373, 1376, 1379, 1380, 1381, 1384, 1388, 1400, 1480] {
        let packet = V4 { upper: Upper::Udp(Sum::Right, bytes - 8), ..V4::udp(NARROW) };
        cases.v4(format!("v4/cut/{bytes}"), &packet);
        let again = V4 { fragment: MF | 100, upper: Upper::Raw(17, vec![4; bytes / 8 * 8]), ..packet };
        cases.v4(format!("v4/cut-again/{bytes}"), &again);
    }
}
