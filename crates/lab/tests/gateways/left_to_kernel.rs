//! Packets that the kernel forwards: by interfaces that are no ports, and by its own choice among several.

use crate::events::until_told;
use crate::machines::{addresses, machine, ping, reaches, route, until};
use crate::router::{Net, PORTS};
use crate::support::{Gateway, root_or_skip, wire};
use polder_testbed::topology::Namespace;
use serde_json::json;
use std::time::Duration;

/// A router with a third interface, which is no port: `vpn`, with 10.66.0.2 and fd66::2 at the other end.
struct WithVpn {
    net: Net,
    far: Namespace,
}

impl WithVpn {
    fn new() -> Self {
        let mut net = Net::new(1500);
        let far = machine(&mut net.topology, "far");
        wire(&net.topology, (&net.gateway, "vpn"), (&far, "eth0"), 1400);
        addresses(&net.gateway, "vpn", &["10.66.0.1/24", "fd66::1/64"]);
        addresses(&far, "eth0", &["10.66.0.2/24", "fd66::2/64"]);
        route(&far, "add default via 10.66.0.1");
        route(&far, "add default via fd66::1");
        // The reverse path filter tells a packet that comes back at another interface.
        for (key, value) in
            [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1"), ("ipv4/conf/west/rp_filter", "1")]
        {
            set(&net.gateway, key, value);
        }
        Self { net, far }
    }

    /// Starts a gateway whose ports are attached in one mode.
    fn start(&self, mode: &str, more: &str) -> Gateway {
        self.start_with(&format!("mode = \"{mode}\""), more)
    }

    fn start_with(&self, keys: &str, more: &str) -> Gateway {
        let keys = format!("role = \"router\"\n{keys}");
        let text = format!("{}{more}", PORTS.replace("role = \"router\"", &keys));
        Gateway::start(&self.net.topology, &self.net.gateway, &text)
    }
}

fn set(namespace: &Namespace, key: &str, value: &str) {
    namespace.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap()).unwrap();
}

/// Echo requests that a station has received.
fn received(namespace: &Namespace) -> u64 {
    let counts = namespace.inside(|| std::fs::read_to_string("/proc/net/snmp6").unwrap()).unwrap();
    let row = counts.lines().find(|line| line.starts_with("Icmp6InEchos ")).unwrap();
    row.split_whitespace().next_back().unwrap().parse().unwrap()
}

/// Packets that user space returned to the kernel.
fn returned(polder: &Gateway) -> u64 {
    polder.transmitted("kernel")
}

/// Addresses behind the interface that is no port.
const BEYOND: [&str; 2] = ["10.66.0.2", "fd66::2"];
/// Addresses behind the other port.
const EAST: [&str; 2] = ["10.83.2.2", "fd83:2::2"];
const MODES: [&str; 3] = ["skb", "native", "generic"];

#[test]
fn destinations_behind_an_interface_that_is_no_port_are_left_to_the_kernel() {
    if !root_or_skip("destinations_behind_an_interface_that_is_no_port_are_left_to_the_kernel") {
        return;
    }
    let with = WithVpn::new();
    let net = &with.net;
    for mode in MODES {
        let polder = with.start(mode, "");
        BEYOND.iter().chain(&EAST).for_each(|to| reaches(&net.left, to));
        // A VPN takes everything by two halves of the address space; the port's network is more specific.
        addresses(&with.far, "eth0", &["203.0.113.9/32", "2001:db8:9::9/128"]);
        for half in ["0.0.0.0/1 via 10.66.0.2", "128.0.0.0/1 via 10.66.0.2", "::/1 via fd66::2"] {
            route(&net.gateway, &format!("add {half}"));
        }
        for to in ["203.0.113.9", "2001:db8:9::9"].into_iter().chain(EAST) {
            reaches(&net.left, to);
        }
        assert_eq!(returned(&polder), 0, "{mode}: the program passes all of them");
        for half in ["0.0.0.0/1", "128.0.0.0/1", "::/1"] {
            route(&net.gateway, &format!("del {half}"));
        }
        until("the route is gone", || ping(&net.left, "203.0.113.9", &[]).contains("Unreachable"));
        for address in ["203.0.113.9/32", "2001:db8:9::9/128"] {
            with.far.ip(&["address", "del", address, "dev", "eth0"]).unwrap();
        }
        polder.assert_conserved();
        polder.stop();
    }
}

