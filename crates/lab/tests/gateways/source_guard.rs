//! `source_guard`: a station takes no address of another's, by frames, ARP, IP or neighbour discovery.

use crate::fast_path::{ADDRESSES, Net, text_of};
use crate::machines::until;
use crate::support::{assert_reaches, assert_silent, root_or_skip};
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::raw::PacketSocket;
use std::net::Ipv4Addr;

/// Link-layer address of the station's interface.
fn mac(station: &Namespace) -> String {
    let shown = station.ip(&["-o", "link", "show", "dev", "eth0"]).unwrap();
    shown.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
}

fn bytes(mac: &str) -> Vec<u8> {
    mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// ARP reply to all that the station has the address of another.
fn forged_reply(mac: &str, ip: Ipv4Addr) -> Vec<u8> {
    let (mac, head) = (bytes(mac), [8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
    [&[0xff; 6][..], &mac, &head, &mac, &ip.octets(), &[0xff; 6], &ip.octets()].concat()
}

#[test]
fn a_station_takes_no_address_of_anothers() {
    if !root_or_skip("a_station_takes_no_address_of_anothers") {
        return;
    }
    let open = text_of("skb", "", "");
    let net = Net::new(&open);
    let [a, b, c] = &net.stations;
    let (own, others) = (mac(a), mac(c));
    let ip = ADDRESSES[0];
    let guard = format!("source_guard = {{ mac = \"{own}\", addresses = [\"{ip}\"] }}");
    let guarded = open.replace("[port.lan2]", &format!("{guard}\n[port.lan2]"));
    net.polder.reload(&guarded).unwrap();
    net.exchange();
    assert_reaches(a, ADDRESSES[2]);
    assert_eq!(net.polder.drops("source-guard"), 0);
    // What the station sends is looked at packet by packet; what it gets is carried.
    let shown = net.polder.show("flows");
    let flows = shown["flows"]["flows"].as_array().unwrap();
    assert!(!flows.is_empty() && flows.iter().all(|flow| flow["from"] != "lan1"), "{flows:?}");
    let learned = || {
        let shown = b.ip(&["neighbor", "show", &ADDRESSES[2].to_string()]).unwrap();
        shown.contains(&own)
    };
    let socket = a.inside(|| PacketSocket::open("eth0")).unwrap().unwrap();
    assert_reaches(b, ADDRESSES[2]);
    // An ARP reply for the neighbour's address, and a frame from its station.
    let dropped = net.polder.drops("source-guard");
    socket.send(&forged_reply(&own, ADDRESSES[2])).unwrap();
    socket.send(&forged_reply(&others, ip)).unwrap();
    until("both are dropped", || net.polder.drops("source-guard") >= dropped + 2);
    assert!(!learned());
    assert_reaches(b, ADDRESSES[2]);
    // The neighbour's address as the source of a ping.
    // The kernel deletes the other addresses of a network with its first one, unless `promote_secondaries` is set.
    a.ip(&["address", "del", &format!("{ip}/24"), "dev", "eth0"]).unwrap();
    a.ip(&["address", "add", "10.95.0.77/24", "dev", "eth0"]).unwrap();
    assert_silent(a, ADDRESSES[1]);
    // Without the guard each of these works.
    net.polder.reload(&open).unwrap();
    assert_reaches(a, ADDRESSES[1]);
    until("the neighbour believes it", || {
        socket.send(&forged_reply(&own, ADDRESSES[2])).unwrap();
        learned()
    });
    assert_eq!(net.polder.term("unaccounted"), 0);
    net.polder.stop();
}
