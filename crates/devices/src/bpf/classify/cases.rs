//! Packets between two ends at a program that takes those of its tunnels, at either hook.

use crate::bpf::admit::cases::{ethernet, ipv4, ipv6};
use crate::bpf::{TunnelEndpoint, TunnelFields};
use polder_datapath::tunnel::Ends;

/// Tunnels between the ends of [`ipv4`] and [`ipv6`]: gretap without a key and with key 7, gre with key 9, VXLAN with
/// VNI 42; over IPv4, one of gre without a key has another remote; IPv4 in IPv4 at one remote, IPv6 in IPv4 at the other.
pub(crate) fn endpoints() -> Vec<TunnelEndpoint> {
    let v4 = |last| Ends::V4 { local: [10, 9, 0, 2].into(), remote: [10, 9, 0, last].into() };
    let v6 = Ends::V6 { local: [0xfd; 16].into(), remote: [0xfd; 16].into() };
    let gre = |has_frames, key| TunnelFields::Gre { has_frames, key };
    let fields = [
        gre(true, None),
        gre(true, Some(7)),
        gre(false, Some(9)),
        TunnelFields::Vxlan { port: 4789, vni: 42 },
    ];
    let of = |ends| fields.map(|fields| TunnelEndpoint { ends, fields });
    let other = TunnelEndpoint { ends: v4(3), fields: gre(false, None) };
    let in_ip = [(1, 4), (3, 41)]
        .map(|(last, protocol)| TunnelEndpoint { ends: v4(last), fields: TunnelFields::Ip { protocol } });
    [of(v4(1)), of(v6)].concat().into_iter().chain([other]).chain(in_ip).collect()
}

/// GRE headers, and true for those of a tunnel.
const GRE: &[(bool, &str, &[u8])] = &[
    (true, "frames", &[0, 0, 0x65, 0x58]),
    (true, "frames, a key", &[0x20, 0, 0x65, 0x58, 0, 0, 0, 7]),
    (false, "another key", &[0x20, 0, 0x65, 0x58, 0, 0, 0, 8]),
    (false, "a key of zero", &[0x20, 0, 0x65, 0x58, 0, 0, 0, 0]),
    (false, "another upper half of a key", &[0x20, 0, 0x65, 0x58, 0, 1, 0, 7]),
    (true, "a checksum", &[0x80, 0, 0x65, 0x58, 1, 2, 0, 0]),
    (true, "checksum and key", &[0xa0, 0, 0x65, 0x58, 1, 2, 0, 0, 0, 0, 0, 7]),
    (false, "a checksum that looks like the key", &[0xa0, 0, 0x65, 0x58, 0, 0, 0, 7, 0, 0, 0, 8]),
    (true, "a sequence number", &[0x10, 0, 0x65, 0x58, 0, 0, 0, 8]),
    (true, "key and sequence number", &[0x30, 0, 0x65, 0x58, 0, 0, 0, 7, 0, 0, 0, 8]),
    (true, "bits that are ignored", &[0x03, 0xf8, 0x65, 0x58]),
    (true, "IPv4", &[0x20, 0, 0x08, 0, 0, 0, 0, 9]),
    (true, "IPv6", &[0x20, 0, 0x86, 0xdd, 0, 0, 0, 9]),
    (true, "an answer to a keepalive", &[0x20, 0, 0, 0, 0, 0, 0, 9]),
    (true, "a keepalive of another maker", &[0x20, 0, 0, 4, 0, 0, 0, 9]),
    (false, "IPv4 without a key", &[0, 0, 0x08, 0]),
    (false, "IPv4 with the key of frames", &[0x20, 0, 0x08, 0, 0, 0, 0, 7]),
    (false, "frames with the key of packets", &[0x20, 0, 0x65, 0x58, 0, 0, 0, 9]),
    (false, "NHRP", &[0x20, 0, 0x20, 0x01, 0, 0, 0, 9]),
    (false, "ERSPAN", &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1]),
    (false, "MPLS", &[0, 0, 0x88, 0x47]),
    (false, "PPTP", &[0x30, 0x81, 0x88, 0x0b, 0, 4, 0, 7, 0, 0, 0, 1]),
    (false, "version 1", &[0x20, 1, 0x65, 0x58, 0, 0, 0, 7]),
    (false, "version 4", &[0, 4, 0x65, 0x58]),
    (false, "routing", &[0x40, 0, 0x65, 0x58]),
    (false, "a strict source route", &[0x08, 0, 0x65, 0x58]),
    (false, "recursion", &[0x04, 0, 0x65, 0x58]),
];

/// UDP ports and VXLAN headers, and true for those of a tunnel.
const VXLAN: &[(bool, &str, [u8; 2], [u8; 8])] = &[
    (true, "VXLAN", [0x12, 0xb5], [8, 0, 0, 0, 0, 0, 42, 0]),
    (true, "a group policy", [0x12, 0xb5], [0x88, 0x48, 0, 100, 0, 0, 42, 0]),
    (true, "reserved bits", [0x12, 0xb5], [0xff, 0xff, 0xff, 0xff, 0, 0, 42, 0xff]),
    (false, "another network", [0x12, 0xb5], [8, 0, 0, 0, 0, 0, 43, 0]),
    (false, "another upper part", [0x12, 0xb5], [8, 0, 0, 0, 1, 0, 42, 0]),
    (false, "no network", [0x12, 0xb5], [0xf7, 0, 0, 0, 0, 0, 42, 0]),
    (false, "another port", [0x12, 0xb6], [8, 0, 0, 0, 0, 0, 42, 0]),
];

