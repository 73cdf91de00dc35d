//! Writes the named inputs in `seeds`, which the fuzzer starts from: each protocol once as it should
//! be, and once for each way in which it can be odd.

mod bpf;
mod cdc;
mod coalesce;
mod gateway_inputs;
mod lan78xx;
mod mbim;
mod nfs;
mod outer_v6;
mod packets;
mod route;
mod tunnel;

use polder_datapath::wire::{
    Arp, ArpHeader, ArpOperation, Checksum, EtherType, Ethernet, EthernetHeader, GreHeader, GreMut,
    IcmpHeader, IpProtocol, Ipv4, Ipv4Header, Ipv6, Ipv6Header, MacAddress, Pseudo, TrafficClass, UdpHeader,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;

const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DESTINATION_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const PSEUDO_V4: Pseudo = Pseudo::V4 { source: SOURCE_V4, destination: DESTINATION_V4 };
const PSEUDO_V6: Pseudo = Pseudo::V6 { source: SOURCE_V6, destination: DESTINATION_V6 };

type Seeds = Vec<(&'static str, Vec<u8>)>;

fn main() -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let targets = [
        ("ethernet", ethernet()),
        ("ipv4", ipv4()),
        ("ipv6", ipv6()),
        ("gre", gre()),
        ("tcp", tcp()),
        ("checksum_chain", checksum_chain()),
        ("tunnel", tunnel::seeds()),
        ("outer_v6", outer_v6::seeds()),
        ("route", route::seeds()),
        ("coalesce", coalesce::seeds()),
        ("bpf", bpf::seeds()),
        ("neighbours", gateway_inputs::neighbours()),
        ("usbip", gateway_inputs::usbip()),
        ("virtio_net", gateway_inputs::virtio_net()),
        ("control", gateway_inputs::control()),
        ("configuration", gateway_inputs::configurations()),
        ("nfs", nfs::seeds()),
        ("trace_words", packets::words()),
        ("trace_file", packets::files()),
        ("cdc_block", cdc::blocks()),
        ("cdc_descriptor", cdc::descriptors()),
        ("mbim_block", mbim::blocks()),
        ("mbim_message", mbim::messages()),
        ("lan78xx_receive", lan78xx::receive()),
        ("lan78xx_transmit", lan78xx::transmit()),
        ("lan78xx_descriptor", lan78xx::descriptors()),
    ];
    for (target, seeds) in targets {
        std::fs::create_dir_all(folder.join(target))?;
        for (name, bytes) in seeds {
            std::fs::write(folder.join(target).join(name), bytes)?;
        }
    }
    Ok(())
}

fn frame(tags: &[[u8; 4]], ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ethernet::HEADER_BYTES];
    let source = MacAddress([2, 0, 0, 0, 0, 1]);
    let header = EthernetHeader { destination: MacAddress([2, 0, 0, 0, 0, 2]), source, ether_type };
    header.emit(&mut bytes).expect("room");
    let (addresses, ether_type) = bytes.split_at(12);
    [addresses, &tags.concat(), ether_type, payload].concat()
}

fn arp(operation: ArpOperation) -> Vec<u8> {
    let mut bytes = vec![0; Arp::HEADER_BYTES];
    let header = ArpHeader {
        operation,
        sender_mac: MacAddress([2, 0, 0, 0, 0, 1]),
        sender_ip: SOURCE_V4,
        target_mac: MacAddress::ZERO,
        target_ip: DESTINATION_V4,
    };
    header.emit(&mut bytes).expect("room");
    bytes
}

