//! State of an interface after the process has ended, and its recovery.

use super::offloads::is_on;
use super::{Namespace, all_home, drain, endpoints, memory, neighbours, options, receive, start};
use crate::common::{self, RawPeer};
use polder_buffers::RegionOptions;
use polder_datapath::port::Turn;
use polder_devices::af_xdp::{self, Mode, OnExit, Options, open};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Variable with the child process' arguments: the interface, `kernel` or `drop`, and `whole` or
/// `tunnels`.
const ORDER: &str = "POLDER_TEST_HOLD";

/// A process of its own that holds a port until it is killed. Without an order this is no test.
#[test]
fn child_that_holds_a_port() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let [interface, on_exit, take] = order.split(' ').collect::<Vec<_>>()[..] else { panic!("three words") };
    let on_exit = if on_exit == "drop" { OnExit::Drop } else { OnExit::Kernel };
    let (region, mut pool) = memory();
    let options = match take {
        "whole" => options(interface, Mode::Auto),
        _ => Options::tunnels(interface, [endpoints::endpoint(endpoints::OURS, endpoints::THEIRS)]),
    };
    let mut port = open(&Options { on_exit, ..options }, &region).expect("root opens a veth");
    start(&mut port, &mut pool);
    println!("\nholding");
    loop {
        let mut batch = receive(&mut port, 0, &mut pool);
        port.queues[0].tx.transmit(&mut batch, &mut pool);
        pool.release(&mut batch);
        let _ = port.queues[0].tx.reclaim(&mut pool);
    }
}

/// Starts the child and waits until it holds the port.
fn hold(interface: &str, on_exit: &str, take: &str) -> Child {
    let program = std::env::current_exe().expect("a test has a program");
    let mut child = Command::new(program)
        .args(["--exact", "af_xdp::exits::child_that_holds_a_port", "--nocapture"])
        .env(ORDER, format!("{interface} {on_exit} {take}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a test can be started again");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "holding")), "the child has not opened its port");
    child
}

/// Sends to the port as fast as one process does.
fn load(other: &Namespace) -> Child {
    let arguments = ["netns", "exec", &other.0, "ping", "-f", "-q", "10.8.0.1"];
    Command::new("ip").args(arguments).stdout(Stdio::null()).spawn().expect("ip is there")
}

