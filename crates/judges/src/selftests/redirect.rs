//! `icmp_redirect`: a router whose next hop is on the link of the sender.
//!
//! `h1`, the router under test and a second router `r2` share a link, and `h2` is behind `r2`.

use super::net::{Forwarder, Net, addresses, route};
use super::{Check, Mutant, Part};
use polder_testbed::topology::{End, Topology};
use std::time::Duration;

const NO_REDIRECTS: &str = "Polder sends no redirects (ADR 0014)";

/// The selftest `icmp_redirect`.
pub(super) const REDIRECT: Part = Part {
    name: "icmp_redirect",
    modules: &[],
    lay,
    checks: &[
        Check {
            name: "forwarded_on_the_same_link_ipv4",
            lacks: None,
            run: |net| all_arrive(net, "172.16.2.2"),
        },
        Check {
            name: "forwarded_on_the_same_link_ipv6",
            lacks: None,
            run: |net| all_arrive(net, "2001:db8:2::2"),
        },
        Check {
            name: "redirect_ipv4",
            lacks: Some(NO_REDIRECTS),
            run: |net| redirected(net, "172.16.2.2", "172.16.1.253"),
        },
        Check {
            name: "redirect_ipv6",
            lacks: Some(NO_REDIRECTS),
            run: |net| redirected(net, "2001:db8:2::2", "fe80::253"),
        },
        Check { name: "mtu_exception_ipv4", lacks: None, run: |net| exception(net, "172.16.2.2") },
        Check { name: "mtu_exception_ipv6", lacks: None, run: |net| exception(net, "2001:db8:2::2") },
    ],
    mutants: &[Mutant {
        name: "redirect_missing",
        begin: &[
            "sysctl -q -w net.ipv4.conf.all.send_redirects=0",
            "sysctl -q -w net.ipv4.conf.rp1.send_redirects=0",
        ],
        fault: None,
        end: &[
            "sysctl -q -w net.ipv4.conf.all.send_redirects=1",
            "sysctl -q -w net.ipv4.conf.rp1.send_redirects=1",
        ],
        check: "redirect_ipv4",
    }],
};

fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    let mut net = Net::lay(topology, who, &[])?;
    let link = net.add_host(topology, "link")?;
    link.ip(&["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"])?;
    link.ip(&["link", "set", "br0", "up"])?;
    for (host, port) in [("h1", "p1"), ("r2", "p2")] {
        let own = net.add_host(topology, host)?;
        topology.wire(
            End { namespace: &link, interface: port },
            End { namespace: &own, interface: "eth0" },
            1500,
        )?;
    }
    let ends =
        [End { namespace: &link, interface: "p0" }, End { namespace: &net.forwarder, interface: "rp1" }];
    topology.wire(ends[0], ends[1], 1500)?;
    for port in ["p0", "p1", "p2"] {
        link.ip(&["link", "set", port, "master", "br0"])?;
    }
    let (h1, r2) = (net.host("h1")?.clone(), net.host("r2")?.clone());
    let h2 = net.add_host(topology, "h2")?;
    topology.wire(
        End { namespace: &r2, interface: "eth1" },
        End { namespace: &h2, interface: "eth0" },
        1500,
    )?;
    for interface in ["eth0", "eth1"] {
        addresses(&r2, interface, &["fe80::253/64"])?;
    }
    addresses(&r2, "eth0", &["172.16.1.253/24", "2001:db8:1::253/64"])?;
    addresses(&r2, "eth1", &["172.16.2.1/24", "2001:db8:2::1/64"])?;
    addresses(&net.forwarder, "rp1", &["172.16.1.254/24", "2001:db8:1::254/64"])?;
    addresses(&h1, "eth0", &["172.16.1.2/24", "2001:db8:1::2/64"])?;
    addresses(&h2, "eth0", &["172.16.2.2/24", "2001:db8:2::2/64"])?;
    r2.inside(|| {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
    })??;
    route(&h1, "default via 172.16.1.254")?;
    // A redirect counts if it comes from the link-local address of the router in use.
    let own = net.forwarder.ip(&["-6", "-o", "address", "show", "dev", "rp1", "scope", "link"])?;
    let own = own.split_whitespace().find(|word| word.starts_with("fe80:")).unwrap_or_default();
    route(&h1, &format!("default via {} dev eth0", own.trim_end_matches("/64")))?;
    route(&h2, "default via 172.16.2.1")?;
    route(&h2, "default via 2001:db8:2::1")?;
    route(&net.forwarder, "172.16.2.0/24 via 172.16.1.253")?;
    route(&net.forwarder, "2001:db8:2::/64 via fe80::253 dev rp1")?;
    net.route_with(topology, &["rp1"])
}

/// Forgets redirects and MTUs.
fn forget(net: &Net) -> anyhow::Result<()> {
    for family in ["-4", "-6"] {
        net.host("h1")?.ip(&[family, "route", "flush", "cache"])?;
    }
    Ok(())
}

/// Every packet arrives, also when no redirect is obeyed.
fn all_arrive(net: &Net, to: &str) -> anyhow::Result<()> {
    forget(net)?;
    net.reaches("h1", to, &["-c", "10", "-i", "0.02"])
}

fn redirected(net: &Net, to: &str, by: &str) -> anyhow::Result<()> {
    forget(net)?;
    net.until(&format!("{by} is the next hop to {to}"), || {
        net.ping("h1", to, &["-c", "3"])?;
        Ok(net.host("h1")?.ip(&["route", "get", to])?.contains(&format!("via {by} ")))
    })
}

/// The second router's ICMP error reaches the sender by any path.
fn exception(net: &Net, to: &str) -> anyhow::Result<()> {
    forget(net)?;
    for (host, interface) in [("r2", "eth1"), ("h2", "eth0")] {
        net.host(host)?.ip(&["link", "set", interface, "mtu", "1300"])?;
    }
    let result = net.until(&format!("the MTU towards {to} is 1300"), || {
        net.ping("h1", to, &["-M", "want", "-s", "1400"])?;
        Ok(net.host("h1")?.ip(&["route", "get", to])?.contains("mtu 1300"))
    });
    for (host, interface) in [("r2", "eth1"), ("h2", "eth0")] {
        net.host(host)?.ip(&["link", "set", interface, "mtu", "1500"])?;
    }
    std::thread::sleep(Duration::from_millis(50));
    result
}
