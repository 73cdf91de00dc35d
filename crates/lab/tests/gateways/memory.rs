//! Packet memory that is short: floods take what is theirs, the machine itself is still reached, and every
//! frame is where it belongs.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, stream, wire};
use polder_testbed::topology::{Namespace, Topology};
use std::net::Ipv4Addr;
use std::time::Duration;

const STATION: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 3);
const FLOOD: Duration = Duration::from_millis(1200);
/// More than a small gateway carries.
const RATE: f64 = 400_000.0;

/// Two stations and the machine itself, in the memory of a small box, with small pieces in use.
const SMALL: &str = r#"
memory_mib = 4
[buffers]
copy_break = 256
[port.lan]
interface = "eth0"
mode = "native"
[port.dmz]
interface = "eth1"
mode = "native"
[port.host]
tap = "host0"
[bridge.br0]
members = ["lan", "dmz", "host"]
"#;

fn network() -> (Topology, [Namespace; 3], Gateway) {
    let mut topology = Topology::new().unwrap();
    let [station, other, gateway] = ["sta", "oth", "gw"].map(|name| topology.namespace(name).unwrap());
    wire(&topology, (&gateway, "eth0"), (&station, "eth0"), 1500);
    wire(&topology, (&gateway, "eth1"), (&other, "eth0"), 1500);
    address(&station, "eth0", STATION, 24);
    address(&other, "eth0", OTHER, 24);
    let polder = Gateway::start(&topology, &gateway, SMALL);
    gateway.ip(&["link", "set", "host0", "up"]).unwrap();
    address(&gateway, "host0", HOST, 24);
    (topology, [station, other, gateway], polder)
}

/// Data traffic at any rate leaves the machine the buffers to resolve an address and to answer.
#[test]
fn the_machine_is_reached_while_data_floods() {
    if !root_or_skip("the_machine_is_reached_while_data_floods") {
        return;
    }
    let (_topology, [station, other, gateway], polder) = network();
    assert_reaches(&station, OTHER);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| stream(&station, &other, OTHER, RATE, FLOOD));
        while !flood.is_finished() {
            // Each time with ARP.
            let _ = gateway.ip(&["neigh", "flush", "all"]);
            assert_reaches(&gateway, OTHER);
        }
        flood.join().unwrap();
    });
    let exhausted = polder.show("buffers");
    let control = |kind: &str| {
        let pools = exhausted["buffers"]["pools"].as_array().unwrap().iter();
        let mut pools = pools.filter(|pool| pool["class"] == "control" && pool["kind"] == kind);
        pools.next().unwrap()["exhausted"].as_u64().unwrap()
    };
    assert_eq!((control("frames"), control("blocks")), (0, 0), "{exhausted:#}");
    polder.stop();
}

/// A flood from the machine itself takes nothing from others.
#[test]
fn a_flood_of_the_machine_itself_leaves_others_alone() {
    if !root_or_skip("a_flood_of_the_machine_itself_leaves_others_alone") {
        return;
    }
    let (_topology, [station, other, gateway], polder) = network();
    assert_reaches(&gateway, STATION);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| stream(&gateway, &station, STATION, RATE, FLOOD));
        while !flood.is_finished() {
            let _ = other.ip(&["neigh", "flush", "all"]);
            assert_reaches(&other, STATION);
        }
        flood.join().unwrap();
    });
    assert_reaches(&gateway, OTHER);
    polder.stop();
}

/// Ports of a gateway, as the guide names them, and their configuration.
const PORTS: [(&str, &str); 3] = [
    (
        "interfaces",
        "[port.lan]\ninterface = \"eth0\"\nmode = \"native\"\n[port.dmz]\ninterface = \"eth1\"\nmode = \"native\"\n\
         [bridge.br0]\nmembers = [\"lan\", \"dmz\"]\n",
    ),
    (
        "interfaces and a TAP",
        "[port.lan]\ninterface = \"eth0\"\nmode = \"native\"\n[port.host]\ntap = \"host0\"\n\
         [bridge.br0]\nmembers = [\"lan\", \"host\"]\n",
    ),
    (
        "TAPs",
        "[port.one]\ntap = \"one0\"\n[port.two]\ntap = \"two0\"\n[bridge.br0]\nmembers = [\"one\", \"two\"]\n",
    ),
];

/// Techniques of the reserve that act on each memory are those that the guide names.
#[test]
fn the_guide_says_how_memory_comes_and_goes() {
    if !root_or_skip("the_guide_says_how_memory_comes_and_goes") {
        return;
    }
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/show.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for (ports, text) in PORTS {
        let mut topology = Topology::new().unwrap();
        let [station, other, gateway] = ["sta", "oth", "gw"].map(|name| topology.namespace(name).unwrap());
        wire(&topology, (&gateway, "eth0"), (&station, "eth0"), 1500);
        wire(&topology, (&gateway, "eth1"), (&other, "eth0"), 1500);
        let polder = Gateway::start(&topology, &gateway, text);
        let shown = polder.show("buffers");
        let pools = shown["buffers"]["pools"].as_array().unwrap();
        let cell = |technique: &str| {
            let acts = |kind: &str| {
                pools.iter().filter(|pool| pool["kind"] == kind).all(|pool| pool[technique] == true)
            };
            let kinds = [("frames", "frames"), ("blocks", "pieces")];
            let acting = kinds.into_iter().filter(|(kind, _)| acts(kind)).map(|(_, word)| word);
            acting.collect::<Vec<_>>().join(", ")
        };
        let cells = ["ready_ahead", "reloaded", "gives_back"].map(cell).join(" | ");
        let line = format!("| {ports} | {cells} |");
        assert!(guide.lines().any(|guide| guide == line), "the guide has no {line:?}");
        polder.stop();
    }
}
