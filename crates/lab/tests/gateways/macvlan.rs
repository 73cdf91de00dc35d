//! Macvlans on a router's port, as keepalived (`use_vmac`) and FRR make them for virtual routers.

use crate::machines::{addresses, ping, reaches, route, until};
use crate::router::{Net, PORTS};
use crate::support::{FAST_MODES, Gateway, root_or_skip, skip};
use polder_testbed::topology::Namespace;
use polder_testbed::traffic::raw::PacketSocket;
use rustix::io::Errno;

/// Address that the stations of the left network send by, and the link-layer address of virtual router 5 (RFC 9568).
const VIRTUAL: [&str; 2] = ["10.83.1.254", "fd83:1::fe"];
const VIRTUAL_MAC: [&str; 2] = ["00:00:5e:00:01:05", "00:00:5e:00:02:05"];

/// A virtual router's macvlan on the west port, switched on, with an address of both families each.
fn virtual_router(net: &Net, mode: &str, bits: [&str; 2]) -> anyhow::Result<()> {
    for (number, name) in ["vrrp4", "vrrp6"].into_iter().enumerate() {
        let link = ["link", "add", name, "link", "west", "address", VIRTUAL_MAC[number], "type", "macvlan"];
        net.gateway.ip(&[&link[..], &["mode", mode]].concat())?;
        net.gateway.ip(&["link", "set", name, "up"])?;
        addresses(&net.gateway, name, &[&format!("{}/{}", VIRTUAL[number], bits[number])]);
        // The port does not answer for the macvlan's addresses.
        let setting = "/proc/sys/net/ipv4/conf/west/arp_ignore";
        net.gateway.inside(|| std::fs::write(setting, "1"))??;
    }
    route(&net.left, &format!("replace default via {}", VIRTUAL[0]));
    route(&net.left, &format!("replace default via {}", VIRTUAL[1]));
    Ok(())
}

/// Packets that a station sends by the virtual router even while nobody answers for it.
fn know(net: &Net) {
    for (address, mac) in VIRTUAL.iter().zip(VIRTUAL_MAC) {
        let entry = ["neigh", "replace", address, "lladdr", mac, "dev", "eth0", "nud", "permanent"];
        net.left.ip(&entry).unwrap();
    }
}

const RIGHT: [&str; 2] = ["10.83.2.2", "fd83:2::2"];

fn is_silent(from: &Namespace, to: &str) -> bool {
    ping(from, to, &[]).contains(" 100% packet loss")
}

/// Ports in a mode.
fn ports(mode: &str) -> String {
    PORTS.replace("role", &format!("mode = \"{mode}\"\nrole"))
}

/// The footprints of keepalived (private, host addresses) and FRR (bridge, addresses with the network): takeover and loss
/// are followed, in each mode.
#[test]
fn a_virtual_router_is_followed() {
    const TEST: &str = "a_virtual_router_is_followed";
    if !root_or_skip(TEST) {
        return;
    }
    let footprints = [("private", ["32", "128"]), ("bridge", ["24", "64"])];
    for (mode, (kind, bits)) in
        [FAST_MODES[0], FAST_MODES[1], "generic"].iter().zip(footprints.iter().cycle())
    {
        let net = Net::new(1500);
        if let Err(error) = virtual_router(&net, kind, *bits) {
            skip(TEST, &format!("this kernel makes no macvlan: {error:#}"));
            return;
        }
        let polder = Gateway::start(&net.topology, &net.gateway, &ports(mode));
        RIGHT.iter().for_each(|to| reaches(&net.left, to));
        know(&net);
        let forwarded = polder.transmitted("east");
        for (to, name) in RIGHT.iter().zip(["vrrp4", "vrrp6"]) {
            reaches(&net.left, to);
            net.gateway.ip(&["link", "set", name, "down"]).unwrap();
            until("a macvlan that is off has no frames", || is_silent(&net.left, to));
            net.gateway.ip(&["link", "set", name, "up"]).unwrap();
            reaches(&net.left, to);
        }
        assert!(polder.transmitted("east") > forwarded, "{mode}");
        net.gateway.ip(&["link", "del", "vrrp4"]).unwrap();
        until("a macvlan that is gone has no frames", || is_silent(&net.left, RIGHT[0]));
        // Its parent is another one.
        let elsewhere =
            ["link", "add", "vrrp4", "link", "east", "address", VIRTUAL_MAC[0], "type", "macvlan"];
        net.gateway.ip(&[&elsewhere[..], &["mode", kind]].concat()).unwrap();
        net.gateway.ip(&["link", "set", "vrrp4", "up"]).unwrap();
        assert!(is_silent(&net.left, RIGHT[0]), "the macvlan is on the other port");
        polder.stop();
    }
}

/// A network that is on a macvlan alone: packets to it have the macvlan's address, and its stations are asked by it.
#[test]
fn what_leaves_by_a_macvlan_has_its_address() {
    const TEST: &str = "what_leaves_by_a_macvlan_has_its_address";
    if !root_or_skip(TEST) {
        return;
    }
    let net = Net::new(1500);
    if let Err(error) = virtual_router(&net, "bridge", ["32", "128"]) {
        skip(TEST, &format!("this kernel makes no macvlan: {error:#}"));
        return;
    }
    addresses(&net.gateway, "vrrp4", &["10.83.9.1/24"]);
    addresses(&net.left, "eth0", &["10.83.9.2/24"]);
    route(&net.gateway, "add 10.99.0.0/16 via 10.83.9.2 dev vrrp4");
    addresses(&net.left, "lo", &["10.99.0.1/32"]);
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    let socket = net.left.inside(|| PacketSocket::open("eth0")?.incoming_alone()).unwrap().unwrap();
    for to in ["10.83.9.2", "10.99.0.1"] {
        reaches(&net.right, to);
        let mut room = [0; 2048];
        let mut sources = Vec::new();
        loop {
            match socket.receive(&mut room) {
                // Echo requests.
                Ok(length) if length > 34 && room[12..14] == [8, 0] && room[23] == 1 && room[34] == 8 => {
                    sources.push(room[6..12].to_vec());
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(!sources.is_empty());
        assert!(sources.iter().all(|mac| *mac == [0, 0, 0x5e, 0, 1, 5]), "{to}: {sources:x?}");
    }
    polder.stop();
}
