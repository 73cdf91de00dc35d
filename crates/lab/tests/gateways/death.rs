//! Gateways that die, interfaces that go, and the effects for other machines.

use crate::support::{Gateway, address, assert_reaches, assert_silent, root_or_skip, soon, stream, wire};
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::wait_for_ping;
use std::net::Ipv4Addr;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 1);
pub(crate) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 2);
/// The gateway's own kernel, on its left interface.
pub(crate) const KERNEL: Ipv4Addr = Ipv4Addr::new(10, 70, 0, 9);

/// The default, which is `skb` for a veth, and AF_XDP.
const MODES: [&str; 2] = ["auto", "native"];

/// left – gateway – right.
pub(crate) struct Net {
    pub(crate) left: Namespace,
    pub(crate) gateway: Namespace,
    pub(crate) right: Namespace,
    pub(crate) topology: Topology,
}

impl Net {
    pub(crate) fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let (left, gateway, right) = (
            topology.namespace("left").unwrap(),
            topology.namespace("gw").unwrap(),
            topology.namespace("right").unwrap(),
        );
        wire(&topology, (&gateway, "eth0"), (&left, "eth0"), 1500);
        wire(&topology, (&gateway, "eth1"), (&right, "eth0"), 1500);
        address(&left, "eth0", LEFT, 24);
        address(&right, "eth0", RIGHT, 24);
        address(&gateway, "eth0", KERNEL, 24);
        Self { left, gateway, right, topology }
    }

    pub(crate) fn start(&self, on_exit: &str) -> Gateway {
        self.start_in("auto", on_exit)
    }

    fn start_in(&self, mode: &str, on_exit: &str) -> Gateway {
        Gateway::start(&self.topology, &self.gateway, &Self::text_in(mode, on_exit))
    }

    pub(crate) fn text(on_exit: &str) -> String {
        Self::text_in("auto", on_exit)
    }

    fn text_in(mode: &str, on_exit: &str) -> String {
        format!(
            r#"
[port.eth0]
interface = "eth0"
mode = "{mode}"
on_exit = "{on_exit}"
[port.eth1]
interface = "eth1"
mode = "{mode}"
on_exit = "{on_exit}"
[bridge.lan]
members = ["eth0", "eth1"]
"#
        )
    }

    /// Runs `work` while packets run from left to right.
    fn under_load<T>(&self, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let load =
                scope.spawn(|| stream(&self.left, &self.right, RIGHT, 10_000.0, Duration::from_millis(1500)));
            std::thread::sleep(Duration::from_millis(300));
            let result = work();
            let arrivals = load.join().unwrap();
            assert!(arrivals.received > 1000, "the load went through before: {arrivals:?}");
            result
        })
    }
}

#[test]
fn killed_under_load_the_kernel_has_its_interface_back() {
    if !root_or_skip("killed_under_load_the_kernel_has_its_interface_back") {
        return;
    }
    for mode in MODES {
        let net = Net::new();
        let gateway = net.start_in(mode, "kernel");
        assert_reaches(&net.left, RIGHT);
        assert_silent(&net.left, KERNEL);
        net.under_load(|| {
            gateway.kill();
            assert_reaches(&net.left, KERNEL);
        });
        // And the next start takes it again.
        let gateway = net.start_in(mode, "kernel");
        assert_reaches(&net.left, RIGHT);
        gateway.stop();
        assert_reaches(&net.left, KERNEL);
    }
}

#[test]
fn killed_under_load_a_closed_port_stays_closed() {
    if !root_or_skip("killed_under_load_a_closed_port_stays_closed") {
        return;
    }
    for mode in MODES {
        let net = Net::new();
        let mut gateway = net.start_in(mode, "drop");
        let program = gateway.program();
        assert_reaches(&net.left, RIGHT);
        net.under_load(|| {
            gateway.kill();
            assert_silent(&net.left, KERNEL);
            assert_silent(&net.left, RIGHT);
        });
        // The next start takes over what the dead process left.
        let gateway = net.start_in(mode, "drop");
        assert_reaches(&net.left, RIGHT);
        gateway.stop();
        assert_silent(&net.left, KERNEL);
        Gateway::other(&program, &["release", "eth0"]);
        Gateway::other(&program, &["release", "eth1"]);
        assert_reaches(&net.left, KERNEL);
    }
}

#[test]
fn restarted_under_load_it_forwards_again() {
    if !root_or_skip("restarted_under_load_it_forwards_again") {
        return;
    }
    for mode in MODES {
        let net = Net::new();
        let gateway = net.start_in(mode, "kernel");
        assert_reaches(&net.left, RIGHT);
        let gateway = net.under_load(|| {
            gateway.stop();
            net.start_in(mode, "kernel")
        });
        assert_reaches(&net.left, RIGHT);
        assert!(gateway.term("transmitted") > 0);
        gateway.stop();
    }
}

#[test]
fn an_interface_goes_and_comes_back_while_the_others_go_on() {
    if !root_or_skip("an_interface_goes_and_comes_back_while_the_others_go_on") {
        return;
    }
    let mut net = Net::new();
    let third = net.topology.namespace("third").unwrap();
    let there = Ipv4Addr::new(10, 70, 0, 3);
    let plug = |net: &Net| {
        wire(&net.topology, (&net.gateway, "eth2"), (&third, "eth0"), 1500);
        // The same station again: its neighbours need not ask anew.
        third.ip(&["link", "set", "eth0", "address", "02:00:00:00:00:03"]).unwrap();
        address(&third, "eth0", there, 24);
    };
    plug(&net);
    let text = r#"
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[port.eth2]
interface = "eth2"
[bridge.lan]
members = ["eth0", "eth1", "eth2"]
"#;
    let mut gateway = Gateway::start(&net.topology, &net.gateway, text);
    for round in 0..3 {
        assert_reaches(&net.left, there);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| stream(&net.left, &third, there, 10_000.0, Duration::from_millis(600)));
            std::thread::sleep(Duration::from_millis(200));
            third.ip(&["link", "del", "eth0"]).unwrap();
            // The stream ends with an error of the sockets or with losses, as it likes.
            let _ = load.join();
        });
        let arrivals = stream(&net.left, &net.right, RIGHT, 5_000.0, Duration::from_millis(300));
        assert!(arrivals.loss_ratio() < 0.05, "round {round}: {arrivals:?} {}", gateway.show("drops"));
        gateway.wait_until_said("eth2");
        plug(&net);
    }
    assert!(wait_for_ping(&net.left, there, soon()).unwrap(), "{}", gateway.said());
    let third = gateway.show("ports")["ports"][2].clone();
    assert_eq!((&third["mode"], &third["openings"]), (&"skb, TCX and a TAP".into(), &4.into()), "{third:#}");
    gateway.stop();
}
