//! Filters in a running gateway: replaced under load, and what the rejected hear.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, stream, wire};
use polder_testbed::topology::{Namespace, Topology};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);

const BASE: &str = r#"
on_exit = "kernel"
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[bridge.lan]
members = ["eth0", "eth1"]
"#;

/// The port of the stream that is always accepted, and the one that is now and then.
const ALWAYS: &str =
    "[[filter]]\nname = \"always\"\nprotocol = \"udp\"\ndestination_port = 7007\naction = \"accept\"\n";

/// Rules: the stream first, then the forbidden port, among others in changing number.
fn rules(forbids: bool, others: u16) -> String {
    let mut text = format!("{BASE}{ALWAYS}");
    if forbids {
        text.push_str("[[filter]]\nname = \"forbidden\"\nprotocol = \"udp\"\ndestination_port = 7777\naction = \"drop\"\n");
    }
    for port in 0..others {
        text.push_str(&format!(
            "[[filter]]\nprotocol = \"tcp\"\ndestination_port = {}\naction = \"drop\"\n",
            1000 + port
        ));
    }
    text
}

/// Two hosts and a gateway between them.
fn between(topology: &mut Topology, text: &str) -> (Namespace, Namespace, Gateway) {
    let gateway = topology.namespace("gw").unwrap();
    let mut host = |role: &str, interface: &str, ip| {
        let host = topology.namespace(role).unwrap();
        wire(topology, (&gateway, interface), (&host, "eth0"), 1500);
        address(&host, "eth0", ip, 24);
        host
    };
    let (left, right) = (host("left", "eth0", LEFT), host("right", "eth1", RIGHT));
    let polder = Gateway::start(topology, &gateway, text);
    assert_reaches(&left, RIGHT);
    (left, right, polder)
}

fn socket(namespace: &Namespace, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = namespace.inside(|| UdpSocket::bind(SocketAddrV4::new(address, port))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

#[test]
fn filters_are_replaced_under_load() {
    if !root_or_skip("filters_are_replaced_under_load") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, right, polder) = between(&mut topology, &rules(false, 3));
    let (sender, receiver) = (socket(&left, LEFT, 0), socket(&right, RIGHT, 7777));
    let mut number = 0_u32;
    let mut knock = |times: u32| {
        for _ in 0..times {
            number += 1;
            sender.send_to(&number.to_be_bytes(), (RIGHT, 7777)).unwrap();
        }
        number
    };
    // What comes out of the receiver last, if anything does.
    let last_heard = || {
        receiver.set_nonblocking(true).unwrap();
        let (mut last, mut bytes) = (None, [0; 4]);
        std::thread::sleep(Duration::from_millis(100));
        while receiver.recv(&mut bytes).is_ok() {
            last = last.max(Some(u32::from_be_bytes(bytes)));
        }
        last
    };
    std::thread::scope(|scope| {
        let load = scope.spawn(|| stream(&left, &right, RIGHT, 5_000.0, Duration::from_secs(3)));
        for round in 0..4_u16 {
            polder.reload(&rules(true, 200 * round)).unwrap();
            last_heard();
            let before = polder.drops("filtered");
            // None of these passes: the reload has returned.
            knock(50);
            assert_eq!(last_heard(), None, "round {round}");
            assert_eq!(polder.drops("filtered") - before, 50);
            polder.reload(&rules(false, 7)).unwrap();
            let last = knock(5);
            assert_eq!(last_heard(), Some(last), "what is not forbidden passes again");
        }
        let arrivals = load.join().unwrap();
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
        // Whoever else uses the machine may keep a socket from being read; the gateway's books tell.
        assert!(arrivals.loss_ratio() < 0.02, "{arrivals:?}");
    });
    let drops = polder.show("drops").to_string();
    assert!(!drops.contains("no-member") && !drops.contains("filter-rejected"), "{drops}");
    assert_eq!(polder.drops("filtered"), 200, "nothing but the forbidden was dropped by a rule");
    let shown = polder.show("filters");
    let always = &shown["filters"]["rules"][0];
    assert_eq!(always["name"], "always");
    assert!(always["packets"].as_u64().unwrap() > 10_000, "a rule keeps its count over reloads: {always}");
    polder.stop();
}

#[test]
fn the_rejected_are_told() {
    if !root_or_skip("the_rejected_are_told") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let reject = "[[filter]]\nport = \"eth0\"\ndestination_port = [22, 53]\naction = \"reject\"\n";
    let (left, _right, polder) = between(&mut topology, &format!("{BASE}{reject}"));
    let refused = left.inside(|| {
        let address = SocketAddrV4::new(RIGHT, 22).into();
        TcpStream::connect_timeout(&address, Duration::from_secs(5)).unwrap_err().kind()
    });
    assert_eq!(refused.unwrap(), ErrorKind::ConnectionRefused, "by a reset");
    let asked = left.inside(|| {
        let socket = UdpSocket::bind(SocketAddrV4::new(LEFT, 0)).unwrap();
        socket.connect((RIGHT, 53)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.send(b"who").unwrap();
        socket.recv(&mut [0; 16]).unwrap_err().kind()
    });
    assert_eq!(asked.unwrap(), ErrorKind::ConnectionRefused, "by an ICMP error");
    assert_eq!(polder.drops("filter-rejected"), 2);
    polder.stop();
}
