//! Packets in words, each layer as it should be and in every way in which it can be wrong, and files of packets.

use super::{Seeds, frame, udp, v4_packet, v6_packet};
use polder_datapath::wire::{EtherType, IpProtocol};

/// Packets in words.
pub(super) fn words() -> Seeds {
    let all = [
        ("empty", ""),
        ("blank", " \t\n"),
        ("routed", "ip src 10.0.0.2 dst 172.16.3.4 ttl 9 / udp dport 53 / payload 64"),
        (
            "routed-v6",
            "ip src 2001:db8::9 dst 2001:db8::1 dscp 8 ecn 1 flow 77 ttl 2 / icmp id 3 seq 4 / payload 5",
        ),
        (
            "bridged",
            "eth src 02:00:00:00:00:01 dst ff:ff:ff:ff:ff:ff / arp request sender 10.0.0.1 target 10.0.0.2",
        ),
        (
            "arp-reply",
            "arp reply sender-mac 02:00:00:00:00:01 sender 10.0.0.1 target-mac 02:00:00:00:00:02 target 10.0.0.2",
        ),
        (
            "tagged",
            "eth / vlan 5 prio 3 / vlan 4095 type 0x0800 / ip4 dst 10.0.0.1 id 7 df len 20 checksum 0x1234 proto 17",
        ),
        (
            "tcp",
            "ip dst 10.0.0.1 / tcp sport 1 dport 80 flags SA seq 4294967295 ack 9 window 0 mss 1460 / hex 01 0203",
        ),
        ("tcp-no-flags", "ip dst 10.0.0.1 / tcp flags . checksum 0"),
        ("udp-wrong", "ip dst 10.0.0.1 / udp len 65535 checksum 7 / payload 1"),
        ("icmp-wrong", "ip dst 10.0.0.1 / icmp type 3 code 4 seq 1400 checksum 0"),
        ("fragment", "ip dst 10.0.0.1 mf offset 8 id 9 / hex ff00"),
        ("fragment-v6", "ip6 dst 2001:db8::1 / frag offset 1480 mf id 4294967295 proto 17 / hex 00"),
        ("fragment-first-v6", "ip dst 2001:db8::1 / frag / udp / payload 9"),
        (
            "tunnel",
            "ip src 192.0.2.2 dst 192.0.2.1 / gre key 7 seq 9 checksum / eth dst 02:00:00:00:00:09 / ip dst 10.0.0.1 / udp",
        ),
        (
            "tunnel-of-packets",
            "ip6 dst 2001:db8::1 / gre / ip dst 10.0.0.1 / gre type 0x86dd / ip dst 2001:db8::5 / tcp",
        ),
        ("digits", "hex 02000000000202000000000108004500"),
        ("longest", "payload 32754"),
        ("too-long", "payload 20000 / payload 20000"),
        ("no-layer", "ipp dst 10.0.0.1"),
        ("no-word", "ip dst 10.0.0.1 tlt 64"),
        ("no-address", "ip dst 10.0.0"),
        ("no-value", "ip dst"),
        ("no-value-before-slash", "ip dst / udp"),
        ("twice", "ip dst 10.0.0.1 dst 10.0.0.2"),
        ("two-families", "ip src 10.0.0.1 dst 2001:db8::1"),
        ("beyond", "ip dst 10.0.0.1 ttl 256"),
        ("no-flag", "ip dst 10.0.0.1 / tcp flags SX"),
        ("two-slashes", "ip dst 10.0.0.1 //"),
        ("no-digit", "hex 0a1\u{fc}"),
        ("half-a-byte", "hex 0a1"),
        ("asks-for-nobody", "arp request sender 10.0.0.1"),
    ];
    all.map(|(name, text)| (name, text.as_bytes().to_vec())).to_vec()
}

/// A number in the order of the file's writer.
type Order = fn(u32) -> [u8; 4];

/// A file as tcpdump writes it.
fn pcap(magic: u32, order: Order, link: u32, frames: &[&[u8]]) -> Vec<u8> {
    let head = [magic, 0x0002_0004, 0, 0, 65_535, link].map(order);
    let mut file = head.as_flattened().to_vec();
    for frame in frames {
        let length = u32::try_from(frame.len()).expect("short");
        file.extend([0, 0, length, length].map(order).as_flattened());
        file.extend_from_slice(frame);
    }
    file
}

/// A block of pcapng: body and length, filled up.
fn block(kind: u32, order: Order, words: &[u32], rest: &[u8]) -> Vec<u8> {
    let mut body = words.iter().flat_map(|word| order(*word)).collect::<Vec<_>>();
    body.extend(rest);
    body.resize(body.len().next_multiple_of(4), 0);
    let length = order(u32::try_from(body.len() + 12).expect("short"));
    [&order(kind)[..], &length, &body, &length].concat()
}

/// A file as wireshark writes it: a section, one interface, a packet with its length, one without.
fn pcapng(order: Order, frame: &[u8]) -> Vec<u8> {
    let length = u32::try_from(frame.len()).expect("short");
    // The link type is the first half of a word.
    let link = if order(1) == [1, 0, 0, 0] { 1 } else { 1 << 16 };
    [
        block(0x0a0d_0d0a, order, &[0x1a2b_3c4d, 0x0001_0000, u32::MAX, u32::MAX], &[]),
        block(1, order, &[link, 0], &[]),
        block(6, order, &[0, 0, 0, length, length], frame),
        block(3, order, &[length], frame),
        block(5, order, &[0, 0, 0], &[]),
    ]
    .concat()
}

/// Files of packets.
pub(super) fn files() -> Seeds {
    const PCAP: u32 = 0xa1b2_c3d4;
    const NANOS: u32 = 0xa1b2_3c4d;
    let v4 = frame(&[], EtherType::IPV4, &v4_packet(IpProtocol::UDP, 0, &[], &udp(super::PSEUDO_V4)));
    let v6 = frame(&[], EtherType::IPV6, &v6_packet(IpProtocol::UDP, &udp(super::PSEUDO_V6)));
    let (little, big): (Order, Order) = (u32::to_le_bytes, u32::to_be_bytes);
    let both = pcap(PCAP, little, 1, &[&v4, &v6]);
    let ng = pcapng(little, &v4);
    let changed = |file: &[u8], at: usize, byte: u8| {
        let mut file = file.to_vec();
        file[at] = byte;
        file
    };
    vec![
        ("empty", Vec::new()),
        ("text", b"hello".to_vec()),
        ("pcap", both.clone()),
        ("pcap-big", pcap(PCAP, big, 1, &[&v6])),
        ("pcap-nanos", pcap(NANOS, little, 1, &[&v4])),
        ("pcap-no-packet", pcap(PCAP, little, 1, &[])),
        ("pcap-raw", pcap(PCAP, little, 101, &[&v4[14..]])),
        ("pcap-cut-off", both[..both.len() - 5].to_vec()),
        ("pcap-not-whole", changed(&both, 36, 200)),
        ("pcap-too-long", changed(&both, 34, 1)),
        ("pcapng", ng.clone()),
        ("pcapng-big", pcapng(big, &v6)),
        ("pcapng-two-sections", [pcapng(little, &v4), pcapng(big, &v6)].concat()),
        ("pcapng-no-order", changed(&ng, 8, 0)),
        ("pcapng-no-interface", changed(&ng, 56, 9)),
        ("pcapng-longer-than-its-block", changed(&ng, 69, 1)),
        ("pcapng-cut-off", ng[..ng.len() - 5].to_vec()),
    ]
}
