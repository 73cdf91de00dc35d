//! FRR and BIRD as Debian packs them, unmodified: they route by the kernel's tables and Polder forwards.

use crate::machines::{addresses, machine, reaches, route, until};
use crate::router::Fork;
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_lab::restart::{Restart, restart};
use polder_testbed::command::{Running, exists};
use polder_testbed::peers::frr::{Frr, inside, writable};
use polder_testbed::topology::{Namespace, Topology};
use std::fs;
use std::path::Path;

/// Daemons of a machine; they end with this.
#[expect(dead_code, reason = "they are to live as long")]
enum Daemons {
    Frr(Frr),
    Bird(Running),
}

/// A machine with a gateway and a routing daemon.
struct Router {
    namespace: Namespace,
    polder: Gateway,
    _daemons: Daemons,
}

/// Interfaces of a router, with their IPv4 address and length; [`six`] gives the IPv6 one.
type Ports<'a> = &'a [(&'a str, &'a str)];

/// The same numbers in IPv6: `10.85.12.1/24` becomes `fd85:12::1/64`, and `10.85.0.1/32` `fd85:0::1/128`.
fn six(four: &str) -> String {
    let (address, bits) = four.split_once('/').unwrap();
    let [_, site, net, host] = address.split('.').collect::<Vec<_>>().try_into().unwrap();
    format!("fd{site}:{net}::{host}/{}", if bits == "32" { 128 } else { 64 })
}

/// Starts Polder where interfaces have their addresses already.
fn gateway(topology: &Topology, namespace: &Namespace, ports: Ports<'_>) -> Gateway {
    let port =
        |(name, _): &(&str, &str)| format!("[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\n");
    Gateway::start(topology, namespace, &ports.iter().map(port).collect::<String>())
}

/// BIRD with OSPF of both families on all interfaces but the loopback, which is a stub.
fn bird(topology: &Topology, namespace: &Namespace, id: &str, ports: Ports<'_>) -> Running {
    let directory = writable(topology.directory(), namespace).unwrap();
    let interfaces = ports.iter().map(|(name, _)| {
        format!("interface \"{name}\" {{ hello 1; dead 4; wait 2; type ptp; check link yes; }};\n")
    });
    let interfaces = interfaces.collect::<String>();
    // OSPFv3 has no stub without a link-local address, so a loopback's address is given to it from outside.
    let family = |of: &str, version: &str| {
        format!(
            "protocol direct {{ {of}; }}\n\
             protocol kernel {{ merge paths on; scan time 2; {of} {{ export all; }}; }}\n\
             protocol ospf {version} {{ ecmp on; tick 1; {of} {{ import all; export where source = RTS_DEVICE; }};\n\
             area 0 {{ {interfaces} interface \"lo\" {{ stub; }}; }}; }}\n"
        )
    };
    let text = format!(
        "log stderr all;\nrouter id {id};\nprotocol device {{ scan time 1; }}\n{}{}",
        family("ipv4", "v2"),
        family("ipv6", "v3")
    );
    let file = directory.join("bird.conf");
    fs::write(&file, text).unwrap();
    let mut command = inside(namespace, Path::new("bird"));
    command.arg("-f").arg("-c").arg(&file).arg("-s").arg(directory.join("bird.ctl"));
    Running::start("bird", &mut command).unwrap()
}

fn frr(topology: &Topology, namespace: &Namespace, id: &str, ports: Ports<'_>) -> Daemons {
    let directory = writable(topology.directory(), namespace).unwrap();
    let interfaces = ports.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    Daemons::Frr(Frr::ospf(namespace, &directory, id, &interfaces).unwrap())
}

/// Gives an interface the address and the same one in IPv6.
fn both(namespace: &Namespace, interface: &str, four: &str) {
    addresses(namespace, interface, &[four, &six(four)]);
}

