//! Packets of flows, and odd ones beside them.

use super::packets::{length, mend, udp};
use std::net::{IpAddr, Ipv4Addr};

/// Link-layer addresses of the gateway's port and of the sender.
const LAN: [u8; 6] = [2, 0, 0, 0x98, 0, 0x0b];
pub(super) const SENDER: [u8; 6] = [2, 0, 0, 0x98, 1, 5];

/// VLAN of the tag that packets come with, or 0; source; destination.
pub type Flow = (u16, &'static str, &'static str);

fn ethernet(destination: [u8; 6], tag: u16, kind: u16) -> Vec<u8> {
    let tag = if tag == 0 { Vec::new() } else { [[0x81, 0], tag.to_be_bytes()].concat() };
    [&destination[..], &SENDER, &tag, &kind.to_be_bytes()].concat()
}

/// An IPv4 packet with options.
///
/// # Panics
/// For more options than a header has room for.
pub fn v4(
    hops: u8,
    fragment: u16,
    protocol: u8,
    ends: [Ipv4Addr; 2],
    options: &[u8],
    rest: &[u8],
) -> Vec<u8> {
    let mut packet = super::packets::v4(0, hops, fragment, protocol, ends, &[options, rest].concat());
    let words = u8::try_from(5 + options.len() / 4).expect("few options");
    packet[0] = 0x40 | words;
    mend(&mut packet[..usize::from(words) * 4]);
    packet
}

