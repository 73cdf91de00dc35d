//! Inner packets of a tunnel: ordinary packets, and packets that a program must not treat as ordinary.

use super::packets::{length, mend, udp, v4};
use super::tunnels::{FAR, INSIDE, NEAR};

fn v6(class: u8, next: u8, rest: &[u8]) -> Vec<u8> {
    let [high, low] = length(rest.len());
    let mut header = vec![0x60 | class >> 4, class << 4, 0, 0, high, low, next, 9];
    for last in [1, 2] {
        header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    header.extend(rest);
    header
}

fn tcp(flags: u8, options: &[u8], bytes: usize) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).expect("a few options");
    let head = [0x23, 0x28, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, words << 4, flags, 0xff, 0xff, 0, 0, 0, 0];
    [&head[..], options, &vec![0x5a; bytes]].concat()
}

/// Packets by name, with the type of their frame.
pub(super) fn packets() -> Vec<(String, u16, Vec<u8>)> {
    let plain = |class, ttl, protocol, rest: &[u8]| v4(class, ttl, 0, protocol, INSIDE, rest);
    let mut packets = Vec::new();
    let mut add = |name: &str, kind, bytes| packets.push((name.to_owned(), kind, bytes));
    for class in [0, 1, 2, 3, 0xb8, 0xbb] {
        add(&format!("class {class}"), 0x0800, plain(class, 64, 17, &udp(53, 40)));
        add(&format!("class {class} in IPv6"), 0x86dd, v6(class, 17, &udp(53, 40)));
    }
    for ttl in [0, 1, 255] {
        add(&format!("ttl {ttl}"), 0x0800, plain(0, ttl, 17, &udp(53, 9)));
    }
    for length in [0, 1, 1400, 1430, 1434, 1440, 1472] {
        add(&format!("{length} bytes"), 0x0800, plain(0, 64, 17, &udp(53, length)));
        add(&format!("{length} bytes, DF"), 0x0800, v4(0, 64, 0x4000, 17, INSIDE, &udp(53, length)));
    }
    for flags in [0x02, 0x12, 0x10, 0x18, 0x11] {
        let mss = [2, 4, 0x05, 0xb4];
        add(&format!("TCP {flags:#x}"), 0x0800, plain(0, 64, 6, &tcp(flags, &mss, 20)));
        add(&format!("TCP {flags:#x} in IPv6"), 0x86dd, v6(0, 6, &tcp(flags, &mss, 20)));
    }
    add("TCP cut off", 0x0800, plain(0, 64, 6, &tcp(0x10, &[], 0)[..12]));
    add("UDP cut off", 0x0800, plain(0, 64, 17, &udp(53, 0)[..6]));
    add("ICMP", 0x0800, plain(0, 64, 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]));
    add("ICMPv6", 0x86dd, v6(0, 58, &[128, 0, 0, 0, 0, 0, 0, 0]));
    add("hop-by-hop options", 0x86dd, v6(0, 0, &[&[17, 0, 1, 4, 0, 0, 0, 0], &udp(53, 9)[..]].concat()));
    add("GRE inside", 0x0800, v4(0, 64, 0, 47, [NEAR, FAR], &[0, 0, 0x65, 0x58, 1, 2, 3, 4]));
    add("VXLAN inside", 0x0800, v4(0, 64, 0, 17, [NEAR, FAR], &udp(4789, 40)));
    add("port of VXLAN", 0x0800, plain(0, 64, 17, &udp(4789, 40)));
    for fragment in [0x2000, 0x0003, 0x2003] {
        add(&format!("fragment {fragment:#x}"), 0x0800, v4(0, 64, fragment, 17, INSIDE, &udp(53, 32)));
    }
    let mut options = plain(0, 64, 17, &udp(53, 32));
    options[0] = 0x46;
    add("options", 0x0800, options);
    let mut behind = plain(0, 64, 6, &[&[1, 1, 1, 0][..], &tcp(0x02, &[2, 4, 0x05, 0xb4], 20)].concat());
    behind[0] = 0x46;
    mend(&mut behind[..24]);
    add("TCP 0x2 behind options", 0x0800, behind);
    let mut version = plain(0, 64, 17, &udp(53, 32));
    version[0] = 0x55;
    add("version 5", 0x0800, version);
    add("no IP", 0x88b5, vec![7; 60]);
    add("ARP", 0x0806, vec![0; 46]);
    packets
}
