//! One rule, one test.

use crate::frames::{Frame, echo, message, sum};
use crate::stand::{A, B, HOST, KERNEL, Stand, TRUNK, mac, prefix, station};
use etherparse::IpNumber;
use polder_datapath::drops::DropReason;
use polder_datapath::route::{Hop, Interface, NextHopEntry, NextHopGroup, Routers};
use polder_datapath::wire::MacAddress;

/// A frame from a station on port A for us, to be routed.
fn from_a(source: &str, destination: &str) -> Frame {
    Frame::new(mac(A), station(A, 5), source, destination)
}

/// A stand whose port B has a station at 10.0.1.9 and 2001:db8:1::9.
fn stand() -> Stand {
    let mut stand = Stand::new();
    for address in ["10.0.1.9", "2001:db8:1::9"] {
        stand.know(B, 0, address, station(B, 9));
    }
    stand
}

const V4: (&str, &str) = ("10.0.0.5", "10.0.1.9");
const V6: (&str, &str) = ("2001:db8::5", "2001:db8:1::9");

#[test]
fn packets_go_on_as_another_writer_would_write_them() {
    let mut stand = stand();
    for (source, destination) in [V4, V6] {
        for (padding, options) in [(0, 0), (6, 0), (0, 8), (3, 40)] {
            let options = if source.contains(':') { Vec::new() } else { vec![1; options] };
            let frame = Frame { padding, options, hops: 2, ..from_a(source, destination) };
            stand.receive(A, &[frame.bytes()]);
            assert_eq!(stand.take(B), [frame.routed(mac(B), station(B, 9), None)], "{frame:?}");
        }
    }
    stand.check();
    assert_eq!(stand.engine.route_counters().forwarded.get(), 8);
}

#[test]
fn tags_are_taken_off_and_put_on() {
    let mut stand = stand();
    for (source, destination, near) in
        [("10.0.12.5", "10.0.1.9", "10.0.12.5"), ("2001:db8:12::5", "2001:db8:1::9", "2001:db8:12::5")]
    {
        stand.know(TRUNK, 7, near, station(TRUNK, 5));
        let frame = Frame { vlan: Some(7), ..Frame::new(mac(TRUNK), station(TRUNK, 5), source, destination) };
        stand.receive(TRUNK, &[frame.bytes()]);
        assert_eq!(stand.take(B), [frame.routed(mac(B), station(B, 9), None)]);
        let back = Frame::new(mac(B), station(B, 9), destination, source);
        stand.receive(B, &[back.bytes()]);
        assert_eq!(stand.take(TRUNK), [back.routed(mac(TRUNK), station(TRUNK, 5), Some(7))]);
    }
    let frame = Frame { vlan: Some(8), ..from_a(V4.0, V4.1) };
    assert_eq!(stand.refused(A, frame.bytes()), DropReason::NoInterface);
}

/// A macvlan on port A, of a virtual router: what is sent to its address comes in by it, and what leaves by it has its
/// address.
#[test]
fn a_macvlan_has_an_address_of_its_own() {
    let mut stand = stand();
    let shared = MacAddress([0, 0, 0x5e, 0, 1, 5]);
    let below = stand.interface(A, 0);
    let macvlan = Interface { id: below.id.macvlan(1), mac: shared, addresses: Vec::new(), ..below };
    let to_macvlan = |(source, destination)| Frame { to: shared, ..from_a(source, destination) };
    assert_eq!(stand.refused(A, to_macvlan(V4).bytes()), DropReason::OtherStation);
    stand.interfaces.push(macvlan.clone());
    stand.renew([]);
    for addresses in [V4, V6] {
        let frames = [to_macvlan(addresses), from_a(addresses.0, addresses.1), to_macvlan(addresses)];
        let bytes = |frames: &[Frame]| frames.iter().map(Frame::bytes).collect::<Vec<_>>();
        let routed = |frames: &[Frame]| {
            let routed = frames.iter().map(|frame| frame.routed(mac(B), station(B, 9), None));
            routed.collect::<Vec<_>>()
        };
        for order in [&frames[..], &frames[..1], &frames[1..]] {
            stand.receive(A, &bytes(order));
            assert_eq!(stand.take(B), routed(order));
        }
        let long = Frame { options: vec![1; 4], ..to_macvlan(V4) };
        stand.receive(A, &[long.bytes()]);
        assert_eq!(stand.take(B), routed(&[long]));
    }
    let (near, there) = (station(A, 5), crate::stand::ip("10.0.50.9"));
    stand.neighbours.set(&mut stand.router, &macvlan, there, near, (stand.now, true));
    let back = Frame::new(mac(B), station(B, 9), "10.0.1.9", "10.0.50.9");
    stand.receive(B, &[back.bytes()]);
    assert_eq!(stand.take(A), [back.routed(shared, near, None)]);
    let other = Frame { to: MacAddress([0, 0, 0x5e, 0, 1, 6]), ..from_a(V4.0, V4.1) };
    assert_eq!(stand.refused(A, other.bytes()), DropReason::OtherStation);
    // It is switched off: another router has the address.
    stand.interfaces.pop();
    stand.renew([]);
    assert_eq!(stand.refused(A, to_macvlan(V4).bytes()), DropReason::OtherStation);
    stand.check();
}

