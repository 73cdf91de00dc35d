//! Workers come and go while packets run.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, soon, stream, wire};
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::{clock, command};
use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 2);

fn with_workers(workers: usize) -> String {
    format!(
        "workers = {workers}\n[port.eth0]\ninterface = \"eth0\"\nmode = \"native\"\norder = \"spread\"\n\
         [port.eth1]\ninterface = \"eth1\"\nmode = \"native\"\n[bridge.lan]\nmembers = [\"eth0\", \"eth1\"]\n"
    )
}

/// Packet counts between two hosts, hop by hop.
struct Books<'a> {
    left: &'a Namespace,
    gateway: &'a Namespace,
    right: &'a Namespace,
    polder: &'a Gateway,
}

impl Books<'_> {
    /// Packets that were lost, by all books together.
    fn lost(&self) -> u64 {
        let wires = [(self.left, "eth0"), (self.gateway, "eth1")].map(|(space, interface)| {
            let file = format!("/sys/class/net/{interface}/statistics/tx_dropped");
            let dropped = command::run(space.command("cat").arg(file)).unwrap();
            dropped.trim().parse::<u64>().unwrap()
        });
        let device = command::run(self.gateway.command("ethtool").args(["-S", "eth0"])).unwrap();
        // Those that a socket had no frame for: the kernel's own drops are in the same place.
        let is_drop = |name: &str| name.ends_with("_drops") && name.starts_with("rx_queue");
        let lines = device.lines().filter_map(|line| line.trim().split_once(": "));
        let input = lines.filter(|(name, _)| is_drop(name)).map(|(_, value)| value.parse::<u64>().unwrap());
        let inside = u64::try_from(self.polder.term("dropped")).unwrap();
        // A packet that comes when nobody reads any more has no port.
        let snmp = command::run(self.right.command("cat").arg("/proc/net/snmp")).unwrap();
        let udp = snmp.lines().filter(|line| line.starts_with("Udp:")).nth(1).unwrap();
        let udp = udp.split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect::<Vec<u64>>();
        wires.into_iter().sum::<u64>() + input.sum::<u64>() + inside + udp[1] + udp[2] + backlog()
    }
}

/// Packets that processors had no room for, in all namespaces.
fn backlog() -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let dropped = text.lines().filter_map(|line| line.split_whitespace().nth(1));
    dropped.map(|number| u64::from_str_radix(number, 16).unwrap()).sum()
}

#[test]
fn workers_come_and_go_under_load() {
    if !root_or_skip("workers_come_and_go_under_load") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let gateway = topology.namespace("gw").unwrap();
    let mut host = |role: &str, interface: &str, ip| {
        let host = topology.namespace(role).unwrap();
        wire(&topology, (&gateway, interface), (&host, "eth0"), 1500);
        address(&host, "eth0", ip, 24);
        host
    };
    let (left, right) = (host("left", "eth0", LEFT), host("right", "eth1", RIGHT));
    let polder = Gateway::start(&topology, &gateway, &with_workers(1));
    assert_reaches(&left, RIGHT);
    let books = Books { left: &left, gateway: &gateway, right: &right, polder: &polder };
    let first = books.lost();
    std::thread::scope(|scope| {
        let load = scope.spawn(|| stream(&left, &right, RIGHT, 5_000.0, Duration::from_secs(3)));
        let mut before = 0;
        for workers in [2, 3, 1, 2, 1, 3, 2, 1] {
            let told = polder.reload(&with_workers(workers)).unwrap();
            assert!(told.contains("workers"), "{told}");
            assert_eq!(polder.all("workers", "number").len(), workers);
            assert_reaches(&left, RIGHT);
            // What workers that are gone have done stays in the sums.
            let received = polder.term("received");
            assert!(received > before, "{received} after {before}");
            before = received;
        }
        let arrivals = load.join().unwrap();
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
        // Whoever else uses the machine may keep anybody from reading; but no packet goes without a word.
        let end = clock::now() + soon();
        while arrivals.lost > books.lost() - first && clock::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let told = books.lost() - first;
        assert!(arrivals.lost <= told, "{} lost, {told} in the books: {arrivals:?}", arrivals.lost);
    });
    polder.stop();
}
