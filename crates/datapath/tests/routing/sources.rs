//! Sources of IPv4 packets, and the choice among next hops: the verdicts are those that Linux 6.18 gave the
//! same packets as a router between the same networks.

use crate::frames::{Frame, message};
use crate::stand::{A, B, Stand, TRUNK, ip, mac, prefix, station};
use etherparse::IpNumber;
use polder_datapath::drops::DropReason;
use polder_datapath::route::{
    HashPolicy, InterfaceId, NextHopEntry, NextHopGroup, OwnAddress, ReversePath, SourceCheck, Special,
};

fn from(source: &str, destination: &str) -> Frame {
    Frame::new(mac(A), station(A, 5), source, destination)
}

/// Networks as the kernel's router had them: 10.0.0.0/24 on A, 10.0.1.0/24 on B, 10.8.0.0/16 behind B, 10.20.0.0/16
/// behind A, 10.10.0.0/16 unreachable.
fn stand(check: SourceCheck) -> Stand {
    let mut stand = Stand::new();
    stand.interfaces[0].sources = check;
    let broadcasts = [[10, 0, 0, 255], [10, 0, 1, 255]].map(|address| (address.into(), Special::Broadcast));
    stand.renew(broadcasts);
    stand.know(A, 0, "10.0.0.2", station(A, 2));
    stand.know(B, 0, "10.0.1.2", station(B, 2));
    for (port, gateway, network) in [(B, "10.0.1.2", "10.8.0.0/16"), (A, "10.0.0.2", "10.20.0.0/16")] {
        let way = stand.by(port, 0, gateway);
        stand.router.insert(prefix(network), way);
    }
    let nowhere = stand.way(NextHopEntry::Unreachable);
    stand.router.insert(prefix("10.10.0.0/16"), nowhere);
    stand
}

/// The reason a packet is dropped for; `None` if it is sent on.
fn fate(stand: &mut Stand, source: &str, destination: &str) -> Option<DropReason> {
    let frame = from(source, destination).bytes();
    // Among others of its batch, and alone: there are two ways through the stage.
    let all = [vec![frame.clone()], vec![from("10.0.0.2", "10.0.1.2").bytes(), frame.clone()]];
    let mut fates = all.map(|frames| {
        let before: Vec<_> = DropReason::ALL.iter().map(|&reason| stand.drops(reason)).collect();
        stand.receive(A, &frames);
        let (sent, back) = (stand.take(B), stand.take(A));
        let is_sent = sent.iter().chain(&back).any(|sent| sent[26..34] == frame[26..34]);
        let mut grown =
            DropReason::ALL.iter().zip(before).filter(|&(&reason, old)| stand.drops(reason) > old);
        let reason = grown.next().map(|(&reason, _)| reason);
        assert_eq!(is_sent, reason.is_none(), "{source} {destination} {reason:?}");
        reason
    });
    stand.check();
    assert_eq!(fates[0], fates[1], "{source} {destination}");
    fates[0].take()
}

use DropReason::{MartianSource, OwnSource, ReversePath as NotBack, Unreachable};

#[test]
fn own_addresses_are_no_sources() {
    let mut stand = stand(SourceCheck::default());
    for own in ["10.0.0.1", "10.0.1.1", "10.0.12.1"] {
        assert_eq!(fate(&mut stand, own, "10.0.1.2"), Some(OwnSource), "{own}");
        // The route is looked for first.
        assert_eq!(fate(&mut stand, own, "10.10.0.1"), Some(Unreachable), "{own}");
        stand.receive(A, &[from(own, "10.10.0.1").bytes()]);
        assert!(stand.take(A).is_empty(), "nobody is told that has not sent it");
    }
    for other in ["10.0.0.9", "10.0.0.255", "10.0.1.255", "10.0.1.77", "77.0.0.1", "240.1.2.3", "0.1.2.3"] {
        assert_eq!(fate(&mut stand, other, "10.0.1.2"), None, "{other}");
    }
    assert_eq!(fate(&mut stand, "0.0.0.0", "10.0.1.2"), Some(MartianSource));
    // IPv6 has no such check in the kernel.
    stand.know(B, 0, "2001:db8:1::9", station(B, 9));
    stand.receive(A, &[from("2001:db8:1::1", "2001:db8:1::9").bytes()]);
    assert_eq!(stand.take(B).len(), 1);
    // A used-up time to live is looked at later.
    let frame = Frame { hops: 1, ..from("10.0.1.1", "10.0.1.2") };
    assert_eq!(stand.refused(A, frame.bytes()), OwnSource);
}

