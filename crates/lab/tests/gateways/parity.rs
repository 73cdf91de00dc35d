//! The same packets through the kernel as a router and through Polder in its place: what leaves is the same.

use crate::machines::{addresses, route, until};
use crate::router::{Net, PORTS};
use crate::support::{Gateway, root_or_skip};
use polder::trace::spec::{Defaults, Spec};
use polder_datapath::wire::MacAddress;
use polder_testbed::clock;
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::raw::PacketSocket;
use std::time::Duration;

const STATION: MacAddress = MacAddress([0x02, 0, 0, 0, 0xfe, 0xed]);

/// Packets by sources, destinations and lengths, and the kernel's settings before them.
const SETTINGS: [&[(&str, &str)]; 5] = [
    &[],
    &[("ipv4/conf/west/rp_filter", "1")],
    &[("ipv4/conf/west/rp_filter", "2")],
    &[("ipv4/conf/west/rp_filter", "0"), ("ipv4/conf/all/accept_local", "1")],
    &[
        ("ipv4/conf/all/accept_local", "0"),
        ("ipv4/conf/all/send_redirects", "0"),
        ("ipv4/conf/west/send_redirects", "0"),
    ],
];
const SOURCES: [&str; 12] = [
    "10.83.1.2",
    "10.83.1.99",
    "10.83.1.1",
    "10.83.2.1",
    "10.83.1.255",
    "10.83.2.255",
    "10.83.2.77",
    "10.90.0.7",
    "77.0.0.1",
    "240.1.2.3",
    "0.1.2.3",
    "169.254.7.7",
];
/// Other packets, which come first: a redirect takes what the kernel allows a host of errors about
/// routes.
const OTHERS: [&str; 15] = [
    "ip src 10.83.1.2 dst 10.94.0.1 / udp",
    "ip src 10.83.1.2 dst 240.1.2.3 / udp",
    "ip src 10.83.1.2 dst 255.255.255.254 / udp",
    "ip src 10.83.1.2 dst 0.1.2.3 / udp",
    "ip src 10.83.1.2 dst 169.254.7.7 / udp",
    "ip src 0.0.0.0 dst 10.90.0.1 / udp",
    "ip src 10.83.2.1 dst 10.90.0.1 ttl 1 / udp",
    "ip src 10.83.1.2 dst 10.91.0.1 df / udp / payload 1300",
    "ip src 10.83.1.2 dst 10.91.0.1 / udp / payload 1300",
    "ip src 10.83.1.2 dst 10.92.0.1 df / udp / payload 1300",
    "ip src fd83:1::2 dst fd91::1 / udp / payload 1350",
    "ip src fd83:1::2 dst fd92::1 / udp / payload 1350",
    "ip src fd83:1::2 dst fd93::1 / udp",
    "ip src fd83:1::2 dst fd94::1 / udp",
    "ip src fd83:2::1 dst fd90::1 / udp",
];

fn set(namespace: &Namespace, settings: &[(&str, &str)]) {
    namespace
        .inside(|| {
            for (key, value) in settings {
                std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap();
            }
        })
        .unwrap();
}

/// The link-layer address of an interface.
fn mac(namespace: &Namespace, interface: &str) -> MacAddress {
    let said = namespace.ip(&["-o", "link", "show", "dev", interface]).unwrap();
    let mut words = said.split_whitespace().skip_while(|word| *word != "link/ether").skip(1);
    words.next().unwrap().parse().unwrap()
}

struct Wires {
    west: PacketSocket,
    east: PacketSocket,
    gateway: MacAddress,
    marks: u16,
}

impl Wires {
    fn new(net: &Net) -> Self {
        let eye = |space: &Namespace| space.inside(|| PacketSocket::open("eth0").unwrap()).unwrap();
        Self { west: eye(&net.left), east: eye(&net.right), gateway: mac(&net.gateway, "west"), marks: 0 }
    }

    fn frame(&self, text: &str) -> Vec<u8> {
        let spec = Spec::parse(text).map_err(|error| error.render(text)).unwrap();
        spec.build(Defaults { src: STATION, dst: Some(self.gateway) }).unwrap()
    }

