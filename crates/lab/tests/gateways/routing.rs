//! Sources of a router's routes: routes of the file, ports that only Polder has, other
//! configurations, many routes.

use crate::machines::{addresses, ping, reaches, route, until};
use crate::router::{Fork, Net, PORTS, TARGET, tcp};
use crate::support::{Gateway, root_or_skip, stream};
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use std::net::Ipv4Addr;
use std::time::Duration;

/// All flows arrive at that one of the two routers and none at the other.
fn all_at(fork: &Fork, place: usize) {
    let sockets = fork.sockets();
    until(&format!("all flows arrive at {place}"), || {
        let seen = fork.flows(&sockets);
        seen[place].len() == 32 && seen[1 - place].is_empty()
    });
}

/// Routes of the file come before the kernel's, and may be all there are.
#[test]
fn routes_of_the_file_come_first_or_are_alone() {
    if !root_or_skip("routes_of_the_file_come_first_or_are_alone") {
        return;
    }
    let fork = Fork::new();
    let polder = fork.start();
    let ports = format!("{PORTS}[port.south]\ninterface = \"south\"\nrole = \"router\"\n");
    let with = |text: &str| polder.reload(&format!("{text}{ports}")).unwrap();
    let to_first = "[[router.route]]\nto = \"10.99.0.0/24\"\nvia = \"10.83.2.2\"\n";
    route(&fork.net.gateway, "add 10.99.0.0/24 via 10.83.3.2");
    all_at(&fork, 1);
    with(to_first);
    all_at(&fork, 0);
    // The longer prefix counts, whoever has it.
    route(&fork.net.gateway, "add 10.99.0.1/32 via 10.83.3.2");
    all_at(&fork, 1);
    with(&format!("[router]\nroutes = \"static\"\n{to_first}"));
    all_at(&fork, 0);
    let without = || ping(&fork.net.left, TARGET, &[]).contains("Net Unreachable");
    with("[router]\nroutes = \"static\"\n");
    until("no route is left", without);
    with("");
    all_at(&fork, 1);
    polder.stop();
}

/// A TAP belongs to Polder alone, which answers there for its own addresses and asks for its neighbours.
#[test]
fn a_tap_is_a_network_of_the_router() {
    if !root_or_skip("a_tap_is_a_network_of_the_router") {
        return;
    }
    let net = Net::new(1500);
    let text = r#"
[router]
routes = "static"
[[router.route]]
to = "10.99.0.0/24"
via = "10.83.5.2"
[port.west]
interface = "west"
role = "router"
[port.host]
tap = "host0"
role = "router"
addresses = ["10.83.5.1/24", "fd83:5::1/64"]
"#;
    let polder = Gateway::start(&net.topology, &net.gateway, text);
    let host = &net.gateway;
    host.ip(&["link", "set", "host0", "up"]).unwrap();
    addresses(host, "host0", &["10.83.5.2/24", "fd83:5::2/64"]);
    addresses(host, "lo", &["10.99.0.1/32"]);
    // Its answers go through the TAP, although the machine has the other network too.
    for (family, from, via) in
        [("-4", "10.83.5.2", "10.83.5.1"), ("-4", "10.99.0.1", "10.83.5.1"), ("-6", "fd83:5::2", "fd83:5::1")]
    {
        host.ip(&[family, "rule", "add", "from", from, "lookup", "100"]).unwrap();
        host.ip(&[family, "route", "replace", "default", "via", via, "dev", "host0", "table", "100"])
            .unwrap();
    }
    for to in ["10.83.5.1", "fd83:5::1"] {
        reaches(host, to);
        reaches(&net.left, to);
    }
    for to in ["10.83.5.2", "fd83:5::2", "10.99.0.1"] {
        reaches(&net.left, to);
        // The machine leaves checksums and segmentation to its device, which is us.
        tcp(&net.left, host, to.parse().unwrap());
    }
    let said = ping(&net.left, "10.83.5.9", &["-W", "5"]);
    assert!(said.contains("From 10.83.1.1") && said.contains("Host Unreachable"), "{said}");
    polder.stop();
}