#[test]
fn own_addresses_where_they_are_accepted() {
    let accept = |reverse_path| SourceCheck { accept_local: true, reverse_path, ..SourceCheck::default() };
    let (mut off, mut strict) = (stand(accept(ReversePath::Off)), stand(accept(ReversePath::Strict)));
    let mut loose = stand(accept(ReversePath::Loose));
    for (own, strictly) in [("10.0.0.1", None), ("10.0.1.1", Some(NotBack))] {
        assert_eq!(fate(&mut off, own, "10.0.1.2"), None);
        assert_eq!(fate(&mut strict, own, "10.0.1.2"), strictly);
        assert_eq!(fate(&mut loose, own, "10.0.1.2"), None);
    }
}

#[test]
fn the_reverse_path() {
    let check = |reverse_path| SourceCheck { reverse_path, ..SourceCheck::default() };
    let (mut strict, mut loose) = (stand(check(ReversePath::Strict)), stand(check(ReversePath::Loose)));
    for (source, destination, strictly, loosely) in [
        ("10.0.0.2", "10.0.1.2", None, None),
        ("10.0.0.99", "10.0.1.2", None, None),
        ("10.20.0.1", "10.0.1.2", None, None),
        ("10.0.1.1", "10.0.1.2", Some(OwnSource), Some(OwnSource)),
        ("10.0.1.77", "10.0.1.2", Some(NotBack), None),
        ("10.0.0.255", "10.0.1.2", Some(MartianSource), Some(MartianSource)),
        ("10.8.0.7", "10.0.1.2", Some(NotBack), None),
        ("77.0.0.1", "10.0.1.2", Some(NotBack), Some(NotBack)),
        ("10.10.0.1", "10.0.1.2", Some(NotBack), Some(NotBack)),
        ("10.8.0.7", "10.10.1.2", Some(Unreachable), Some(Unreachable)),
    ] {
        assert_eq!(fate(&mut strict, source, destination), strictly, "{source} strictly");
        assert_eq!(fate(&mut loose, source, destination), loosely, "{source} loosely");
    }
}

/// Behind an interface without an IPv4 address of its own there is no source that a route elsewhere leads to:
/// loosely it is as strict as strictly.
#[test]
fn the_loose_reverse_path_of_an_interface_without_addresses() {
    for (own, elsewhere) in
        [(vec!["10.0.0.1/24", "2001:db8::1/64"], None), (vec!["2001:db8::1/64"], Some(NotBack))]
    {
        let mut stand = stand(SourceCheck { reverse_path: ReversePath::Loose, ..SourceCheck::default() });
        let own = own.into_iter().map(|text| {
            let (address, bits) = text.split_once('/').expect("an address and its bits");
            OwnAddress { address: ip(address), bits: bits.parse().expect("bits") }
        });
        stand.interfaces[0].addresses = own.collect();
        stand.renew([]);
        for (source, expected) in [("10.20.0.1", None), ("10.0.1.77", elsewhere), ("10.8.0.7", elsewhere)] {
            assert_eq!(fate(&mut stand, source, "10.0.1.2"), expected, "{source}");
        }
    }
}

#[test]
fn broadcasts_as_sources_where_packets_turn_back() {
    let redirects = |redirects| SourceCheck { redirects, ..SourceCheck::default() };
    for (check, broadcast) in [(redirects(true), Some(MartianSource)), (redirects(false), None)] {
        let mut stand = stand(check);
        for (source, expected) in [
            ("10.0.0.9", None),
            ("10.0.0.255", broadcast),
            ("10.0.1.255", broadcast),
            ("10.0.0.1", Some(OwnSource)),
            ("77.0.0.1", None),
        ] {
            assert_eq!(fate(&mut stand, source, "10.20.0.1"), expected, "{source}");
        }
    }
    let mut always = stand(SourceCheck { always: true, ..SourceCheck::default() });
    for (source, expected) in [("10.0.0.255", Some(MartianSource)), ("77.0.0.1", None), ("10.0.1.77", None)] {
        assert_eq!(fate(&mut always, source, "10.0.1.2"), expected, "{source}");
    }
}