    /// Result for a packet: forwarded frames in digits; messages by type, code and parameter.
    fn outcome(&mut self, text: &str) -> Vec<String> {
        self.marks += 1;
        let mark = format!("ip src 10.83.1.2 dst 10.90.200.1 id {} / udp", self.marks);
        self.west.send(&self.frame(text)).unwrap();
        self.west.send(&self.frame(&mark)).unwrap();
        let (mut seen, mut is_over) = (Vec::new(), false);
        let (number, marks) = (self.marks.to_be_bytes(), [10, 90, 200, 1]);
        until(text, || {
            for frame in frames(&self.east) {
                let is_mark = frame[30..34] == marks;
                is_over |= is_mark && frame[18..20] == number;
                seen.extend((!is_mark).then(|| format!("east {:02x?}", &frame[12..])));
            }
            seen.extend(frames(&self.west).filter_map(|frame| message(&frame)));
            is_over
        });
        std::thread::sleep(Duration::from_millis(3));
        seen.extend(frames(&self.west).filter_map(|frame| message(&frame)));
        seen
    }

    /// Results for all packets, with all settings.
    fn outcomes(&mut self, net: &Net, patience: Duration) -> Vec<(String, Vec<String>)> {
        let mut outcomes = Vec::new();
        for (number, settings) in SETTINGS.iter().enumerate() {
            set(&net.gateway, settings);
            std::thread::sleep(patience);
            let destinations = ["10.90.0.1", "10.95.0.1"];
            let pairs = destinations.iter().flat_map(|to| SOURCES.iter().map(move |from| (from, to)));
            let of_sources = pairs.map(|(from, to)| format!("ip src {from} dst {to} / udp"));
            let others = OTHERS.iter().filter(|_| number == 0).map(|text| (*text).to_owned());
            for text in others.chain(of_sources) {
                outcomes.push((format!("{settings:?} {text}"), self.outcome(&text)));
            }
        }
        outcomes
    }
}

/// IP packets that have come.
fn frames(wire: &PacketSocket) -> impl Iterator<Item = Vec<u8>> + '_ {
    let next = || {
        let mut room = [0; 4096];
        let length = wire.receive(&mut room).ok()?;
        Some(room[..length].to_vec())
    };
    std::iter::from_fn(next).filter(|frame| {
        let is_v4 = frame[12..14] == [8, 0] && frame[30..34] != [10, 83, 2, 2];
        // Neighbour discovery has a hop limit of 255.
        is_v4 || frame[12..14] == [0x86, 0xdd] && frame[21] != 255 && frame[0] & 1 == 0
    })
}

/// A frame that came back: a message, or what turned round. Redirects are the kernel's alone.
fn message(frame: &[u8]) -> Option<String> {
    let icmp = match (frame[12], frame[23], frame[20]) {
        (8, 1, _) => &frame[34..42],
        (0x86, _, 58) => &frame[54..62],
        _ => return Some(format!("west {:02x?}", &frame[12..])),
    };
    (icmp[0] != 5).then(|| format!("west {} {} {:02x?}", icmp[0], icmp[1], &icmp[4..8]))
}

fn prepare(net: &Net) {
    let quiet =
        [("ipv4/icmp_ratelimit", "0"), ("ipv6/icmp/ratelimit", "0"), ("ipv4/conf/west/rp_filter", "0")];
    set(&net.gateway, &quiet);
    let right = mac(&net.right, "eth0").to_string();
    for (to, mac, dev) in [
        ("10.83.2.2", right.as_str(), "east"),
        ("fd83:2::2", right.as_str(), "east"),
        ("10.83.1.2", "02:00:00:00:fe:ed", "west"),
        ("fd83:1::2", "02:00:00:00:fe:ed", "west"),
    ] {
        net.gateway.ip(&["neigh", "replace", to, "lladdr", mac, "dev", dev, "nud", "permanent"]).unwrap();
    }
    for words in [
        "add 10.90.0.0/16 via 10.83.2.2",
        "add 240.0.0.0/4 via 10.83.2.2",
        "add 0.1.0.0/16 via 10.83.2.2",
        "add 169.254.0.0/16 via 10.83.2.2",
        "add 10.91.0.0/16 via 10.83.2.2 mtu 1280",
        "add 10.92.0.0/16 via 10.83.2.2 mtu lock 1280",
        "add 10.95.0.0/16 via 10.83.1.2",
        "add unreachable 10.94.0.0/16",
        "add fd90::/64 via fd83:2::2",
        "add fd91::/64 via fd83:2::2 mtu 1300",
        "add fd92::/64 via fd83:2::2 mtu lock 1300",
        "add unreachable fd93::/64",
        "add prohibit fd94::/64",
    ] {
        route(&net.gateway, words);
    }
}

