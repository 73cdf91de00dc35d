//! Workers come and go while packets run.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, stream, wire};
use polder_lab::topology::Topology;
use std::net::Ipv4Addr;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 2);

fn with_workers(workers: usize) -> String {
    format!(
        "workers = {workers}\n[port.eth0]\ninterface = \"eth0\"\norder = \"spread\"\n\
         [port.eth1]\ninterface = \"eth1\"\n[bridge.lan]\nmembers = [\"eth0\", \"eth1\"]\n"
    )
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
        // Whoever else uses the machine may keep a socket from being read; the gateway's books tell.
        assert!(arrivals.loss_ratio() < 0.02, "{arrivals:?}");
    });
    polder.stop();
}