#[test]
fn what_a_header_must_not_be() {
    let mut stand = stand();
    let good = from_a(V4.0, V4.1).bytes();
    let broken = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    // RFC 1812, 5.2.2: (1) the link's length holds a header, (2) its checksum is right, (3) the version is 4,
    // (4) the header has 20 bytes at least, (5) the whole has as many as the header, and the link's frame holds it.
    assert_eq!(stand.refused(A, good[..30].to_vec()), DropReason::Ipv4Truncated);
    assert_eq!(stand.refused(A, broken(24, good[24] ^ 1)), DropReason::Ipv4BadChecksum);
    assert_eq!(stand.refused(A, broken(14, 0x55)), DropReason::Ipv4BadVersion);
    assert_eq!(stand.refused(A, broken(14, 0x44)), DropReason::Ipv4BadHeaderLength);
    assert_eq!(stand.refused(A, broken(17, 19)), DropReason::Ipv4BadTotalLength);
    assert_eq!(stand.refused(A, broken(16, 1)), DropReason::Ipv4BadTotalLength);
    assert_eq!(stand.refused(A, broken(12, 0x99)), DropReason::NotRouted);
    assert_eq!(stand.refused(A, broken(5, 77)), DropReason::OtherStation);
    // RFC 8200, 3: the version is 6, and the payload is as long as is said.
    let v6 = from_a(V6.0, V6.1).bytes();
    assert_eq!(stand.refused(A, [&v6[..14], &[0x70], &v6[15..]].concat()), DropReason::Ipv6BadVersion);
    assert_eq!(stand.refused(A, v6[..60].to_vec()), DropReason::Ipv6BadPayloadLength);
    assert_eq!(stand.refused(A, v6[..50].to_vec()), DropReason::Ipv6Truncated);
    let route = Frame { options: vec![131, 7, 4, 10, 0, 1, 9, 0], ..from_a(V4.0, V4.1) };
    assert_eq!(stand.refused(A, route.bytes()), DropReason::SourceRoute);
    // RFC 1812, 5.3.7, and RFC 4291, 2.5.2 and 2.5.3: addresses of no station; 5.3.5: groups and broadcasts.
    assert_eq!(stand.refused(A, from_a("127.0.0.1", V4.1).bytes()), DropReason::MartianSource);
    assert_eq!(stand.refused(A, from_a(V4.0, "0.0.0.0").bytes()), DropReason::MartianDestination);
    assert_eq!(stand.refused(A, from_a("::1", V6.1).bytes()), DropReason::MartianSource);
    let group = Frame { to: MacAddress([1, 0, 0x5e, 0, 0, 5]), ..from_a(V4.0, "224.0.0.5") };
    assert_eq!(stand.refused(A, group.bytes()), DropReason::GroupNotRouted);
    let broadcast = Frame { to: MacAddress::BROADCAST, ..from_a(V4.0, V4.1) };
    assert_eq!(stand.refused(A, broadcast.bytes()), DropReason::GroupNotRouted);
    assert_eq!(stand.refused(A, from_a(V4.0, "10.0.1.255").bytes()), DropReason::GroupNotRouted);
    assert_eq!(stand.refused(A, from_a(V6.0, "fe80::77").bytes()), DropReason::LinkLocal);
    assert!(stand.take(A).is_empty() && stand.take(B).is_empty());
    // As the kernel does, these are forwarded where a route leads there.
    for unusual in ["169.254.1.1", "240.1.2.3", "0.1.2.3"] {
        assert_eq!(stand.refused(A, from_a(V4.0, unusual).bytes()), DropReason::NoRoute, "{unusual}");
    }
}