/// An IPv4 or IPv6 packet of a protocol.
pub fn packet(ends: [&str; 2], hops: u8, protocol: u8, rest: &[u8]) -> Vec<u8> {
    match ends.map(address) {
        [IpAddr::V4(source), IpAddr::V4(destination)] => {
            v4(hops, 0, protocol, [source, destination], &[], rest)
        }
        [IpAddr::V6(source), IpAddr::V6(destination)] => {
            let [high, low] = length(rest.len());
            let start = [0x6b, 0x85, 0x43, 0x21, high, low, protocol, hops];
            [&start[..], &source.octets(), &destination.octets(), rest].concat()
        }
        _ => unreachable!("one family"),
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("flows have addresses")
}

/// The frame of a packet of a flow.
pub fn frame((tag, source, _): Flow, packet: &[u8]) -> Vec<u8> {
    let kind = if source.contains(':') { 0x86dd } else { 0x0800 };
    [ethernet(LAN, tag, kind), packet.to_vec()].concat()
}

/// Frames by name: ordinary frames of a flow, and frames that a program must not treat as ordinary.
pub(super) fn odd_frames(flow: Flow) -> Vec<(String, Vec<u8>)> {
    let (tag, source, destination) = flow;
    let ends = [source, destination];
    let of = |hops, protocol, rest: &[u8]| frame(flow, &packet(ends, hops, protocol, rest));
    let plain = of(64, 17, &udp(53, 40));
    let ip = if tag == 0 { 14 } else { 18 };
    let mut frames = Vec::new();
    let mut add = |name: &str, frame: Vec<u8>| frames.push((format!("{flow:?} {name}"), frame));
    add("plain", plain.clone());
    for hops in [0, 1, 2, 3, 255] {
        add(&format!("{hops} hops"), of(hops, 17, &udp(53, 40)));
    }
    for length in [0, 1, 1252, 1253, 1272, 1273, 1352, 1353, 1372, 1373, 1392, 1393, 1500, 1800] {
        add(&format!("{length} bytes"), of(64, 17, &udp(53, length)));
    }
    let changed = |at: usize, value: u8| {
        let mut frame = plain.clone();
        frame[at] ^= value;
        frame
    };
    add("another station", changed(5, 0x40));
    add("all stations", [vec![0xff; 6], plain[6..].to_vec()].concat());
    add("a group", changed(0, 1));
    add("another version", changed(ip, 0x10));
    add("class", changed(ip + 1, if source.contains(':') { 0x30 } else { 0 }));
    add("padding", [&plain[..], &[0; 5]].concat());
    add("cut off", plain[..plain.len() - 1].to_vec());
    add("header alone", plain[..ip + 20].to_vec());
    add("header cut off", plain[..ip + 12].to_vec());
    for tag in [0x6000 | tag, 0x1000, 9, 4095] {
        let tagged = [&plain[..12], &[0x81, 0], &u16::to_be_bytes(tag), &plain[ip - 2..]].concat();
        add(&format!("tag {tag:#x}"), tagged);
    }
    add("two tags", [&plain[..12], &[0x81, 0, 0, 7, 0x81, 0, 0, 7], &plain[ip - 2..]].concat());
    add("a provider's tag", [&plain[..12], &[0x88, 0xa8, 0, 7], &plain[ip - 2..]].concat());
    add("no IP", [&plain[..ip - 2], &[0x88, 0xb5], &plain[ip..]].concat());
    if source.contains(':') {
        odd_v6(flow, ip, &plain, &mut add);
    } else {
        odd_v4(flow, ip, &plain, &mut add);
    }
    frames
}

fn odd_v4(flow: Flow, ip: usize, plain: &[u8], add: &mut impl FnMut(&str, Vec<u8>)) {
    let ends = [flow.1, flow.2].map(|text| text.parse::<Ipv4Addr>().expect("a flow of IPv4"));
    for class in [1, 2, 3, 0xb8] {
        let mut marked = plain.to_vec();
        marked[ip + 1] = class;
        mend(&mut marked[ip..ip + 20]);
        add(&format!("class {class}"), marked);
    }
    for (name, options) in
        [("nothing", [1, 1, 1, 0]), ("router alert", [148, 4, 0, 0]), ("source route", [131, 3, 4, 0])]
    {
        add(name, frame(flow, &v4(64, 0, 17, ends, &options, &udp(53, 40))));
    }
    for fragment in [0x2000, 0x0003, 0x2003, 0x4000] {
        add(&format!("fragment {fragment:#x}"), frame(flow, &v4(64, fragment, 17, ends, &[], &udp(53, 40))));
    }
    for length in [1272, 1273, 1372, 1373, 1392, 1393, 1500] {
        add(&format!("{length} bytes, DF"), frame(flow, &v4(64, 0x4000, 17, ends, &[], &udp(53, length))));
    }
    for sum in [1, 0x80] {
        let mut bad = plain.to_vec();
        bad[ip + 11] ^= sum;
        add(&format!("checksum off by {sum}"), bad);
    }
    for (at, change) in [(0, 1), (0, 2), (2, 1), (3, 1), (3, 4)] {
        let mut lying = plain.to_vec();
        lying[ip + at] ^= change;
        mend(&mut lying[ip..ip + 20]);
        add(&format!("byte {at} off by {change}"), lying);
    }
    checksums(ip, plain, add);
    for (source, destination) in [
        ("10.98.0.1", "10.98.8.8"),
        ("127.0.0.1", "10.98.8.8"),
        ("0.0.0.0", "10.98.8.8"),
        ("224.0.0.1", "10.98.8.8"),
        ("10.98.8.77", "10.98.8.8"),
        ("10.98.0.5", "224.0.0.5"),
        ("10.98.0.5", "255.255.255.255"),
        ("10.98.0.5", "10.98.1.255"),
        ("10.98.0.5", "127.0.0.1"),
        ("10.98.0.5", "192.0.2.1"),
        ("10.98.0.5", "10.98.0.5"),
    ] {
        add(
            &format!("{source} to {destination}"),
            frame(flow, &packet([source, destination], 64, 17, &udp(53, 9))),
        );
    }
    let quoted = packet([flow.2, flow.1], 1, 17, &udp(53, 9));
    add(
        "an error",
        frame(flow, &packet([flow.1, flow.2], 64, 1, &[&[11, 0, 0, 0, 0, 0, 0, 0], &quoted[..]].concat())),
    );
}

/// Checksums around the carry.
fn checksums(ip: usize, plain: &[u8], add: &mut impl FnMut(&str, Vec<u8>)) {
    for identification in (0..=u16::MAX).step_by(4099) {
        let mut other = plain.to_vec();
        other[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
        mend(&mut other[ip..ip + 20]);
        add(&format!("identification {identification}"), other);
    }
    for wanted in [0xfeff_u16, 0xfefe, 0xff00, 0xffff, 0x0000, 0xfffe] {
        let mut other = plain.to_vec();
        let sum = u32::from(u16::from_be_bytes([other[ip + 10], other[ip + 11]]));
        // The identification takes up the difference.
        let identification = (7 + sum + 0xffff - u32::from(wanted)) % 0xffff;
        let identification = u16::try_from(identification).expect("a remainder of 16 bits");
        other[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
        other[ip + 10..ip + 12].copy_from_slice(&wanted.to_be_bytes());
        add(&format!("checksum {wanted:#x}"), other);
    }
}

fn odd_v6(flow: Flow, ip: usize, plain: &[u8], add: &mut impl FnMut(&str, Vec<u8>)) {
    let ends = [flow.1, flow.2];
    let of = |protocol, rest: &[u8]| frame(flow, &packet(ends, 64, protocol, rest));
    let udp = udp(53, 9);
    for (name, next, header) in [
        ("hop-by-hop options", 0, [17, 0, 1, 4, 0, 0, 0, 0]),
        ("router alert", 0, [17, 0, 5, 2, 0, 0, 1, 0]),
        ("an unknown option", 0, [17, 0, 0x80, 4, 0, 0, 0, 0]),
        ("a fragment", 44, [17, 0, 0, 1, 0, 0, 0, 7]),
        ("options for the destination", 60, [17, 0, 1, 4, 0, 0, 0, 0]),
        ("a routing header", 43, [17, 0, 0, 0, 0, 0, 0, 0]),
    ] {
        add(name, of(next, &[&header[..], &udp].concat()));
    }
    add("nothing behind", of(59, &[]));
    add("an echo", of(58, &[128, 0, 0, 0, 0, 1, 0, 1]));
    add("an error", of(58, &[&[3, 0, 0, 0, 0, 0, 0, 0], &plain[ip..]].concat()));
    for change in [1, 2, 8] {
        let mut lying = plain.to_vec();
        lying[ip + 5] ^= change;
        add(&format!("length off by {change}"), lying);
    }
    for (source, destination) in [
        ("::1", "fd98:8::8"),
        ("::", "fd98:8::8"),
        ("ff02::1", "fd98:8::8"),
        ("fe80::5", "fd98:8::8"),
        ("fd98:0::1", "fd98:8::8"),
        ("fd98:0::5", "ff02::5"),
        ("fd98:0::5", "::1"),
        ("fd98:0::5", "2001:db8::1"),
    ] {
        add(&format!("{source} to {destination}"), frame(flow, &packet([source, destination], 64, 17, &udp)));
    }
}
