//! `polder events`: what happens in a network is told, and is in the log at its level.

use crate::machines::{addresses, machine, route, until};
use crate::support::{Gateway, address, assert_reaches, polder, root_or_skip, stream, wire};
use crate::tunnel::{CLIENT, Net, SERVER};
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::wait_for_ping;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Hosts of the bridge, and of the two networks of the router.
const LEFT: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 2);
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 87, 1, 1);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(10, 87, 2, 1);
/// An address that packets are dropped for.
const NOWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Time after which a change is told.
const LOOK: Duration = Duration::from_secs(1);
const STATION: &str = "02:00:5e:10:00:01";

const FILE: &str = r#"
[port.left]
interface = "left"
mode = "native"
fast_path = "off"
[port.right]
interface = "right"
mode = "native"
fast_path = "off"
[bridge.lan]
members = ["left", "right"]
[port.inside]
interface = "inside"
role = "router"
[port.outside]
interface = "outside"
role = "router"
[[router.route]]
to = "203.0.113.0/24"
kind = "blackhole"
"#;

/// All events of a gateway.
pub(crate) fn events(gateway: &Gateway) -> Vec<Value> {
    let mut command = Command::new(polder());
    let arguments = ["events", "--json", "--no-follow", "-n", "1024", "--socket"];
    let said = command::run(command.args(arguments).arg(gateway.socket())).unwrap();
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// True if there is an event with these fields.
pub(crate) fn has(gateway: &Gateway, fields: &Value) -> bool {
    let is_such =
        |event: &Value| fields.as_object().unwrap().iter().all(|(name, value)| event[name] == *value);
    events(gateway).iter().any(is_such)
}

pub(crate) fn until_told(gateway: &Gateway, fields: Value) {
    until(&fields.to_string(), || has(gateway, &fields));
}

/// The gateway's namespace with four wires, and a host at each.
fn network() -> (Topology, Namespace, [Namespace; 4]) {
    let mut topology = Topology::new().unwrap();
    let gw = machine(&mut topology, "gw");
    let hosts = ["left", "right", "inside", "outside"].map(|name| {
        let host = machine(&mut topology, name);
        wire(&topology, (&gw, name), (&host, "eth0"), 1500);
        host
    });
    for (host, ip) in hosts.iter().zip([LEFT, RIGHT, INSIDE, OUTSIDE]) {
        address(host, "eth0", ip, 24);
    }
    addresses(&gw, "inside", &["10.87.1.254/24"]);
    addresses(&gw, "outside", &["10.87.2.254/24"]);
    route(&hosts[2], "add default via 10.87.1.254");
    route(&hosts[3], "add default via 10.87.2.254");
    (topology, gw, hosts)
}

#[test]
fn what_happens_is_told_and_logged_at_its_level() {
    if !root_or_skip("what_happens_is_told_and_logged_at_its_level") {
        return;
    }
    let (topology, gw, [left, right, inside, _outside]) = network();
    left.ip(&["link", "set", "eth0", "address", STATION]).unwrap();
    let mut gateway = Gateway::start(&topology, &gw, FILE);
    until_told(&gateway, json!({ "event": "port-opened", "port": "left", "level": "info" }));
    assert_reaches(&left, RIGHT);
    until_told(
        &gateway,
        json!({ "event": "station-learnt", "port": "left", "address": STATION, "level": "debug" }),
    );
    // The same station at another port; nobody else has its address.
    left.ip(&["link", "set", "eth0", "address", "02:00:5e:10:00:03"]).unwrap();
    right.ip(&["link", "set", "eth0", "address", STATION]).unwrap();
    let moved = json!({ "event": "station-moved", "from": "left", "to": "right", "level": "info" });
    until("the station has moved", || {
        right.ip(&["neighbour", "flush", "dev", "eth0"]).unwrap();
        let _ = wait_for_ping(&right, LEFT, Duration::from_millis(100)).unwrap();
        has(&gateway, &moved)
    });
    right.ip(&["link", "set", "eth0", "address", "02:00:5e:10:00:02"]).unwrap();
    left.ip(&["link", "set", "eth0", "down"]).unwrap();
    until_told(
        &gateway,
        json!({ "event": "carrier", "port": "left", "state": "no-carrier", "level": "warn" }),
    );
    left.ip(&["link", "set", "eth0", "up"]).unwrap();
    until_told(&gateway, json!({ "event": "carrier", "port": "left", "state": "up", "level": "info" }));

    assert_reaches(&inside, OUTSIDE);
    let neighbour = |port: &str, ip: Ipv4Addr| json!({ "event": "neighbour", "port": port, "address": ip.to_string(), "level": "debug" });
    until_told(&gateway, neighbour("inside", INSIDE));
    until_told(&gateway, neighbour("outside", OUTSIDE));
    let count = |name: &str| {
        let all = events(&gateway);
        all.iter().rev().find(|event| event["event"] == "routes").and_then(|event| event[name].as_u64())
    };
    sleep(2 * LOOK);
    let before = count("ipv4").unwrap();
    route(&gw, "add 10.87.3.0/24 via 10.87.2.1");
    until("the route is told", || count("ipv4") == Some(before + 1));
    assert!(!wait_for_ping(&inside, NOWHERE, Duration::from_millis(300)).unwrap());
    let began = json!({ "event": "drops-began", "stage": "route", "level": "warn" });
    until_told(&gateway, began);
    assert_reaches(&left, RIGHT);
    until("a worker is overloaded", || {
        stream(&left, &right, RIGHT, 1e6, 3 * LOOK);
        ["throttled", "polled"]
            .iter()
            .any(|mode| has(&gateway, &json!({ "event": "worker-mode", "mode": mode, "level": "debug" })))
    });
    gw.ip(&["link", "delete", "outside"]).unwrap();
    until_told(&gateway, json!({ "event": "port-closed", "port": "outside", "level": "warn" }));

    let (ordinary, others) =
        events(&gateway).into_iter().partition::<Vec<_>, _>(|event| event["level"] == "debug");
    // The log has more to say of a start and of what is open then.
    let is_of_start = |event: &Value| event["event"] == "started" || event["event"] == "port-opened";
    for event in others.iter().filter(|event| !is_of_start(event)) {
        gateway.wait_until_said(event["text"].as_str().unwrap());
    }
    let said = gateway.said();
    assert!(!said.contains(ordinary[0]["text"].as_str().unwrap()), "{said}");
}

/// The age of what was heard decides, in events as in views, and what programs carry is heard, too.
#[test]
#[ignore = "long: two minutes"]
fn a_tunnel_that_hears_nothing_for_a_minute_is_quiet() {
    if !root_or_skip("a_tunnel_that_hears_nothing_for_a_minute_is_quiet") {
        return;
    }
    let net = Net::new(1600);
    let [near, far] = net.gateways("");
    let state = |state: &str| has(&near, &json!({ "event": "tunnel", "state": state }));
    until_told(&near, json!({ "event": "tunnel", "state": "up", "level": "info" }));
    stream(&net.server, &net.client, CLIENT, 500.0, Duration::from_secs(65));
    assert!(!state("quiet"), "{:?}", events(&near));
    sleep(40 * LOOK);
    until("the tunnel is quiet", || state("quiet"));
    assert_eq!(near.show("tunnels")["tunnels"][0]["port_open"], true);
    let before = events(&near).len();
    assert_reaches(&net.client, SERVER);
    until("it is up again", || {
        events(&near)[before..].iter().any(|event| event["event"] == "tunnel" && event["state"] == "up")
    });
    drop(far);
}
