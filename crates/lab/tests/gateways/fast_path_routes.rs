//! Flows that programs of router ports carry, beside the same packets without a fast path: byte by byte.

mod packets;

use self::packets::{Flow, SENDER, frame, is_of_flow, odd_frames, packet, udp, v4};
use crate::machines::{addresses, machine, route, until};
use crate::support::{FAST_MODES, Gateway, root_or_skip, skip, take_frames};
use polder_lab::clock;
use polder_lab::topology::{End, Namespace, Topology};
use polder_lab::traffic::raw::PacketSocket;
use polder_lab::traffic::sockets::tcp_goodput;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

/// Link-layer addresses: of the gateway's port, and of next hops.
const WAN: [u8; 6] = [2, 0, 0, 0x98, 0, 0x0c];
const HOP: &str = "02:00:00:98:02:09";
const OTHER_HOP: &str = "02:00:00:98:02:0a";
/// Time for a packet to arrive.
const SOON: Duration = Duration::from_secs(2);
/// Time for a packet to pass through user space.
const SETTLED: Duration = Duration::from_millis(5);
/// Packets of a flow.
const PACKETS: u16 = 5000;
/// UDP destination port of packets that end a case.
const MARKER: u16 = 7099;

/// Flows: the second pair by a route with an MTU, the next two leave with a tag.
const FLOWS: [Flow; 10] = [
    (0, "10.98.0.5", "10.98.8.8"),
    (0, "fd98:0::5", "fd98:8::8"),
    (0, "10.98.0.5", "10.98.9.9"),
    (0, "fd98:0::5", "fd98:9::9"),
    (0, "10.98.0.5", "10.98.10.9"),
    (0, "fd98:0::5", "fd98:10::9"),
    (7, "10.98.7.5", "10.98.10.9"),
    (7, "fd98:7::5", "fd98:10::9"),
    (7, "10.98.7.5", "10.98.8.8"),
    (7, "fd98:7::5", "fd98:8::8"),
];
/// Number of flows without a tag, which come first.
const UNTAGGED: usize = 4;

/// A sender and a next hop, both of this test, at the ports of a router.
struct Stand {
    _topology: Topology,
    here: PacketSocket,
    there: PacketSocket,
    near: Namespace,
    polder: Gateway,
    flows: &'static [Flow],
}

impl Stand {
    fn new(mode: &str, keys: &str) -> Self {
        let mut topology = Topology::new().unwrap();
        let [here, near, there] = ["here", "near", "there"].map(|role| machine(&mut topology, role));
        for (outside, port, mac) in
            [(&here, "lan", "02:00:00:98:00:0b"), (&there, "wan", "02:00:00:98:00:0c")]
        {
            let end = |namespace, interface| End { namespace, interface };
            topology.wire_with_offloads(end(outside, "eth0"), end(&near, port), 2000).unwrap();
            near.ip(&["link", "set", port, "address", mac]).unwrap();
            if mode == "native" {
                take_frames((outside, "eth0"), (&near, port));
            }
        }
        near.ip(&["link", "set", "wan", "mtu", "1420"]).unwrap();
        let flows = networks(&near);
        let port = |name: &str| {
            format!("[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\nmode = \"{mode}\"\n{keys}\n")
        };
        let polder = Gateway::start(&topology, &near, &["lan", "wan"].map(port).concat());
        let open = |namespace: &Namespace| namespace.inside(|| PacketSocket::open("eth0")).unwrap().unwrap();
        Self { here: open(&here), there: open(&there), polder, near, flows, _topology: topology }
    }

    fn entries(&self) -> Vec<Value> {
        self.polder.show("flows")["flows"]["flows"].as_array().unwrap().clone()
    }

    /// Packets that were carried, as the one port received and as the other transmitted them.
    fn carried(&self) -> [u64; 2] {
        let shown = self.polder.show("flows");
        let of = |port: usize, name: &str| shown["flows"]["ports"][port][name].as_u64().unwrap();
        [of(0, "received"), of(1, "transmitted")]
    }

    /// Makes all flows hot, if they are to be.
    fn warm(&self, is_fast: bool) {
        let mut number = 0;
        until("the flows are carried", || {
            for &flow in self.flows {
                self.until_marker(flow, number);
                number += 1;
            }
            let is_hot = |row: &Value| row["state"] == "carried" && row["packets"].as_u64() > Some(0);
            !is_fast || self.entries().iter().filter(|row| is_hot(row)).count() == self.flows.len()
        });
    }

