//! The machine's own end of a router's TAP: its addresses there are the kernel's, from wherever packets for them come.

use crate::machines::{addresses, ping, reaches, route, until};
use crate::routed_tunnel::{Net, configuration};
use crate::router::tcp;
use crate::support::{Gateway, root_or_skip, stream};
use polder_testbed::topology::Namespace;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Polder's addresses on the TAP, and the machine's.
const POLDER: [&str; 2] = ["10.86.1.1", "fd86:1::1"];
const MACHINE: [&str; 2] = ["10.86.1.2", "fd86:1::2"];
/// Addresses that the machine has elsewhere: on the loopback, and on a port that the kernel has too.
const LOOP: [&str; 2] = ["10.86.2.1", "fd86:2::1"];
const ELSEWHERE: [&str; 4] = [LOOP[0], LOOP[1], "10.84.1.1", "fd84:1::1"];
/// Addresses behind a station.
const BEHIND: [&str; 2] = ["10.86.3.1", "fd86:3::1"];
/// The far station.
const RIGHT: [&str; 2] = ["10.84.2.2", "fd84:2::2"];

const TAP: &str = r#"
[port.host]
tap = "host0"
role = "router"
addresses = ["10.86.1.1/24", "fd86:1::1/64"]
"#;
const BACK: &str = "\n[[router.route]]\nto = \"10.86.0.0/16\"\nport = \"peer\"\n\
                    [[router.route]]\nto = \"fd86::/16\"\nport = \"peer\"\n";

/// Gives the machine its end of the TAP, and its way through it to the far network.
fn connect(machine: &Namespace) {
    machine.ip(&["link", "set", "host0", "up"]).unwrap();
    addresses(machine, "host0", &[&format!("{}/24", MACHINE[0]), &format!("{}/64", MACHINE[1])]);
    route(machine, "replace default via 10.86.1.1 metric 10");
    route(machine, "replace default via fd86:1::1 metric 10");
}

/// An answer that has come from a kernel, over both gateways; one of the near gateway's own would have lived longer.
fn kernel_answers(net: &Net, to: &str) {
    until(&format!("the machine answers for {to}"), || ping(&net.right, to, &[]).contains("ttl=62"));
}

fn crosses(net: &Net, to: &str, size: &str) {
    let answered = || ping(&net.right, to, &["-s", size]).contains(" 0% packet loss");
    until(&format!("{size} bytes to {to}"), answered);
}

fn gateways(net: &Net, v6: bool) -> [Gateway; 2] {
    let near = configuration(0, "underlay", v6, "") + TAP;
    let far = configuration(1, "underlay", v6, "") + BACK;
    [Gateway::start(&net.topology, &net.near, &near), Gateway::start(&net.topology, &net.far, &far)]
}

#[test]
fn what_is_for_the_machine_comes_out_of_a_tunnel_and_reaches_it() {
    if !root_or_skip("what_is_for_the_machine_comes_out_of_a_tunnel_and_reaches_it") {
        return;
    }
    let net = Net::new();
    for v6 in [false, true] {
        let [near, far] = gateways(&net, v6);
        connect(&net.near);
        for to in MACHINE {
            kernel_answers(&net, to);
            ["0", "1400", "1448", "4000"].iter().for_each(|size| crosses(&net, to, size));
            // The machine leaves checksums and segmentation to its device, which is us.
            tcp(&net.right, &net.near, to.parse().unwrap());
            tcp(&net.near, &net.right, RIGHT[usize::from(to.contains(':'))].parse().unwrap());
        }
        let to = MACHINE[0].parse::<Ipv4Addr>().unwrap();
        let arrivals = stream(&net.right, &net.near, to, 2_000.0, Duration::from_millis(500));
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
        assert!(arrivals.loss_ratio() == 0.0, "{arrivals:?}");
        // Polder's own end is Polder's.
        for to in POLDER {
            until(&format!("Polder answers for {to}"), || ping(&net.right, to, &[]).contains("ttl=63"));
        }
        // By a port that the kernel has too, the machine hears of its address without a detour.
        for to in MACHINE {
            until(&format!("{to} is near"), || ping(&net.left, to, &[]).contains("ttl=64"));
        }
        assert_eq!((near.drops("no-listener"), near.drops("to-host")), (0, 0), "{:#}", near.show("drops"));
        [near, far].into_iter().for_each(Gateway::stop);
    }
}

