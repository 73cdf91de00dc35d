//! Merged and uncut packets between the machine's own stack and the wire: the kernels on both sides check
//! every checksum.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, wire};
use crate::tunnel::{FAR, NEAR};
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::tcp_goodput;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const MOMENT: Duration = Duration::from_millis(300);
const STATION: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);

/// Segments that a namespace's kernel found damaged since it exists.
fn bad_checksums(namespace: &Namespace) -> u64 {
    let text = command::run(namespace.command("cat").arg("/proc/net/snmp")).unwrap();
    let value = |protocol: &str| {
        let mut lines = text.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
        values.split(' ').nth(at).unwrap().parse::<u64>().unwrap()
    };
    value("Tcp:") + value("Udp:")
}

/// Runs TCP in both directions and checks that both kernels accepted the segments.
fn both_ways(a: (&Namespace, Ipv4Addr), b: (&Namespace, Ipv4Addr)) {
    let to = |ip| SocketAddrV4::new(ip, 7007);
    assert_reaches(a.0, b.1);
    let out = tcp_goodput(a.0, b.0, to(b.1), MOMENT, MOMENT).unwrap();
    let back = tcp_goodput(b.0, a.0, to(a.1), MOMENT, MOMENT).unwrap();
    assert!(out > 1e7 && back > 1e7, "{out} {back}");
    assert_eq!((bad_checksums(a.0), bad_checksums(b.0)), (0, 0));
}

/// Packets of the gateway's ports that were merged, and those that were cut.
fn counted(gateway: &Gateway) -> (u64, u64) {
    let sum = |name| gateway.all("ports", name).iter().sum::<u64>();
    (sum("merged"), sum("cut"))
}

/// The station and the host in one bridge; with `keys` for the TAP.
fn bridged(keys: &str) -> (Topology, Namespace, Namespace, Gateway) {
    let mut topology = Topology::new().unwrap();
    let (station, host) = (topology.namespace("sta").unwrap(), topology.namespace("gw").unwrap());
    wire(&topology, (&host, "eth0"), (&station, "eth0"), 1500);
    address(&station, "eth0", STATION, 24);
    let text = format!(
        r#"
[port.lan]
interface = "eth0"
mode = "native"
[port.host]
tap = "host0"
{keys}
[bridge.br0]
members = ["lan", "host"]
"#
    );
    let polder = Gateway::start(&topology, &host, &text);
    host.ip(&["link", "set", "host0", "up"]).unwrap();
    address(&host, "host0", HOST, 24);
    (topology, station, host, polder)
}

#[test]
fn the_host_exchanges_long_packets_and_the_wire_sees_short_ones() {
    if !root_or_skip("the_host_exchanges_long_packets_and_the_wire_sees_short_ones") {
        return;
    }
    let (_topology, station, host, polder) = bridged("");
    both_ways((&station, STATION), (&host, HOST));
    let (merged, cut) = counted(&polder);
    assert!(merged > 100 && cut > 10, "merged {merged}, cut {cut}");
    polder.stop();
}

#[test]
fn what_is_switched_off_does_not_happen() {
    if !root_or_skip("what_is_switched_off_does_not_happen") {
        return;
    }
    let (_topology, station, host, polder) = bridged("coalesce = false\nsegments = false");
    both_ways((&station, STATION), (&host, HOST));
    assert_eq!(counted(&polder), (0, 0));
    polder.stop();
}

/// The machine behind each gateway talks to the other one through the tunnel.
#[test]
fn uncut_packets_enter_tunnels_cut() {
    if !root_or_skip("uncut_packets_enter_tunnels_cut") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (near, far) = (topology.namespace("near").unwrap(), topology.namespace("far").unwrap());
    wire(&topology, (&near, "radio0"), (&far, "radio0"), 1500);
    let ends = [(&near, NEAR, FAR, STATION), (&far, FAR, NEAR, HOST)];
    let gateways = ends.map(|(namespace, local, remote, ip)| {
        address(namespace, "radio0", local, 24);
        let text = format!(
            r#"
[port.radio]
interface = "radio0"
role = "underlay"
[port.host]
tap = "host0"
[tunnel.peer]
kind = "gretap"
local = "{local}"
remote = "{remote}"
port = "radio"
key = 7
sequence = true
[bridge.br0]
members = ["host", "peer"]
"#
        );
        let gateway = Gateway::start(&topology, namespace, &text);
        namespace.ip(&["link", "set", "host0", "up"]).unwrap();
        address(namespace, "host0", ip, 24);
        gateway
    });
    both_ways((&near, STATION), (&far, HOST));
    // A packet counts as its segments, wherever it was merged or cut.
    let through = |name| gateways.each_ref().map(|gateway| gateway.all("tunnels", name)[0]);
    let ([near_sent, far_sent], [near_received, far_received]) = (through("sent"), through("received"));
    // A gateway that is late drops what it has no room for, before the tunnel.
    let dropped = gateways.each_ref().map(|gateway| gateway.term("dropped").unsigned_abs());
    for (sent, received, dropped) in
        [(near_sent, far_received, dropped[1]), (far_sent, near_received, dropped[0])]
    {
        assert!((received..=received + dropped).contains(&sent), "{sent}, {received} and {dropped}");
    }
    for gateway in gateways {
        let (merged, cut) = counted(&gateway);
        assert!(merged > 100 && cut > 100, "merged {merged}, cut {cut}");
        assert_eq!((gateway.term("split"), gateway.term("merged")), (0, 0), "{:#}", gateway.show("counters"));
        gateway.stop();
    }
}
