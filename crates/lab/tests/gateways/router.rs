//! A gateway that routes by the kernel's tables, between network stacks.

use crate::machines::{PATIENCE, addresses, machine, ping, reaches, route, until};
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_testbed::command::exists;
use polder_testbed::topology::{Namespace, Topology};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Sends a megabyte by TCP and compares the echo.
pub(crate) fn tcp(left: &Namespace, right: &Namespace, to: IpAddr) {
    let listener = right.inside(|| TcpListener::bind(SocketAddr::new(to, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        left.inside(|| {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let sent = (0..1_u32 << 18).flat_map(u32::to_be_bytes).collect::<Vec<_>>();
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == sent, "{} bytes came back of {}", back.len(), sent.len());
        })
        .unwrap();
    });
}

/// left – gateway – right, with addresses of both families.
pub(crate) struct Net {
    pub(crate) left: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) right: Namespace,
    pub(crate) topology: Topology,
}

pub(crate) const PORTS: &str = r#"
[port.west]
interface = "west"
role = "router"
[port.east]
interface = "east"
role = "router"
"#;

impl Net {
    pub(crate) fn new(east_mtu: u32) -> Self {
        let mut topology = Topology::new().unwrap();
        let left = machine(&mut topology, "left");
        let gateway = machine(&mut topology, "gw");
        let right = machine(&mut topology, "right");
        wire(&topology, (&gateway, "west"), (&left, "eth0"), 1500);
        wire(&topology, (&gateway, "east"), (&right, "eth0"), east_mtu);
        addresses(&gateway, "west", &["10.83.1.1/24", "fd83:1::1/64"]);
        addresses(&gateway, "east", &["10.83.2.1/24", "fd83:2::1/64"]);
        addresses(&left, "eth0", &["10.83.1.2/24", "fd83:1::2/64"]);
        addresses(&right, "eth0", &["10.83.2.2/24", "fd83:2::2/64"]);
        route(&left, "add default via 10.83.1.1");
        route(&left, "add default via fd83:1::1");
        route(&right, "add default via 10.83.2.1");
        route(&right, "add default via fd83:2::1");
        Self { left, gateway, right, topology }
    }
}

#[test]
fn two_networks_reach_each_other_in_both_families() {
    if !root_or_skip("two_networks_reach_each_other_in_both_families") {
        return;
    }
    let net = Net::new(1500);
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    for to in ["10.83.2.2", "fd83:2::2"] {
        reaches(&net.left, to);
        tcp(&net.left, &net.right, to.parse().unwrap());
    }
    // The gateway's own addresses are the kernel's.
    for to in ["10.83.1.1", "10.83.2.1", "fd83:1::1", "fd83:2::1"] {
        reaches(&net.left, to);
    }
    polder.stop();
}

/// `tracepath` finds the gateway and the narrow link behind it.
fn the_path_is_found(left: &Namespace) {
    if !exists("tracepath") {
        return skip("the_path_is_found", "tracepath is not installed: `apt-get install iputils-tracepath`");
    }
    for (to, first) in [("10.83.2.2", "10.83.1.1"), ("fd83:2::2", "fd83:1::1")] {
        until(&format!("tracepath finds {first} and 1400 bytes"), || {
            let said = left.command("tracepath").args(["-n", "-m", "3", to]).output().unwrap().stdout;
            let said = String::from_utf8_lossy(&said);
            [first, "pmtu 1400", "reached"].iter().all(|word| said.contains(word))
        });
    }
}

#[test]
fn senders_hear_why_packets_do_not_arrive() {
    if !root_or_skip("senders_hear_why_packets_do_not_arrive") {
        return;
    }
    let net = Net::new(1400);
    route(&net.gateway, "add unreachable 10.83.9.0/24");
    route(&net.gateway, "add prohibit 10.83.8.0/24");
    route(&net.gateway, "add blackhole 10.83.7.0/24");
    let polder = Gateway::start(&net.topology, &net.gateway, PORTS);
    for to in ["10.83.2.2", "fd83:2::2"] {
        reaches(&net.left, to);
    }
    // Errors are limited in rate, so each is waited for.
    let hears = |to: &str, options: &[&str], words: &[&str]| {
        until(&format!("{words:?} from {to}"), || {
            let said = ping(&net.left, to, options);
            words.iter().all(|word| said.contains(word))
        });
    };
    hears("10.83.2.2", &["-t", "1"], &["From 10.83.1.1", "Time to live exceeded"]);
    hears("fd83:2::2", &["-t", "1"], &["fd83:1::1", "Time exceeded"]);
    hears("10.83.2.2", &["-M", "do", "-s", "1450"], &["mtu", "1400"]);
    hears("fd83:2::2", &["-M", "do", "-s", "1450"], &["mtu", "1400"]);
    the_path_is_found(&net.left);
    // The MTU of the interface is followed while the port is open.
    net.gateway.ip(&["link", "set", "dev", "east", "mtu", "1340"]).unwrap();
    hears("10.83.2.2", &["-M", "do", "-s", "1350"], &["mtu", "1340"]);
    hears("fd83:2::2", &["-M", "do", "-s", "1350"], &["mtu", "1340"]);
    hears("10.83.9.1", &[], &["Host Unreachable"]);
    hears("10.83.8.1", &[], &["filtered"]);
    hears("192.0.2.1", &[], &["Net Unreachable"]);
    let before = polder.drops("blackhole");
    ping(&net.left, "10.83.7.1", &[]);
    until("the black hole counts", || polder.drops("blackhole") > before);
    polder.stop();
}

