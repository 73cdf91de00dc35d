//! `router_multipath`, and the multipath selftests of packets in GRE: two links to the next router, and weights.

use super::net::{Fault, Forwarder, Net, addresses, route};
use super::{Check, Mutant, Part};
use crate::differential::packet::{IPV4, IPV6, LINK, Sum, Upper, V4, V6};
use anyhow::ensure;
use polder_testbed::topology::{End, Topology};
use polder_testbed::{clock, interrupt};
use std::time::Duration;

/// Number of flows of a check: their ratio scatters by 4 % for the rarest next hop, a quarter of what is tolerated.
const FLOWS: u16 = 4096;
/// Number of packets that are under way at a time.
const BURST: u16 = 64;
/// Longest time until a burst has left.
const SOON: Duration = Duration::from_millis(500);
/// Largest difference between the ratio of packets and the ratio of weights, in percent, as in the kernel's selftests.
const TOLERANCE: f64 = 15.0;
/// The destination behind both next hops.
const FAR: [u8; 4] = [198, 51, 100, 2];
const FAR_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

const WEIGHTS: [[u16; 2]; 3] = [[1, 1], [2, 1], [11, 45]];

const fn check(name: &'static str, run: fn(&Net) -> anyhow::Result<()>) -> Check {
    Check { name, lacks: None, run }
}

/// The selftest `router_multipath`, and `router_mpath_nh` with next-hop objects.
pub(super) const MULTIPATH: Part = Part {
    name: "router_multipath",
    modules: &[],
    lay,
    checks: &[
        check("ping_ipv4", |net| net.reaches("h1", "198.51.100.2", &[])),
        check("ping_ipv6", |net| net.reaches("h1", "2001:db8:2::2", &[])),
        check("ipv4_ecmp", |net| balanced(net, Flow::V4, 0, "1")),
        check("ipv4_weights_2_1", |net| balanced(net, Flow::V4, 1, "1")),
        check("ipv4_weights_11_45", |net| balanced(net, Flow::V4, 2, "1")),
        check("ipv6_ecmp", |net| balanced(net, Flow::V6, 0, "1")),
        check("ipv6_weights_2_1", |net| balanced(net, Flow::V6, 1, "1")),
        check("ipv6_weights_11_45", |net| balanced(net, Flow::V6, 2, "1")),
        check("ipv6_flow_label_ecmp", |net| balanced(net, Flow::Label, 0, "0")),
        check("ipv6_flow_label_weights_11_45", |net| balanced(net, Flow::Label, 2, "0")),
        check("ipv4_objects_ecmp", |net| objects(net, Flow::V4, 0)),
        check("ipv4_objects_weights_11_45", |net| objects(net, Flow::V4, 2)),
        check("ipv6_objects_weights_2_1", |net| objects(net, Flow::V6, 1)),
        check("ipv4_addresses_alone_one_way", |net| one_way(net, Flow::V4, "0")),
    ],
    mutants: &[
        fault("next_hop_never_used", Fault::OneNextHop, "ipv4_ecmp"),
        fault("weights_ignored", Fault::NoWeights, "ipv4_weights_11_45"),
        fault("ports_ignored", Fault::AddressesAlone, "ipv6_ecmp"),
    ],
};

/// The selftests `gre_inner_v4_multipath` and `ip6gre_inner_v4_multipath`.
pub(super) const INNER_V4: Part = Part {
    name: "gre_inner_v4_multipath",
    modules: &[],
    lay,
    checks: &[
        check("ecmp", |net| balanced(net, Flow::Gre(IPV4), 0, "2")),
        check("weights_2_1", |net| balanced(net, Flow::Gre(IPV4), 1, "2")),
        check("weights_11_45", |net| balanced(net, Flow::Gre(IPV4), 2, "2")),
        check("over_ipv6_ecmp", |net| balanced(net, Flow::Gre6(IPV4), 0, "2")),
        check("over_ipv6_weights_11_45", |net| balanced(net, Flow::Gre6(IPV4), 2, "2")),
        check("outer_alone_one_way", |net| one_way(net, Flow::Gre(IPV4), "0")),
    ],
    mutants: &[fault("inner_ignored_v4", Fault::AddressesAlone, "ecmp")],
};

