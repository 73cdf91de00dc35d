//! `polder drain`: not ready at once, over when packets go elsewhere, and taken back when that is not to be.

use crate::machines::until;
use crate::support::{Gateway, address, assert_reaches, polder, root_or_skip, skip, stream, wire};
use polder_testbed::peers::frr::{Frr, writable};
use polder_testbed::topology::{Namespace, Topology};
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 86, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 86, 0, 2);

/// Two hosts on a bridge with the default mode, whose flows programs carry.
struct Bench {
    _topology: Topology,
    hosts: [Namespace; 2],
    gateway: Gateway,
    metrics: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let near = topology.namespace("gw").unwrap();
        let hosts = ["left", "right"].map(|name| topology.namespace(name).unwrap());
        for ((host, interface), ip) in hosts.iter().zip(["eth0", "eth1"]).zip([LEFT, RIGHT]) {
            wire(&topology, (&near, interface), (host, "eth0"), 1500);
            address(host, "eth0", ip, 24);
        }
        let metrics = topology.directory().join("metrics.sock");
        let text = format!(
            "[metrics]\nlisten = {metrics:?}\n[port.eth0]\ninterface = \"eth0\"\n[port.eth1]\ninterface = \"eth1\"\n\
             [bridge.lan]\nmembers = [\"eth0\", \"eth1\"]\n"
        );
        let gateway = Gateway::start(&topology, &near, &text);
        assert_reaches(&hosts[0], RIGHT);
        Self { _topology: topology, hosts, gateway, metrics }
    }

    fn drain(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(polder());
        command.arg("drain").args(arguments).arg("--socket").arg(self.gateway.socket());
        command
    }

    /// Answer of `/readyz`.
    fn ready(&self) -> String {
        ready(&self.metrics)
    }

    /// Waits for an answer with this code: the last one may be given for a second.
    fn until(&self, code: &str) {
        until(code, || self.ready().contains(code));
    }
}

fn ready(metrics: &Path) -> String {
    let mut stream = UnixStream::connect(metrics).unwrap();
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_drained_gateway_ends_when_packets_go_elsewhere() {
    if !root_or_skip("a_drained_gateway_ends_when_packets_go_elsewhere") {
        return;
    }
    let mut bench = Bench::new();
    assert!(bench.ready().contains(" 200 "), "{}", bench.ready());
    let [left, right] = &bench.hosts;
    let (drained, during) = std::thread::scope(|scope| {
        let sends = scope.spawn(|| stream(left, right, RIGHT, 500.0, Duration::from_secs(4)));
        std::thread::sleep(Duration::from_secs(1));
        // The hook is the neighbours' turn: then it is not ready.
        let during = bench.metrics.with_extension("during");
        let metrics = bench.metrics.display();
        let hook = format!(
            "sleep 1.5; python3 -c \"import socket;s=socket.socket(socket.AF_UNIX);s.connect('{metrics}');\
             s.send(b'GET /readyz HTTP/1.0\\r\\n\\r\\n');print(s.recv(9999).decode())\" > {}",
            during.display()
        );
        let drained = bench.drain(&["--hook", &hook]).output().unwrap();
        let arrivals = sends.join().unwrap();
        assert_eq!(arrivals.lost, 0, "{arrivals:?}");
        (drained, std::fs::read_to_string(during).unwrap())
    });
    let said = String::from_utf8_lossy(&drained.stdout);
    assert!(drained.status.success(), "{drained:?}");
    assert!(during.contains(" 503 ") && during.contains("being drained"), "{during}");
    // It has seen the stream, and its end.
    let rates =
        said.lines().filter_map(|line| line.strip_prefix("receiving ")?.strip_suffix(" packets per second"));
    let rates = rates.map(|rate| rate.replace(' ', "").parse::<u64>().unwrap()).collect::<Vec<_>>();
    assert!(rates.iter().any(|&rate| (300..700).contains(&rate)), "{said}");
    assert!(rates.iter().rev().take(2).all(|&rate| rate <= 10) && rates.len() >= 3, "{said}");
    assert!(said.ends_with(" has ended\n"), "{said}");
    assert_eq!(bench.gateway.wait_for_end(), Some(0));
}

#[test]
fn a_drain_is_taken_back_and_a_hook_that_fails_takes_it_back() {
    if !root_or_skip("a_drain_is_taken_back_and_a_hook_that_fails_takes_it_back") {
        return;
    }
    let bench = Bench::new();
    let failed = bench.drain(&["--hook", "exit 17"]).output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && said.contains("17") && said.contains("ready again"), "{said}");
    bench.until(" 200 ");
    let [left, right] = &bench.hosts;
    let kept = std::thread::scope(|scope| {
        scope.spawn(|| stream(left, right, RIGHT, 500.0, Duration::from_secs(4)));
        bench.drain(&["--keep", "--within", "2"]).output().unwrap()
    });
    let said = String::from_utf8_lossy(&kept.stderr);
    assert!(kept.status.success() && said.contains("packets still arrive after 2 s"), "{kept:?}");
    bench.until(" 503 ");
    assert_reaches(left, RIGHT);
    assert!(bench.drain(&["--undo"]).status().unwrap().success());
    bench.until(" 200 ");
    bench.gateway.stop();
}