/// left – gateway – two routers that both have the address 10.99.0.1. A switch is between the gateway and the
/// second one, so that the gateway's interface does not see it go.
pub(crate) struct Fork {
    pub(crate) net: Net,
    pub(crate) others: [Namespace; 2],
    listeners: [UdpSocket; 2],
}

pub(crate) const TARGET: &str = "10.99.0.1";

impl Fork {
    pub(crate) fn new() -> Self {
        let mut net = Net::new(1500);
        let third = machine(&mut net.topology, "third");
        let switch = machine(&mut net.topology, "switch");
        switch.ip(&["link", "add", "br0", "up", "type", "bridge", "mcast_snooping", "0"]).unwrap();
        wire(&net.topology, (&net.gateway, "south"), (&switch, "up0"), 1500);
        wire(&net.topology, (&third, "eth0"), (&switch, "down0"), 1500);
        for member in ["up0", "down0"] {
            switch.ip(&["link", "set", member, "master", "br0"]).unwrap();
        }
        addresses(&net.gateway, "south", &["10.83.3.1/24"]);
        addresses(&third, "eth0", &["10.83.3.2/24"]);
        route(&third, "add default via 10.83.3.1");
        let others = [net.right.clone(), third];
        let listen = |namespace: &Namespace| {
            addresses(namespace, "lo", &["10.99.0.1/32"]);
            let socket = namespace.inside(|| UdpSocket::bind((TARGET, 7099))).unwrap().unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let listeners = [listen(&others[0]), listen(&others[1])];
        Self { net, others, listeners }
    }

    pub(crate) fn start(&self) -> Gateway {
        let text = format!("{PORTS}[port.south]\ninterface = \"south\"\nrole = \"router\"\n");
        Gateway::start(&self.net.topology, &self.net.gateway, &text)
    }

    /// Sends a packet of each of 32 flows; who has received of which.
    pub(crate) fn flows(&self, sockets: &[UdpSocket]) -> [Vec<u16>; 2] {
        for socket in sockets {
            // A route that is not there yet is news to be waited for.
            let _: std::io::Result<usize> = socket.send_to(b"which way", (TARGET, 7099));
        }
        std::thread::sleep(Duration::from_millis(100));
        self.listeners.each_ref().map(|listener| {
            let mut buffer = [0; 64];
            let mut ports = Vec::new();
            while let Ok((_, from)) = listener.recv_from(&mut buffer) {
                ports.push(from.port());
            }
            ports.sort_unstable();
            ports.dedup();
            ports
        })
    }

    pub(crate) fn sockets(&self) -> Vec<UdpSocket> {
        self.net.left.inside(|| (0..32).map(|_| UdpSocket::bind("10.83.1.2:0").unwrap()).collect()).unwrap()
    }
}

#[test]
fn a_route_that_changes_takes_the_traffic_along() {
    if !root_or_skip("a_route_that_changes_takes_the_traffic_along") {
        return;
    }
    let fork = Fork::new();
    let polder = fork.start();
    let (gateway, sockets) = (&fork.net.gateway, fork.sockets());
    let all_at = |place: usize| {
        until(&format!("all flows arrive at {place}"), || {
            let seen = fork.flows(&sockets);
            seen[place].len() == 32 && seen[1 - place].is_empty()
        });
    };
    route(gateway, "add 10.99.0.1/32 via 10.83.2.2");
    all_at(0);
    route(gateway, "replace 10.99.0.1/32 via 10.83.3.2");
    all_at(1);
    // A lower metric wins, and when it goes the other counts again.
    route(gateway, "add 10.99.0.0/24 via 10.83.2.2 metric 50");
    route(gateway, "add 10.99.0.0/24 via 10.83.3.2 metric 60");
    route(gateway, "del 10.99.0.1/32");
    all_at(0);
    route(gateway, "del 10.99.0.0/24 metric 50");
    all_at(1);
    // A next hop object, and another one in its place.
    gateway.ip(&["nexthop", "add", "id", "7", "via", "10.83.2.2", "dev", "east"]).unwrap();
    route(gateway, "add 10.99.0.1/32 nhid 7");
    all_at(0);
    gateway.ip(&["nexthop", "replace", "id", "7", "via", "10.83.3.2", "dev", "south"]).unwrap();
    all_at(1);
    polder.stop();
}

#[test]
fn flows_are_shared_and_those_of_a_dead_gateway_move() {
    if !root_or_skip("flows_are_shared_and_those_of_a_dead_gateway_move") {
        return;
    }
    let fork = Fork::new();
    let polder = fork.start();
    let (gateway, sockets) = (&fork.net.gateway, fork.sockets());
    route(gateway, "add 10.99.0.1/32 nexthop via 10.83.2.2 dev east nexthop via 10.83.3.2 dev south");
    let mut before = [Vec::new(), Vec::new()];
    until("both gateways have flows", || {
        before = fork.flows(&sockets);
        before[0].len() + before[1].len() == 32 && before.iter().all(|ports| ports.len() >= 4)
    });
    // Its end of the wire goes down: so does the carrier at the gateway's.
    fork.others[0].ip(&["link", "set", "eth0", "down"]).unwrap();
    until("all flows are at the other gateway", || fork.flows(&sockets)[1].len() == 32);
    fork.others[0].ip(&["link", "set", "eth0", "up"]).unwrap();
    route(&fork.others[0], "replace default via 10.83.2.1");
    let mut after = [Vec::new(), Vec::new()];
    until("every flow is where it was", || {
        after = fork.flows(&sockets);
        after[0].len() + after[1].len() == 32 && before == after
    });
    polder.stop();
}