/// With a filter, every packet is looked at in user space; what no rule drops returns at its own interface.
#[test]
fn filters_hold_for_packets_that_are_left_to_the_kernel() {
    if !root_or_skip("filters_hold_for_packets_that_are_left_to_the_kernel") {
        return;
    }
    const FILTER: &str = "[[filter]]\nport = \"west\"\nprotocol = \"icmp\"\ndestination = \"10.66.0.3\"\naction = \"drop\"\n\
                          [[filter]]\nport = \"west\"\nprotocol = \"icmpv6\"\ndestination = \"fd66::3\"\naction = \"drop\"\n";
    let with = WithVpn::new();
    addresses(&with.far, "eth0", &["10.66.0.3/24", "fd66::3/64"]);
    for mode in ["skb", "native"] {
        let polder = with.start(mode, FILTER);
        BEYOND.iter().chain(&EAST).for_each(|to| reaches(&with.net.left, to));
        let before = returned(&polder);
        assert!(before >= 2, "{mode}: {before} packets came back");
        for to in ["10.66.0.3", "fd66::3"] {
            assert!(!ping(&with.net.left, to, &["-c", "3", "-i", "0.05"]).contains("ttl="), "{mode}: {to}");
        }
        assert_eq!(polder.drops("filtered"), 6, "{mode}");
        polder.assert_conserved();
        polder.stop();
    }
}