fn ethernet() -> Seeds {
    let (customer, service) = ([0x81, 0, 0x60, 7], [0x88, 0xa8, 0x10, 9]);
    let packet = v4_packet(IpProtocol::UDP, 0, &[], &udp(PSEUDO_V4));
    let request = arp(ArpOperation::REQUEST);
    let tagged = frame(&[customer], EtherType::IPV4, &packet);
    let reserved =
        [&[1, 0x80, 0xc2, 0, 0, 0][..], &[2, 0, 0, 0, 0, 1, 0, 39, 0x42, 0x42, 3], &[0; 36]].concat();
    let cut = |bytes: &[u8], length: usize| bytes[..length].to_vec();
    vec![
        ("ipv4", frame(&[], EtherType::IPV4, &packet)),
        ("ipv6", frame(&[], EtherType::IPV6, &v6_packet(IpProtocol::UDP, &udp(PSEUDO_V6)))),
        ("arp-request", frame(&[], EtherType::ARP, &request)),
        ("arp-reply-tagged", frame(&[customer], EtherType::ARP, &arp(ArpOperation::REPLY))),
        ("arp-padded", frame(&[], EtherType::ARP, &[&request[..], &[0; 18]].concat())),
        ("arp-truncated", frame(&[], EtherType::ARP, &request[..27])),
        ("arp-other-hardware", frame(&[], EtherType::ARP, &[&[0, 6][..], &request[2..]].concat())),
        ("tag", tagged.clone()),
        ("tag-priority", frame(&[[0x81, 0, 0xe0, 0]], EtherType::IPV4, &packet)),
        ("tag-4095", frame(&[[0x81, 0, 0x0f, 0xff]], EtherType::IPV4, &packet)),
        ("tag-service", frame(&[service, customer], EtherType::IPV4, &packet)),
        ("tag-three", frame(&[service, customer, customer], EtherType::IPV4, &packet)),
        ("tag-truncated", cut(&tagged, 17)),
        ("tag-inner-truncated", cut(&frame(&[service, customer], EtherType::IPV4, &packet), 21)),
        ("spanning-tree", reserved),
        ("to-nobody", cut(&[&[0; 6][..], &frame(&[], EtherType::IPV4, &packet)[6..]].concat(), 34)),
        ("header-alone", frame(&[], EtherType::IPV4, &[])),
        ("truncated", cut(&tagged, 13)),
        ("empty", Vec::new()),
    ]
}

fn udp(pseudo: Pseudo) -> Vec<u8> {
    let mut bytes = [&[0; 8][..], b"polder"].concat();
    let header = UdpHeader { source_port: 4000, destination_port: 53 };
    header.emit(&mut bytes, Some(pseudo)).expect("room");
    bytes
}

fn icmp(kind: u8) -> Vec<u8> {
    let mut bytes = [&[0; 8][..], b"polder"].concat();
    IcmpHeader { kind, code: 0, rest: 0x0001_0002 }.emit(&mut bytes).expect("room");
    bytes
}

fn icmpv6(kind: u8) -> Vec<u8> {
    let mut bytes = [&[0; 8][..], b"polder"].concat();
    IcmpHeader { kind, code: 0, rest: 0x0001_0002 }.emit_v6(&mut bytes, PSEUDO_V6).expect("room");
    bytes
}

/// A packet whose header is right, `fragment` being flags and offset as they stand in it.
fn v4_packet(protocol: IpProtocol, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ipv4::HEADER_BYTES];
    let total = Ipv4::HEADER_BYTES + options.len() + payload.len();
    let header = Ipv4Header {
        traffic_class: TrafficClass(0xb9),
        total_length: u16::try_from(total).expect("short"),
        identification: 0x1234,
        dont_fragment: false,
        more_fragments: false,
        fragment_offset: 0,
        time_to_live: 64,
        protocol,
        source: SOURCE_V4,
        destination: DESTINATION_V4,
    };
    header.emit(&mut bytes).expect("room");
    bytes[0] += u8::try_from(options.len() / 4).expect("at most 40 bytes");
    bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
    bytes[10..12].fill(0);
    bytes.extend(options);
    let checksum = Checksum::of(&bytes);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    [bytes, payload.to_vec()].concat()
}

