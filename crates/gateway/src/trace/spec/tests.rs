//! A described packet parses back, and a second reader finds the described fields in its bytes.

use super::layer::{Arp, Eth, Frag, Gre, Icmp, Ip, Layer, Tcp, Udp, Vlan, Vxlan};
use super::{BuildError, Defaults, Spec, describe};
use polder_datapath::wire::MacAddress;
use proptest::option;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const DEFAULTS: Defaults =
    Defaults { src: MacAddress([2, 0, 0, 0, 0, 1]), dst: Some(MacAddress([2, 0, 0, 0, 0, 2])) };

fn mac() -> impl Strategy<Value = MacAddress> {
    any::<[u8; 6]>().prop_map(MacAddress)
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from_bits)
}

fn ip() -> impl Strategy<Value = Layer> {
    let addresses = any::<bool>().prop_flat_map(|is_v6| {
        let address = move |bits: u128| -> IpAddr {
            let low = u32::try_from(bits & 0xffff_ffff).unwrap();
            if is_v6 { Ipv6Addr::from_bits(bits).into() } else { Ipv4Addr::from_bits(low).into() }
        };
        let said = option::of(Just(is_v6));
        (said, option::of(any::<u128>().prop_map(address)), option::of(any::<u128>().prop_map(address)))
    });
    let numbers =
        (option::of(any::<u8>()), option::of(0..64_u8), option::of(0..4_u8), option::of(0..1_u32 << 20));
    let more = (option::of(any::<u16>()), any::<bool>(), any::<bool>(), option::of(any::<u16>()));
    let last = (option::of(any::<u8>()), option::of(any::<u16>()), option::of(any::<u16>()));
    (addresses, numbers, more, last).prop_map(|(addresses, numbers, more, last)| {
        let ((is_v6, src, dst), (ttl, dscp, ecn, flow)) = (addresses, numbers);
        let ((id, df, mf, offset), (protocol, length, checksum)) = (more, last);
        Layer::Ip(Ip {
            is_v6,
            src,
            dst,
            ttl,
            dscp,
            ecn,
            flow,
            id,
            df,
            mf,
            offset,
            protocol,
            length,
            checksum,
        })
    })
}

fn port() -> impl Strategy<Value = Option<u16>> {
    option::of(any::<u16>())
}

fn layer() -> impl Strategy<Value = Layer> {
    let eth = (option::of(mac()), option::of(mac()), port())
        .prop_map(|(src, dst, ether_type)| Layer::Eth(Eth { src, dst, ether_type }));
    let vlan = (0..4096_u16, option::of(0..8_u8), port())
        .prop_map(|(id, priority, ether_type)| Layer::Vlan(Vlan { id, priority, ether_type }));
    let arp = (any::<bool>(), option::of(mac()), option::of(v4()), option::of(mac()), v4()).prop_map(
        |(is_reply, sender_mac, sender, target_mac, target)| {
            Layer::Arp(Arp { is_reply, sender_mac, sender, target_mac, target })
        },
    );
    let frag = (port(), any::<bool>(), option::of(any::<u32>()), option::of(any::<u8>()))
        .prop_map(|(offset, mf, id, protocol)| Layer::Frag(Frag { offset, mf, id, protocol }));
    let udp = (port(), port(), port(), port())
        .prop_map(|(sport, dport, length, checksum)| Layer::Udp(Udp { sport, dport, length, checksum }));
    let word = || option::of(any::<u32>());
    let options = option::of(prop::collection::vec(any::<[u8; 4]>(), 1..9).prop_map(|words| words.concat()));
    let tcp = (port(), port(), word(), word(), option::of(any::<u8>()), port(), port(), options, port());
    let tcp = tcp.prop_map(|(sport, dport, seq, ack, flags, window, mss, options, checksum)| {
        Layer::Tcp(Tcp { sport, dport, seq, ack, flags, window, mss, options, checksum })
    });
    let icmp = (option::of(any::<u8>()), option::of(any::<u8>()), port(), port(), port())
        .prop_map(|(kind, code, id, seq, checksum)| Layer::Icmp(Icmp { kind, code, id, seq, checksum }));
    let gre = (word(), word(), any::<bool>(), port())
        .prop_map(|(key, seq, checksum, ether_type)| Layer::Gre(Gre { key, seq, checksum, ether_type }));
    let vxlan = option::of(0..=0x00ff_ffff_u32).prop_map(|vni| Layer::Vxlan(Vxlan { vni }));
    prop_oneof![
        eth,
        vlan,
        arp,
        ip(),
        frag,
        udp,
        tcp,
        icmp,
        gre,
        vxlan,
        (0..2000_usize).prop_map(Layer::Payload),
        prop::collection::vec(any::<u8>(), 1..60).prop_map(Layer::Hex),
    ]
}

