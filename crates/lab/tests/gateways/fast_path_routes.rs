//! Flows that programs of router ports carry, beside the same packets without a fast path: byte by byte.

use crate::machines::{addresses, machine, route, until};
use crate::support::{Gateway, root_or_skip, skip};
use polder_judges::hot::{
    Bench, FLOWS, HOP, MODES, Place, RouteStand, Stand as _, Subject, frame, neighbour, packet, udp, v4,
};
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::tcp_goodput;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Link-layer address of another next hop.
const OTHER_HOP: &str = "02:00:00:98:02:0a";
/// Packets of a flow.
const PACKETS: u16 = 5000;

fn hot(mode: &str) -> RouteStand {
    let mut stand = RouteStand::lay(mode, Subject::Fast).unwrap();
    stand.warm().unwrap();
    stand
}

#[test]
fn packets_of_hot_routes_leave_as_they_do_without_a_fast_path() {
    let test = "packets_of_hot_routes_leave_as_they_do_without_a_fast_path";
    if !root_or_skip(test) {
        return;
    }
    for mode in MODES {
        let bench = Bench { place: Place::Routes, mode };
        let reference = bench.reference().unwrap();
        let findings = bench.examine(&reference, Subject::Fast).unwrap();
        assert_eq!(findings.different, [""; 0], "{mode}");
        let answered = reference.answered();
        assert!(answered > 20, "{answered} packets were answered: the test sees nothing");
        if findings.packets < 500 {
            skip(test, "flows with tags: this kernel has no VLAN interfaces, it needs the module 8021q");
        }
    }
}

/// Packets of one flow, some of which a program cannot carry, arrive in the order in which they were sent.
#[test]
fn routed_packets_that_go_up_do_not_change_places_with_those_that_are_carried() {
    if !root_or_skip("routed_packets_that_go_up_do_not_change_places_with_those_that_are_carried") {
        return;
    }
    MODES.into_iter().for_each(mix_routed);
}

/// Sends packets of one flow, of which one in seven has options.
fn mix_routed(mode: &str) {
    let mut stand = hot(mode);
    if mode == "native" {
        stand.receive_in_order().unwrap();
    }
    let before = stand.ways().unwrap()[0];
    let (flow, mut numbers) = (FLOWS[0], Vec::new());
    let ends = [flow.1, flow.2].map(|text| text.parse().unwrap());
    for number in 1..=PACKETS {
        let options: &[u8] = if number.is_multiple_of(7) { &[1, 1, 1, 0] } else { &[] };
        let rest = [&udp(53, 16)[..], &number.to_be_bytes()].concat();
        stand.send(&frame(flow, &v4(64, 0, 17, ends, options, &rest))).unwrap();
        // Bursts, and pauses in which the worker is through with what went up.
        if number.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(300));
            stand.drain(&mut numbers);
        }
    }
    until("all have come", || {
        stand.drain(&mut numbers);
        numbers.len() >= usize::from(PACKETS)
    });
    assert_eq!(numbers, (1..=PACKETS).collect::<Vec<_>>());
    let carried = stand.ways().unwrap()[0] - before;
    assert!((1..u64::from(PACKETS) * 6 / 7 + 1).contains(&carried), "{carried} were carried");
    Box::new(stand).end().unwrap();
}

/// A next hop has another address, a neighbour is lost, a route is withdrawn: while the flow is carried.
#[test]
fn what_changes_about_a_hot_route_ends_it() {
    if !root_or_skip("what_changes_about_a_hot_route_ends_it") {
        return;
    }
    MODES.into_iter().for_each(change_hot_route);
}

