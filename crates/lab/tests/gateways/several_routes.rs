//! Several routes to one prefix: default routers by router advertisements, and routes that were appended.

use crate::machines::{PATIENCE, addresses, ping, reaches, route, until};
use crate::router::{Net, PORTS};
use crate::support::{Gateway, root_or_skip};
use polder_testbed::clock;
use polder_testbed::traffic::raw::PacketSocket;
use std::net::Ipv6Addr;

/// Routers of the right network, of which only advertisements are seen: number, preference bits (RFC 4191).
const FIRST: u8 = 1;
const SECOND: u8 = 2;
const HIGH: u8 = 1;
const LOW: u8 = 3;

fn mac(router: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0xaa, router]
}

fn address(router: u8) -> Ipv6Addr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xaa, router.into())
}

/// A router advertisement (RFC 4861, 4.2) with the source link-layer address.
fn advertisement(router: u8, lifetime: u16, preference: u8) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let [high, low] = lifetime.to_be_bytes();
    let mut message = vec![134, 0, 0, 0, 64, preference << 3, high, low];
    message.extend([0; 8]);
    message.extend([1, 1]);
    message.extend(mac(router));
    let length = u8::try_from(message.len()).unwrap();
    let ends = [address(router).octets(), all.octets()].concat();
    let words = [&ends[..], &[0, 0, 0, length, 0, 0, 0, 58], &message].concat();
    let sum = words.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_be_bytes(*word))).sum::<u32>();
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let link = [&[0x33, 0x33, 0, 0, 0, 1][..], &mac(router), &[0x86, 0xdd]].concat();
    [&link[..], &[0x60, 0, 0, 0, 0, length, 58, 255], &ends, &message].concat()
}

/// The default routers as packets from the left network find them: last byte of the link-layer address of each.
fn used(net: &Net, socket: &PacketSocket) -> Vec<u8> {
    let mut room = [0; 2048];
    while socket.receive(&mut room).is_ok() {}
    (1..=4).for_each(|number| drop(ping(&net.left, &format!("2001:db8:ffff::{number}"), &["-W", "0.1"])));
    let mut used = Vec::new();
    while let Ok(length) = socket.receive(&mut room) {
        let is_request = length > 54 && room[12..14] == [0x86, 0xdd] && room[20] == 58 && room[54] == 128;
        if is_request {
            used.push(room[5]);
        }
    }
    used.dedup();
    used
}

/// The preferred router counts; one that withdraws leaves the other.
#[test]
fn of_two_default_routers_the_preferred_one_counts() {
    if !root_or_skip("of_two_default_routers_the_preferred_one_counts") {
        return;
    }
    let net = Net::new(1500);
    // The interface takes the settings over when it comes: accepts advertisements although it forwards.
    net.gateway
        .inside(|| {
            for (key, value) in [("all/forwarding", "1"), ("east/accept_ra", "2")] {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{key}"), value).unwrap();
            }
        })
        .unwrap();
    net.right.inside(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/disable_ipv6", "1").unwrap()).unwrap();
    let socket = net.right.inside(|| PacketSocket::open("eth0")).unwrap().unwrap();
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    let said = |router, lifetime, preference| {
        socket.send(&advertisement(router, lifetime, preference)).unwrap();
    };
    let uses = |what: &str, router: u8| {
        until(what, || used(&net, &socket) == [router]);
        let kernel = net.gateway.ip(&["-6", "route", "get", "2001:db8:ffff::1"]).unwrap();
        assert!(kernel.contains(&address(router).to_string()), "{what}: {kernel}");
    };
    said(FIRST, 1800, HIGH);
    uses("the only router counts", FIRST);
    said(SECOND, 1800, LOW);
    let both = || net.gateway.ip(&["-6", "route", "show", "default"]).unwrap().lines().count() == 2;
    until("the kernel has both", both);
    uses("the preferred one counts", FIRST);
    said(FIRST, 1800, LOW);
    said(SECOND, 1800, HIGH);
    uses("preferences change", SECOND);
    said(SECOND, 0, HIGH);
    uses("one withdraws, the other stays", FIRST);
    said(SECOND, 1800, HIGH);
    uses("it comes again", SECOND);
    said(FIRST, 0, LOW);
    uses("the other one withdraws", SECOND);
    polder.stop();
}

/// The first of several routes of IPv4 with one metric counts, and each goes alone.
#[test]
fn the_first_of_appended_routes_counts() {
    if !root_or_skip("the_first_of_appended_routes_counts") {
        return;
    }
    let net = Net::new(1500);
    addresses(&net.right, "lo", &["10.99.0.1/32"]);
    route(&net.gateway, "add 10.99.0.0/16 via 10.83.2.2");
    route(&net.gateway, "append 10.99.0.0/16 via 10.83.1.77");
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    reaches(&net.left, "10.99.0.1");
    route(&net.gateway, "prepend 10.99.0.0/16 via 10.83.1.78");
    until("the one in front counts", || !ping(&net.left, "10.99.0.1", &[]).contains(" 0% packet loss"));
    route(&net.gateway, "del 10.99.0.0/16 via 10.83.1.78");
    let end = clock::now() + PATIENCE;
    while !ping(&net.left, "10.99.0.1", &[]).contains(" 0% packet loss") {
        let shown = || ["routes", "neighbours", "counters"].map(|what| polder.show(what).to_string());
        assert!(clock::now() < end, "{}\n{:#?}", net.gateway.ip(&["neighbour"]).unwrap(), shown());
    }
    route(&net.gateway, "del 10.99.0.0/16 via 10.83.1.77");
    assert!(ping(&net.left, "10.99.0.1", &["-W", "10"]).contains(" 0% packet loss"));
    polder.stop();
}
