//! `router` and `router_broadcast`: two or three networks and a router between them.

use super::net::{Forwarder, Host, Net};
use super::{Check, Mutant, Part};
use crate::differential::packet::{IPV4, IPV6, LINK, V4, V6};
use anyhow::ensure;
use polder_testbed::topology::Topology;

/// Packets of a check.
const COUNT: usize = 5;
/// Ports of packets that checks send.
const PORTS: [u16; 2] = [54_321, 12_345];

/// The selftest `router`.
pub(super) const ROUTER: Part = Part {
    name: "router",
    modules: &[],
    lay,
    checks: &[
        Check { name: "ping_ipv4", lacks: None, run: |net| net.reaches("h1", "198.51.100.2", &[]) },
        Check { name: "ping_ipv6", lacks: None, run: |net| net.reaches("h1", "2001:db8:2::2", &[]) },
        Check { name: "hop_counted_ipv4", lacks: None, run: hop_counted_v4 },
        Check { name: "hop_counted_ipv6", lacks: None, run: hop_counted_v6 },
        Check {
            name: "time_exceeded_ipv4",
            lacks: None,
            run: |net| exceeded(net, "198.51.100.2", "192.0.2.1"),
        },
        Check {
            name: "time_exceeded_ipv6",
            lacks: None,
            run: |net| exceeded(net, "2001:db8:2::2", "2001:db8:1::1"),
        },
        Check { name: "sip_in_class_e", lacks: None, run: |net| forwarded_v4(net, [240, 0, 0, 1], FAR) },
        Check { name: "ipv4_sip_equal_dip", lacks: None, run: |net| forwarded_v4(net, FAR, FAR) },
        Check { name: "ipv6_sip_equal_dip", lacks: None, run: |net| forwarded_v6(net, FAR_V6, FAR_V6) },
        Check { name: "ipv4_dip_link_local", lacks: None, run: link_local },
    ],
    mutants: &[
        Mutant {
            name: "hop_not_counted",
            begin: &[
                "nft add table ip broken",
                "nft add chain ip broken out { type filter hook postrouting priority 0 ; }",
                "nft add rule ip broken out ip ttl set 64",
            ],
            fault: None,
            end: &["nft delete table ip broken"],
            check: "hop_counted_ipv4",
        },
        Mutant {
            name: "class_e_dropped",
            begin: &[
                "nft add table ip broken",
                "nft add chain ip broken way { type filter hook forward priority 0 ; }",
                "nft add rule ip broken way ip saddr 240.0.0.0/4 drop",
            ],
            fault: None,
            end: &["nft delete table ip broken"],
            check: "sip_in_class_e",
        },
        Mutant {
            name: "errors_not_sent",
            begin: &[
                "nft add table ip broken",
                "nft add chain ip broken out { type filter hook output priority 0 ; }",
                "nft add rule ip broken out icmp type time-exceeded drop",
            ],
            fault: None,
            end: &["nft delete table ip broken"],
            check: "time_exceeded_ipv4",
        },
    ],
};

const FAR: [u8; 4] = [198, 51, 100, 2];
const FAR_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const NEAR_V6: [u8; 16] = [0x20, 1, 0x0d, 0xb8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

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
        addresses: &["198.51.100.2/24", "2001:db8:2::2/64"],
        routes: &["default via 198.51.100.1", "default via 2001:db8:2::1"],
    },
];

fn lay(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    Net::lay(topology, who, &HOSTS)?.route_with(topology, &["rp1", "rp2"])
}

/// A packet of IPv4 with our ports.
fn is_ours(frame: &[u8], source: [u8; 4], destination: [u8; 4]) -> bool {
    frame.get(12..14) == Some(&IPV4.to_be_bytes())
        && frame.get(LINK + 12..LINK + 16) == Some(&source)
        && frame.get(LINK + 16..LINK + 20) == Some(&destination)
        && frame.get(LINK + 22..LINK + 24) == Some(&PORTS[1].to_be_bytes())
}

fn is_ours_v6(frame: &[u8], source: [u8; 16]) -> bool {
    frame.get(12..14) == Some(&IPV6.to_be_bytes())
        && frame.get(LINK + 8..LINK + 24) == Some(&source)
        && frame.get(LINK + 42..LINK + 44) == Some(&PORTS[1].to_be_bytes())
}