/// Three machines in a ring; each has an address on its loopback that only OSPF makes known.
///
/// ```text
///  one ──ab── two
///    └─ac─ three ─bc─┘
/// ```
fn ring(
    topology: &mut Topology,
    daemon: impl Fn(&Topology, &Namespace, &str, Ports<'_>) -> Daemons,
) -> Vec<Router> {
    let [one, two, three] = ["one", "two", "three"].map(|role| machine(topology, role));
    wire(topology, (&one, "ab"), (&two, "ab"), 1500);
    wire(topology, (&one, "ac"), (&three, "ac"), 1500);
    wire(topology, (&two, "bc"), (&three, "bc"), 1500);
    let all: [(Namespace, &str, Ports<'_>); 3] = [
        (one, "10.85.0.1", &[("ab", "10.85.12.1/24"), ("ac", "10.85.13.1/24")]),
        (two, "10.85.0.2", &[("ab", "10.85.12.2/24"), ("bc", "10.85.23.2/24")]),
        (three, "10.85.0.3", &[("ac", "10.85.13.3/24"), ("bc", "10.85.23.3/24")]),
    ];
    let router = |(namespace, id, ports): (Namespace, &str, Ports<'_>)| {
        both(&namespace, "lo", &format!("{id}/32"));
        ports.iter().for_each(|(name, address)| both(&namespace, name, address));
        let polder = gateway(topology, &namespace, ports);
        let daemons = daemon(topology, &namespace, id, ports);
        Router { namespace, polder, _daemons: daemons }
    };
    all.map(router).into()
}

/// OSPF brings all in touch; a link fails, and the traffic goes the other way round, through Polder.
fn a_ring_heals(routers: Vec<Router>) {
    let one = &routers[0].namespace;
    let two = ["10.85.0.2", "fd85:0::2"];
    two.iter().chain(&["10.85.0.3", "fd85:0::3"]).for_each(|to| reaches(one, to));
    let forwarded = || routers[2].polder.all("ports", "transmitted").into_iter().sum::<u64>();
    one.ip(&["link", "set", "ab", "down"]).unwrap();
    for to in two {
        let before = forwarded();
        until("the third forwards", || {
            reaches(one, to);
            forwarded() > before
        });
    }
    routers.into_iter().for_each(|router| router.polder.stop());
}

/// Two gateways lead to one address, and a daemon says so; one of them is gone from one moment to the next,
/// while the wire to it stays up. Its flows move, and when it is back it gets its share.
fn a_gateway_dies(daemon: impl Fn(&Topology, &Namespace, &str, Ports<'_>) -> Daemons) {
    let fork = Fork::new();
    let (topology, gateway, sockets) = (&fork.net.topology, &fork.net.gateway, fork.sockets());
    let polder = fork.start();
    let ports: Ports<'_> = &[("west", ""), ("east", ""), ("south", "")];
    let _here = daemon(topology, gateway, "10.83.0.1", ports);
    let ids = ["10.83.0.2", "10.83.0.3"];
    let there = |which: usize| daemon(topology, &fork.others[which], ids[which], &[("eth0", "")]);
    let (_first, second) = (there(0), there(1));
    let both = || {
        until("both gateways have flows", || {
            let seen = fork.flows(&sockets);
            seen[0].len() + seen[1].len() == 32 && seen.iter().all(|ports| ports.len() >= 4)
        });
    };
    both();
    drop(second);
    fork.others[1].ip(&["link", "set", "eth0", "down"]).unwrap();
    until("all flows are at the other gateway", || fork.flows(&sockets)[0].len() == 32);
    fork.others[1].ip(&["link", "set", "eth0", "up"]).unwrap();
    route(&fork.others[1], "replace default via 10.83.3.1");
    let _second = there(1);
    both();
    polder.stop();
}

/// True if root is there, and a program that can be installed.
fn runs(test: &str, is_there: bool, what: &str) -> bool {
    if !is_there {
        skip(test, what);
    }
    is_there && root_or_skip(test)
}

fn frr_runs(test: &str) -> bool {
    runs(test, Frr::available().is_ok(), "FRR is not installed: `apt-get install frr`")
}

fn bird_runs(test: &str) -> bool {
    runs(test, exists("bird"), "BIRD is not installed: `apt-get install bird2`")
}

fn one_bird(topology: &Topology, namespace: &Namespace, id: &str, ports: Ports<'_>) -> Daemons {
    Daemons::Bird(bird(topology, namespace, id, ports))
}

#[test]
fn frr_keeps_three_gateways_in_touch() {
    if frr_runs("frr_keeps_three_gateways_in_touch") {
        a_ring_heals(ring(&mut Topology::new().unwrap(), frr));
    }
}

#[test]
fn bird_keeps_three_gateways_in_touch() {
    if bird_runs("bird_keeps_three_gateways_in_touch") {
        a_ring_heals(ring(&mut Topology::new().unwrap(), one_bird));
    }
}

#[test]
fn frr_moves_the_flows_of_a_gateway_that_dies() {
    if frr_runs("frr_moves_the_flows_of_a_gateway_that_dies") {
        a_gateway_dies(frr);
    }
}

#[test]
fn bird_moves_the_flows_of_a_gateway_that_dies() {
    if bird_runs("bird_moves_the_flows_of_a_gateway_that_dies") {
        a_gateway_dies(one_bird);
    }
}

#[test]
fn routes_are_held_while_frr_restarts() {
    if frr_runs("routes_are_held_while_frr_restarts") {
        let Restart { sent, lost, held } = restart("30").unwrap();
        assert!(sent > 1000 && held > 0, "{held} of {sent}");
        assert_eq!(lost, 0, "of {sent}");
    }
}