/// The selftests `gre_inner_v6_multipath` and `ip6gre_inner_v6_multipath`.
pub(super) const INNER_V6: Part = Part {
    name: "gre_inner_v6_multipath",
    modules: &[],
    lay,
    checks: &[
        check("ecmp", |net| balanced(net, Flow::Gre(IPV6), 0, "2")),
        check("weights_2_1", |net| balanced(net, Flow::Gre(IPV6), 1, "2")),
        check("weights_11_45", |net| balanced(net, Flow::Gre(IPV6), 2, "2")),
        check("over_ipv6_ecmp", |net| balanced(net, Flow::Gre6(IPV6), 0, "2")),
        check("over_ipv6_weights_11_45", |net| balanced(net, Flow::Gre6(IPV6), 2, "2")),
        check("outer_alone_one_way", |net| one_way(net, Flow::Gre(IPV6), "0")),
    ],
    mutants: &[fault("inner_ignored_v6", Fault::AddressesAlone, "ecmp")],
};

const fn fault(name: &'static str, fault: Fault, check: &'static str) -> Mutant {
    Mutant { name, begin: &[], fault: Some(fault), end: &[], check }
}

/// Packets of which each is of a flow of its own.
#[derive(Clone, Copy, Debug)]
enum Flow {
    /// IPv4 with different ports.
    V4,
    /// IPv6 with different ports.
    V6,
    /// IPv6 with different flow labels.
    Label,
    /// Packets of this type in GRE over IPv4, with different inner addresses.
    Gre(u16),
    /// GRE over IPv6.
    Gre6(u16),
}

impl Flow {
    fn is_v6(self) -> bool {
        matches!(self, Self::V6 | Self::Label | Self::Gre6(_))
    }

    /// The type of the frame, and the packet of flow `number`.
    fn packet(self, number: u16) -> (u16, Vec<u8>) {
        let mut source_v6 = FAR_V6;
        source_v6[5] = 1;
        let v4 = V4 { source: [192, 0, 2, 2], ..V4::udp(FAR) };
        let v6 = V6 { source: source_v6, ..V6::udp(FAR_V6) };
        let ports = [1024, 1024 + number * 7];
        match self {
            Self::V4 => (IPV4, V4 { ports, ..v4 }.bytes()),
            Self::V6 => (IPV6, V6 { ports, ..v6 }.bytes()),
            Self::Label => (IPV6, V6 { label: u32::from(number) + 1, ports: [1024, 1024], ..v6 }.bytes()),
            Self::Gre(kind) => (IPV4, V4 { upper: carried(kind, number), ..v4 }.bytes()),
            Self::Gre6(kind) => (IPV6, V6 { upper: carried(kind, number), ..v6 }.bytes()),
        }
    }
}

/// GRE with a packet of flow `number` inside.
fn carried(kind: u16, number: u16) -> Upper {
    let [high, low] = number.to_be_bytes();
    let (upper, ports) = (Upper::Udp(Sum::Right, 16), [1024, 1024]);
    let inner = if kind == IPV4 {
        V4 { source: [10, 3, high, low], upper, ports, ..V4::udp([10, 4, low, high]) }.bytes()
    } else {
        let end = |net: u8| [0xfd, net, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low];
        V6 { source: end(3), upper, ports, ..V6::udp(end(4)) }.bytes()
    };
    Upper::Raw(47, [&[0, 0], kind.to_be_bytes().as_slice(), &inner].concat())
}