/// A port comes and goes with a reload while packets run between the others, and the kernel's addresses change.
#[test]
fn ports_of_a_router_come_and_go() {
    if !root_or_skip("ports_of_a_router_come_and_go") {
        return;
    }
    let fork = Fork::new();
    let (left, gateway, third) = (&fork.net.left, &fork.net.gateway, &fork.others[1]);
    let three = format!("{PORTS}[port.south]\ninterface = \"south\"\nrole = \"router\"\n");
    let polder = Gateway::start(&fork.net.topology, gateway, PORTS);
    reaches(left, "10.83.2.2");
    std::thread::scope(|scope| {
        let right = &fork.others[0];
        let load =
            scope.spawn(|| stream(left, right, Ipv4Addr::new(10, 83, 2, 2), 5_000.0, Duration::from_secs(4)));
        for _ in 0..3 {
            polder.reload(&three).unwrap();
            reaches(left, "10.83.3.2");
            polder.reload(PORTS).unwrap();
            // Its network is the kernel's again, which forwards nothing here.
            until("the port is gone", || !ping(left, "10.83.3.2", &[]).contains("ttl="));
        }
        let arrivals = load.join().unwrap();
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
        assert!(arrivals.loss_ratio() < 0.02, "{arrivals:?} {}", polder.show("drops"));
    });
    polder.reload(&three).unwrap();
    // Another network on a port, and the first one goes.
    addresses(gateway, "south", &["10.83.4.1/24", "fd83:4::1/64"]);
    addresses(third, "eth0", &["10.83.4.2/24", "fd83:4::2/64"]);
    route(third, "replace default via 10.83.4.1");
    route(third, "replace default via fd83:4::1");
    reaches(left, "10.83.4.2");
    reaches(left, "fd83:4::2");
    gateway.ip(&["address", "del", "10.83.3.1/24", "dev", "south"]).unwrap();
    until("the network is gone", || ping(left, "10.83.3.2", &[]).contains("Net Unreachable"));
    reaches(left, "10.83.4.2");
    // An address of the machine's own that becomes another's.
    addresses(gateway, "east", &["10.83.2.9/24"]);
    reaches(left, "10.83.2.9");
    gateway.ip(&["address", "del", "10.83.2.9/24", "dev", "east"]).unwrap();
    addresses(&fork.others[0], "eth0", &["10.83.2.9/24"]);
    let before = polder.all("ports", "transmitted").into_iter().sum::<u64>();
    reaches(left, "10.83.2.9");
    assert!(polder.all("ports", "transmitted").into_iter().sum::<u64>() > before, "Polder forwards it");
    polder.stop();
}

/// Many commands at once.
fn batch(namespace: &Namespace, topology: &Topology, lines: &str) {
    let file = topology.directory().join("routes");
    std::fs::write(&file, lines).unwrap();
    let mut ip = std::process::Command::new("ip");
    command::run(ip.args(["-n", namespace.name(), "-batch"]).arg(&file)).unwrap();
}

/// More routes at once than a socket holds notices of; packets run on meanwhile.
#[test]
fn many_routes_come_and_go_while_packets_run() {
    if !root_or_skip("many_routes_come_and_go_while_packets_run") {
        return;
    }
    const MANY: usize = 30_000;
    let fork = Fork::new();
    let polder = fork.start();
    let gateway = &fork.net.gateway;
    reaches(&fork.net.left, "10.83.2.2");
    let lines = |verb: &str| {
        let line = |number: usize| {
            format!(
                "route {verb} 11.{}.{}.{}/32 via 10.83.2.2\n",
                number >> 16,
                (number >> 8) & 255,
                number & 255
            )
        };
        (0..MANY).map(line).collect::<String>()
    };
    let routes = || polder.all("routes", "ipv4")[0];
    let before = routes();
    std::thread::scope(|scope| {
        let right = &fork.others[0];
        let load = scope.spawn(|| {
            stream(&fork.net.left, right, Ipv4Addr::new(10, 83, 2, 2), 5_000.0, Duration::from_secs(3))
        });
        batch(gateway, &fork.net.topology, &lines("add"));
        route(gateway, "add 10.99.0.1/32 via 10.83.3.2");
        until("all are known", || routes() == before + MANY as u64 + 1);
        batch(gateway, &fork.net.topology, &lines("del"));
        until("all are gone", || routes() == before + 1);
        let arrivals = load.join().unwrap();
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
        assert!(arrivals.loss_ratio() < 0.02, "{arrivals:?}");
    });
    all_at(&fork, 1);
    polder.stop();
}