    /// Sends a packet of a flow that ends a case, and answers what has left by either port before it does.
    fn until_marker(&self, flow: Flow, number: usize) -> Vec<Vec<u8>> {
        let mark = [&udp(MARKER, 8)[..], &u16::try_from(number % 60_000).unwrap().to_be_bytes()].concat();
        self.here.send(&frame(flow, &packet([flow.1, flow.2], 64, 17, &mark))).unwrap();
        let (mut seen, mut room, end) = (Vec::new(), [0; 4096], clock::now() + SOON);
        loop {
            assert!(clock::now() < end, "the marker of case {number} did not come: {flow:?}");
            let Ok(frame) = self.there.receive_tagged(&mut room) else {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            if frame[6..12] != WAN || !is_routed(&frame) {
                continue;
            }
            if frame.ends_with(&mark) {
                break;
            }
            seen.push(frame);
        }
        seen
    }

    /// Packets that the gateway has sent to the sender.
    fn answers(&self) -> Vec<Vec<u8>> {
        let (mut seen, mut room) = (Vec::new(), [0; 4096]);
        while let Ok(frame) = self.here.receive_tagged(&mut room) {
            if frame[..6] == SENDER && is_routed(&frame) {
                seen.push(normalized(frame));
            }
        }
        seen
    }

    /// Frames that come of each odd one, by name, at either side.
    fn run(&self) -> Vec<(String, [Vec<Vec<u8>>; 2])> {
        let mut results = Vec::new();
        for &flow in self.flows {
            for (name, odd) in odd_frames(flow) {
                results.push((name, self.results(flow, &odd, results.len())));
            }
        }
        results
    }

    /// Frames that come of one, at either side.
    fn results(&self, flow: Flow, odd: &[u8], number: usize) -> [Vec<Vec<u8>>; 2] {
        self.here.send(odd).unwrap();
        if !is_of_flow(flow, odd) {
            // It has no order with the marker.
            std::thread::sleep(SETTLED);
        }
        let there = self.until_marker(flow, number);
        // Answers are limited in rate.
        std::thread::sleep(SETTLED);
        [there, self.answers()]
    }

    /// Numbers of packets of a flow that have come, and their destination addresses.
    fn drain(&self, numbers: &mut Vec<u16>) -> Vec<[u8; 6]> {
        let (mut room, mut hops) = ([0; 4096], Vec::new());
        while let Ok(frame) = self.there.receive_tagged(&mut room) {
            if frame[6..12] == WAN && is_routed(&frame) {
                numbers.push(u16::from_be_bytes(*frame.last_chunk().unwrap()));
                hops.push(*frame.first_chunk().unwrap());
            }
        }
        hops
    }
}

/// Gives the router its addresses, routes and neighbours. Answers the flows that it has networks for.
fn networks(near: &Namespace) -> &'static [Flow] {
    let vlan = |port: &str, vlan: &str| {
        let name = format!("{port}.{vlan}");
        near.ip(&["link", "add", "link", port, "name", &name, "type", "vlan", "id", vlan]).is_ok()
            && near.ip(&["link", "set", &name, "up"]).is_ok()
    };
    let has_vlans = vlan("lan", "7") && vlan("wan", "9");
    let mut nets = vec![("lan", "0", "", ""), ("wan", "1", "8", ""), ("wan", "1", "9", "mtu 1300")];
    if has_vlans {
        near.ip(&["link", "set", "wan.9", "mtu", "1400"]).unwrap();
        nets.extend([("lan.7", "7", "", ""), ("wan.9", "2", "10", "")]);
    } else {
        skip("flows with tags", "this kernel has no VLAN interfaces: it needs the module 8021q");
    }
    for (interface, net, other, mtu) in nets {
        if mtu.is_empty() {
            addresses(near, interface, &[&format!("10.98.{net}.1/24"), &format!("fd98:{net}::1/64")]);
        }
        if other.is_empty() {
            neighbour(near, &format!("{interface} 10.98.{net}.5"), "02:00:00:98:01:05");
            neighbour(near, &format!("{interface} fd98:{net}::5"), "02:00:00:98:01:05");
        } else {
            route(near, &format!("add 10.98.{other}.0/24 via 10.98.{net}.9 {mtu}"));
            route(near, &format!("add fd98:{other}::/64 via fd98:{net}::9 {mtu}"));
            neighbour(near, &format!("{interface} 10.98.{net}.9"), HOP);
            neighbour(near, &format!("{interface} fd98:{net}::9"), HOP);
        }
    }
    if has_vlans { &FLOWS } else { &FLOWS[..UNTAGGED] }
}

fn neighbour(near: &Namespace, place: &str, mac: &str) {
    let (interface, address) = place.split_once(' ').unwrap();
    near.ip(&["neigh", "replace", address, "lladdr", mac, "nud", "permanent", "dev", interface]).unwrap();
}

/// False for what the kernels around say of their own accord: ARP, and IPv6 to groups.
fn is_routed(frame: &[u8]) -> bool {
    let kind = if frame[12..14] == [0x81, 0] { &frame[16..18] } else { &frame[12..14] };
    kind != [8, 6] && frame[..2] != [0x33, 0x33]
}

