//! TCP of senders that leave checksums and segments to the device: their kernels check every packet.

use crate::machines::until;
use crate::support::{Gateway, address, assert_reaches, root_or_skip};
use polder_lab::command;
use polder_lab::topology::{End, Namespace, Topology};
use polder_lab::traffic::sockets::tcp_goodput;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(300);
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);

/// A veth as `ip link` makes it, with all offloads: `a`'s interface and `b`'s.
fn veth(topology: &Topology, a: (&Namespace, &str), b: (&Namespace, &str)) {
    let end = |(namespace, interface)| End { namespace, interface };
    topology.wire_with_offloads(end(a), end(b), 1500).unwrap();
}

/// Two stations on such veths, and a gateway between them.
fn bridged(keys: &str) -> (Topology, [Namespace; 2], Gateway) {
    let mut topology = Topology::new().unwrap();
    let [left, right, gateway] = ["left", "right", "gw"].map(|name| topology.namespace(name).unwrap());
    for (station, port, ip) in [(&left, "left", LEFT), (&right, "right", RIGHT)] {
        veth(&topology, (station, "eth0"), (&gateway, port));
        address(station, "eth0", ip, 24);
    }
    let text = format!(
        "[port.left]\ninterface = \"left\"\n{keys}\n[port.right]\ninterface = \"right\"\n{keys}\n\
         [bridge.br0]\nmembers = [\"left\", \"right\"]\n"
    );
    let polder = Gateway::start(&topology, &gateway, &text);
    (topology, [left, right], polder)
}

/// Segments that a namespace's kernel found damaged since it exists.
fn damaged(namespace: &Namespace) -> u64 {
    let text = command::run(namespace.command("cat").arg("/proc/net/snmp")).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Tcp:"));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
    values.split(' ').nth(at).unwrap().parse().unwrap()
}

/// TCP in both directions; no kernel finds anything damaged.
fn exchanges(left: (&Namespace, Ipv4Addr), right: (&Namespace, Ipv4Addr)) {
    assert_reaches(left.0, right.1);
    let to = |ip| SocketAddrV4::new(ip, 7017);
    let there = tcp_goodput(left.0, right.0, to(right.1), MOMENT, MOMENT).unwrap();
    let back = tcp_goodput(right.0, left.0, to(left.1), MOMENT, MOMENT).unwrap();
    assert!(there > 1e7 && back > 1e7, "{there} {back}");
    assert_eq!((damaged(left.0), damaged(right.0)), (0, 0));
}

/// Mean length of the packets that the ports of a gateway have sent, once all are accounted for.
fn mean_sent_bytes(polder: &Gateway) -> u64 {
    until("all packets are accounted for", || polder.term("unaccounted") == 0);
    let sum = |name| polder.all("ports", name).iter().sum::<u64>();
    sum("transmitted_bytes") / sum("transmitted").max(1)
}

/// All interfaces of a gateway are taken in skb mode, for the reason that a veth gives.
fn assert_chosen(polder: &Gateway) {
    let shown = polder.show("ports");
    for port in shown["ports"].as_array().unwrap() {
        assert_eq!(port["mode"], "skb, TCX and a TAP", "{port:#}");
        assert_eq!(port["mode_reason"], "its senders may be on this machine", "{port:#}");
    }
}

#[test]
fn offloads_of_local_senders_cross_a_bridge_by_default() {
    if !root_or_skip("offloads_of_local_senders_cross_a_bridge_by_default") {
        return;
    }
    let (_topology, [left, right], polder) = bridged("");
    exchanges((&left, LEFT), (&right, RIGHT));
    assert_chosen(&polder);
    // Bytes in few packets: segments were not cut on the way.
    let mean = mean_sent_bytes(&polder);
    assert!(mean > 1514, "{mean} bytes a packet");
    polder.stop();
}