/// Packets of IPv4 from `source`, as they have arrived behind the router.
fn sent_v4(net: &Net, source: [u8; 4], destination: [u8; 4]) -> anyhow::Result<Vec<Vec<u8>>> {
    net.reaches("h1", "198.51.100.2", &[])?;
    net.discard();
    for _ in 0..COUNT {
        let packet = V4 { source, ports: PORTS, hops: 64, ..V4::udp(destination) };
        net.send_packet("h1", "rp1", IPV4, &packet.bytes())?;
    }
    net.arrive("h2", COUNT, |frame| is_ours(frame, source, destination))
}

fn sent_v6(net: &Net, source: [u8; 16], destination: [u8; 16]) -> anyhow::Result<Vec<Vec<u8>>> {
    net.reaches("h1", "2001:db8:2::2", &[])?;
    net.discard();
    for _ in 0..COUNT {
        let packet = V6 { source, ports: PORTS, hops: 64, ..V6::udp(destination) };
        net.send_packet("h1", "rp1", IPV6, &packet.bytes())?;
    }
    net.arrive("h2", COUNT, |frame| is_ours_v6(frame, source))
}

fn forwarded_v4(net: &Net, source: [u8; 4], destination: [u8; 4]) -> anyhow::Result<()> {
    sent_v4(net, source, destination).map(drop)
}

fn forwarded_v6(net: &Net, source: [u8; 16], destination: [u8; 16]) -> anyhow::Result<()> {
    sent_v6(net, source, destination).map(drop)
}

fn hop_counted_v4(net: &Net) -> anyhow::Result<()> {
    let hops = sent_v4(net, [192, 0, 2, 2], FAR)?.iter().map(|frame| frame[LINK + 8]).collect::<Vec<_>>();
    ensure!(hops.iter().all(|&hops| hops == 63), "sent with 64 hops, arrived with {hops:?}");
    Ok(())
}

fn hop_counted_v6(net: &Net) -> anyhow::Result<()> {
    let hops = sent_v6(net, NEAR_V6, FAR_V6)?.iter().map(|frame| frame[LINK + 7]).collect::<Vec<_>>();
    ensure!(hops.iter().all(|&hops| hops == 63), "sent with 64 hops, arrived with {hops:?}");
    Ok(())
}

fn exceeded(net: &Net, to: &str, router: &str) -> anyhow::Result<()> {
    net.until(&format!("{router} says that the time is exceeded"), || {
        let said = net.ping("h1", to, &["-t", "1"])?;
        Ok(said.contains(&format!("From {router}")) && said.contains("Time") && said.contains("exceeded"))
    })
}

/// A destination in 169.254/16 that is routed.
fn link_local(net: &Net) -> anyhow::Result<()> {
    const DESTINATION: [u8; 4] = [169, 254, 1, 1];
    net.tell("ip neighbour replace 169.254.1.1 lladdr 00:11:22:33:44:55 dev rp2")?;
    net.tell("ip route replace 169.254.1.0/24 dev rp2")?;
    let forwarded = net.until("the route counts", || {
        let packet = V4 { source: [192, 0, 2, 2], ports: PORTS, ..V4::udp(DESTINATION) };
        net.send_packet("h1", "rp1", IPV4, &packet.bytes())?;
        std::thread::sleep(std::time::Duration::from_millis(50));
        Ok(net.arrived("h2")?.iter().any(|frame| is_ours(frame, [192, 0, 2, 2], DESTINATION)))
    });
    net.tell("ip route del 169.254.1.0/24 dev rp2")?;
    net.tell("ip neighbour del 169.254.1.1 dev rp2")?;
    forwarded
}

const NO_BROADCASTS: &str = "broadcasts stay with the kernel; Polder forwards none (docs/guide/routing.md)";

const fn broadcast(name: &'static str, run: fn(&Net) -> anyhow::Result<()>) -> Check {
    Check { name, lacks: None, run }
}

const fn directed(name: &'static str, run: fn(&Net) -> anyhow::Result<()>) -> Check {
    Check { name, lacks: Some(NO_BROADCASTS), run }
}