/// Runs a program that has the tunnels of [`endpoints`].
pub(crate) fn tunnels(is_taken: impl Fn(&[u8]) -> bool) {
    let check = |taken, name: &str, frame: &[u8]| assert_eq!(is_taken(frame), taken, "{name}: {frame:02x?}");
    for tag in [&[][..], &[0x81, 0, 0, 5]] {
        for &(taken, name, header) in GRE {
            check(taken, name, &ipv4(tag, (47, 0), header));
            check(taken, name, &ipv4(tag, (47, 0x4000), header));
            check(taken, name, &with_options(tag, header));
            check(taken, name, &ipv6(tag, 47, header));
            let behind = |next, extensions: &[&[u8]]| {
                ipv6(tag, next, &[extensions.concat(), header.to_vec()].concat())
            };
            check(taken, name, &behind(60, &[&LIMIT]));
            check(taken, name, &behind(44, &[&ATOMIC]));
            check(taken, name, &behind(60, &[&limit(44), &ATOMIC]));
            // No fragment tells its tunnel.
            for fragment in [0x2000, 0x00b9, 0x20b9] {
                check(true, name, &ipv4(tag, (47, fragment), header));
            }
            check(true, name, &behind(44, &[&[47, 0, 0, 1, 1, 2, 3, 4]]));
            check(true, name, &behind(60, &[&limit(44), &[47, 0, 4, 0xd0, 1, 2, 3, 4]]));
            check(false, name, &behind(44, &[&[60, 0, 0, 1, 1, 2, 3, 4]]));
        }
        for &(taken, name, port, header) in VXLAN {
            let payload = [&[0xc0, 0][..], &port, &[0, 40, 0, 0], &header, &[0; 14]].concat();
            check(taken, name, &ipv4(tag, (17, 0x4000), &payload));
            check(taken, name, &ipv6(tag, 17, &payload));
            check(false, name, &ipv4(tag, (17, 0x2000), &payload));
            check(false, name, &ipv6(tag, 44, &[&[17, 0, 0, 1, 0, 0, 0, 1], &payload[..]].concat()));
        }
        check(false, "TCP", &ipv4(tag, (6, 0), GRE[0].2));
        in_ip(&check, tag);
    }
    other_ends(&is_taken);
    truncated(&is_taken);
}

/// Packets of IP in IPv4, with or without options, and their fragments: one remote has a tunnel of IPv4, another one of
/// IPv6.
fn in_ip(check: &impl Fn(bool, &str, &[u8]), tag: &[u8]) {
    for (last, protocol, taken) in [(1, 4, true), (1, 41, false), (3, 4, false), (3, 41, true), (4, 4, false)]
    {
        for fragment in [0, 0x4000, 0x2000, 0x00b9, 0x20b9] {
            let mut frame = ipv4(tag, (protocol, fragment), &[0x45; 20]);
            frame[tag.len() + 29] = last;
            check(taken, "IP in IP", &frame);
            frame[tag.len() + 14] = 0x46;
            check(taken, "IP in IP with options", &frame);
        }
        check(false, "IP in IPv6", &ipv6(tag, protocol, &[0x45; 20]));
    }
}

/// Another remote has no tunnel with these fields, and one with others.
fn other_ends(is_taken: &impl Fn(&[u8]) -> bool) {
    for (last, protocol, taken) in
        [(3, [0x65, 0x58], false), (3, [0x08, 0], true), (4, [0x65, 0x58], false), (4, [0x08, 0], false)]
    {
        for fragment in [0, 0x2000] {
            let mut frame = ipv4(&[], (47, fragment), &[&[0, 0][..], &protocol].concat());
            frame[29] = last;
            let taken = taken || fragment > 0 && last == 3;
            assert_eq!(is_taken(&frame), taken, "{last} {protocol:x?} {fragment:x}");
        }
    }
}

/// A packet has to have the header that tells its tunnel.
fn truncated(is_taken: &impl Fn(&[u8]) -> bool) {
    let keyed = &[0xa0, 0, 0x65, 0x58, 1, 2, 0, 0, 0, 0, 0, 7];
    let vxlan = &[0xc0, 0, 0x12, 0xb5, 0, 40, 0, 0, 8, 0, 0, 0, 0, 0, 42, 0];
    for (frame, start, least) in [
        (ipv4(&[], (47, 0), GRE[0].2), 34, 4),
        (ipv4(&[], (47, 0), GRE[1].2), 34, 8),
        (ipv4(&[], (47, 0), keyed), 34, 12),
        (ipv6(&[], 47, keyed), 54, 12),
        (ipv4(&[], (17, 0), vxlan), 34, 16),
        (ipv6(&[], 17, vxlan), 54, 16),
    ] {
        assert!(is_taken(&frame[..start + least]), "{frame:02x?}");
        // The kernel runs programs on whole IP headers alone.
        for length in start..start + least {
            assert!(!is_taken(&frame[..length]), "{length} bytes of {frame:02x?}");
        }
    }
}

/// IPv4 with eight bytes of options, in which the GRE header of another tunnel stands where it would without them.
fn with_options(tag: &[u8], header: &[u8]) -> Vec<u8> {
    let ip = [0x47, 0, 0, 60, 0, 0, 0, 0, 64, 47, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    ethernet([2, 0, 0, 0, 0, 1], tag, 0x0800, &[&ip[..], &[1, 1, 0x65, 0x59, 1, 1, 1, 1], header].concat())
}

/// Destination options with the encapsulation limit that Linux sends, in front of this header.
const fn limit(next: u8) -> [u8; 8] {
    [next, 0, 4, 1, 4, 1, 1, 0]
}

const LIMIT: [u8; 8] = limit(47);
/// A fragment header of a whole packet (RFC 6946).
const ATOMIC: [u8; 8] = [47, 0, 0, 0, 1, 2, 3, 4];