fn end(mut child: Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

#[test]
fn a_killed_gateway_leaves_the_interface_to_the_kernel() {
    const NAME: &str = "af_xdp::a_killed_gateway_leaves_the_interface_to_the_kernel";
    if !common::is_root(NAME) || !common::has(NAME, "ping") || !common::has(NAME, "ethtool") {
        return;
    }
    common::enter_namespace();
    let other = neighbours("pdxq0", "pdxq1");
    assert!(is_on("pdxq0", "rx-vlan-offload"));
    let gateway = hold("pdxq0", "kernel", "whole");
    let load = load(&other);
    assert!(other.is_silent("10.8.0.1"), "the gateway has everything");
    end(gateway);
    assert!(other.pings("10.8.0.1"), "the kernel answers within a second");
    end(load);
    // Nothing is in the way of the next start, which puts back what the killed one has left off.
    assert!(!is_on("pdxq0", "rx-vlan-offload"));
    let (region, _) = memory();
    drop(open(&options("pdxq0", Mode::Auto), &region).expect("root opens a veth"));
    all_home(&region);
    assert!(is_on("pdxq0", "rx-vlan-offload"), "as before the first");
    end(hold("pdxq0", "kernel", "whole"));
    assert!(!is_on("pdxq0", "rx-vlan-offload"));
    assert!(af_xdp::release("pdxq0").expect("nothing is pinned"), "there was something to put back");
    assert!(is_on("pdxq0", "rx-vlan-offload"));
}

#[test]
fn a_killed_gateway_keeps_the_interface_closed() {
    const NAME: &str = "af_xdp::a_killed_gateway_keeps_the_interface_closed";
    if !common::has(NAME, "ping") || !common::has_namespace(NAME) {
        return;
    }
    let other = neighbours("pdxr0", "pdxr1");
    let gateway = hold("pdxr0", "drop", "whole");
    let load = load(&other);
    end(gateway);
    assert!(other.is_silent("10.8.0.1"), "nothing passes");
    end(load);
    let pinned =
        af_xdp::inspect(&options("pdxr0", Mode::Auto), RegionOptions { slots: 64, slot_bytes: 2048 });
    assert!(pinned.expect("it is there").to_string().contains("kept closed by"));

    // The next gateway takes over what was left, without a moment in which the kernel has it.
    let gateway = hold("pdxr0", "drop", "whole");
    assert!(other.is_silent("10.8.0.1"), "the second gateway has it");
    end(gateway);
    assert!(other.is_silent("10.8.0.1"), "and leaves it closed");

    // One with another wish changes what will be left.
    let (region, mut pool) = memory();
    let mut port = open(&options("pdxr0", Mode::Auto), &region).expect("it takes over");
    assert!(port.port.report.to_string().contains("took over"), "{}", port.port.report);
    start(&mut port, &mut pool);
    assert!(other.is_silent("10.8.0.1"), "the third gateway has it");
    assert_eq!(drain(&mut port, &mut pool), Turn::Drained);
    assert_ne!(port.queues[0].rx.counters().received.get(), 0, "and not only nobody else");
    drop((port, pool));
    assert!(other.pings("10.8.0.1"), "and gives it to the kernel");
    all_home(&region);
}

#[test]
fn a_closed_interface_is_opened_on_request() {
    const NAME: &str = "af_xdp::a_closed_interface_is_opened_on_request";
    if !common::has(NAME, "ping") || !common::has_namespace(NAME) {
        return;
    }
    let other = neighbours("pdxu0", "pdxu1");
    end(hold("pdxu0", "drop", "whole"));
    assert!(other.is_silent("10.8.0.1"));
    assert!(af_xdp::release("pdxu0").expect("root removes a pin"), "there was something to do");
    assert!(other.pings("10.8.0.1"));
    assert!(!af_xdp::release("pdxu0").expect("nothing is pinned"));
}

/// A pin whose interface was deleted is nothing to the interface that comes after it.
#[test]
fn a_pin_of_an_interface_that_is_gone_is_removed() {
    const NAME: &str = "af_xdp::a_pin_of_an_interface_that_is_gone_is_removed";
    if !common::has(NAME, "ping") || !common::has_namespace(NAME) {
        return;
    }
    let other = neighbours("pdxv0", "pdxv1");
    end(hold("pdxv0", "drop", "whole"));
    common::ip("link delete pdxv0");
    drop(other);
    let other = neighbours("pdxv0", "pdxv2");
    assert!(other.pings("10.8.0.1"), "it is another interface");
    let (region, _) = memory();
    let asked = Options { on_exit: OnExit::Drop, ..options("pdxv0", Mode::Auto) };
    let port = open(&asked, &region).expect("the old pin is no obstacle");
    assert!(!port.port.report.to_string().contains("took over"), "{}", port.port.report);
    drop(port);
    std::thread::sleep(Duration::from_millis(10));
    assert!(other.is_silent("10.8.0.1"), "closed by the orderly end too");
    assert!(af_xdp::release("pdxv0").expect("root removes a pin"));
    assert!(other.pings("10.8.0.1"));
    all_home(&region);
}

/// An underlay port that is kept closed is closed to its tunnels alone.
#[test]
fn a_killed_gateway_keeps_its_tunnels_from_the_kernel_and_nothing_else() {
    if !common::has_namespace("af_xdp::a_killed_gateway_keeps_its_tunnels_from_the_kernel_and_nothing_else") {
        return;
    }
    common::veth("pdxz0", "pdxz1", "");
    let (sender, kernel) = (RawPeer::open("pdxz1"), RawPeer::open("pdxz0"));
    let claimed = endpoints::packet(endpoints::PLAIN);
    let passes = |frame: &[u8]| {
        // A marker that nobody claims comes last.
        let marker = super::frame(99, 60);
        assert!(sender.send(frame) && sender.send(&marker));
        let mut came = core::iter::from_fn(|| super::await_frame(&kernel));
        let before = came.by_ref().take_while(|frame| *frame != marker).collect::<Vec<_>>();
        before.iter().any(|came| came == frame)
    };
    assert!(passes(&claimed), "without a gateway the kernel has everything");
    for (on_exit, passes_after) in [("kernel", true), ("drop", false)] {
        let gateway = hold("pdxz0", on_exit, "tunnels");
        assert!(!passes(&claimed), "the gateway has it");
        end(gateway);
        assert_eq!(passes(&claimed), passes_after, "{on_exit}");
        assert!(passes(&super::frame(5, 80)), "{on_exit}: what nobody endpoints");
    }
    assert!(af_xdp::release("pdxz0").expect("root removes a pin"));
    assert!(passes(&claimed));
}
