//! The parsers against their oracles: on any bytes, on packets of other implementations, damaged and
//! intact, and on the inputs that are committed for the fuzzer.

mod oracle;

use etherparse::{PacketBuilder, SlicedPacket, TcpHeader, TransportSlice};
use polder_datapath::drops::DropReason;
use polder_datapath::wire::{
    Arp, Checksum, Ecn, EtherType, Ethernet, EthernetHeader, Gre, GreHeader, GreMut, Icmp, Icmpv6,
    IpProtocol, Ipv4, Ipv4Header, Ipv6, Ipv6Header, Link, MacAddress, Pseudo, Tcp, TrafficClass, Udp,
    UdpHeader, VlanId, VlanTag, push_tag,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::path::Path;

/// Bytes that mean nothing.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..160)
}

/// Damaged packet: some bytes changed, the end cut off, or padding added.
fn damaged(packet: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    let end = prop_oneof![Just(None), any::<prop::sample::Index>().prop_map(Some)];
    (packet, changes, end, 0..6_usize).prop_map(|(mut packet, changes, end, padding)| {
        for (place, byte) in changes {
            if !packet.is_empty() {
                let place = place.index(packet.len());
                packet[place] = byte;
            }
        }
        if let Some(end) = end {
            packet.truncate(end.index(packet.len() + 1));
        } else {
            packet.resize(packet.len() + padding, 0);
        }
        packet
    })
}

/// A TCP header with options of any kind, data offset right.
fn tcp_segment() -> impl Strategy<Value = Vec<u8>> {
    let option = prop_oneof![
        Just(vec![1]),
        any::<u16>().prop_map(|mss| [&[2, 4][..], &mss.to_be_bytes()].concat()),
        Just(vec![3, 3, 7]),
        Just(vec![4, 2]),
        vec(any::<u8>(), 8).prop_map(|data| [&[8, 10][..], &data].concat()),
        (any::<u8>(), any::<u8>()).prop_map(|(kind, length)| vec![kind, length]),
        Just(vec![0]),
    ];
    (vec(option, 0..6), any::<[u8; 12]>(), any::<u8>(), any::<[u8; 6]>(), vec(any::<u8>(), 0..40)).prop_map(
        |(options, start, flags, end, payload)| {
            let mut options = options.concat();
            options.resize(options.len().min(40).next_multiple_of(4), 0);
            let offset = u8::try_from(options.len() / 4 + 5).expect("at most 15");
            [&start[..], &[offset << 4, flags | 2], &end, &options, &payload].concat()
        },
    )
}

fn udp_datagram() -> impl Strategy<Value = Vec<u8>> {
    (any::<[u8; 4]>(), vec(any::<u8>(), 0..40), any::<[u8; 2]>()).prop_map(|(ports, payload, checksum)| {
        let length = u16::try_from(payload.len() + 8).expect("short");
        [&ports[..], &length.to_be_bytes(), &checksum, &payload].concat()
    })
}

fn gre_packet() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![select(vec![0, 0x80, 0x20, 0x10, 0xa0, 0xb0, 0x30]), any::<u8>()];
    (flags, prop_oneof![Just(0), any::<u8>()], vec(any::<u8>(), 2..80))
        .prop_map(|(first, second, rest)| [&[first, second][..], &rest].concat())
}

/// Protocol number, and a message that begins as that protocol does.
fn message() -> impl Strategy<Value = (u8, Vec<u8>)> {
    prop_oneof![
        udp_datagram().prop_map(|bytes| (17, bytes)),
        tcp_segment().prop_map(|bytes| (6, bytes)),
        gre_packet().prop_map(|bytes| (47, bytes)),
        (select(vec![1, 58]), noise()),
        (any::<u8>(), noise()),
    ]
}