/// `h1` – the router under test – two links – `r2` – `h2`.
fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    let mut net = Net::lay(topology, who, &[])?;
    let (h1, r2, h2) =
        (net.add_host(topology, "h1")?, net.add_host(topology, "r2")?, net.add_host(topology, "h2")?);
    let forwarder = net.forwarder.clone();
    let ends =
        |a, one, b, other| [End { namespace: a, interface: one }, End { namespace: b, interface: other }];
    for [a, b] in [
        ends(&h1, "eth0", &forwarder, "rp1"),
        ends(&forwarder, "la", &r2, "la"),
        ends(&forwarder, "lb", &r2, "lb"),
        ends(&r2, "eth0", &h2, "eth0"),
    ] {
        topology.wire(a, b, 1500)?;
    }
    addresses(&h1, "eth0", &["192.0.2.2/24", "2001:db8:1::2/64"])?;
    addresses(&forwarder, "rp1", &["192.0.2.1/24", "2001:db8:1::1/64"])?;
    addresses(&forwarder, "la", &["169.254.2.12/24", "fe80:2::12/64"])?;
    addresses(&forwarder, "lb", &["169.254.3.13/24", "fe80:3::13/64"])?;
    addresses(&r2, "la", &["169.254.2.22/24", "fe80:2::22/64"])?;
    addresses(&r2, "lb", &["169.254.3.23/24", "fe80:3::23/64"])?;
    addresses(&r2, "eth0", &["198.51.100.1/24", "2001:db8:2::1/64"])?;
    addresses(&h2, "eth0", &["198.51.100.2/24", "2001:db8:2::2/64"])?;
    r2.inside(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
    })??;
    for (host, line) in [
        (&h1, "default via 192.0.2.1"),
        (&h1, "default via 2001:db8:1::1"),
        (&h2, "default via 198.51.100.1"),
        (&h2, "default via 2001:db8:2::1"),
        (&r2, "192.0.2.0/24 via 169.254.2.12"),
        (&r2, "2001:db8:1::/64 via fe80:2::12 dev la"),
    ] {
        route(host, line)?;
    }
    net.listen("la", &r2, "la")?;
    net.listen("lb", &r2, "lb")?;
    net.listen("h1", &h1, "eth0")?;
    let net = net.route_with(topology, &["rp1", "la", "lb"])?;
    set_route(&net, false, [1, 1])?;
    set_route(&net, true, [1, 1])?;
    Ok(net)
}

fn next_hops(is_v6: bool) -> [&'static str; 2] {
    if is_v6 {
        ["via fe80:2::22 dev la", "via fe80:3::23 dev lb"]
    } else {
        ["via 169.254.2.22 dev la", "via 169.254.3.23 dev lb"]
    }
}

fn weights(net: &Net, weights: [u16; 2]) -> [u16; 2] {
    if net.has(Fault::NoWeights) { [1, 1] } else { weights }
}

fn set_route(net: &Net, is_v6: bool, wanted: [u16; 2]) -> anyhow::Result<()> {
    let to = if is_v6 { "2001:db8:2::/64" } else { "198.51.100.0/24" };
    let ([first, second], [one, other]) = (next_hops(is_v6), weights(net, wanted));
    let mut line = format!("{to} nexthop {first} weight {one}");
    if !net.has(Fault::OneNextHop) {
        line += &format!(" nexthop {second} weight {other}");
    }
    // Two routes of IPv6 to one network are next hops of one: the old ones have to go.
    if is_v6 {
        let _ = net.forwarder.ip(&["-6", "route", "flush", "exact", to]);
    }
    route(&net.forwarder, &line)
}

fn policy(net: &Net, value: &str) -> anyhow::Result<()> {
    let value = if net.has(Fault::AddressesAlone) { "0" } else { value };
    ["ipv4", "ipv6"]
        .iter()
        .try_for_each(|family| net.set(&format!("{family}/fib_multipath_hash_policy"), value))
}

