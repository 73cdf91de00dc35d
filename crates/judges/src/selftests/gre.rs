//! `gre_multipath`, and the MTU of tunnels: a router that sends flows into two tunnels.
//!
//! `h1` – the router under test – two links, a tunnel over each – `r2` – `h2`. The other ends are the kernel's.

use super::net::{Forwarder, Net, addresses, route};
use super::{Check, Mutant, Part};
use crate::differential::packet::{IPV4, LINK, V4};
use anyhow::ensure;
use polder_testbed::topology::{End, Namespace, Topology};

/// Flows of a check.
const FLOWS: u16 = 512;
/// The MTU inside of a tunnel over a link of 1500 bytes.
const INSIDE: &str = "1476";

/// The selftest `gre_multipath`, with MTU checks of packets and frames in GRE.
pub(super) const MULTIPATH: Part = Part {
    name: "gre_multipath",
    modules: &["veth", "bridge", "8021q", "ip_gre"],
    lay,
    checks: &[
        Check { name: "ping_ipv4", lacks: None, run: |net| net.reaches("h1", "192.0.2.18", &[]) },
        Check { name: "ecmp", lacks: None, run: |net| divided(net, [1, 1]) },
        Check { name: "weights_2_1", lacks: Some(NO_WEIGHTS), run: |net| divided(net, [2, 1]) },
        Check { name: "weights_11_45", lacks: Some(NO_WEIGHTS), run: |net| divided(net, [11, 45]) },
        Check { name: "tos_inherit", lacks: None, run: class_inherited },
        Check { name: "gre_pmtu_exception", lacks: None, run: exception },
        Check {
            name: "gre_mtu_exact",
            lacks: None,
            run: |net| net.reaches("h1", "192.0.2.18", &["-M", "do", "-s", "1448"]),
        },
        Check {
            name: "gre_fragmented_by_router",
            lacks: None,
            run: |net| net.reaches("h1", "192.0.2.18", &["-M", "dont", "-s", "1460"]),
        },
    ],
    mutants: &[Mutant {
        name: "one_tunnel_never_used",
        begin: &["ip route replace 192.0.2.16/28 dev g1a"],
        fault: None,
        end: &["ip route replace 192.0.2.16/28 nexthop dev g1a nexthop dev g1b"],
        check: "ecmp",
    }],
};

const NO_WEIGHTS: &str = "routes of the file have next hops of equal weight (docs/guide/configuration.md)";

/// Polder's tunnels, with the route into both.
const TABLES: &str = r#"
[port.ol1]
interface = "ol1"
role = "router"
[port.ua]
interface = "ua"
role = "underlay"
[port.ub]
interface = "ub"
role = "underlay"
[tunnel.g1a]
kind = "gre"
port = "ua"
local = "192.0.2.129"
remote = "192.0.2.130"
addresses = ["192.0.2.64/31"]
[tunnel.g1b]
kind = "gre"
port = "ub"
local = "192.0.2.145"
remote = "192.0.2.146"
addresses = ["192.0.2.80/31"]
[[router.route]]
to = "192.0.2.16/28"
via = ["192.0.2.65", "192.0.2.81"]
"#;

fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    let mut net = Net::lay(topology, who, &[])?;
    let (h1, r2, h2) =
        (net.add_host(topology, "h1")?, net.add_host(topology, "r2")?, net.add_host(topology, "h2")?);
    let forwarder = net.forwarder.clone();
    let ends =
        |a, one, b, other| [End { namespace: a, interface: one }, End { namespace: b, interface: other }];
    for [a, b] in [
        ends(&h1, "eth0", &forwarder, "ol1"),
        ends(&forwarder, "ua", &r2, "ua"),
        ends(&forwarder, "ub", &r2, "ub"),
        ends(&r2, "ol2", &h2, "eth0"),
    ] {
        topology.wire(a, b, 1500)?;
    }
    addresses(&h1, "eth0", &["192.0.2.1/28"])?;
    addresses(&forwarder, "ol1", &["192.0.2.2/28"])?;
    addresses(&forwarder, "ua", &["192.0.2.129/28"])?;
    addresses(&forwarder, "ub", &["192.0.2.145/28"])?;
    addresses(&r2, "ua", &["192.0.2.130/28"])?;
    addresses(&r2, "ub", &["192.0.2.146/28"])?;
    addresses(&r2, "ol2", &["192.0.2.17/28"])?;
    addresses(&h2, "eth0", &["192.0.2.18/28"])?;
    for (name, local, remote, inside) in [
        ("g2a", "192.0.2.130", "192.0.2.129", "192.0.2.65/31"),
        ("g2b", "192.0.2.146", "192.0.2.145", "192.0.2.81/31"),
    ] {
        tunnel(&r2, name, local, remote, inside)?;
    }
    r2.inside(|| std::fs::write("/proc/sys/net/ipv4/ip_forward", "1"))??;
    route(&h1, "default via 192.0.2.2")?;
    route(&h2, "default via 192.0.2.17")?;
    route(&r2, "192.0.2.0/28 nexthop dev g2a nexthop dev g2b")?;
    net.listen("ua", &r2, "ua")?;
    net.listen("ub", &r2, "ub")?;
    net.listen("h1", &h1, "eth0")?;
    if who == Forwarder::Kernel {
        net.set("ipv4/ip_forward", "1")?;
        tunnel(&forwarder, "g1a", "192.0.2.129", "192.0.2.130", "192.0.2.64/31")?;
        tunnel(&forwarder, "g1b", "192.0.2.145", "192.0.2.146", "192.0.2.80/31")?;
        route(&forwarder, "192.0.2.16/28 nexthop dev g1a nexthop dev g1b")?;
    }
    net.set("ipv4/fib_multipath_hash_policy", "1")?;
    net.with(topology, &[], TABLES)
}