fn ipv4_packet() -> impl Strategy<Value = Vec<u8>> {
    let fragment = prop_oneof![3 => Just(0), 1 => any::<u16>()];
    (0..=10_usize, any::<[u8; 4]>(), fragment, any::<[u8; 8]>(), message(), any::<bool>()).prop_map(
        |(words, [class, id_high, id_low, ttl], fragment, addresses, (protocol, message), intact)| {
            let header_bytes = 20 + words * 4;
            let total = u16::try_from(header_bytes + message.len()).expect("short").to_be_bytes();
            let first = 0x40 | u8::try_from(header_bytes / 4).expect("at most 15");
            let start = [first, class, total[0], total[1], id_high, id_low];
            let mut packet = [
                &start[..],
                &fragment.to_be_bytes(),
                &[ttl, protocol, 0, 0],
                &addresses,
                &vec![1; words * 4],
            ]
            .concat();
            if intact {
                let checksum = Checksum::of(&packet);
                packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            [packet, message].concat()
        },
    )
}

/// An extension header of this kind. An authentication header counts its length in units of four
/// bytes, minus two; RFC 4302, 2.2 wants a multiple of eight, and at least twelve: it is so when it is
/// `tidy`, as a fragment header is atomic then.
fn extension(kind: u8, next: u8, units: u8, content: [u8; 6], tidy: bool) -> Vec<u8> {
    let length = if kind == 51 && tidy { units * 2 + 2 } else { units };
    let content = if kind == 44 && tidy { [0, 0, 1, 2, 3, 4] } else { content };
    let more = match kind {
        44 => 0,
        51 => usize::from(length) * 4,
        _ => usize::from(length) * 8,
    };
    [&[next, length][..], &content, &vec![0x55; more]].concat()
}

fn ipv6_packet() -> impl Strategy<Value = Vec<u8>> {
    let kinds = select(vec![0, 43, 44, 44, 51, 60, 60]);
    let extensions = vec((kinds, 0..3_u8, any::<[u8; 6]>(), any::<bool>()), 0..11);
    (extensions, message(), any::<[u8; 3]>(), any::<u8>(), any::<[u8; 32]>()).prop_map(
        |(extensions, (protocol, message), [class, flow, low], hops, addresses)| {
            let mut next = protocol;
            let mut payload = message;
            for (kind, units, content, tidy) in extensions {
                payload = [extension(kind, next, units, content, tidy), payload].concat();
                next = kind;
            }
            let length = u16::try_from(payload.len()).expect("short").to_be_bytes();
            let start = [0x60 | class >> 4, flow, low, class, length[0], length[1], next, hops];
            [&start[..], &addresses, &payload].concat()
        },
    )
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tag = (select(vec![[0x81, 0], [0x88, 0xa8]]), any::<[u8; 2]>()).prop_map(|(kind, control)| {
        let [kind, control] = [kind, control].map(|pair| pair.to_vec());
        [kind, control].concat()
    });
    let arp = any::<[u8; 22]>().prop_map(|rest| [&[8, 6, 0, 1, 8, 0, 6, 4][..], &rest].concat());
    let behind = prop_oneof![
        arp,
        ipv4_packet().prop_map(|packet| [vec![8, 0], packet].concat()),
        ipv6_packet().prop_map(|packet| [vec![0x86, 0xdd], packet].concat()),
        noise()
    ];
    (any::<[u8; 12]>(), vec(tag, 0..4), behind)
        .prop_map(|(addresses, tags, behind)| [addresses.to_vec(), tags.concat(), behind].concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in noise()) {
        for (_, target) in oracle::TARGETS {
            target(&bytes);
        }
    }

    #[test]
    fn frames(bytes in damaged(frame())) {
        oracle::ethernet(&bytes);
    }

    #[test]
    fn ipv4_packets(bytes in damaged(ipv4_packet())) {
        oracle::ipv4(&bytes);
    }

    #[test]
    fn ipv6_packets(bytes in damaged(ipv6_packet())) {
        oracle::ipv6(&bytes);
    }

    #[test]
    fn gre_packets(bytes in damaged(gre_packet())) {
        oracle::gre(&bytes);
    }

    #[test]
    fn tcp_segments(limit in any::<[u8; 2]>(), bytes in damaged(tcp_segment())) {
        oracle::tcp(&[&limit[..], &bytes].concat());
    }

    #[test]
    fn chains_of_slices(count in any::<u8>(), bytes in vec(any::<u8>(), 0..600)) {
        oracle::checksum_chain(&[&[count][..], &bytes].concat());
    }

    #[test]
    fn what_etherparse_builds_is_intact(
        (source, destination, port) in (any::<[u8; 4]>(), any::<[u8; 16]>(), any::<u16>()),
        payload in vec(any::<u8>(), 0..100),
        (ip_version, protocol) in (select(vec![4, 6]), 0..3),
    ) {
        let vlan = etherparse::VlanId::try_new(port & 0x0fff).expect("12 bits");
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(vlan);
        let ip = match ip_version {
            4 => link.ipv4(source, [192, 0, 2, 1], 9),
            _ => link.ipv6(destination, [0xfd; 16], 9),
        };
        let mut bytes = Vec::new();
        match (protocol, ip_version) {
            (0, _) => ip.udp(port, 53).write(&mut bytes, &payload),
            (1, _) => ip.tcp_header(TcpHeader::new(port, 80, 1, 2)).write(&mut bytes, &payload),
            (_, 4) => ip.icmpv4_echo_request(port, 3).write(&mut bytes, &payload),
            _ => ip.icmpv6_echo_request(port, 3).write(&mut bytes, &payload),
        }
        .expect("room in a Vec");

        let link = Link::parse(&bytes).expect("a frame");
        prop_assert_eq!(link.tag.and_then(|tag| tag.id()).map(VlanId::get), (port & 0xfff != 4095).then_some(port & 0xfff));
        let (pseudo, protocol_number, message) = if ip_version == 4 {
            let packet = Ipv4::parse(link.payload()).expect("IPv4");
            prop_assert_eq!(packet.verify(), Ok(()));
            (packet.pseudo(), packet.protocol(), packet.payload())
        } else {
            let packet = Ipv6::parse(link.payload()).expect("IPv6");
            let upper = packet.upper().expect("no extension headers");
            (packet.pseudo(), upper.protocol, upper.payload)
        };
        let (verified, carried) = match protocol_number {
            IpProtocol::UDP => Udp::parse(message).map(|udp| (udp.verify(pseudo), udp.payload())),
            IpProtocol::TCP => Tcp::parse(message).map(|tcp| (tcp.verify(pseudo), tcp.payload())),
            IpProtocol::ICMP => Icmp::parse(message).map(|icmp| (icmp.verify(), icmp.payload())),
            _ => Icmpv6::parse(message).map(|icmp| (icmp.verify(pseudo), &icmp.payload()[4..])),
        }
        .expect("a whole message");
        prop_assert_eq!(verified, Ok(()));
        prop_assert_eq!(carried, &payload[..]);
    }

    #[test]
    fn what_we_build_etherparse_takes(
        (number, priority, port) in (0..4095_u16, 0..8_u8, any::<u16>()),
        payload in vec(any::<u8>(), 0..100),
    ) {
        let id = VlanId::new(number).expect("below 4095");
        let tag = VlanTag { kind: EtherType::VLAN, id, priority, drop_eligible: port % 2 == 1 };
        for v6 in [false, true] {
            let bytes = our_frame(tag, port, &payload, v6);
            let sliced = SlicedPacket::from_ethernet(&bytes).expect("a packet of ours");
            let vlan = sliced.vlan().expect("a tag");
            let etherparse::VlanSlice::SingleVlan(vlan) = vlan else { unreachable!("one tag") };
            prop_assert_eq!(vlan.vlan_identifier().value(), number);
            prop_assert_eq!(vlan.priority_code_point().value(), priority);
            let Some(TransportSlice::Udp(udp)) = sliced.transport else { unreachable!("no UDP") };
            prop_assert_eq!(udp.source_port(), port);
            prop_assert_eq!(udp.payload(), &payload[..]);
            let header = udp.to_header();
            let expected = match sliced.net {
                Some(etherparse::NetSlice::Ipv4(ip)) => {
                    let ip = ip.header().to_header();
                    prop_assert_eq!(ip.calc_header_checksum(), ip.header_checksum);
                    header.calc_checksum_ipv4(&ip, &payload)
                }
                Some(etherparse::NetSlice::Ipv6(ip)) => header.calc_checksum_ipv6(&ip.header().to_header(), &payload),
                other => unreachable!("{other:?}"),
            };
            prop_assert_eq!(Ok(udp.checksum()), expected.map_err(|_| ()));
        }
    }
}

/// UDP in IP in a tagged frame, from the inside out.
fn our_frame(tag: VlanTag, port: u16, payload: &[u8], v6: bool) -> Vec<u8> {
    let datagram_bytes = Udp::HEADER_BYTES + payload.len();
    let length = u16::try_from(datagram_bytes).expect("short");
    let ip_bytes = if v6 { Ipv6::HEADER_BYTES } else { Ipv4::HEADER_BYTES };
    let mut bytes = vec![0; 4 + Ethernet::HEADER_BYTES + ip_bytes + datagram_bytes];
    let ether_type = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
    let source = MacAddress([2, 0, 0, 0, 0, 1]);
    let ethernet = EthernetHeader { destination: MacAddress::BROADCAST, source, ether_type };
    let traffic_class = TrafficClass::default().with_ecn(Ecn::Capable0);
    let behind = ethernet.emit(&mut bytes[4..]).expect("room");
    let (datagram, pseudo) = if v6 {
        let (source, destination) = ([0x20; 16].into(), [0xfd; 16].into());
        let header = Ipv6Header {
            traffic_class,
            flow_label: 0xabcde,
            payload_length: length,
            next_header: IpProtocol::UDP,
            hop_limit: 64,
            source,
            destination,
        };
        (header.emit(behind).expect("room"), Pseudo::V6 { source, destination })
    } else {
        let (source, destination) = ([192, 0, 2, 1].into(), [198, 51, 100, 7].into());
        let header = Ipv4Header {
            traffic_class,
            total_length: 20 + length,
            identification: port,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 64,
            protocol: IpProtocol::UDP,
            source,
            destination,
        };
        (header.emit(behind).expect("room"), Pseudo::V4 { source, destination })
    };
    datagram[Udp::HEADER_BYTES..].copy_from_slice(payload);
    let header = UdpHeader { source_port: port, destination_port: 53 };
    header.emit(datagram, Some(pseudo)).expect("room");
    push_tag(&mut bytes, tag).expect("room in front");
    bytes
}

/// Replays the inputs that are committed for the fuzzer, without a fuzzer.
#[test]
fn committed_inputs() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, target) in oracle::TARGETS {
        let folder = seeds.join(name);
        let mut count = 0;
        for file in std::fs::read_dir(&folder).expect("a folder of inputs for every target") {
            let path = file.expect("a readable folder").path();
            let bytes = std::fs::read(&path).expect("a readable input");
            let result = std::panic::catch_unwind(|| target(&bytes));
            assert!(result.is_ok(), "the oracles of {name} disagree on {}", path.display());
            count += 1;
        }
        assert!(count >= 10, "{count} inputs in {}", folder.display());
    }
}

