//! TCP of senders that leave checksums and segments to the device: their kernels check every packet.

use crate::machines::{self, machine, until};
use crate::support::{Gateway, address, assert_reaches, root_or_skip};
use polder_testbed::command;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::sockets::tcp_goodput;
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

/// Mean length of what stations have received, as their kernels count it: a super-packet as one.
fn mean_received_bytes(polder: &Gateway, stations: [&Namespace; 2]) -> u64 {
    until("all packets are accounted for", || polder.term("unaccounted") == 0);
    let [packets, bytes] = stations.iter().fold([0, 0], |[packets, bytes], station| {
        let [received, received_bytes, ..] = statistics(station, "eth0");
        [packets + received, bytes + received_bytes]
    });
    bytes / packets.max(1)
}

/// All interfaces of a gateway are taken in skb mode, for the reason that a veth gives.
fn assert_chosen(polder: &Gateway) {
    let shown = polder.show("ports");
    let of_interface = |port: &&serde_json::Value| port["kind"] == "interface";
    for port in shown["ports"].as_array().unwrap().iter().filter(of_interface) {
        assert_eq!(port["mode"], "skb, TCX and a TAP", "{port:#}");
        assert_eq!(port["mode_reason"], "its senders may be on this host", "{port:#}");
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
    let mean = mean_received_bytes(&polder, [&left, &right]);
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
    let mean = mean_received_bytes(&polder, [&left, &right]);
    assert!(mean > 1514, "{mean} bytes a packet");
    polder.stop();
}

/// Mean length of what an interface has received and sent, as the kernel counts it: a super-packet as one.
fn mean_bytes(namespace: &Namespace, interface: &str) -> [u64; 2] {
    let [received, received_bytes, sent, sent_bytes] = statistics(namespace, interface);
    [received_bytes / received.max(1), sent_bytes / sent.max(1)]
}

/// True if the kernel has TAPs that take segments in tunnels.
fn kernel_has_tunnel_segments(test: &str) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version < (6, 17) {
        crate::support::skip(test, "TAPs take no segments in tunnels before Linux 6.17");
    }
    version >= (6, 17)
}

/// Addresses of two gateways on the link between them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Gives both ends their addresses.
    fn address(self, ends: [&Namespace; 2]) -> [String; 2] {
        let addresses = match self {
            Self::V4 => ["10.98.0.1", "10.98.0.2"],
            Self::V6 => ["fd98::1", "fd98::2"],
        };
        for (namespace, address) in ends.into_iter().zip(addresses) {
            let bits = if address.contains(':') { 64 } else { 24 };
            machines::addresses(namespace, "radio0", &[&format!("{address}/{bits}")]);
        }
        addresses.map(str::to_owned)
    }
}

/// Starts a gateway between `lan0` and a tunnel over `radio0`.
fn tunnel_gateway(topology: &Topology, gateway: &Namespace, kind: &str, ends: [&str; 2]) -> Gateway {
    let [local, remote] = ends;
    let text = format!(
        "[port.lan]\ninterface = \"lan0\"\n[port.radio]\ninterface = \"radio0\"\nrole = \"underlay\"\n\
         [tunnel.peer]\n{kind}\nlocal = \"{local}\"\nremote = \"{remote}\"\nport = \"radio\"\n\
         [bridge.br0]\nmembers = [\"lan\", \"peer\"]\n"
    );
    Gateway::start(topology, gateway, &text)
}

/// Two gateways with a tunnel between their veths; `kind` has the keys of the tunnel. Gives mean lengths on the radio and
/// behind the gateways, of each.
fn tunnelled(kind: &str, family: Family) -> [[[u64; 2]; 2]; 2] {
    let mut topology = Topology::new().unwrap();
    let [left, right] = ["left", "right"].map(|name| topology.namespace(name).unwrap());
    let [near, far] = ["near", "far"].map(|name| machine(&mut topology, name));
    veth(&topology, (&near, "radio0"), (&far, "radio0"));
    let ends = family.address([&near, &far]);
    for (station, ip, gateway) in [(&left, LEFT, &near), (&right, RIGHT, &far)] {
        veth(&topology, (station, "eth0"), (gateway, "lan0"));
        address(station, "eth0", ip, 24);
    }
    let [one, two] = ends.each_ref().map(String::as_str);
    let gateways = [
        tunnel_gateway(&topology, &near, kind, [one, two]),
        tunnel_gateway(&topology, &far, kind, [two, one]),
    ];
    exchanges((&left, LEFT), (&right, RIGHT));
    // What is not of the tunnel is the kernels'.
    near.command("ping")
        .args(["-c1", "-W5", two])
        .output()
        .map(|ping| assert!(ping.status.success()))
        .unwrap();
    let mut namespaces = [&near, &far].into_iter();
    gateways.map(|gateway| {
        let namespace = namespaces.next().unwrap();
        assert_chosen(&gateway);
        gateway.assert_conserved();
        let means = ["radio0", "lan0"].map(|interface| mean_bytes(namespace, interface));
        gateway.stop();
        means
    })
}