/// A TAP leads to the machine, whose packets have its addresses as sources; nobody else's have.
#[test]
fn the_machine_may_send_with_its_own_addresses() {
    for (machine, expected) in [(true, None), (false, Some(OwnSource))] {
        let mut stand = stand(SourceCheck { machine, ..SourceCheck::default() });
        stand.renew([([192, 0, 2, 7].into(), Special::Machine)]);
        assert_eq!(fate(&mut stand, "192.0.2.7", "10.0.1.2"), expected);
        assert_eq!(fate(&mut stand, "10.0.1.1", "10.0.1.2"), Some(OwnSource));
    }
}

/// A forbidden hop-by-hop option gets an error message, with all of the packet.
#[test]
fn a_jumbo_payload_is_told_about() {
    let mut stand = stand(SourceCheck::default());
    let frame = from("2001:db8::5", "2001:db8:1::9");
    let mut bytes = frame.carrying(IpNumber::IPV6_HEADER_HOP_BY_HOP, &[17, 0, 0xc2, 4, 0, 0, 0, 16, 1, 2, 3]);
    bytes[18..20].fill(0);
    assert_eq!(stand.refused(A, bytes.clone()), DropReason::HopByHop);
    let told = stand.take(A);
    assert_eq!(message(&told[0]), (4, 0, 44, bytes[14..].to_vec()));
    let route = stand.way(NextHopEntry::Unreachable);
    stand.router.insert(prefix("2001:db8:a::/48"), route);
    stand.refused(A, from("2001:db8::5", "2001:db8:a::1").bytes());
    assert_eq!(message(&stand.take(A)[0]).1, 0, "no route, as the kernel says of an unreachable one");
}

/// Flows of which one field differs, shared among two hops by weights: how many go to the first.
fn shared(policy: HashPolicy, weights: [u16; 2], flows: impl Iterator<Item = Vec<u8>>) -> (usize, usize) {
    let mut stand = stand(SourceCheck::default());
    stand.know(TRUNK, 7, "10.0.12.9", station(TRUNK, 9));
    let hops = [stand.by(B, 0, "10.0.1.2"), stand.by(TRUNK, 7, "10.0.12.9")];
    let members = [(hops[0], weights[0]), (hops[1], weights[1])];
    let way = stand.way(NextHopEntry::Group(NextHopGroup::new(&members).expect("two members")));
    for network in ["10.50.0.0/16", "2001:db8:50::/48"] {
        stand.router.insert(prefix(network), way);
    }
    stand.router.set_hash_policies([policy; 2]);
    stand.router.publish();
    let frames = flows.collect::<Vec<_>>();
    stand.receive(A, &frames);
    let sent = (stand.take(B).len(), stand.take(TRUNK).len());
    assert_eq!(sent.0 + sent.1, frames.len());
    stand.check();
    sent
}

fn labels() -> impl Iterator<Item = Vec<u8>> {
    (0..4096_u16).map(|label| {
        let mut bytes = from("2001:db8::5", "2001:db8:50::9").bytes();
        bytes[16..18].copy_from_slice(&label.to_be_bytes());
        bytes
    })
}

fn ports() -> impl Iterator<Item = Vec<u8>> {
    (0..4096_u16).map(|port| {
        let mut bytes = from("10.0.0.5", "10.50.0.9").bytes();
        bytes[34..36].copy_from_slice(&port.to_be_bytes());
        bytes
    })
}

fn addresses() -> impl Iterator<Item = Vec<u8>> {
    (0..20_000_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        from("10.0.0.5", &format!("10.50.{high}.{low}")).bytes()
    })
}