/// A header of zeros that starts with `start`.
fn header(start: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = start.to_vec();
    bytes.resize(length, 0);
    bytes
}

/// The refusal that is expected, and the one that came.
type Refusal = (DropReason, Option<DropReason>);

/// Up to the network header: each refusal by the smallest change to something right.
fn refusals_of_network() -> Vec<Refusal> {
    use DropReason as M;
    let ipv4 =
        |start: &[u8], length| Ipv4::parse(&header(start, length)).and_then(|packet| packet.verify()).err();
    let ipv6 =
        |start: &[u8], length| Ipv6::parse(&header(start, length)).and_then(|packet| packet.upper()).err();
    vec![
        (M::EthernetTruncated, Link::parse(&[0; 13]).err()),
        (M::VlanTruncated, Link::parse(&[&[0; 12][..], &[0x81, 0, 0, 1, 8]].concat()).err()),
        (
            M::VlanTruncated,
            Link::parse(&[&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 1, 8]].concat()).err(),
        ),
        (M::ArpTruncated, Arp::parse(&header(&[0, 1, 8, 0, 6, 4], 27)).err()),
        (M::ArpBadFormat, Arp::parse(&header(&[0, 1, 8, 0, 6, 5], 28)).err()),
        (M::ArpBadFormat, Arp::parse(&header(&[0, 6, 8, 0, 6, 4], 28)).err()),
        (M::Ipv4Truncated, ipv4(&[0x45, 0, 0, 20], 19)),
        (M::Ipv4Truncated, ipv4(&[0x46, 0, 0, 24], 23)),
        (M::Ipv4BadVersion, ipv4(&[0x65, 0, 0, 20], 20)),
        (M::Ipv4BadHeaderLength, ipv4(&[0x44, 0, 0, 20], 20)),
        (M::Ipv4BadTotalLength, ipv4(&[0x45, 0, 0, 19], 20)),
        (M::Ipv4BadTotalLength, ipv4(&[0x45, 0, 0, 21], 20)),
        (M::Ipv4BadChecksum, ipv4(&[0x45, 0, 0, 20], 20)),
        (M::Ipv6Truncated, ipv6(&[0x60], 39)),
        (M::Ipv6BadVersion, ipv6(&[0x45], 40)),
        (M::Ipv6BadPayloadLength, ipv6(&[0x60, 0, 0, 0, 0, 1, 59], 40)),
        (M::Ipv6BadExtension, ipv6(&[0x60, 0, 0, 0, 0, 7, 60], 47)),
    ]
}