fn change_hot_route(mode: &str) {
    let stand = hot(mode);
    let (flow, mut numbers) = (FLOWS[0], Vec::new());
    let send = || {
        let plain = packet([flow.1, flow.2], 64, 17, &udp(53, 40));
        stand.send(&frame(flow, &plain)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    };
    let is_carried = || {
        let before = stand.ways().unwrap()[0];
        (0..10).for_each(|_| send());
        stand.ways().unwrap()[0] > before
    };
    neighbour(&stand.near, "wan", "10.98.1.9", OTHER_HOP).unwrap();
    let mut is_new = false;
    until("the next hop has its new address, and is carried", || {
        let carried = is_carried();
        for hop in stand.drain(&mut numbers) {
            assert!(hop[5] == 0x0a || !is_new, "to an address that was given up");
            is_new = hop[5] == 0x0a;
        }
        is_new && carried
    });
    stand.near.ip(&["neigh", "del", "10.98.1.9", "dev", "wan"]).unwrap();
    until("nobody is sent to", || {
        let carried = is_carried();
        stand.drain(&mut numbers).is_empty() && !carried
    });
    neighbour(&stand.near, "wan", "10.98.1.9", HOP).unwrap();
    until("the flow is carried again", is_carried);
    stand.answers();
    route(&stand.near, "del 10.98.8.0/24");
    until("the route is gone, and the sender is told", || {
        let carried = is_carried();
        let is_unreachable = |answer: &Vec<u8>| answer[23] == 1 && answer[34] == 3;
        !carried && stand.answers().iter().any(is_unreachable)
    });
    let others = stand.entries().unwrap();
    let others = others.iter().filter(|row| row["destination"] == "10.98.8.8").count();
    assert_eq!(others, 0, "no entry leads there");
    Box::new(stand).end().unwrap();
}

/// Two machines with all offloads: super-packets are carried whole, and both ways are counted.
#[test]
fn tcp_is_routed_in_the_kernel() {
    if !root_or_skip("tcp_is_routed_in_the_kernel") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let [left, gateway, right] = ["left", "gw", "right"].map(|role| machine(&mut topology, role));
    for (place, port, net) in [(&left, "west", 1), (&right, "east", 2)] {
        let pair = ["link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", gateway.name()];
        place.ip(&pair).unwrap();
        place.ip(&["link", "set", "eth0", "up"]).unwrap();
        gateway.ip(&["link", "set", port, "up"]).unwrap();
        addresses(&gateway, port, &[&format!("10.97.{net}.1/24")]);
        addresses(place, "eth0", &[&format!("10.97.{net}.2/24")]);
        route(place, &format!("add default via 10.97.{net}.1"));
    }
    let text = |keys: &str| {
        let port = |name: &str| {
            format!("[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\nmode = \"skb\"\n{keys}\n")
        };
        ["west", "east"].map(port).concat()
    };
    let polder = Gateway::start(&topology, &gateway, &text(""));
    crate::machines::reaches(&left, "10.97.2.2");
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 97, 2, 2), 7019);
    let second = Duration::from_secs(1);
    let goodput = || tcp_goodput(&left, &right, to, second, second).unwrap();
    let fast = goodput();
    let shown = polder.show("flows");
    let sum = |name: &str| {
        let ports = shown["flows"]["ports"].as_array().unwrap();
        ports.iter().map(|port| port[name].as_u64().unwrap()).sum::<u64>()
    };
    let (received, all) = (sum("received"), polder.all("ports", "received").iter().sum::<u64>());
    assert_eq!(received, sum("transmitted"));
    assert!(received > all * 9 / 10, "{received} of {all} packets were carried");
    // The kernel's interfaces count super-packets, and ports their segments.
    let of_kernel = ["west", "east"].map(|name| {
        let shown =
            serde_json::from_str::<Value>(&gateway.ip(&["-s", "-j", "link", "show", name]).unwrap()).unwrap();
        shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
            + shown[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
    });
    let [west, east] = of_kernel;
    assert!(
        received > 2 * west.max(east),
        "{received} packets, {west} and {east} at the interfaces: none are whole"
    );
    narrow_route(&left, &gateway, &right);
    polder.reload(&text("fast_path = \"off\"")).unwrap();
    let slow = goodput();
    let shown = polder.show("flows");
    assert_eq!(shown["flows"]["ports"][0]["obstacle"], "switched off");
    assert_eq!(shown["flows"]["flows"].as_array().map(Vec::len), Some(0));
    println!("{fast:.2e} bit/s, {received} of {all} packets carried; {slow:.2e} without");
    polder.stop();
}

/// Segments that are too long for the MTU of a route do not pass in super-packets, although the pair is carried: the sender
/// is told.
fn narrow_route(left: &Namespace, gateway: &Namespace, right: &Namespace) {
    addresses(right, "eth0", &["10.97.3.3/32"]);
    route(gateway, "add 10.97.3.0/24 via 10.97.2.2 mtu 1300");
    (0..5).for_each(|_| crate::machines::reaches(left, "10.97.3.3"));
    let to = SocketAddrV4::new(Ipv4Addr::new(10, 97, 3, 3), 7019);
    tcp_goodput(left, right, to, Duration::from_millis(300), Duration::from_millis(300)).unwrap();
    let known = left.ip(&["route", "get", "10.97.3.3"]).unwrap();
    assert!(known.contains("mtu 1300"), "{known}");
}