fn tunnel(at: &Namespace, name: &str, local: &str, remote: &str, inside: &str) -> anyhow::Result<()> {
    #[rustfmt::skip]
    at.ip(&["link", "add", name, "type", "gre", "local", local, "remote", remote, "tos", "inherit"])?;
    at.ip(&["address", "add", inside, "dev", name])?;
    at.ip(&["link", "set", name, "up"]).map(drop)
}

/// GRE packets to the second router; its own are seen, too.
fn is_gre(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&IPV4.to_be_bytes())
        && frame.get(LINK + 9) == Some(&47)
        && matches!(frame.get(LINK + 19), Some(130 | 146))
}

/// Flows are divided among the tunnels as the weights say.
fn divided(net: &Net, [one, other]: [u16; 2]) -> anyhow::Result<()> {
    net.reaches("h1", "192.0.2.18", &[])?;
    if net.who == Forwarder::Kernel && one != other {
        let line = format!("192.0.2.16/28 nexthop dev g1a weight {one} nexthop dev g1b weight {other}");
        route(&net.forwarder, &line)?;
    }
    net.discard();
    let mut counts = [0_usize; 2];
    for first in (0..FLOWS).step_by(32) {
        for number in first..first + 32 {
            let packet =
                V4 { source: [192, 0, 2, 1], ports: [1024, number * 64], ..V4::udp([192, 0, 2, 18]) };
            net.send_packet_cached("h1", "ol1", IPV4, &packet.bytes())?;
        }
        net.until("packets leave by the two tunnels", || {
            for (count, link) in counts.iter_mut().zip(["ua", "ub"]) {
                *count += net.arrived(link)?.iter().filter(|frame| is_gre(frame)).count();
            }
            Ok(counts[0] + counts[1] >= usize::from(first + 32))
        })?;
    }
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let (found, wanted) = (number(counts[0]) / number(counts[1]).max(1.0), f64::from(one) / f64::from(other));
    if net.who == Forwarder::Kernel && one != other {
        route(&net.forwarder, "192.0.2.16/28 nexthop dev g1a nexthop dev g1b")?;
    }
    // 512 flows are few: the deviation of a share of 0.5 is 4 percent of it.
    ensure!((found - wanted).abs() / wanted <= 0.3, "{counts:?} packets for weights {one}:{other}");
    Ok(())
}

/// The outer packet has the class of the inner one.
fn class_inherited(net: &Net) -> anyhow::Result<()> {
    net.reaches("h1", "192.0.2.18", &[])?;
    net.discard();
    let packet = V4 { source: [192, 0, 2, 1], class: 0xb8, ..V4::udp([192, 0, 2, 18]) };
    net.send_packet("h1", "ol1", IPV4, &packet.bytes())?;
    net.until("a packet of the class leaves", || {
        let mut seen = net.arrived("ua")?;
        seen.extend(net.arrived("ub")?);
        Ok(seen.iter().any(|frame| is_gre(frame) && frame.get(LINK + 1) == Some(&0xb8)))
    })
}

/// A sender learns the tunnel's MTU.
fn exception(net: &Net) -> anyhow::Result<()> {
    let h1 = net.host("h1")?;
    net.until("the MTU of the tunnel is learnt", || {
        net.ping("h1", "192.0.2.18", &["-M", "want", "-s", "1460"])?;
        Ok(h1.ip(&["route", "get", "192.0.2.18"])?.contains(&format!("mtu {INSIDE} ")))
    })?;
    h1.ip(&["route", "flush", "cache"]).map(drop)
}