/// Behind the network header.
fn refusals_of_transport() -> Vec<Refusal> {
    use DropReason as M;
    let v4 = Pseudo::V4 { source: [1, 2, 3, 4].into(), destination: [5, 6, 7, 8].into() };
    let udp = |start: &[u8], length| Udp::parse(&header(start, length)).and_then(|udp| udp.verify(v4)).err();
    let gre = |start: &[u8], length| Gre::parse(&header(start, length)).and_then(|gre| gre.verify()).err();
    let tcp = |offset: u8, options: &[u8], length| {
        let bytes = [header(&[0; 12], 12), header(&[offset, 2], 8), options.to_vec()].concat();
        Tcp::parse(&header(&bytes, length)).and_then(|tcp| tcp.mss().and_then(|_| tcp.verify(v4))).err()
    };
    let icmp =
        |start: &[u8], length| Icmp::parse(&header(start, length)).and_then(|icmp| icmp.verify()).err();
    vec![
        (M::UdpTruncated, udp(&[0, 1, 0, 2, 0, 8], 7)),
        (M::UdpBadLength, udp(&[0, 1, 0, 2, 0, 7], 8)),
        (M::UdpBadLength, udp(&[0, 1, 0, 2, 0, 9], 8)),
        (M::UdpBadChecksum, udp(&[0, 1, 0, 2, 0, 8, 0, 1], 8)),
        (M::TcpTruncated, tcp(0x50, &[], 19)),
        (M::TcpBadOffset, tcp(0x40, &[], 20)),
        (M::TcpBadOffset, tcp(0x60, &[], 23)),
        (M::TcpBadOption, tcp(0x60, &[2, 3, 5, 0xb4], 24)),
        (M::TcpBadOption, tcp(0x60, &[9, 1, 0, 0], 24)),
        (M::TcpBadOption, tcp(0x60, &[1, 1, 9, 3], 24)),
        (M::TcpBadOption, tcp(0x60, &[1, 1, 1, 9], 24)),
        (M::TcpBadChecksum, tcp(0x60, &[2, 4, 5, 0xb4], 24)),
        (M::IcmpTruncated, icmp(&[8, 0, 0xf7, 0xff], 7)),
        (M::IcmpTruncated, Icmpv6::parse(&[128, 0, 0]).err()),
        (M::IcmpBadChecksum, icmp(&[8, 0, 0xf7, 0xfe], 8)),
        (M::GreTruncated, gre(&[0, 0, 0x65], 3)),
        (M::GreTruncated, gre(&[0xb0, 0, 0x65, 0x58], 15)),
        (M::GreBadVersion, gre(&[0, 1, 0x65, 0x58], 4)),
        (M::GreBadFlags, gre(&[0x40, 0, 0x65, 0x58], 8)),
        (M::GreBadChecksum, gre(&[0x80, 0, 0x65, 0x58], 8)),
    ]
}