/// A message of the gateway's without what may differ from one to the next: the identification, and the checksum with it.
fn normalized(mut frame: Vec<u8>) -> Vec<u8> {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    if frame[ip] >> 4 == 4 {
        frame[ip + 4..ip + 6].fill(0);
        frame[ip + 10..ip + 12].fill(0);
    }
    frame
}

#[test]
fn packets_of_hot_routes_leave_as_they_do_without_a_fast_path() {
    if !root_or_skip("packets_of_hot_routes_leave_as_they_do_without_a_fast_path") {
        return;
    }
    FAST_MODES.into_iter().for_each(compare_hot_routes);
}

fn compare_hot_routes(mode: &str) {
    let [slow, fast] = ["fast_path = \"off\"", ""].map(|keys| {
        let stand = Stand::new(mode, keys);
        let is_fast = keys.is_empty();
        stand.warm(is_fast);
        let before = stand.carried();
        let results = stand.run();
        let carried = stand.carried();
        assert_eq!(before == carried, !is_fast, "{before:?} {carried:?}");
        assert_eq!(carried[0], carried[1], "received and transmitted");
        stand.polder.assert_conserved();
        stand.polder.stop();
        results
    });
    assert_eq!(slow.len(), fast.len());
    for (slow, fast) in slow.iter().zip(&fast) {
        assert_eq!(slow, fast, "{mode}, with a fast path on the right");
    }
    let said = slow.iter().filter(|(_, [_, answers])| !answers.is_empty()).count();
    assert!(said > 20, "{said} packets were answered: the test sees nothing");
}

/// Packets of one flow, some of which a program cannot carry, arrive in the order in which they were sent.
#[test]
fn routed_packets_that_go_up_do_not_change_places_with_those_that_are_carried() {
    if !root_or_skip("routed_packets_that_go_up_do_not_change_places_with_those_that_are_carried") {
        return;
    }
    FAST_MODES.into_iter().for_each(mix_routed);
}

/// Sends packets of one flow, of which one in seven has options.
fn mix_routed(mode: &str) {
    let stand = Stand::new(mode, "");
    stand.warm(true);
    let before = stand.carried()[0];
    let (flow, mut numbers) = (FLOWS[0], Vec::new());
    let ends = [flow.1, flow.2].map(|text| text.parse().unwrap());
    for number in 1..=PACKETS {
        let options: &[u8] = if number.is_multiple_of(7) { &[1, 1, 1, 0] } else { &[] };
        let rest = [&udp(53, 16)[..], &number.to_be_bytes()].concat();
        stand.here.send(&frame(flow, &v4(64, 0, 17, ends, options, &rest))).unwrap();
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
    let carried = stand.carried()[0] - before;
    assert!((1..u64::from(PACKETS) * 6 / 7 + 1).contains(&carried), "{carried} were carried");
    stand.polder.stop();
}

/// A next hop has another address, a neighbour is lost, a route is withdrawn: while the flow is carried.
#[test]
fn what_changes_about_a_hot_route_ends_it() {
    if !root_or_skip("what_changes_about_a_hot_route_ends_it") {
        return;
    }
    FAST_MODES.into_iter().for_each(change_hot_route);
}

fn change_hot_route(mode: &str) {
    let stand = Stand::new(mode, "");
    stand.warm(true);
    let (flow, mut numbers) = (FLOWS[0], Vec::new());
    let send = || {
        let plain = packet([flow.1, flow.2], 64, 17, &udp(53, 40));
        stand.here.send(&frame(flow, &plain)).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    };
    let is_carried = || {
        let before = stand.carried()[0];
        (0..10).for_each(|_| send());
        stand.carried()[0] > before
    };
    neighbour(&stand.near, "wan 10.98.1.9", OTHER_HOP);
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
    neighbour(&stand.near, "wan 10.98.1.9", HOP);
    until("the flow is carried again", is_carried);
    stand.answers();
    route(&stand.near, "del 10.98.8.0/24");
    until("the route is gone, and the sender is told", || {
        let carried = is_carried();
        let is_unreachable = |answer: &Vec<u8>| answer[23] == 1 && answer[34] == 3;
        !carried && stand.answers().iter().any(is_unreachable)
    });
    let others = stand.entries().iter().filter(|row| row["destination"] == "10.98.8.8").count();
    assert_eq!(others, 0, "no entry leads there");
    stand.polder.stop();
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
    let bytes = sum("received_bytes") / received;
    assert!(bytes > 3000, "{bytes} bytes in a packet: none are whole");
    narrow_route(&left, &gateway, &right);
    polder.reload(&text("fast_path = \"off\"")).unwrap();
    let slow = goodput();
    let shown = polder.show("flows");
    assert_eq!(shown["flows"]["ports"][0]["obstacle"], "switched off");
    assert_eq!(shown["flows"]["flows"].as_array().map(Vec::len), Some(0));
    println!("{fast:.2e} bit/s, {received} of {all} packets carried, {bytes} bytes each; {slow:.2e} without");
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