/// Packets that have left by each link; none if one of them is missing.
fn counted(net: &Net, flow: Flow) -> anyhow::Result<[usize; 2]> {
    let mut counts = [0; 2];
    for link in ["h1", "la", "lb"] {
        net.arrived(link)?;
    }
    for first in (0..FLOWS).step_by(usize::from(BURST)) {
        for number in first..first + BURST {
            let (kind, packet) = flow.packet(number);
            net.send_packet_cached("h1", "rp1", kind, &packet)?;
        }
        let wanted = usize::from(first + BURST);
        let end = clock::now() + SOON;
        while counts[0] + counts[1] < wanted && clock::now() < end {
            interrupt::check()?;
            for (count, link) in counts.iter_mut().zip(["la", "lb"]) {
                *count += net.arrived(link)?.iter().filter(|frame| is_sent(frame, flow)).count();
            }
        }
        // The first packets wait for a neighbour, or the flows of a broken forwarder are lost.
        if counts[0] + counts[1] < wanted {
            return Ok([0; 2]);
        }
    }
    Ok(counts)
}

fn is_sent(frame: &[u8], flow: Flow) -> bool {
    let (kind, at, address) =
        if flow.is_v6() { (IPV6, LINK + 24, FAR_V6.as_slice()) } else { (IPV4, LINK + 16, FAR.as_slice()) };
    frame.get(12..14) == Some(&kind.to_be_bytes()) && frame.get(at..at + address.len()) == Some(address)
}

/// The flows are divided as the weights say.
fn divided(net: &Net, flow: Flow, [one, other]: [u16; 2]) -> anyhow::Result<()> {
    let ratio = |a: f64, b: f64| if a > b { a / b } else { b / a };
    let wanted = ratio(f64::from(one), f64::from(other));
    let mut last = [0; 2];
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let right = net.until("the weights count", || {
        last = counted(net, flow)?;
        let is_whole = last != [0; 2];
        let is_first_larger = (last[0] > last[1]) == (one > other) || one == other;
        let found = ratio(number(last[0]), number(last[1]));
        Ok(is_whole && is_first_larger && 100.0 * (found - wanted).abs() / wanted <= TOLERANCE)
    });
    ensure!(right.is_ok(), "{last:?} packets for weights {one}:{other}");
    Ok(())
}

fn balanced(net: &Net, flow: Flow, weights: usize, hash: &str) -> anyhow::Result<()> {
    policy(net, hash)?;
    set_route(net, flow.is_v6(), WEIGHTS[weights])?;
    divided(net, flow, WEIGHTS[weights])
}

/// Checks that fields outside the hash policy do not divide flows.
fn one_way(net: &Net, flow: Flow, hash: &str) -> anyhow::Result<()> {
    policy(net, hash)?;
    set_route(net, flow.is_v6(), [1, 1])?;
    let mut last = [0; 2];
    let right = net.until("one next hop", || {
        last = counted(net, flow)?;
        Ok(last != [0; 2] && last.contains(&0))
    });
    ensure!(right.is_ok(), "{last:?} packets of one pair of addresses");
    Ok(())
}

/// The multipath route as next-hop objects.
fn objects(net: &Net, flow: Flow, which: usize) -> anyhow::Result<()> {
    policy(net, "1")?;
    let is_v6 = flow.is_v6();
    let ([first, second], [one, other]) = (next_hops(is_v6), weights(net, WEIGHTS[which]));
    let to = if is_v6 { "2001:db8:2::/64" } else { "198.51.100.0/24" };
    let _ = net.forwarder.ip(&[if is_v6 { "-6" } else { "-4" }, "route", "flush", "exact", to]);
    for line in
        [format!("id 101 {first}"), format!("id 102 {second}"), format!("id 103 group 101,{one}/102,{other}")]
    {
        net.tell(&format!("ip nexthop replace {line}"))?;
    }
    route(&net.forwarder, &format!("{to} nhid 103"))?;
    let result = divided(net, flow, WEIGHTS[which]);
    let _ = net.forwarder.ip(&[if is_v6 { "-6" } else { "-4" }, "route", "flush", "exact", to]);
    net.tell("ip nexthop flush")?;
    set_route(net, is_v6, [1, 1])?;
    std::thread::sleep(Duration::from_millis(50));
    result
}