fn ipv4() -> Seeds {
    let datagram = udp(PSEUDO_V4);
    let right = v4_packet(IpProtocol::UDP, 0x4000, &[], &datagram);
    let changed = |at: usize, byte: u8| {
        let mut bytes = right.clone();
        bytes[at] = byte;
        bytes
    };
    let mut unsummed = datagram.clone();
    unsummed[6..8].fill(0);
    vec![
        ("udp", right.clone()),
        ("udp-no-checksum", v4_packet(IpProtocol::UDP, 0, &[], &unsummed)),
        ("udp-length-0", v4_packet(IpProtocol::UDP, 0, &[], &[15, 160, 0, 53, 0, 0, 0, 0])),
        ("udp-length-long", v4_packet(IpProtocol::UDP, 0, &[], &[15, 160, 0, 53, 0, 9, 0, 0])),
        ("udp-truncated", v4_packet(IpProtocol::UDP, 0, &[], &datagram[..7])),
        ("icmp-echo", v4_packet(IpProtocol::ICMP, 0, &[], &icmp(8))),
        ("icmp-timestamp", v4_packet(IpProtocol::ICMP, 0, &[], &icmp(13))),
        ("icmp-truncated", v4_packet(IpProtocol::ICMP, 0, &[], &icmp(8)[..7])),
        ("tcp", v4_packet(IpProtocol::TCP, 0, &[], &segment(2, &[2, 4, 5, 0xb4]))),
        ("gre", v4_packet(IpProtocol::GRE, 0, &[], &gre_packet(true, Some(7), Some(9)))),
        ("authentication", v4_packet(IpProtocol::AUTHENTICATION, 0, &[], &[17, 4, 0, 0, 0, 0, 0, 1])),
        ("options", v4_packet(IpProtocol::UDP, 0, &[7, 7, 4, 0, 0, 0, 0, 0], &datagram)),
        ("options-full", v4_packet(IpProtocol::UDP, 0, &[1; 40], &datagram)),
        ("fragment-first", v4_packet(IpProtocol::UDP, 0x2000, &[], &datagram[..8])),
        ("fragment-last", v4_packet(IpProtocol::UDP, 0x0001, &[], &datagram[8..])),
        ("fragment-beyond", v4_packet(IpProtocol::UDP, 0x1fff, &[], &datagram)),
        ("padded", [&right[..], &[0; 12]].concat()),
        ("wrong-version", changed(0, 0x65)),
        ("wrong-header-length", changed(0, 0x44)),
        ("wrong-total-length", changed(3, 19)),
        ("wrong-checksum", changed(10, 0)),
        ("truncated", right[..19].to_vec()),
        ("truncated-options", v4_packet(IpProtocol::UDP, 0, &[1; 8], &[])[..27].to_vec()),
    ]
}

fn v6_packet(next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Ipv6::HEADER_BYTES];
    let header = Ipv6Header {
        traffic_class: TrafficClass(0xb9),
        flow_label: 0xabcde,
        payload_length: u16::try_from(payload.len()).expect("short"),
        next_header,
        hop_limit: 64,
        source: SOURCE_V6,
        destination: DESTINATION_V6,
    };
    header.emit(&mut bytes).expect("room");
    [bytes, payload.to_vec()].concat()
}

