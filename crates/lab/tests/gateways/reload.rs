//! Another configuration while packets run.

use crate::support::{Gateway, address, assert_reaches, assert_silent, root_or_skip, stream, wire};
use polder_testbed::topology::Topology;
use std::net::Ipv4Addr;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 2);
const THIRD: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 3);

const TWO: &str = r#"
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[bridge.lan]
members = ["eth0", "eth1"]
"#;

const THREE: &str = r#"
[port.eth0]
interface = "eth0"
[port.eth2]
interface = "eth2"
[port.eth1]
interface = "eth1"
[bridge.lan]
members = ["eth0", "eth1", "eth2"]
ageing_seconds = 60
"#;

#[test]
fn a_reload_adds_and_takes_away_and_nothing_else_notices() {
    if !root_or_skip("a_reload_adds_and_takes_away_and_nothing_else_notices") {
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
    let third = host("third", "eth2", THIRD);
    let polder = Gateway::start(&topology, &gateway, TWO);
    assert_reaches(&left, RIGHT);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| stream(&left, &right, RIGHT, 5_000.0, Duration::from_secs(3)));
        for _ in 0..3 {
            polder.reload(THREE).unwrap();
            assert_reaches(&third, LEFT);
            // What is wrong is refused as a whole, and nothing changes.
            let error = polder.reload(&THREE.replace("members", "memebrs")).unwrap_err();
            assert!(format!("{error:#}").contains("memebrs"), "{error:#}");
            let error = polder.reload(&THREE.replace("\"eth2\"\n[port.eth1]", "\"eth9\"\n[port.eth1]"));
            assert!(error.is_err());
            assert_reaches(&third, LEFT);
            polder.reload(TWO).unwrap();
        }
        assert_silent(&third, LEFT);
        let arrivals = load.join().unwrap();
        assert_eq!((arrivals.duplicated, arrivals.reordered), (0, 0), "{arrivals:?}");
        // Opening a port takes 30 ms at least, which nine times are a tenth of the stream; a machine with
        // other work may lose less than that.
        assert!(arrivals.loss_ratio() < 0.02, "{arrivals:?}");
    });
    polder.stop();
}