/// Frames as they are on wires: headers that fit together.
fn frame() -> impl Strategy<Value = String> {
    let l4 = prop::sample::select(vec![
        "udp dport 53 / payload 31",
        "udp checksum 0 / hex 010203",
        "tcp flags SA seq 7 ack 9 mss 1460",
        "tcp / hex aa",
        "icmp id 3 seq 4 / payload 56",
        "icmp type 3 code 4 seq 1400",
        "gre key 7 seq 9 checksum / eth dst 02:00:00:00:00:09 / ip dst 10.0.0.1 / udp / payload 5",
        "gre / ip dst 2001:db8::5 / tcp",
        "udp sport 50000 / vxlan vni 7 / eth dst 02:00:00:00:00:09 / vlan 5 / ip dst 10.0.0.1 / udp / payload 5",
        "udp / vxlan vni 16777215 / eth dst 02:00:00:00:00:09 / hex 0a",
        "hex ff00",
    ]);
    let l3 = prop::sample::select(vec![
        "ip dst 10.0.0.1",
        "ip dst 10.0.0.1 ttl 0 dscp 46 ecn 3 id 5 df",
        "ip src 2001:db8::9 dst 2001:db8::1 flow 77 dscp 8 ecn 1",
        "ip dst 10.9.0.1 mf id 9",
    ]);
    let link = prop::sample::select(vec!["eth", "eth / vlan 5 prio 3", "eth / vlan 5 / vlan 6"]);
    (link, l3, l4, any::<bool>()).prop_map(|(link, l3, l4, padded)| {
        let padding = if padded { " / payload 8" } else { "" };
        format!("{link} / {l3} / {l4}{padding}")
    })
}

proptest! {
    #[test]
    fn whatever_is_described_parses_back(layers in prop::collection::vec(layer(), 1..7)) {
        let spec = Spec(layers);
        let text = spec.to_string();
        prop_assert_eq!(Spec::parse(&text).map_err(|error| error.render(&text)), Ok(spec));
    }

    #[test]
    fn a_frame_is_built_again_from_its_description(text in frame()) {
        let built = Spec::parse(&text).expect(&text).build(DEFAULTS).expect(&text);
        let spec = describe(&built);
        prop_assert!(spec.0.len() > 1, "{text}: {spec}");
        let nobody = Defaults { src: MacAddress::ZERO, dst: None };
        let again = Spec::parse(&spec.to_string()).expect("it parses back").build(nobody);
        prop_assert_eq!(again, Ok(built));
    }

    #[test]
    fn hostile_bytes_are_described(bytes in prop::collection::vec(any::<u8>(), 1..200), kind in 0_usize..4) {
        let mut bytes = bytes;
        if let Some(field) = bytes.get_mut(12..14) {
            field.copy_from_slice(&[[8, 0], [0x86, 0xdd], [8, 6], [0x81, 0]][kind]);
        }
        let spec = describe(&bytes);
        let nobody = Defaults { src: MacAddress::ZERO, dst: None };
        prop_assert_eq!(Spec::parse(&spec.to_string()).expect("words").build(nobody), Ok(bytes));
    }

    /// Mistakes name words that are there.
    #[test]
    fn hostile_words_are_errors(text in "[a-z0-9:./ \t\u{fc}x]{0,60}") {
        if let Err(error) = Spec::parse(&text) {
            prop_assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            prop_assert!(!error.expected.is_empty() && error.render(&text).contains('^'));
        }
    }
}

/// Error message for a description.
fn mistake(text: &str) -> String {
    Spec::parse(text).expect_err(text).render(text)
}

#[test]
fn mistakes_point_at_the_word_and_say_what_is_expected() {
    let all = [
        "",
        "ipp dst 10.0.0.1",
        "ip dst 10.0.0.1 tlt 64",
        "ip dst 10.0.0",
        "ip dst",
        "ip dst / udp",
        "ip dst 10.0.0.1 dst 10.0.0.2",
        "ip src 10.0.0.1 dst 2001:db8::1",
        "ip dst 10.0.0.1 ttl 256",
        "ip dst 10.0.0.1 / tcp flags SX",
        "ip dst 10.0.0.1 //",
        "hex 0a1g",
        "hex 0a1",
        "vlan 4096",
        "arp request sender 10.0.0.1",
        "payload 40000 / payload 40000",
        "payload 20000 / payload 20000",
    ];
    insta::assert_snapshot!(all.map(|text| format!("{text:?}\n{}\n", mistake(text))).join("\n"));
}