/// Each sender is told the reason, by the right address.
#[test]
fn senders_are_told_why() {
    let mut stand = stand();
    let ends = [
        ("10.9.1.0/24", NextHopEntry::Blackhole),
        ("10.9.2.0/24", NextHopEntry::Unreachable),
        ("10.9.3.0/24", NextHopEntry::Prohibit),
    ];
    for (network, way) in ends {
        let way = stand.way(way);
        stand.router.insert(prefix(network), way);
    }
    let far = stand.way(NextHopEntry::Prohibit);
    stand.router.insert(prefix("2001:db8:99::/48"), far);
    let cases = [
        (from_a(V4.0, "10.77.0.1"), DropReason::NoRoute, Some((3, 0, 0))),
        (from_a(V4.0, "10.9.1.1"), DropReason::Blackhole, None),
        (from_a(V4.0, "10.9.2.1"), DropReason::Unreachable, Some((3, 1, 0))),
        (from_a(V4.0, "10.9.3.1"), DropReason::Prohibited, Some((3, 13, 0))),
        (Frame { hops: 1, ..from_a(V4.0, V4.1) }, DropReason::TimeExceeded, Some((11, 0, 0))),
        (Frame { hops: 0, ..from_a(V4.0, V4.1) }, DropReason::TimeExceeded, Some((11, 0, 0))),
        (from_a(V6.0, "2001:db8:77::1"), DropReason::NoRoute, Some((1, 0, 0))),
        (from_a(V6.0, "2001:db8:99::1"), DropReason::Prohibited, Some((1, 1, 0))),
        (Frame { hops: 1, ..from_a(V6.0, V6.1) }, DropReason::TimeExceeded, Some((3, 0, 0))),
        (from_a("10.0.0.5", "10.0.0.1"), DropReason::NoListener, Some((3, 3, 0))),
        (from_a(V6.0, "2001:db8::1"), DropReason::NoListener, Some((1, 4, 0))),
    ];
    for (frame, reason, told) in cases {
        let bytes = frame.bytes();
        assert_eq!(stand.refused(A, bytes.clone()), reason, "{frame:?}");
        let sent = stand.take(A);
        assert_eq!(sent.len(), usize::from(told.is_some()), "{frame:?}");
        let Some(reply) = sent.first() else { continue };
        let (kind, code, rest, quoted) = message(reply);
        assert_eq!(Some((kind, code, rest)), told, "{frame:?}");
        assert_eq!(quoted, bytes[14..], "the packet as it came");
        assert_eq!((&reply[..6], &reply[6..12]), (&station(A, 5).0[..], &mac(A).0[..]));
    }
    assert_eq!(stand.engine.route_counters().told.get(), 10);
}

/// A link-local source is told that it speaks beyond its scope (RFC 4443, 3.1, code 2).
#[test]
fn link_local_sources_stay_on_their_link() {
    let mut stand = stand();
    assert_eq!(stand.refused(A, from_a("fe80::5", V6.1).bytes()), DropReason::LinkLocal);
    assert_eq!(message(&stand.take(A)[0]).1, 2);
}

