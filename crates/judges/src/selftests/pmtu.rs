//! `pmtu`: senders learn the MTU of a narrow link, and of a route.

use super::net::{Forwarder, Host, Net};
use super::{Check, Mutant, Part};
use anyhow::ensure;
use polder_testbed::topology::Topology;

const NARROW: &str = "1300";
/// Bytes of pings that are too long for the narrow link.
const LONG: &str = "1400";

/// The selftest `pmtu`, as far as it concerns a router.
pub(super) const PMTU: Part = Part {
    name: "pmtu",
    modules: &[],
    lay,
    checks: &[
        Check { name: "pmtu_ipv4_exception", lacks: None, run: |net| exception(net, "198.51.100.2", "1300") },
        Check {
            name: "pmtu_ipv6_exception",
            lacks: None,
            run: |net| exception(net, "2001:db8:2::2", "1300"),
        },
        Check { name: "pmtu_ipv4_decreased", lacks: None, run: |net| decreased(net, "198.51.100.2") },
        Check { name: "pmtu_ipv6_decreased", lacks: None, run: |net| decreased(net, "2001:db8:2::2") },
        Check {
            name: "pmtu_ipv4_other_destination",
            lacks: None,
            run: |net| unaffected(net, "198.51.100.3"),
        },
        Check {
            name: "pmtu_ipv6_other_destination",
            lacks: None,
            run: |net| unaffected(net, "2001:db8:2::3"),
        },
        Check { name: "pmtu_ipv4_fragmented_by_router", lacks: None, run: fragmented },
        Check {
            name: "pmtu_ipv4_route_mtu",
            lacks: None,
            run: |net| of_route(net, "203.0.113.2", "203.0.113.0/24 via 198.51.100.2"),
        },
        Check {
            name: "pmtu_ipv6_route_mtu",
            lacks: None,
            run: |net| of_route(net, "2001:db8:3::2", "2001:db8:3::/64 via 2001:db8:2::2"),
        },
    ],
    mutants: &[
        Mutant {
            name: "mtu_ignored_ipv4",
            begin: &["ip link set rp2 mtu 1500"],
            fault: None,
            end: &["ip link set rp2 mtu 1300"],
            check: "pmtu_ipv4_exception",
        },
        Mutant {
            name: "mtu_ignored_ipv6",
            begin: &["ip link set rp2 mtu 1500"],
            fault: None,
            end: &["ip link set rp2 mtu 1300"],
            check: "pmtu_ipv6_exception",
        },
    ],
};

const HOSTS: [Host; 2] = [
    Host {
        name: "h1",
        port: "rp1",
        router: &["192.0.2.1/24", "2001:db8:1::1/64"],
        addresses: &["192.0.2.2/24", "2001:db8:1::2/64"],
        routes: &["default via 192.0.2.1", "default via 2001:db8:1::1"],
    },
    Host {
        name: "h2",
        port: "rp2",
        router: &["198.51.100.1/24", "2001:db8:2::1/64"],
        addresses: &[
            "198.51.100.2/24",
            "198.51.100.3/24",
            "203.0.113.2/32",
            "2001:db8:2::2/64",
            "2001:db8:2::3/64",
            "2001:db8:3::2/128",
        ],
        routes: &["default via 198.51.100.1", "default via 2001:db8:2::1"],
    },
];

fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    let net = Net::lay(topology, who, &HOSTS)?.route_with(topology, &["rp1", "rp2"])?;
    narrow(&net, NARROW)?;
    Ok(net)
}

/// Sets the MTU of the link between the router and `h2`.
fn narrow(net: &Net, mtu: &str) -> anyhow::Result<()> {
    net.host("h2")?.ip(&["link", "set", "eth0", "mtu", mtu])?;
    net.forwarder.ip(&["link", "set", "rp2", "mtu", mtu]).map(drop)
}

/// Forgets learnt path MTUs.
fn forget(net: &Net) -> anyhow::Result<()> {
    for family in ["-4", "-6"] {
        net.host("h1")?.ip(&[family, "route", "flush", "cache"])?;
    }
    Ok(())
}

/// The sender's idea of a path.
fn path(net: &Net, to: &str) -> anyhow::Result<String> {
    net.host("h1")?.ip(&["route", "get", to])
}

/// A ping that is too long for the link teaches the sender `mtu`; the next ones arrive.
fn learns(net: &Net, to: &str, mtu: &str, length: &str) -> anyhow::Result<()> {
    net.until(&format!("the MTU towards {to} is {mtu}"), || {
        net.ping("h1", to, &["-M", "want", "-s", length])?;
        Ok(path(net, to)?.contains(&format!("mtu {mtu} ")))
    })?;
    net.reaches("h1", to, &["-M", "want", "-s", length])
}

/// The sender learns again until it has learnt `mtu`: a router that follows the kernel hears of a change a moment later.
fn exception(net: &Net, to: &str, mtu: &str) -> anyhow::Result<()> {
    net.until(&format!("the MTU towards {to} is {mtu}, learnt anew"), || {
        forget(net)?;
        net.ping("h1", to, &["-M", "want", "-s", LONG])?;
        Ok(path(net, to)?.contains(&format!("mtu {mtu} ")))
    })?;
    net.reaches("h1", to, &["-M", "want", "-s", LONG])
}

fn decreased(net: &Net, to: &str) -> anyhow::Result<()> {
    exception(net, to, NARROW)?;
    narrow(net, "1280")?;
    // Longer than the new MTU and not than the old one: the sender does not fragment, so that DF is set.
    let result = learns(net, to, "1280", "1260");
    narrow(net, NARROW)?;
    result
}

/// Packets that fit teach nothing.
fn unaffected(net: &Net, to: &str) -> anyhow::Result<()> {
    forget(net)?;
    net.reaches("h1", to, &["-M", "want", "-s", "1000"])?;
    let path = path(net, to)?;
    ensure!(!path.contains("mtu "), "{path}");
    Ok(())
}

/// A long packet that may be cut is cut, and no MTU is learnt.
fn fragmented(net: &Net) -> anyhow::Result<()> {
    forget(net)?;
    net.reaches("h1", "198.51.100.2", &["-M", "dont", "-s", "1400"])?;
    let path = path(net, "198.51.100.2")?;
    ensure!(!path.contains("mtu "), "{path}");
    Ok(())
}

fn of_route(net: &Net, to: &str, route: &str) -> anyhow::Result<()> {
    forget(net)?;
    super::net::route(&net.forwarder, &format!("{route} mtu 1280"))?;
    learns(net, to, "1280", LONG)
}