/// Bytes of a packet of the underlay that is one segment.
const ONE_SEGMENT: u64 = 1514;

#[test]
fn super_packets_cross_vxlan_whole_by_default() {
    const NAME: &str = "super_packets_cross_vxlan_whole_by_default";
    if !root_or_skip(NAME) {
        return;
    }
    let keys = "kind = \"vxlan\"\nvni = 98";
    for (family, more) in [(Family::V4, ""), (Family::V4, "\nudp_checksum = true"), (Family::V6, "")] {
        let means = tunnelled(&format!("{keys}{more}"), family);
        if kernel_has_tunnel_segments(NAME) {
            assert!(means.as_flattened().as_flattened().iter().all(|&mean| mean > ONE_SEGMENT), "{means:?}");
        }
    }
}

#[test]
fn offloads_of_local_senders_cross_gretap_by_default() {
    if !root_or_skip("offloads_of_local_senders_cross_gretap_by_default") {
        return;
    }
    for family in [Family::V4, Family::V6] {
        for more in ["", "\nkey = 7\nchecksum = true\nsequence = true"] {
            let [near, far] = tunnelled(&format!("kind = \"gretap\"{more}"), family);
            // The fast path puts such headers in front of whole packets.
            let is_carried = family == Family::V4 && more.is_empty();
            for [radio, lan] in [near, far] {
                assert!(is_carried || radio.iter().all(|&mean| mean <= ONE_SEGMENT), "{near:?} {far:?}");
                // From the station it comes whole; to the station it is put together again.
                assert!(lan.iter().all(|&mean| mean > ONE_SEGMENT), "{near:?} {far:?}");
            }
        }
    }
}

/// Packets and bytes that an interface has received and sent.
fn statistics(namespace: &Namespace, interface: &str) -> [u64; 4] {
    ["rx_packets", "rx_bytes", "tx_packets", "tx_bytes"].map(|name| {
        let path = format!("/sys/class/net/{interface}/statistics/{name}");
        command::run(namespace.command("cat").arg(path)).unwrap().trim().parse().unwrap()
    })
}

#[test]
fn super_packets_come_from_and_go_to_a_kernels_vxlan_whole() {
    const NAME: &str = "super_packets_come_from_and_go_to_a_kernels_vxlan_whole";
    if !root_or_skip(NAME) || !kernel_has_tunnel_segments(NAME) {
        return;
    }
    for (family, checksums) in
        [(Family::V4, "noudpcsum"), (Family::V4, "udpcsum"), (Family::V6, "udp6zerocsumrx")]
    {
        let mut topology = Topology::new().unwrap();
        let left = topology.namespace("left").unwrap();
        let [near, far] = ["near", "far"].map(|name| machine(&mut topology, name));
        veth(&topology, (&near, "radio0"), (&far, "radio0"));
        let [one, two] = family.address([&near, &far]);
        veth(&topology, (&left, "eth0"), (&near, "lan0"));
        address(&left, "eth0", LEFT, 24);
        #[rustfmt::skip]
        far.ip(&[
            "link", "add", "vx0", "type", "vxlan", "id", "98", "local", &two, "remote", &one, "dstport", "4789", checksums,
        ])
        .unwrap();
        far.ip(&["link", "set", "vx0", "up"]).unwrap();
        address(&far, "vx0", RIGHT, 24);
        let keys = format!("kind = \"vxlan\"\nvni = 98\nudp_checksum = {}", checksums != "noudpcsum");
        let gateway = tunnel_gateway(&topology, &near, &keys, [&one, &two]);
        exchanges((&left, LEFT), (&far, RIGHT));
        let [received, received_bytes, sent, sent_bytes] = statistics(&far, "vx0");
        for (packets, bytes) in [(received, received_bytes), (sent, sent_bytes)] {
            assert!(
                bytes / packets.max(1) > ONE_SEGMENT,
                "{bytes} bytes in {packets} packets of the kernel's"
            );
        }
        let means = ["radio0", "lan0"].map(|interface| mean_bytes(&near, interface));
        assert!(means.as_flattened().iter().all(|&mean| mean > ONE_SEGMENT), "{means:?}");
        gateway.stop();
    }
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
        let mean = mean_received_bytes(&gateway, [&left, &right]);
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