#[test]
fn errors_about_errors_fragments_and_groups_are_not_told() {
    let mut stand = stand();
    let unreachable = [3, 1, 0xfc, 0xfe, 0, 0, 0, 0];
    let frame = from_a(V4.0, "10.77.0.1");
    assert_eq!(stand.refused(A, frame.carrying(IpNumber::ICMP, &unreachable)), DropReason::NoRoute);
    let mut later = frame.bytes();
    later[21] = 5;
    later[24..26].fill(0);
    let checksum = !sum(&later[14..34]);
    later[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(stand.refused(A, later), DropReason::NoRoute);
    let v6 = from_a(V6.0, "2001:db8:77::1");
    assert_eq!(
        stand.refused(A, v6.carrying(IpNumber::IPV6_ICMP, &[1, 0, 0, 0, 0, 0, 0, 0])),
        DropReason::NoRoute
    );
    assert!(stand.take(A).is_empty());
    assert_eq!(stand.engine.route_counters().told.get(), 0);
}

/// As by the kernel's router: the type of service of the packet behind the precedence of control (RFC 1812,
/// 4.3.2.5), no class in IPv6, a word about later fragments of IPv6, and none about messages of routers and
/// of unknown types.
#[test]
fn errors_are_those_of_the_kernel() {
    let mut stand = stand();
    let mut classed = from_a(V4.0, "10.77.0.1").bytes();
    classed[15] = 0x1f;
    classed[24..26].fill(0);
    let checksum = !sum(&classed[14..34]);
    classed[24..26].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(stand.refused(A, classed), DropReason::NoRoute);
    assert_eq!(stand.take(A)[0][15], 0xde);
    let v6 = from_a(V6.0, "2001:db8:77::1");
    let later = [17, 0, 0, 0x41, 0, 0, 0, 7, 1, 2, 3, 4];
    assert_eq!(
        stand.refused(A, v6.carrying(IpNumber::IPV6_FRAGMENTATION_HEADER, &later)),
        DropReason::NoRoute
    );
    let sent = stand.take(A);
    assert_eq!((sent.len(), &sent[0][14..16]), (1, &[0x60, 0][..]));
    for kind in [9, 10, 41] {
        let frame = from_a(V4.0, "10.77.0.1").carrying(IpNumber::ICMP, &[kind, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(stand.refused(A, frame), DropReason::NoRoute);
        assert!(stand.take(A).is_empty(), "type {kind}");
    }
}

#[test]
fn errors_have_a_limit() {
    let mut stand = stand();
    let frames = vec![from_a(V4.0, "10.77.0.1").bytes(); 300];
    stand.receive(A, &frames);
    assert_eq!(stand.take(A).len(), 50);
    let counters = stand.engine.route_counters();
    assert_eq!((counters.told.get(), counters.silenced.get()), (50, 250));
    stand.now = stand.now + polder_datapath::units::Nanos::from_millis(10);
    stand.receive(A, &frames[..64]);
    assert_eq!(stand.take(A).len(), 10);
    stand.check();
}

#[test]
fn pings_to_our_own_addresses_come_back() {
    let mut stand = stand();
    for (source, destination) in [
        ("10.0.0.5", "10.0.0.1"),
        ("10.0.0.5", "10.0.1.1"),
        ("2001:db8::5", "2001:db8::1"),
        ("fe80::5", "fe80::1"),
    ] {
        let payload: Vec<u8> = (0..57).collect();
        stand.receive(A, &[echo(&Frame { hops: 1, ..from_a(source, destination) }, &payload)]);
        let sent = stand.take(A);
        let (kind, code, rest, said) = message(&sent[0]);
        let reply = if source.contains(':') { 129 } else { 0 };
        assert_eq!((kind, code, rest, said), (reply, 0, 7 << 16 | 9, payload));
        assert_eq!((&sent[0][..6], &sent[0][6..12]), (&station(A, 5).0[..], &mac(A).0[..]));
    }
    stand.check();
    assert_eq!(stand.engine.route_counters().answered.get(), 4);
}

#[test]
fn what_is_for_the_kernel_goes_there_as_it_came() {
    let mut stand = stand();
    let from = |to, source, destination| Frame::new(to, station(KERNEL, 5), source, destination).bytes();
    let frames = [
        from(mac(KERNEL), "10.0.3.5", "10.0.3.1"),
        from(MacAddress([1, 0, 0x5e, 0, 0, 5]), "10.0.3.5", "224.0.0.5"),
        from(MacAddress::BROADCAST, "0.0.0.0", "255.255.255.255"),
        from(MacAddress([0x33, 0x33, 0, 0, 0, 1]), "fe80::5", "ff02::1"),
        from(mac(KERNEL), "2001:db8:3::5", "2001:db8:3::1"),
    ];
    for frame in &frames {
        stand.receive(KERNEL, core::slice::from_ref(frame));
        assert_eq!(stand.take(HOST), core::slice::from_ref(frame));
    }
    let through = Frame::new(mac(KERNEL), station(KERNEL, 5), "10.0.3.5", V4.1);
    stand.receive(KERNEL, &[through.bytes()]);
    assert_eq!(stand.take(B), [through.routed(mac(B), station(B, 9), None)]);
    stand.check();
}

/// An IPv4 packet put together again from its fragments, and whether each has all it needs.
fn reassemble(fragments: &[Vec<u8>], mtu: usize) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, frame) in fragments.iter().enumerate() {
        let ip = &frame[14..];
        let header = usize::from(ip[0] & 15) * 4;
        assert!(ip.len() <= mtu && sum(&ip[..header]) == 0xffff);
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
        assert_eq!(&ip[4..6], &[0x12, 0x34]);
        let word = u16::from_be_bytes([ip[6], ip[7]]);
        assert_eq!(usize::from(word & 0x1fff) * 8, payload.len());
        assert_eq!(word & 0x2000 != 0, number + 1 < fragments.len());
        payload.extend(&ip[header..]);
    }
    payload
}

#[test]
fn large_packets_are_cut_or_their_senders_told() {
    let mut stand = stand();
    for address in ["10.0.2.9", "2001:db8:2::9"] {
        stand.know(TRUNK, 0, address, station(TRUNK, 9));
    }
    for (bytes, options) in
        [(600, vec![]), (1400, vec![]), (1472, vec![]), (1400, vec![148, 4, 0, 0, 7, 3, 4, 0])]
    {
        let payload: Vec<u8> = (0..bytes).map(|byte: u32| byte.to_le_bytes()[0]).collect();
        let frame = Frame { payload: payload.clone(), options, ..from_a(V4.0, "10.0.2.9") };
        stand.receive(A, &[frame.bytes()]);
        let sent = stand.take(TRUNK);
        assert!(sent.len() > 1);
        let whole = reassemble(&sent, 600);
        assert_eq!(whole[8..], payload);
        assert_eq!(sent[0][22], 63);
        // Router alert is in every fragment, record route in the first alone.
        let has =
            |option: u8, frame: &[u8]| frame[34..14 + usize::from(frame[14] & 15) * 4].contains(&option);
        assert!(sent.iter().all(|sent| has(148, sent) != frame.options.is_empty()));
        assert!(sent.iter().skip(1).all(|sent| !has(7, sent)));
        stand.check();
        let bound = Frame { dont_fragment: true, ..frame };
        assert_eq!(stand.refused(A, bound.bytes()), DropReason::TooBig);
        let (kind, code, rest, quoted) = message(&stand.take(A)[0]);
        assert_eq!((kind, code, rest, quoted.len()), (3, 4, 600, 576 - 28));
    }
    let large = Frame { payload: vec![7; 1300], ..from_a(V6.0, "2001:db8:2::9") };
    assert_eq!(stand.refused(A, large.bytes()), DropReason::TooBig);
    let (kind, code, rest, quoted) = message(&stand.take(A)[0]);
    assert_eq!((kind, code, rest, quoted.len()), (2, 0, 600, 1280 - 48));
    stand.check();
}

/// A fragment that is cut again stays where it is in its datagram, and says that more follows.
#[test]
fn fragments_are_cut_as_parts_of_their_datagram() {
    let mut stand = stand();
    stand.know(TRUNK, 0, "10.0.2.9", station(TRUNK, 9));
    for (word, ends) in [(0x2000_u16 | 100, false), (100, true)] {
        let mut whole = Frame { payload: vec![3; 1200], ..from_a(V4.0, "10.0.2.9") }.bytes();
        whole[20..22].copy_from_slice(&word.to_be_bytes());
        whole[24..26].fill(0);
        let checksum = !sum(&whole[14..34]);
        whole[24..26].copy_from_slice(&checksum.to_be_bytes());
        stand.receive(A, &[whole]);
        let words: Vec<_> =
            stand.take(TRUNK).iter().map(|frame| u16::from_be_bytes([frame[20], frame[21]])).collect();
        let last = if ends { 100 + 144 } else { 0x2000 | (100 + 144) };
        assert_eq!(words, [0x2000 | 100, 0x2000 | (100 + 72), last]);
    }
    stand.check();
}

/// Fragments stand where their packet stood.
#[test]
fn a_batch_keeps_its_order_when_some_are_cut() {
    let mut stand = stand();
    stand.know(TRUNK, 0, "10.0.2.9", station(TRUNK, 9));
    let frame =
        |number: u8, length| Frame { payload: vec![number; length], ..from_a(V4.0, "10.0.2.9") }.bytes();
    let frames: Vec<_> =
        (0..40).map(|number| frame(number, if number % 3 == 0 { 1200 } else { 30 })).collect();
    stand.receive(A, &frames);
    let sent = stand.take(TRUNK);
    let order: Vec<u8> = sent.iter().map(|frame| *frame.last().expect("not empty")).collect();
    assert!(order.is_sorted() && order.len() == 26 + 14 * 3, "{order:?}");
    stand.check();
}

/// A whole batch of the largest packets finds room.
#[test]
fn the_largest_batch_is_cut() {
    let mut stand = stand();
    stand.know(TRUNK, 0, "10.0.2.9", station(TRUNK, 9));
    let frame = Frame { payload: vec![1; 9000], ..from_a(V4.0, "10.0.2.9") }.bytes();
    for _ in 0..3 {
        stand.receive(A, &vec![frame.clone(); 8]);
        assert_eq!(stand.take(TRUNK).len(), 8 * 9008_usize.div_ceil(576));
        stand.check();
    }
}

/// A route may ask for fragments that are shorter than any link does: there is room for a batch, and what cannot be cut is
/// no lack of buffers.
#[test]
fn a_route_with_a_tiny_mtu() {
    let mut stand = stand();
    stand.know(B, 0, "10.0.1.9", station(B, 9));
    let interface = stand.interface(B, 0);
    let lead = |stand: &mut Stand, network: &str, mtu| {
        let hop = stand.neighbours.hop(&interface, "10.0.1.9".parse().expect("an address"));
        let way = stand.way(NextHopEntry::Hop(Hop { mtu, ..hop }));
        stand.router.insert(prefix(network), way);
    };
    for (network, mtu) in [("10.60.0.0/16", 68), ("10.61.0.0/16", 27), ("10.62.0.0/16", 28)] {
        lead(&mut stand, network, mtu);
    }
    let frame = |to: &str, payload: Vec<u8>| Frame { payload, ..from_a(V4.0, to) };
    let routers = Routers::new([stand.router.access()], stand.interfaces.clone()).expect("they fit together");
    assert!(routers.longest_expansion(1500) >= polder_buffers::BATCH * 1480_usize.div_ceil(48));
    // In a batch of the most packets, with what stands in line behind.
    let payload: Vec<u8> = (0..512).map(|byte: u32| byte.to_le_bytes()[0]).collect();
    stand.receive(A, &vec![frame("10.60.0.9", payload.clone()).bytes(); polder_buffers::BATCH]);
    let sent = stand.take(B);
    let each = (8 + 512_usize).div_ceil(48);
    assert_eq!(sent.len(), polder_buffers::BATCH * each);
    assert_eq!(reassemble(&sent[..each], 68)[8..], payload);
    stand.check();
    // Nothing fits behind a header, or eight bytes at a time.
    assert_eq!(stand.refused(A, frame("10.61.0.9", payload.clone()).bytes()), DropReason::TooBig);
    stand.receive(A, &[frame("10.62.0.9", payload.clone()).bytes()]);
    assert_eq!(reassemble(&stand.take(B), 28)[8..], payload);
    let options = [7, 40].into_iter().chain([0; 38]).collect();
    let record = Frame { options, ..frame("10.60.0.9", payload) };
    stand.receive(A, &[record.bytes()]);
    assert_eq!(stand.take(B).len(), 1 + (520_usize - 8).div_ceil(48), "the first one has eight bytes");
    stand.check();
}

#[test]
fn flows_share_the_hops_of_a_group() {
    let mut stand = stand();
    let members = [stand.by(B, 0, "10.0.1.9"), stand.by(TRUNK, 7, "10.0.12.9")];
    stand.know(TRUNK, 7, "10.0.12.9", station(TRUNK, 9));
    let group = NextHopGroup::new(&members.map(|member| (member, 1))).expect("two members");
    let way = stand.way(NextHopEntry::Group(group.clone()));
    stand.router.insert(prefix("10.50.0.0/16"), way);
    let frames: Vec<_> = (0..200).map(|number| from_a(V4.0, &format!("10.50.3.{number}")).bytes()).collect();
    stand.receive(A, &frames);
    let (first, second) = (stand.take(B), stand.take(TRUNK));
    assert!(first.len() > 60 && second.len() > 60 && first.len() + second.len() == 200);
    // The same flow goes the same way; when a member leaves, all go the other.
    stand.receive(A, &frames);
    assert_eq!((stand.take(B), stand.take(TRUNK)), (first, second));
    let left = group.with_members(&[(members[0], 1)]).expect("one member");
    stand.router.replace_next_hop(way, NextHopEntry::Group(left));
    stand.router.publish();
    stand.receive(A, &frames);
    assert_eq!((stand.take(B).len(), stand.take(TRUNK).len()), (200, 0));
    stand.check();
}