#[test]
fn offloads_of_local_senders_cross_a_router_by_default() {
    if !root_or_skip("offloads_of_local_senders_cross_a_router_by_default") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let [left, right, gateway] = ["left", "right", "gw"].map(|name| topology.namespace(name).unwrap());
    let [near, far] = [[10, 97, 1, 1], [10, 97, 2, 1]].map(Ipv4Addr::from);
    let [one, two] = [[10, 97, 1, 2], [10, 97, 2, 2]].map(Ipv4Addr::from);
    for (station, port, own, router) in [(&left, "left", one, near), (&right, "right", two, far)] {
        veth(&topology, (station, "eth0"), (&gateway, port));
        address(station, "eth0", own, 24);
        address(&gateway, port, router, 24);
        station.ip(&["route", "add", "default", "via", &router.to_string()]).unwrap();
    }
    let text = "[port.left]\ninterface = \"left\"\nrole = \"router\"\n[port.right]\ninterface = \"right\"\nrole = \"router\"\n";
    let polder = Gateway::start(&topology, &gateway, text);
    exchanges((&left, one), (&right, two));
    assert_reaches(&left, near);
    assert_chosen(&polder);
    let mean = mean_sent_bytes(&polder);
    assert!(mean > 1514, "{mean} bytes a packet");
    polder.stop();
}

/// Two gateways with a tunnel between their veths; `kind` has the keys of the tunnel.
fn tunnelled(kind: &str) {
    let mut topology = Topology::new().unwrap();
    let [left, near, far, right] =
        ["left", "near", "far", "right"].map(|name| topology.namespace(name).unwrap());
    veth(&topology, (&near, "radio0"), (&far, "radio0"));
    let ends = [[10, 98, 0, 1], [10, 98, 0, 2]].map(Ipv4Addr::from);
    for (station, ip, gateway, own) in [(&left, LEFT, &near, ends[0]), (&right, RIGHT, &far, ends[1])] {
        veth(&topology, (station, "eth0"), (gateway, "lan0"));
        address(station, "eth0", ip, 24);
        address(gateway, "radio0", own, 24);
    }
    let start = |gateway, local, remote| {
        let text = format!(
            "[port.lan]\ninterface = \"lan0\"\n[port.radio]\ninterface = \"radio0\"\nrole = \"underlay\"\n\
             [tunnel.peer]\n{kind}\nlocal = \"{local}\"\nremote = \"{remote}\"\nport = \"radio\"\n\
             [bridge.br0]\nmembers = [\"lan\", \"peer\"]\n"
        );
        Gateway::start(&topology, gateway, &text)
    };
    let gateways = [start(&near, ends[0], ends[1]), start(&far, ends[1], ends[0])];
    exchanges((&left, LEFT), (&right, RIGHT));
    // What is not of the tunnel is the kernels'.
    assert_reaches(&near, ends[1]);
    for gateway in gateways {
        assert_chosen(&gateway);
        gateway.stop();
    }
}

#[test]
fn offloads_of_local_senders_cross_tunnels_by_default() {
    if !root_or_skip("offloads_of_local_senders_cross_tunnels_by_default") {
        return;
    }
    tunnelled("kind = \"gretap\"");
    tunnelled("kind = \"vxlan\"\nvni = 98");
}

/// On a trunk the kernel has the tag beside the packet, which is not cut either.
#[test]
fn tags_stay_beside_uncut_packets_by_default() {
    if !root_or_skip("tags_stay_beside_uncut_packets_by_default") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let [left, near, far, right] =
        ["left", "near", "far", "right"].map(|name| topology.namespace(name).unwrap());
    veth(&topology, (&near, "trunk"), (&far, "trunk"));
    for (station, ip, gateway) in [(&left, LEFT, &near), (&right, RIGHT, &far)] {
        veth(&topology, (station, "eth0"), (gateway, "blue"));
        address(station, "eth0", ip, 24);
    }
    let text = "[port.blue]\ninterface = \"blue\"\n[port.trunk]\ninterface = \"trunk\"\n\
                [bridge.lan]\nmembers = [\"blue\", \"trunk\"]\n[bridge.lan.port.blue]\nvlan = { access = 10 }\n\
                [bridge.lan.port.trunk]\nvlan = { trunk = [10] }\n";
    let gateways = [&near, &far].map(|gateway| Gateway::start(&topology, gateway, text));
    exchanges((&left, LEFT), (&right, RIGHT));
    for gateway in gateways {
        assert_chosen(&gateway);
        let mean = mean_sent_bytes(&gateway);
        assert!(mean > 1514, "{mean} bytes a packet");
        gateway.stop();
    }
}

#[test]
fn checksums_of_local_senders_are_completed_on_af_xdp() {
    if !root_or_skip("checksums_of_local_senders_are_completed_on_af_xdp") {
        return;
    }
    let (_topology, [left, right], polder) = bridged("mode = \"native\"");
    exchanges((&left, LEFT), (&right, RIGHT));
    assert!(polder.all("ports", "partial_checksums").iter().sum::<u64>() > 1000);
    polder.stop();
}