#[test]
fn packets_leave_as_the_kernel_would_send_them() {
    if !root_or_skip("packets_leave_as_the_kernel_would_send_them") {
        return;
    }
    let net = Net::new(1500);
    let forward = |on| {
        set(
            &net.gateway,
            &[("ipv4/ip_forward", on), ("ipv6/conf/all/forwarding", on), ("ipv4/conf/all/rp_filter", "0")],
        );
    };
    forward("1");
    prepare(&net);
    let mut wires = Wires::new(&net);
    let by_kernel = wires.outcomes(&net, Duration::from_millis(20));
    // What the comparison is worth: messages, fragments, and packets that are dropped are among the outcomes.
    let count =
        |is_meant: &dyn Fn(&[String]) -> bool| by_kernel.iter().filter(|(_, seen)| is_meant(seen)).count();
    for message in
        ["3 1 [00, 00, 00, 00]", "3 4 [00, 00, 05, 00]", "2 0 [00, 00, 05, 14]", "1 0 [00, 00, 00, 00]"]
    {
        let is_told = |seen: &[String]| seen.iter().any(|one| one == &format!("west {message}"));
        assert!(count(&is_told) > 0, "{message}: {by_kernel:?}");
    }
    assert!(count(&|seen| seen.len() == 2) > 0 && count(&|seen| seen.is_empty()) > 20, "{by_kernel:?}");
    // As at the beginning, so that settings change while Polder runs.
    set(&net.gateway, &[("ipv4/conf/west/send_redirects", "1"), ("ipv4/conf/all/send_redirects", "1")]);
    forward("0");
    prepare_again(&net);
    // Carried in the kernel, the mark behind a packet would overtake it.
    let ports = PORTS.replace("role = \"router\"", "role = \"router\"\nfast_path = \"off\"");
    let polder = Gateway::start(&net.topology, &net.gateway, &ports);
    until("packets arrive", || {
        wires.west.send(&wires.frame("ip src 10.83.1.2 dst 10.90.0.1 / udp")).unwrap();
        frames(&wires.east).next().is_some()
    });
    std::thread::sleep(Duration::from_millis(100));
    // What came before the first case.
    frames(&wires.east).for_each(drop);
    frames(&wires.west).for_each(drop);
    let by_polder = wires.outcomes(&net, Duration::from_millis(2300));
    let differ = by_kernel.iter().zip(&by_polder).filter(|(kernel, polder)| kernel != polder);
    let differ =
        differ.map(|(kernel, polder)| format!("{kernel:?}\n  polder {:?}", polder.1)).collect::<Vec<_>>();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
    polder.stop();
}

/// The kernel forgets routes of IPv6 when it is told not to forward any more; whoever has them keeps them.
fn prepare_again(net: &Net) {
    let has = net.gateway.ip(&["-6", "route", "show", "fd91::/64"]).unwrap();
    assert!(has.contains("mtu 1300"), "{has}");
}