/// The guide's hook has a BGP neighbour choose another way (RFC 8326), once the gateway is drained and not before.
#[test]
fn the_hook_of_the_guide_tells_a_bgp_neighbour() {
    let test = "the_hook_of_the_guide_tells_a_bgp_neighbour";
    if !root_or_skip(test) {
        return;
    }
    if let Err(reason) = Frr::available() {
        return skip(test, &reason.to_string());
    }
    let mut topology = Topology::new().unwrap();
    let [near, far] = ["gw", "peer"].map(|name| topology.namespace(name).unwrap());
    wire(&topology, (&near, "eth0"), (&far, "eth0"), 1500);
    address(&near, "eth0", LEFT, 24);
    address(&far, "eth0", RIGHT, 24);
    let gateway = Gateway::start(&topology, &near, "[port.eth0]\ninterface = \"eth0\"\nrole = \"router\"\n");
    let folders = [&near, &far].map(|namespace| writable(topology.directory(), namespace).unwrap());
    let bgp = |number: u16, to, more: &str| {
        let (own, other) = (65_000 + number, 65_003 - number);
        format!(
            "router bgp {own}\n bgp router-id 10.86.0.{number}\n no bgp ebgp-requires-policy\n \
             no bgp network import-check\n timers bgp 1 3\n neighbor {to} remote-as {other}\n \
             neighbor {to} timers connect 1\n{more}"
        )
    };
    let network = " address-family ipv4 unicast\n  network 10.86.9.0/24\n exit-address-family\n";
    let ours = Frr::bgp(&near, &folders[0], &bgp(1, RIGHT, network)).unwrap();
    let peer = Frr::bgp(&far, &folders[1], &bgp(2, LEFT, "")).unwrap();
    let known = || peer.ask("bgpd", &["show bgp ipv4 unicast 10.86.9.0/24 json"]).unwrap_or_default();
    until("the route is known", || known().contains("65001"));
    assert!(!known().contains("graceful"), "{}", known());

    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/change.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let (_, hook) = guide.split_once("polder drain --hook \"vtysh").unwrap();
    let (hook, _) = hook.split_once('"').unwrap();
    let hook = format!("vtysh --vty_socket {}{hook}", folders[0].display());
    let mut drain = Command::new(polder());
    drain.args(["drain", "--keep", "--within", "2", "--hook", &hook, "--socket"]).arg(gateway.socket());
    let drained = drain.output().unwrap();
    assert!(drained.status.success(), "{drained:?}");
    until("the neighbour is told", || known().contains("graceful"));
    peer.stop().unwrap();
    ours.stop().unwrap();
    gateway.stop();
}