/// The machine has all of its addresses wherever it listens; and where it does not, Polder speaks for it.
#[test]
fn a_machine_has_its_other_addresses_at_its_end_too() {
    if !root_or_skip("a_machine_has_its_other_addresses_at_its_end_too") {
        return;
    }
    let net = Net::new();
    addresses(
        &net.near,
        "lo",
        &LOOP
            .map(|address| address.to_owned() + if address.contains(':') { "/128" } else { "/32" })
            .each_ref()
            .map(String::as_str),
    );
    let [near, far] = gateways(&net, false);
    connect(&net.near);
    let polder_answers = |to: &str| {
        until(&format!("Polder answers for {to}"), || ping(&net.right, to, &[]).contains("ttl=63"));
    };
    for to in ELSEWHERE {
        kernel_answers(&net, to);
        tcp(&net.right, &net.near, to.parse().unwrap());
    }
    net.near.ip(&["link", "set", "host0", "address", "02:00:00:00:86:77"]).unwrap();
    for to in ELSEWHERE.iter().chain(&MACHINE) {
        kernel_answers(&net, to);
    }
    net.near.ip(&["link", "set", "host0", "down"]).unwrap();
    ELSEWHERE.iter().for_each(|to| polder_answers(to));
    net.near.ip(&["address", "flush", "dev", "host0"]).unwrap();
    connect(&net.near);
    for to in ELSEWHERE.iter().chain(&MACHINE) {
        kernel_answers(&net, to);
    }
    near.reload(&configuration(0, "underlay", false, "")).unwrap();
    ELSEWHERE.iter().for_each(|to| polder_answers(to));
    [near, far].into_iter().for_each(Gateway::stop);
}

/// A route of the kernel by a TAP leads to Polder, which does not use it itself.
#[test]
fn the_machines_ways_to_the_router_are_none_of_the_routers() {
    if !root_or_skip("the_machines_ways_to_the_router_are_none_of_the_routers") {
        return;
    }
    let net = Net::new();
    for address in BEHIND {
        addresses(&net.left, "lo", &[&format!("{address}/{}", if address.contains(':') { 128 } else { 32 })]);
    }
    let [near, far] = gateways(&net, false);
    connect(&net.near);
    // The machine's first choice is Polder, Polder's the station that is second.
    route(&net.near, "add default via 10.84.1.2 metric 2000");
    route(&net.near, "add default via fd84:1::2 metric 2000");
    BEHIND.iter().for_each(|to| reaches(&net.right, to));
    for to in RIGHT {
        let bits = if to.contains(':') { 128 } else { 32 };
        let [ours, station] =
            if bits == 32 { ["10.86.1.1", "10.84.1.99"] } else { ["fd86:1::1", "fd84:1::99"] };
        route(&net.near, &format!("add {to}/{bits} via {ours}"));
        reaches(&net.near, to);
        for _ in 0..3 {
            reaches(&net.left, to);
        }
        route(&net.near, &format!("del {to}/{bits} via {ours}"));
        // The same by next hop objects, which may come to lead elsewhere.
        let object = |via: &str, link: &str| {
            net.near.ip(&["nexthop", "replace", "id", "86", "via", via, "dev", link]).unwrap();
        };
        object(ours, "host0");
        route(&net.near, &format!("add {to}/{bits} nhid 86"));
        reaches(&net.near, to);
        for _ in 0..3 {
            reaches(&net.left, to);
        }
        object(station, "eth0");
        until("the route leads elsewhere", || !ping(&net.left, to, &[]).contains(" 0% packet loss"));
        object(ours, "host0");
        reaches(&net.left, to);
        route(&net.near, &format!("del {to}/{bits}"));
        net.near.ip(&["nexthop", "del", "id", "86"]).unwrap();
    }
    [near, far].into_iter().for_each(Gateway::stop);
}
