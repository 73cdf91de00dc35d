//! Bridging: VLANs over a trunk, and two workers.

use crate::support::{Gateway, address, assert_reaches, assert_silent, root_or_skip, stream, wire};
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, command};
use std::net::Ipv4Addr;
use std::time::Duration;

const ONE: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 3);

/// A gateway with an access port for each VLAN and a trunk.
const SWITCH: &str = r#"
[port.blue]
interface = "blue"
[port.red]
interface = "red"
[port.trunk]
interface = "trunk"
[bridge.lan]
members = ["blue", "red", "trunk"]
[bridge.lan.port.blue]
vlan = { access = 10 }
[bridge.lan.port.red]
vlan = { access = 20 }
[bridge.lan.port.trunk]
vlan = { trunk = [10, 20] }
"#;

/// Two switches and a trunk; on each a host in VLAN 10 and one in VLAN 20, all in one IPv4 subnet.
#[test]
fn vlans_stay_apart_over_a_trunk() {
    if !root_or_skip("vlans_stay_apart_over_a_trunk") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let left = topology.namespace("left").unwrap();
    let right = topology.namespace("right").unwrap();
    wire(&topology, (&left, "trunk"), (&right, "trunk"), 1500);
    let mut host = |role: &str, switch: &Namespace, port: &str, ip: Ipv4Addr| {
        let host = topology.namespace(role).unwrap();
        wire(&topology, (switch, port), (&host, "eth0"), 1500);
        address(&host, "eth0", ip, 24);
        host
    };
    let blue_left = host("bluel", &left, "blue", ONE);
    let _blue_right = host("bluer", &right, "blue", TWO);
    let red_left = host("redl", &left, "red", ONE);
    let red_right = host("redr", &right, "red", OTHER);
    let gateways = [Gateway::start(&topology, &left, SWITCH), Gateway::start(&topology, &right, SWITCH)];

    assert_reaches(&blue_left, TWO);
    assert_reaches(&red_left, OTHER);
    // The same addresses in the other VLAN are other hosts, or nobody.
    assert_silent(&blue_left, OTHER);
    assert_silent(&red_right, TWO);

    assert!(gateways[0].term("learned") >= 4, "two stations here and two behind the trunk");
    let learnt = gateways[0].show("fdb").to_string();
    assert!(learnt.contains("10") && learnt.contains("20"), "{learnt}");
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn two_workers_share_the_queues_and_keep_order() {
    if !root_or_skip("two_workers_share_the_queues_and_keep_order") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let gateway = topology.namespace("gw").unwrap();
    let (left, right) = (topology.namespace("left").unwrap(), topology.namespace("right").unwrap());
    wire(&topology, (&gateway, "eth0"), (&left, "eth0"), 1500);
    wire(&topology, (&gateway, "eth1"), (&right, "eth0"), 1500);
    // Two queues on one port and one on the other: one worker has to hand its packets over.
    for (namespace, interface) in [(&gateway, "eth0"), (&left, "eth0")] {
        command::run(namespace.command("ethtool").args(["-L", interface, "rx", "2", "tx", "2"])).unwrap();
    }
    address(&left, "eth0", ONE, 24);
    address(&right, "eth0", TWO, 24);
    let polder = Gateway::start(
        &topology,
        &gateway,
        r#"
workers = 2
[port.eth0]
interface = "eth0"
mode = "native"
[port.eth1]
interface = "eth1"
mode = "native"
[bridge.lan]
members = ["eth0", "eth1"]
"#,
    );
    assert_reaches(&left, TWO);
    let arrivals = stream(&left, &right, TWO, 5_000.0, Duration::from_secs(1));
    assert_eq!(arrivals.duplicated, 0, "{arrivals:?}");
    assert_eq!(arrivals.reordered, 0, "one flow stays in order: {arrivals:?}");
    // A machine with other work may lose some; the gateway's books below say where.
    assert!(arrivals.loss_ratio() < 0.1, "{arrivals:?}");
    // Other flows take other queues.
    for port in 0..32 {
        let socket = left.inside(|| std::net::UdpSocket::bind((ONE, 20_000 + port))).unwrap().unwrap();
        for _ in 0..100 {
            socket.send_to(b"through whichever queue", (TWO, 9)).unwrap();
        }
    }
    std::thread::sleep(Duration::from_millis(200));
    let above_zero = |name| polder.all("workers", name).into_iter().filter(|&count| count > 0).count();
    assert_eq!(above_zero("received"), 2, "both workers receive: {:#}", polder.show("workers"));
    assert_eq!(above_zero("handed_over"), 1, "one has no queue of its own: {:#}", polder.show("workers"));
    assert_eq!(above_zero("taken_over"), 1);
    polder.stop();
}

/// A source address of the flood.
fn hostile(number: u32) -> [u8; 6] {
    let [a, b, c, d] = number.to_be_bytes();
    [2, 0xbd, a, b, c, d]
}

/// Sends a frame from `source` to itself, which is learnt and goes nowhere, again while the gateway's ring is full.
fn insist(socket: &PacketSocket, source: [u8; 6]) {
    let end = clock::now() + Duration::from_secs(2);
    while let Err(error) = socket.send(&frame(source, source)) {
        assert!(clock::now() < end, "{error}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Twenty thousand source addresses of one port, more than the table has room for, do not keep a station of another
/// port from being learnt: frames to it are not flooded.
#[test]
fn a_flood_of_addresses_leaves_other_ports_their_stations() {
    const FLOOD: u32 = 20_000;
    const EVICTED: u64 = 1000;
    const STATION: [u8; 6] = [2, 0x51, 0, 0, 0, 1];
    const ASKER: [u8; 6] = [2, 0x51, 0, 0, 0, 2];
    if !root_or_skip("a_flood_of_addresses_leaves_other_ports_their_stations") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (gateway, hosts) = (topology.namespace("gw").unwrap(), topology.namespace("hosts").unwrap());
    for name in ["bad", "good", "asks"] {
        wire(&topology, (&gateway, name), (&hosts, name), 1500);
    }
    let open = |name: &str| hosts.inside(|| PacketSocket::open(name).unwrap()).unwrap();
    let [bad, good, asks] = ["bad", "good", "asks"].map(open);
    let polder = Gateway::start(&topology, &gateway, LEARNING);
    // Paced, and for as long as it takes on a busy machine: what overruns the ring is not learnt, and proves nothing.
    let end = clock::now() + Duration::from_secs(20);
    let mut number = 0;
    while number < FLOOD || polder.all("fdb", "evicted")[0] <= EVICTED && clock::now() < end {
        for _ in 0..FLOOD / 20 {
            insist(&bad, hostile(number));
            number += 1;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    let [learnt, evicted] = ["learned", "evicted"].map(|name| polder.all("fdb", name)[0]);
    assert!(evicted > EVICTED, "the table was full: {learnt} learnt, {evicted} evicted");

    good.send(&frame([0xff; 6], STATION)).unwrap();
    let known = || polder.show("fdb").to_string().contains("02:51:00:00:00:01");
    let end = clock::now() + Duration::from_secs(5);
    while polder.all("fdb", "learned")[1] == 0 && !known() {
        assert!(clock::now() < end, "the station of the other port was not learnt: {}", polder.show("fdb"));
        std::thread::sleep(Duration::from_millis(10));
    }
    let arrived = |socket: &PacketSocket, source: [u8; 6]| {
        std::thread::sleep(Duration::from_millis(200));
        let mut room = [0; 2048];
        let mut count = 0;
        while let Ok(length) = socket.receive(&mut room) {
            count += u32::from(length >= 14 && room[6..12] == source && room[..6] == STATION);
        }
        count
    };
    for _ in 0..20 {
        asks.send(&frame(STATION, ASKER)).unwrap();
        // The flood goes on meanwhile.
        (FLOOD..FLOOD + 50).for_each(|number| insist(&bad, hostile(number)));
    }
    assert_eq!((arrived(&good, ASKER), arrived(&bad, ASKER)), (20, 0), "to the station alone");
    // Both views tell the same of each port.
    let ports = polder.show("ports")["ports"].clone();
    let members = polder.show("fdb")["fdb"][0]["members"].clone();
    for key in ["learned", "fdb_max_learned"] {
        let of = |rows: &serde_json::Value| [0, 1, 2].map(|place| rows[place][key].clone());
        assert_eq!(of(&ports), of(&members), "{ports:#}{members:#}");
    }
    assert!(ports[0]["learned"].as_u64() > Some(1000) && ports[2]["learned"] == 1, "{ports:#}");
    assert_eq!(ports[1]["fdb_max_learned"], 16, "{ports:#}");
    polder.stop();
}

fn frame(destination: [u8; 6], source: [u8; 6]) -> Vec<u8> {
    [destination.as_slice(), &source, &[0x88, 0xb5], &[0; 50]].concat()
}

/// A bridge whose table has its default size.
const LEARNING: &str = r#"
[port.bad]
interface = "bad"
[port.good]
interface = "good"
[port.asks]
interface = "asks"
[bridge.lan]
members = ["bad", "good", "asks"]
[bridge.lan.port.good]
fdb_max_learned = 16
"#;