/// The kernel may choose a port whose filter does not see what the kernel sends: nothing passes it unseen.
#[test]
fn no_packet_passes_a_filter_of_the_port_that_the_kernel_may_choose() {
    if !root_or_skip("no_packet_passes_a_filter_of_the_port_that_the_kernel_may_choose") {
        return;
    }
    const FILTER: &str =
        "[[filter]]\nport = \"east\"\ndirection = \"out\"\nprotocol = \"udp\"\naction = \"drop\"\n";
    let with = WithVpn::new();
    let net = &with.net;
    addresses(&net.right, "lo", &["203.0.113.9/32"]);
    route(&net.gateway, "add 203.0.113.0/24 nexthop via 10.83.2.2 nexthop via 10.66.0.2");
    for mode in ["skb", "native"] {
        let polder = with.start(mode, FILTER);
        EAST.iter().chain(&BEYOND).for_each(|to| reaches(&net.left, to));
        let socket = net.right.inside(|| std::net::UdpSocket::bind("203.0.113.9:7000").unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        net.left
            .inside(|| {
                for _ in 0..64 {
                    let socket = std::net::UdpSocket::bind("10.83.1.2:0").unwrap();
                    // The answer to an earlier one may be an error.
                    let _: Result<usize, _> = socket.send_to(b"flow", "203.0.113.9:7000");
                }
            })
            .unwrap();
        until("all are dropped", || polder.drops("to-kernel") == 64);
        assert!(socket.recv(&mut [0; 16]).is_err(), "{mode}");
        polder.assert_conserved();
        polder.stop();
    }
}

/// A program in front of Polder's takes the mark away from packets that return: they do not go round for ever.
#[test]
fn packets_that_are_taken_once_more_are_dropped_and_told_of() {
    if !root_or_skip("packets_that_are_taken_once_more_are_dropped_and_told_of") {
        return;
    }
    const FILTER: &str = "[[filter]]\nport = \"west\"\nprotocol = \"tcp\"\naction = \"drop\"\n";
    let with = WithVpn::new();
    let polder = with.start_with("mode = \"skb\"\ndecide = \"router\"", FILTER);
    reaches(&with.net.left, BEYOND[0]);
    let other = with.net.gateway.inside(|| polder_devices::skb::use_control_block("west").unwrap()).unwrap();
    assert!(!ping(&with.net.left, BEYOND[0], &["-c", "1"]).contains("ttl="));
    until_told(&polder, json!({ "event": "punt-loop", "port": "west", "level": "warn" }));
    until("they are dropped", || {
        ping(&with.net.left, BEYOND[0], &["-c", "1"]);
        polder.drops("to-kernel") > 0
    });
    let after = returned(&polder);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(returned(&polder), after, "nothing goes round any more");
    drop(other);
    polder.assert_conserved();
    polder.stop();
}

/// Somebody deletes the interface by which packets return: they are counted as dropped, and the rest goes on.
#[test]
fn packets_that_cannot_return_are_dropped_and_counted() {
    if !root_or_skip("packets_that_cannot_return_are_dropped_and_counted") {
        return;
    }
    const FILTER: &str = "[[filter]]\nport = \"west\"\nprotocol = \"tcp\"\naction = \"drop\"\n";
    let with = WithVpn::new();
    let polder = with.start("skb", FILTER);
    BEYOND.iter().for_each(|to| reaches(&with.net.left, to));
    let name = polder.port("kernel")["interface"].as_str().unwrap().to_owned();
    with.net.gateway.ip(&["link", "delete", &name]).unwrap();
    until("they are dropped", || {
        BEYOND.iter().for_each(|to| drop(ping(&with.net.left, to, &["-c", "2", "-i", "0.05"])));
        polder.drops("to-kernel") > 0
    });
    until("the port says so", || polder.port("kernel")["state"] != "open");
    EAST.iter().for_each(|to| reaches(&with.net.left, to));
    polder.assert_conserved();
    polder.stop();
}

/// The kernel chooses among next hops of which one is no port: all flows arrive, and both are used.
#[test]
fn a_group_with_an_interface_that_is_no_port_is_the_kernels() {
    if !root_or_skip("a_group_with_an_interface_that_is_no_port_is_the_kernels") {
        return;
    }
    let with = WithVpn::new();
    let net = &with.net;
    for other in [&with.far, &net.right] {
        addresses(other, "lo", &["203.0.113.9/32"]);
    }
    route(&net.gateway, "add 203.0.113.0/24 nexthop via 10.83.2.2 nexthop via 10.66.0.2");
    let polder = with.start("skb", "");
    let heard = |namespace: &Namespace| {
        let socket = namespace.inside(|| std::net::UdpSocket::bind("203.0.113.9:7000").unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    let sockets = [heard(&with.far), heard(&net.right)];
    reaches(&net.left, "10.83.2.2");
    net.left
        .inside(|| {
            for _ in 0..64 {
                let socket = std::net::UdpSocket::bind("10.83.1.2:0").unwrap();
                socket.send_to(b"flow", "203.0.113.9:7000").unwrap();
            }
        })
        .unwrap();
    let mut counts = [0, 0];
    until("all flows arrive", || {
        for (count, socket) in counts.iter_mut().zip(&sockets) {
            while socket.recv(&mut [0; 16]).is_ok() {
                *count += 1;
            }
        }
        counts.iter().sum::<u32>() == 64
    });
    assert!(counts.iter().all(|&count| count > 8), "{counts:?}");
    polder.assert_conserved();
    polder.stop();
}

/// The default route of a delegated prefix is for its own sources; a route for all sources serves the others.
#[test]
fn routes_by_source_are_followed_as_the_kernel_does() {
    if !root_or_skip("routes_by_source_are_followed_as_the_kernel_does") {
        return;
    }
    let with = WithVpn::new();
    let net = &with.net;
    addresses(&net.right, "lo", &["2001:db8:9::9/128"]);
    addresses(&net.left, "eth0", &["2001:db8:1::2/64", "2001:db8:2::2/64"]);
    addresses(&net.gateway, "west", &["2001:db8:1::1/64", "2001:db8:2::1/64"]);
    for mode in ["skb", "native"] {
        let polder = with.start(mode, "");
        let from = |source: &str| ping(&net.left, "2001:db8:9::9", &["-I", source]);
        route(&net.gateway, "add default from 2001:db8:1::/64 via fd83:2::2 metric 512");
        until("the prefix's own sources arrive", || from("2001:db8:1::2").contains("ttl=63"));
        until("others have no route", || from("2001:db8:2::2").contains("No route"));
        // Both are told apart where a route by a shorter prefix is for all sources.
        addresses(&with.far, "lo", &["2001:db8:9::9/128"]);
        route(&net.gateway, "add 2000::/3 via fd66::2");
        until("others arrive by it", || from("2001:db8:2::2").contains("ttl=63"));
        // The route to the longer prefix counts for all sources.
        let before = received(&net.right);
        assert!(from("2001:db8:1::2").contains("ttl=63"), "{mode}");
        assert_eq!(received(&net.right), before, "{mode}");
        route(&net.gateway, "del 2000::/3");
        until("others have none again", || from("2001:db8:2::2").contains("No route"));
        until("its own still arrive", || from("2001:db8:1::2").contains("ttl=63"));
        route(&net.gateway, "del default from 2001:db8:1::/64");
        until("nobody has a route", || from("2001:db8:1::2").contains("No route"));
        with.far.ip(&["address", "del", "2001:db8:9::9/128", "dev", "lo"]).unwrap();
        polder.assert_conserved();
        polder.stop();
    }
}