/// The selftest `router_broadcast`.
pub(super) const BROADCAST: Part = Part {
    name: "router_broadcast",
    modules: &[],
    lay: lay_three,
    checks: &[
        broadcast("h1_net2_router_answers", |net| off(net, "h1", "198.51.100.255", "192.0.2.1")),
        broadcast("h1_net3_router_answers", |net| off(net, "h1", "198.51.200.255", "192.0.2.1")),
        broadcast("h1_net1_router_answers", |net| off(net, "h1", "192.0.2.255", "192.0.2.1")),
        broadcast("h1_all_router_answers", |net| off(net, "h1", "255.255.255.255", "192.0.2.1")),
        broadcast("h2_net1_router_answers", |net| off(net, "h2", "192.0.2.255", "198.51.100.1")),
        broadcast("h2_net3_router_answers", |net| off(net, "h2", "198.51.200.255", "198.51.100.1")),
        broadcast("h2_net2_router_answers", |net| off(net, "h2", "198.51.100.255", "198.51.100.1")),
        broadcast("h2_all_router_answers", |net| off(net, "h2", "255.255.255.255", "198.51.100.1")),
        broadcast("not_forwarded", not_forwarded),
        directed("h1_net2_forwarded", |net| on(net, "h1", "198.51.100.255", "198.51.100.2")),
        directed("h1_net3_forwarded", |net| on(net, "h1", "198.51.200.255", "198.51.200.2")),
        broadcast("h1_all_router_answers_forwarding", |net| on(net, "h1", "255.255.255.255", "192.0.2.1")),
        directed("h2_net1_forwarded", |net| on(net, "h2", "192.0.2.255", "192.0.2.2")),
        directed("h2_net3_forwarded", |net| on(net, "h2", "198.51.200.255", "198.51.200.2")),
        broadcast("h2_all_router_answers_forwarding", |net| on(net, "h2", "255.255.255.255", "198.51.100.1")),
    ],
    mutants: &[Mutant {
        name: "broadcast_forwarded",
        begin: &[
            "sysctl -q -w net.ipv4.conf.all.bc_forwarding=1",
            "sysctl -q -w net.ipv4.conf.rp1.bc_forwarding=1",
        ],
        fault: None,
        end: &[
            "sysctl -q -w net.ipv4.conf.all.bc_forwarding=0",
            "sysctl -q -w net.ipv4.conf.rp1.bc_forwarding=0",
        ],
        check: "not_forwarded",
    }],
};

const THIRD: Host = Host {
    name: "h3",
    port: "rp3",
    router: &["198.51.200.1/24"],
    addresses: &["198.51.200.2/24"],
    routes: &["default via 198.51.200.1"],
};

fn lay_three(topology: &mut Topology, who: Forwarder) -> anyhow::Result<Net> {
    let [first, second] = HOSTS;
    Net::lay(topology, who, &[first, second, THIRD])?.route_with(topology, &["rp1", "rp2", "rp3"])
}

fn forward_broadcasts(net: &Net, value: &str) -> anyhow::Result<()> {
    ["all", "rp1", "rp2"]
        .iter()
        .try_for_each(|name| net.set(&format!("ipv4/conf/{name}/bc_forwarding"), value))
}

/// `from` pings a broadcast address, and the answer comes from `answers`.
fn answered(net: &Net, from: &str, to: &str, answers: &str) -> anyhow::Result<()> {
    net.until(&format!("{answers} answers {from}'s ping of {to}"), || {
        Ok(net.ping(from, to, &["-b", "-I", "eth0"])?.contains(&format!("bytes from {answers}")))
    })
}

fn off(net: &Net, from: &str, to: &str, answers: &str) -> anyhow::Result<()> {
    answered(net, from, to, answers)
}

fn on(net: &Net, from: &str, to: &str, answers: &str) -> anyhow::Result<()> {
    forward_broadcasts(net, "1")?;
    let result = answered(net, from, to, answers);
    forward_broadcasts(net, "0")?;
    result
}

/// A packet for the broadcast address of another network goes nowhere.
fn not_forwarded(net: &Net) -> anyhow::Result<()> {
    const NET: [u8; 4] = [198, 51, 100, 255];
    net.reaches("h1", "198.51.100.2", &[])?;
    net.discard();
    let packet = V4 { source: [192, 0, 2, 2], ports: PORTS, ..V4::udp(NET) };
    net.send_packet("h1", "rp1", IPV4, &packet.bytes())?;
    net.none_arrive("h2", |frame| is_ours(frame, [192, 0, 2, 2], NET))
}