/// One host sweeps absent neighbours; another's pings to new ones all arrive.
#[test]
fn a_sweep_loses_nobody_elses_packets() {
    if !root_or_skip("a_sweep_loses_nobody_elses_packets") {
        return;
    }
    let net = Net::new(1500);
    let own = (100..130).map(|number| format!("10.83.2.{number}/24")).collect::<Vec<_>>();
    addresses(&net.right, "eth0", &own.iter().map(String::as_str).collect::<Vec<_>>());
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    let wires = Wires::new(&net);
    let mut next = 100;
    for rate in [100, 1000, 3000_u32] {
        let begun = clock::now();
        let (mut swept, mut pinged, mut arrived) = (0_u32, 0_u32, std::collections::BTreeSet::new());
        let look = |arrived: &mut std::collections::BTreeSet<u8>| {
            let pings = frames(&wires.east).filter(|frame| frame[26..30] == [10, 83, 1, 7]);
            arrived.extend(pings.map(|frame| frame[33]));
        };
        while clock::now() < begun + Duration::from_secs(1) {
            let elapsed = clock::now().saturating_sub(begun);
            while f64::from(swept) < elapsed.as_secs_f64() * f64::from(rate) {
                let text = format!("ip src 10.83.1.66 dst 10.83.2.{} / udp", 140 + swept % 110);
                wires.west.send(&wires.frame(&text)).unwrap();
                swept += 1;
            }
            // The first ones find the queue full.
            if pinged < 10 && elapsed >= Duration::from_millis(200) + Duration::from_millis(70) * pinged {
                let text = format!("ip src 10.83.1.7 dst 10.83.2.{next} / icmp");
                wires.west.send(&wires.frame(&text)).unwrap();
                (pinged, next) = (pinged + 1, next + 1);
            }
            look(&mut arrived);
            std::thread::sleep(Duration::from_micros(300));
        }
        assert_eq!(pinged, 10);
        until(&format!("all pings arrive beside {rate} packets a second: {arrived:?}"), || {
            look(&mut arrived);
            arrived.len() == 10
        });
    }
    polder.stop();
}

/// Number of flows that go to each of two next hops, which end in 0a and 0b.
fn spread(wires: &Wires, flows: &[Vec<u8>]) -> [usize; 2] {
    let mut seen = [0; 2];
    for (part, number) in flows.chunks(32).zip(1..) {
        part.iter().for_each(|flow| wires.west.send(flow).unwrap());
        until("all flows arrive", || {
            for frame in frames(&wires.east).filter(|frame| frame[38..40] == [0xfd, 0x96]) {
                seen[usize::from(frame[5] != 0x0a)] += 1;
            }
            seen.iter().sum::<usize>() == flows.len().min(32 * number)
        });
    }
    seen
}

/// Flow labels spread over two next hops by weight, and the kernel's policy is followed while Polder runs.
#[test]
fn flows_spread_by_the_fields_that_the_kernel_names() {
    if !root_or_skip("flows_spread_by_the_fields_that_the_kernel_names") {
        return;
    }
    let net = Net::new(1500);
    for (to, mac) in [("fd83:2::a", "02:00:00:00:00:0a"), ("fd83:2::b", "02:00:00:00:00:0b")] {
        net.gateway.ip(&["neigh", "replace", to, "lladdr", mac, "dev", "east", "nud", "permanent"]).unwrap();
    }
    route(&net.gateway, "add fd96::/64 nexthop via fd83:2::a weight 11 nexthop via fd83:2::b weight 45");
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    let wires = Wires::new(&net);
    let of = |field: usize| {
        let packet = wires.frame("ip src fd83:1::2 dst fd96::1 / udp");
        let with = |number: u16| {
            let mut packet = packet.clone();
            packet[field..field + 2].copy_from_slice(&number.to_be_bytes());
            packet
        };
        (0..1024).map(with).collect::<Vec<_>>()
    };
    // The flow label's lower half, and the source port.
    let (labels, ports) = (of(16), of(54));
    until("packets arrive", || {
        wires.west.send(&labels[0]).unwrap();
        frames(&wires.east).any(|frame| frame[38..40] == [0xfd, 0x96])
    });
    std::thread::sleep(Duration::from_millis(100));
    frames(&wires.east).for_each(drop);
    // Four deviations of chance from 1024 times 11 / 56.
    let is_share = |[first, _]: [usize; 2]| (150..=252).contains(&first);
    let is_one_way = |seen: [usize; 2]| seen.contains(&0);
    let (by_label, by_port) = (spread(&wires, &labels), spread(&wires, &ports));
    assert!(is_share(by_label) && is_one_way(by_port), "{by_label:?} {by_port:?}");
    set(&net.gateway, &[("ipv6/fib_multipath_hash_policy", "1")]);
    until("labels no longer count", || is_one_way(spread(&wires, &labels)));
    let by_port = spread(&wires, &ports);
    assert!(is_share(by_port), "{by_port:?}");
    set(&net.gateway, &[("ipv6/fib_multipath_hash_policy", "0")]);
    until("labels count again", || is_share(spread(&wires, &labels)));
    polder.stop();
}
