//! A station that never sends: what is too big for the tunnels says nothing in its name.

use crate::machines::until;
use crate::support::{Gateway, address, root_or_skip, wire};
use crate::tunnel::{CLIENT, NEAR};
use polder_testbed::topology::{Namespace, Topology};
use std::net::{Ipv4Addr, UdpSocket};

const SILENT: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 9);
const SILENT_MAC: &str = "02:00:00:00:00:09";
/// Both tunnels lead here.
const PEERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 61, 0, 2), Ipv4Addr::new(10, 61, 0, 3)];

const GATEWAY: &str = r#"
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[port.radio0]
interface = "radio0"
role = "underlay"
[tunnel.first]
kind = "gretap"
local = "10.61.0.1"
remote = "10.61.0.2"
port = "radio0"
[tunnel.second]
kind = "gretap"
local = "10.61.0.1"
remote = "10.61.0.3"
port = "radio0"
[bridge.lan]
members = ["first", "second", "eth0", "eth1"]
"#;

/// Number of packets that the station has received.
fn received(station: &Namespace) -> u64 {
    let said = station.ip(&["-s", "-j", "link", "show", "dev", "eth0"]).unwrap();
    let links = serde_json::from_str::<serde_json::Value>(&said).unwrap();
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

#[test]
fn a_silent_station_stays_where_it_is() {
    if !root_or_skip("a_silent_station_stays_where_it_is") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let mut namespace = |role| topology.namespace(role).unwrap();
    let (client, gateway) = (namespace("cli"), namespace("gw"));
    let (station, far) = (namespace("silent"), namespace("far"));
    wire(&topology, (&client, "eth0"), (&gateway, "eth0"), 1500);
    wire(&topology, (&station, "eth0"), (&gateway, "eth1"), 1500);
    wire(&topology, (&far, "eth0"), (&gateway, "radio0"), 1500);
    address(&client, "eth0", CLIENT, 24);
    address(&gateway, "radio0", NEAR, 24);
    PEERS.into_iter().for_each(|peer| address(&far, "eth0", peer, 24));
    // Without an IP address it answers nothing.
    station.ip(&["link", "set", "eth0", "address", SILENT_MAC]).unwrap();
    client.ip(&["neigh", "add", &SILENT.to_string(), "lladdr", SILENT_MAC, "dev", "eth0"]).unwrap();
    let polder = Gateway::start(&topology, &gateway, GATEWAY);
    let socket = client.inside(|| UdpSocket::bind((CLIENT, 0))).unwrap().unwrap();
    let send = |bytes: usize| drop(socket.send_to(&vec![0; bytes], (SILENT, 9)));
    until("both tunnels know their next hop", || {
        send(100);
        polder.all("tunnels", "sent").iter().filter(|&&sent| sent > 0).count() == 2
    });
    // A UDP socket sets DF: 1500 bytes fit the station's port and no tunnel.
    let before = received(&station);
    until("both tunnels have met what is too big", || {
        send(1472);
        polder.drops("tunnel-too-big") >= 2
    });
    assert_eq!(polder.all("tunnels", "too_big_reported"), [0, 0], "{:#}", polder.show("tunnels"));
    let known = polder.show("fdb").to_string();
    assert!(!known.contains(SILENT_MAC), "the station has sent nothing: {known}");
    let route = client.ip(&["route", "get", &SILENT.to_string()]).unwrap();
    assert!(!route.contains("mtu"), "{route}");
    until("the station has what is too big for tunnels", || received(&station) > before);
    let big = received(&station);
    (0..20).for_each(|_| send(100));
    until("small ones reach it as before", || received(&station) >= big + 20);
    polder.stop();
}