#[test]
fn what_is_missing_is_said() {
    let build =
        |text: &str, defaults| Spec::parse(text).expect(text).build(defaults).map(|bytes| bytes.len());
    let nobody = Defaults { dst: None, ..DEFAULTS };
    assert_eq!(build("ip dst 10.0.0.1", nobody), Err(BuildError::NoStation));
    assert_eq!(build("ip", DEFAULTS), Err(BuildError::NoDestination));
    assert_eq!(build("ip src 10.0.0.1", DEFAULTS), Err(BuildError::NoDestination));
    assert_eq!(build("udp", DEFAULTS), Err(BuildError::NotInIp("udp")));
    assert_eq!(build("ip dst 10.0.0.1 / eth", DEFAULTS), Err(BuildError::NoStation));
    assert_eq!(
        build("ip dst 10.0.0.1 / eth dst 02:00:00:00:00:01", DEFAULTS),
        Err(BuildError::Misplaced("eth", "ip"))
    );
    let frame = "vxlan vni 7 / eth dst 02:00:00:00:00:01";
    assert_eq!(build(&format!("ip dst 10.0.0.1 / {frame}"), DEFAULTS), Err(BuildError::NotInUdp));
    assert_eq!(build(&format!("ip dst 10.0.0.1 / gre / {frame}"), DEFAULTS), Err(BuildError::NotInUdp));
    assert_eq!(build(&format!("ip dst 10.0.0.1 / udp / {frame}"), DEFAULTS), Ok(64));
    assert_eq!(build("payload 32768", DEFAULTS), Err(BuildError::TooLong(32_782)));
    assert_eq!(build("ip dst 10.0.0.1 / udp / payload 64", DEFAULTS), Ok(106));
}

/// A SYN as Linux sends it: selective acknowledgements, time stamps, a window's scale.
#[test]
fn options_of_tcp_are_built_and_told() {
    const OPTIONS: &str = "0402080a000000010000000001030307";
    for (mss, head) in [("mss 1460 ", "020405b4"), ("", "")] {
        let text = format!("ip dst 10.0.1.9 / tcp flags S {mss}opts {OPTIONS}");
        let built = Spec::parse(&text).expect(&text).build(DEFAULTS).expect(&text);
        let options = bytes(&format!("{head}{OPTIONS}"));
        assert_eq!(built[54..54 + options.len()], options, "{text}");
        assert_eq!(usize::from(built[46] >> 4) * 4, 20 + options.len());
        let told = describe(&built).to_string();
        assert!(told.contains(&format!("{mss}opts {OPTIONS}")) && told.contains("flags S "), "{told}");
        assert!(!told.contains("hex") && !told.contains("proto"), "{told}");
    }
}

/// RFC 7348, 5: port 4789, no checksum over IPv4.
#[test]
fn vxlan_is_built_and_told() {
    let text =
        "ip dst 10.0.1.9 / udp sport 50000 / vxlan vni 7 / eth dst 02:00:00:00:00:09 / ip dst 10.0.0.1 / udp";
    let built = Spec::parse(text).expect(text).build(DEFAULTS).expect(text);
    assert_eq!(built[34..50], bytes("c35012b5003a00000800000000000700"));
    let told = describe(&built).to_string();
    assert!(told.contains(" / udp sport 50000 dport 4789 / vxlan vni 7 / eth "), "{told}");
    let over_v6 = text.replace("10.0.1.9", "2001:db8::9");
    let built = Spec::parse(&over_v6).expect(text).build(DEFAULTS).expect(text);
    assert_ne!(built[60..62], [0, 0], "over IPv6 it has one");
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len() / 2).map(|at| digits(2 * at)).collect()
}

/// Checksums and lengths are right, says a reader of its own.
#[test]
fn packets_are_right() {
    use polder_datapath::wire::{Ipv4, Link, Pseudo};
    let text = "ip src 10.0.0.1 dst 10.0.1.9 / tcp dport 443 mss 1460 / hex 010203";
    let bytes = Spec::parse(text).expect(text).build(DEFAULTS).expect(text);
    let link = Link::parse(&bytes).expect("Ethernet");
    assert_eq!(link.ethernet.destination(), MacAddress([2, 0, 0, 0, 0, 2]));
    let ip = Ipv4::parse(link.payload()).expect("IPv4");
    ip.verify().expect("a right checksum");
    assert_eq!((ip.time_to_live(), ip.protocol().0, ip.payload().len()), (64, 6, 27));
    let pseudo = Pseudo::V4 { source: ip.source(), destination: ip.destination() };
    assert!(pseudo.sum_over(ip.protocol(), ip.payload()).is_valid());
}