fn ipv6() -> Seeds {
    const HOPS: IpProtocol = IpProtocol::HOP_BY_HOP;
    const OPTIONS: IpProtocol = IpProtocol::DESTINATION_OPTIONS;
    let datagram = udp(PSEUDO_V6);
    let alert = |next: u8| vec![next, 0, 5, 2, 0, 0, 1, 0];
    let options = |next: u8| vec![next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let routing = |next: u8| [&[next, 2, 4, 0, 0, 0, 0, 0][..], &DESTINATION_V6.octets()].concat();
    let fragment = |next: u8, offset: u8| vec![next, 0, 0, offset, 0, 0, 0, 7];
    let authentication = |next: u8, units: u8| vec![next, units, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 3, 3, 3, 3];
    let right = v6_packet(IpProtocol::UDP, &datagram);
    let all = [
        alert(60),
        options(43),
        routing(44),
        fragment(51, 0),
        authentication(60, 2),
        options(17),
        datagram.clone(),
    ];
    let many = |count: usize| [alert(60).repeat(count - 1), alert(17), datagram.clone()].concat();
    vec![
        ("udp", right.clone()),
        ("icmpv6-echo", v6_packet(IpProtocol::ICMPV6, &icmpv6(128))),
        ("icmpv6-too-big", v6_packet(IpProtocol::ICMPV6, &icmpv6(2))),
        ("icmpv6-short", v6_packet(IpProtocol::ICMPV6, &icmpv6(128)[..7])),
        ("icmpv6-truncated", v6_packet(IpProtocol::ICMPV6, &icmpv6(128)[..3])),
        ("tcp", v6_packet(IpProtocol::TCP, &segment(2, &[2, 4, 5, 0xa0]))),
        ("gre", v6_packet(IpProtocol::GRE, &gre_packet(false, None, None))),
        ("nothing", v6_packet(IpProtocol::NO_NEXT_HEADER, &[])),
        ("hop-by-hop", v6_packet(HOPS, &[alert(17), datagram.clone()].concat())),
        ("hop-by-hop-twice", v6_packet(HOPS, &[alert(0), alert(17), datagram.clone()].concat())),
        ("all-extensions", v6_packet(HOPS, &all.concat())),
        ("eight-extensions", v6_packet(OPTIONS, &many(8))),
        ("nine-extensions", v6_packet(OPTIONS, &many(9))),
        ("fragment-first", v6_packet(IpProtocol::FRAGMENT, &[fragment(17, 1), datagram.clone()].concat())),
        ("fragment-later", v6_packet(IpProtocol::FRAGMENT, &[fragment(60, 8), datagram.clone()].concat())),
        ("fragment-truncated", v6_packet(IpProtocol::FRAGMENT, &fragment(17, 0)[..7])),
        ("authentication-short", v6_packet(IpProtocol::AUTHENTICATION, &authentication(17, 0))),
        ("extension-long", v6_packet(OPTIONS, &options(17)[..15])),
        ("jumbogram", [v6_packet(HOPS, &[]), vec![17, 0, 0xc2, 4, 0, 1, 0, 0]].concat()),
        ("padded", [&right[..], &[0; 12]].concat()),
        ("wrong-version", [&[0x45][..], &right[1..]].concat()),
        ("wrong-length", right[..right.len() - 1].to_vec()),
        ("truncated", right[..39].to_vec()),
    ]
}

fn gre_packet(checksum: bool, key: Option<u32>, sequence: Option<u32>) -> Vec<u8> {
    let header = GreHeader { protocol: EtherType::TRANSPARENT_ETHERNET, checksum, key, sequence };
    let inner = frame(&[], EtherType::IPV4, &v4_packet(IpProtocol::UDP, 0, &[], &udp(PSEUDO_V4)));
    let mut bytes = [vec![0; header.header_bytes()], inner].concat();
    header.emit(&mut bytes).expect("room");
    GreMut::parse(&mut bytes).expect("a header of ours").set_checksum([]);
    bytes
}

fn gre() -> Seeds {
    let flags = |flags: [u8; 2]| [&flags[..], &[0x65, 0x58, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let whole = gre_packet(true, Some(1), Some(2));
    let mut broken = whole.clone();
    broken[4] ^= 1;
    vec![
        ("plain", gre_packet(false, None, None)),
        ("key", gre_packet(false, Some(0xdead_beef), None)),
        ("sequence", gre_packet(false, None, Some(u32::MAX))),
        ("key-sequence", gre_packet(false, Some(1), Some(2))),
        ("checksum", gre_packet(true, None, None)),
        ("checksum-sequence", gre_packet(true, None, Some(2))),
        ("all", whole.clone()),
        ("odd-length", whole[..whole.len() - 1].to_vec()),
        ("wrong-checksum", broken),
        ("routing", flags([0x40, 0])),
        ("strict-route", flags([0x08, 0])),
        ("recursion", flags([0x04, 0])),
        ("ignored-bits", flags([0x03, 0xf8])),
        ("version-1", flags([0x30, 1])),
        ("header-alone", vec![0, 0, 8, 0]),
        ("truncated", vec![0xb0, 0, 0x65]),
        ("truncated-checksum", whole[..7].to_vec()),
        ("truncated-key", whole[..11].to_vec()),
        ("truncated-sequence", whole[..15].to_vec()),
    ]
}

/// A segment with a right checksum over IPv4; `options` fill whole words.
fn segment(flags: u8, options: &[u8]) -> Vec<u8> {
    let offset = u8::try_from(5 + options.len() / 4).expect("at most 15") << 4;
    let start = [0x1f, 0x90, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, offset, flags, 0xff, 0xff, 0, 0, 0, 0];
    let mut bytes = [&start[..], options, b"polder"].concat();
    let checksum = PSEUDO_V4.sum_over(IpProtocol::TCP, &bytes).finish();
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
    bytes
}

fn tcp() -> Seeds {
    let limited = |limit: u16, segment: Vec<u8>| [&limit.to_be_bytes()[..], &segment].concat();
    let linux = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
    let syn = |options: &[u8]| limited(1400, segment(2, options));
    let offset = |byte: u8| {
        let mut segment = segment(2, &[]);
        segment[12] = byte;
        limited(1400, segment)
    };
    vec![
        ("syn", syn(&linux)),
        ("syn-below", limited(1460, segment(2, &linux))),
        ("syn-ack", limited(1400, segment(0x12, &linux))),
        ("syn-ecn", limited(1400, segment(0xc2, &linux))),
        ("ack", limited(1400, segment(0x10, &linux))),
        ("odd-position", syn(&[1, 2, 4, 5, 0xb4, 1, 1, 1])),
        ("odd-position-end", syn(&[3, 3, 7, 2, 4, 5, 0xb4, 0])),
        ("behind-end", syn(&[0, 1, 1, 1, 2, 4, 5, 0xb4])),
        ("two-sizes", syn(&[2, 4, 5, 0xb4, 2, 4, 5, 0xdc])),
        ("size-0", syn(&[2, 4, 0, 0])),
        ("size-of-3", syn(&[2, 3, 5, 0])),
        ("size-of-5", syn(&[2, 5, 5, 0xb4, 0, 0, 0, 0])),
        ("length-0", syn(&[254, 0, 0, 0])),
        ("length-1", syn(&[254, 1, 0, 0])),
        ("length-beyond", syn(&[1, 1, 254, 3])),
        ("kind-alone", syn(&[1, 1, 1, 254])),
        ("selective", limited(1400, segment(0x10, &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]))),
        ("full", syn(&[1; 40])),
        ("no-options", syn(&[])),
        ("offset-4", offset(0x40)),
        ("offset-15", offset(0xf0)),
        ("truncated", syn(&[])[..21].to_vec()),
    ]
}

fn checksum_chain() -> Seeds {
    let data: Vec<u8> = (0..=255).collect();
    let pieces = |lengths: &[u8], data: &[u8]| {
        let count = u8::try_from(lengths.len()).expect("at most seven");
        [&[count][..], lengths, data].concat()
    };
    vec![
        ("empty", Vec::new()),
        ("nothing", vec![0]),
        ("one-byte", pieces(&[], &[0xff])),
        ("rfc-1071", pieces(&[], &[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7])),
        ("rfc-1071-odd", pieces(&[1, 1, 3], &[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7])),
        ("one-piece", pieces(&[], &data)),
        ("even-pieces", pieces(&[32, 64, 2, 20], &data)),
        ("odd-pieces", pieces(&[1, 31, 33, 7, 0, 3, 5], &data)),
        ("pieces-beyond", pieces(&[255, 255], &data)),
        ("zeros", pieces(&[3], &[0; 40])),
        ("ones", pieces(&[7], &[0xff; 70])),
        ("odd-ones", pieces(&[33], &[0xff; 67])),
        ("sums-to-zero", pieces(&[], &[0x12, 0x34, 0xed, 0xcb])),
        ("odd-field", pieces(&[9], &data[..40])),
    ]
}
