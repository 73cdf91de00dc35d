//! Inputs for the routing stage: steps. See the oracle for what they mean.

use super::Seeds;

const V4: u8 = 1;
const V6: u8 = 2;
const ROUTE: u8 = 3;
const NEIGHBOUR: u8 = 4;
const GROUP: u8 = 5;
const TIME: u8 = 6;
/// Added to a kind: by which port a frame comes.
const PORT: u8 = 0x10;

/// Next hops of the stand, by number: eight hops, of IPv4 and IPv6 in turn, ends, and a group.
const HOP: u8 = 2;
const HOP_V6: u8 = 3;
const BLACKHOLE: u8 = 8;
const UNREACHABLE: u8 = 9;
const PROHIBIT: u8 = 10;
const LOCAL: u8 = 11;
const BY_GROUP: u8 = 13;
const NONE: u8 = 14;

fn step(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, u8::try_from(bytes.len()).expect("a short step")][..], bytes].concat()
}

/// A packet whose payload is repeated so often.
fn v4(times: u8, flags: u8, ttl: u8, to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let header = [0x44, 0, 0, 0, 0, 7, flags, 0, ttl, 17, 0, 0, 10, 0, 0, 5];
    step(V4, &[&[times][..], &header, &to, payload].concat())
}

fn v6(times: u8, hops: u8, to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let source = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    let to = [to[0], to[1], to[2], to[3], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
    step(V6, &[&[times, 0x60, 0, 0, 0, 0, 0, 17, hops][..], &source, &to, payload].concat())
}

fn route_v4(bits: u8, way: u8, to: [u8; 4]) -> Vec<u8> {
    step(ROUTE, &[&[bits, way][..], &to].concat())
}

/// The neighbour of that interface's network, which has 9 at its end; `6` of IPv6.
fn meet(interface: u8, family: u8) -> Vec<u8> {
    step(NEIGHBOUR, &[interface | u8::from(family == 6) << 2, 9])
}

pub(super) fn seeds() -> Seeds {
    const TO: [u8; 4] = [20, 0, 0, 1];
    const TO_V6: [u8; 4] = [0x30, 1, 0, 0];
    let default = || route_v4(0, HOP, [0; 4]);
    let default_v6 = || step(ROUTE, &[0x80, HOP_V6]);
    let all = |steps: &[Vec<u8>]| steps.concat();
    let end = |way| all(&[route_v4(8, way, TO), v4(0, 0, 64, TO, &[1; 8])]);
    vec![
        ("empty", Vec::new()),
        ("raw", step(0, &[0xff; 60])),
        ("forward", all(&[default(), meet(1, 4), v4(0, 0, 64, TO, &[1; 8])])),
        ("forward-v6", all(&[default_v6(), meet(1, 6), v6(0, 64, TO_V6, &[1; 8])])),
        ("cut", all(&[default(), meet(1, 4), v4(40, 0, 64, TO, &[1; 64])])),
        ("too-big", all(&[default(), meet(1, 4), v4(40, 0x40, 64, TO, &[1; 64])])),
        ("too-big-v6", all(&[default_v6(), meet(1, 6), v6(40, 64, TO_V6, &[1; 64])])),
        ("last-hop", all(&[default(), meet(1, 4), v4(0, 0, 1, TO, &[1; 8]), v4(0, 0, 2, TO, &[1; 8])])),
        ("no-route", v4(0, 0, 64, TO, &[1; 8])),
        ("blackhole", end(BLACKHOLE)),
        ("unreachable", end(UNREACHABLE)),
        ("prohibit", end(PROHIBIT)),
        ("local", end(LOCAL)),
        (
            "waits",
            all(&[default(), v4(0, 0, 64, TO, &[1; 8]), step(TIME, &[9]), meet(1, 4), step(TIME, &[9])]),
        ),
        (
            "waits-in-vain",
            all(&[default(), v4(0, 0, 64, TO, &[1; 8]), step(TIME, &[250]), step(TIME, &[250])]),
        ),
        ("connected", v4(0, 0, 64, [10, 0, 1, 77], &[1; 8])),
        (
            "group",
            all(&[
                route_v4(8, BY_GROUP, TO),
                meet(0, 4),
                meet(1, 4),
                v4(0, 0, 64, TO, &[1; 8]),
                v4(0, 0, 64, TO, &[2; 8]),
            ]),
        ),
        (
            "group-changes",
            all(&[
                route_v4(8, BY_GROUP, TO),
                step(GROUP, &[0, 1, 0, 3, 0]),
                meet(1, 4),
                v4(0, 0, 64, TO, &[1; 8]),
            ]),
        ),
        (
            "route-goes",
            all(&[route_v4(8, HOP, TO), meet(1, 4), route_v4(8, NONE, TO), v4(0, 0, 64, TO, &[1; 8])]),
        ),
        (
            "tagged",
            all(&[
                route_v4(0, 4, [0; 4]),
                meet(2, 4),
                [vec![V4 + 2 * PORT], v4(0, 0, 64, TO, &[1; 9])[1..].to_vec()].concat(),
            ]),
        ),
        ("told-on-a-narrow-link", [vec![V6 + 2 * PORT], v6(20, 64, TO_V6, &[1; 64])[1..].to_vec()].concat()),
    ]
}
