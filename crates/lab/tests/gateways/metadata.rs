//! TCP of senders that leave checksums and segments to the device: their kernels check every packet.

use crate::machines::until;
use crate::support::{Gateway, address, assert_reaches, root_or_skip};
use polder_lab::command;
use polder_lab::topology::{Namespace, Topology};
use polder_lab::traffic::sockets::tcp_goodput;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(300);
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);

/// Two stations on veths as `ip link` makes them, with all offloads, and a gateway between them.
fn bridged(keys: &str) -> (Topology, [Namespace; 2], Gateway) {
    let mut topology = Topology::new().unwrap();
    let [left, right, gateway] = ["left", "right", "gw"].map(|name| topology.namespace(name).unwrap());
    for (station, port, ip) in [(&left, "left", LEFT), (&right, "right", RIGHT)] {
        let pair = ["link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", gateway.name()];
        station.ip(&pair).unwrap();
        station.ip(&["link", "set", "eth0", "up"]).unwrap();
        gateway.ip(&["link", "set", port, "up"]).unwrap();
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

fn exchanges([left, right]: &[Namespace; 2]) {
    assert_reaches(left, RIGHT);
    let to = |ip| SocketAddrV4::new(ip, 7017);
    let there = tcp_goodput(left, right, to(RIGHT), MOMENT, MOMENT).unwrap();
    let back = tcp_goodput(right, left, to(LEFT), MOMENT, MOMENT).unwrap();
    assert!(there > 1e7 && back > 1e7, "{there} {back}");
    assert_eq!((damaged(left), damaged(right)), (0, 0));
}

#[test]
fn offloads_of_local_senders_cross_in_skb_mode() {
    if !root_or_skip("offloads_of_local_senders_cross_in_skb_mode") {
        return;
    }
    let (_topology, stations, polder) = bridged("mode = \"skb\"");
    exchanges(&stations);
    let ports = polder.show("ports").to_string();
    assert!(ports.contains("skb, TCX and a TAP"), "{ports}");
    until("all packets are accounted for", || polder.term("unaccounted") == 0);
    // Bytes in few packets: segments were not cut on the way.
    let (packets, bytes) = (polder.all("ports", "transmitted"), polder.all("ports", "transmitted_bytes"));
    let (packets, bytes) = (packets.iter().sum::<u64>(), bytes.iter().sum::<u64>());
    assert!(bytes / packets > 1514, "{bytes} bytes in {packets} packets");
    polder.stop();
}

#[test]
fn checksums_of_local_senders_are_completed_on_af_xdp() {
    if !root_or_skip("checksums_of_local_senders_are_completed_on_af_xdp") {
        return;
    }
    let (_topology, stations, polder) = bridged("mode = \"native\"");
    exchanges(&stations);
    assert!(polder.all("ports", "partial_checksums").iter().sum::<u64>() > 1000);
    polder.stop();
}