/// The reasons of parsers, which stand together.
const IN_HEADERS: std::ops::RangeInclusive<DropReason> =
    DropReason::EthernetTruncated..=DropReason::GreBadChecksum;

#[test]
fn every_refusal_has_an_input() {
    let cases = [refusals_of_network(), refusals_of_transport()].concat();
    for (position, &(expected, found)) in cases.iter().enumerate() {
        assert_eq!(found, Some(expected), "case {position}");
    }
    for reason in DropReason::ALL.iter().filter(|reason| IN_HEADERS.contains(*reason)) {
        assert!(cases.iter().any(|case| case.0 == *reason), "no input for {reason:?}");
    }
}

/// Limits of the walk over headers: eight extension headers, hop-by-hop options only in front.
#[test]
fn extension_headers_are_bounded() {
    let packet = |count: usize, second: u8| {
        let mut bytes = header(&[0x60, 0, 0, 0, 0, u8::try_from(count * 8).expect("short"), 60], 40);
        for number in 1..=count {
            let next = if number == count { 59 } else { second };
            bytes.extend([next, 0, 1, 4, 0, 0, 0, 0]);
        }
        Ipv6::parse(&bytes).and_then(|packet| packet.upper()).map(|upper| (upper.protocol, upper.offset))
    };
    assert_eq!(packet(1, 60), Ok((IpProtocol::NO_NEXT_HEADER, 48)));
    assert_eq!(packet(8, 60), Ok((IpProtocol::NO_NEXT_HEADER, 104)));
    assert_eq!(packet(9, 60), Err(DropReason::Ipv6BadExtension));
    assert_eq!(packet(2, 0), Err(DropReason::Ipv6BadExtension));
}