/// True if a share `part` of the flows goes one way, but for four deviations of chance.
fn is_part((first, second): (usize, usize), part: f64) -> bool {
    let count = (first + second) as f64;
    let deviation = (count * part * (1.0 - part)).sqrt();
    (first as f64 - count * part).abs() <= 4.0 * deviation
}

#[test]
fn the_fields_of_the_kernels_policy_choose_the_hop() {
    let all = |shared: (usize, usize)| shared.0 == 0 || shared.1 == 0;
    assert!(is_part(shared(HashPolicy::Addresses, [1, 1], labels()), 0.5), "labels count");
    assert!(all(shared(HashPolicy::Ports, [1, 1], labels())));
    assert!(all(shared(HashPolicy::Addresses, [1, 1], ports())));
    assert!(is_part(shared(HashPolicy::Ports, [1, 1], ports()), 0.5));
    assert!(all(shared(HashPolicy::Fields(0x20), [1, 1], ports())), "of ports only the destination's");
    assert!(is_part(shared(HashPolicy::Fields(0x10), [1, 1], ports()), 0.5));
    assert!(is_part(shared(HashPolicy::Fields(0x08), [1, 1], labels()), 0.5));
    for policy in [HashPolicy::Addresses, HashPolicy::Ports, HashPolicy::Inner] {
        let shared = shared(policy, [11, 45], addresses());
        assert!(is_part(shared, 11.0 / 56.0), "{policy:?} {shared:?}");
    }
}

/// The flow inside a tunnel, and the flow that an error is about.
#[test]
fn what_is_inside_chooses_the_hop() {
    let tunnel = from("10.0.0.5", "10.50.0.9");
    let inner = || addresses().map(|frame| frame[14..].to_vec());
    let carried = || inner().take(4096).map(|packet| tunnel.carrying(IpNumber::IPV4, &packet));
    let gre = || {
        inner()
            .take(4096)
            .map(|packet| tunnel.carrying(IpNumber::GRE, &[&[0, 0, 8, 0][..], &packet].concat()))
    };
    assert!(is_part(shared(HashPolicy::Inner, [1, 1], carried()), 0.5));
    assert!(is_part(shared(HashPolicy::Inner, [1, 1], gre()), 0.5));
    assert!(is_part(shared(HashPolicy::Fields(0x80), [1, 1], gre()), 0.5));
    let outer = shared(HashPolicy::Addresses, [1, 1], carried());
    assert!(outer.0 == 0 || outer.1 == 0);
    let about = |packet: Vec<u8>| {
        let mut icmp = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &packet[..28]].concat();
        let sum = !crate::frames::sum(&icmp);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        tunnel.carrying(IpNumber::ICMP, &icmp)
    };
    assert!(is_part(shared(HashPolicy::Addresses, [1, 1], inner().take(4096).map(about)), 0.5));
}

/// The route's MTU counts where it is smaller than the interface's; the interface of a route is the same.
#[test]
fn a_route_has_an_mtu_of_its_own() {
    let mut stand = stand(SourceCheck::default());
    let interface = stand.interface(B, 0);
    assert_eq!((interface.mtu_by(0), interface.mtu_by(1280), interface.mtu_by(9000)), (1500, 1280, 1500));
    assert_eq!(interface.id, InterfaceId::untagged(B));
    let hop = stand.neighbours.hop(&interface, [10, 0, 1, 2].into());
    let way =
        stand.way(NextHopEntry::Hop(polder_datapath::route::Hop { mtu: interface.mtu_by(1280), ..hop }));
    stand.router.insert(prefix("10.9.0.0/16"), way);
    let large = Frame { payload: vec![7; 1300], ..from("10.0.0.5", "10.9.0.1") };
    let whole = Frame { dont_fragment: true, ..large.clone() };
    assert_eq!(stand.refused(A, whole.bytes()), DropReason::TooBig);
    let (kind, code, mtu, _) = message(&stand.take(A)[0]);
    assert_eq!((kind, code, mtu), (3, 4, 1280));
    stand.receive(A, &[large.bytes()]);
    let lengths: Vec<_> = stand.take(B).iter().map(|frame| frame.len() - 14).collect();
    assert_eq!(lengths, [1276, 72], "as the kernel cuts it");
}