/// RFC 2784, 2.3: of the reserved bits, 1, 4 and 5 refuse the packet and 6 to 12 are ignored.
#[test]
fn gre_reserved_bits() {
    for bit in 0..16 {
        let flags = 0x8000_u16 >> bit;
        let bytes = header(&[&flags.to_be_bytes()[..], &[0x65, 0x58]].concat(), 8);
        let expected = match bit {
            1 | 4 | 5 => Err(DropReason::GreBadFlags),
            13..=15 => Err(DropReason::GreBadVersion),
            0 | 2 | 3 => Ok(8),
            _ => Ok(4),
        };
        assert_eq!(Gre::parse(&bytes).map(|gre| gre.header_bytes()), expected, "bit {bit}");
    }
}

/// The order of the optional fields (RFC 2890, 2), by hand.
#[test]
fn gre_fields_in_order() {
    let header = GreHeader {
        protocol: EtherType::TRANSPARENT_ETHERNET,
        checksum: true,
        key: Some(0x0102_0304),
        sequence: Some(0x0506_0708),
    };
    let mut bytes = [0xff; 18];
    header.emit(&mut bytes).expect("room");
    GreMut::parse(&mut bytes).expect("a header").set_checksum([]);
    // b000 + 6558 + 0102 + 0304 + 0506 + 0708 + ffff = 2256b, folded 256d.
    let expected = [0xb0, 0, 0x65, 0x58, 0xda, 0x92, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 0xff];
    assert_eq!(bytes, expected);
}

/// A fragment header, two routing headers, and a fragment header again.
#[test]
fn several_fragment_headers() {
    let mut bytes = [0; 172];
    bytes[0] = 0x60;
    bytes[5] = 116;
    for (at, next, length, more) in
        [(40, 44, 1, 0), (56, 43, 0, 5), (64, 43, 2, 0), (88, 44, 2, 0), (112, 1, 0, 0)]
    {
        bytes[at] = next;
        bytes[at + 1] = length;
        bytes[at + 3] = more;
    }
    oracle::ipv6(&bytes);
}
