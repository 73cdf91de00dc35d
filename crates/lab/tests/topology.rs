//! Namespaces and wires on a real kernel: made, used, and gone on every way out.

#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use polder_testbed::command::{self, Running};
use polder_testbed::topology::{End, Namespace, Topology, is_root};
use polder_testbed::traffic::sockets::{UdpStream, ping, tcp_goodput};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);

/// Says loudly why a test cannot run.
fn root_or_skip(test: &str) -> bool {
    if !is_root() {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: namespaces need root");
    }
    is_root()
}

fn wired(topology: &mut Topology) -> (Namespace, Namespace) {
    let (left, right) = (topology.namespace("left").unwrap(), topology.namespace("right").unwrap());
    let a = End { namespace: &left, interface: "eth0" };
    let b = End { namespace: &right, interface: "eth0" };
    topology.wire(a, b, 1500).unwrap();
    left.ip(&["address", "add", &format!("{LEFT}/24"), "dev", "eth0"]).unwrap();
    right.ip(&["address", "add", &format!("{RIGHT}/24"), "dev", "eth0"]).unwrap();
    (left, right)
}

#[test]
fn traffic_runs_over_a_wire_and_nothing_stays_behind() {
    if !root_or_skip("traffic_runs_over_a_wire_and_nothing_stays_behind") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let directory = topology.directory().to_owned();
    let (left, right) = wired(&mut topology);
    assert_eq!(End { namespace: &left, interface: "eth0" }.offloads().unwrap(), Vec::<String>::new());

    assert_eq!(ping(&left, RIGHT, 3, Duration::from_millis(1)).unwrap().len(), 3);
    let to = SocketAddrV4::new(RIGHT, 7007);
    let moment = Duration::from_millis(100);
    assert!(tcp_goodput(&left, &right, to, moment, moment).unwrap() > 1e6);
    let stream =
        UdpStream { from: &left, to: &right, destination: to, frame_bytes: 64, rate: 5_000.0, time: moment };
    let outcome = stream.run().unwrap();
    assert!((450..=501).contains(&outcome.arrivals.sent), "{:?}", outcome.arrivals);
    assert_eq!(outcome.arrivals.received, outcome.arrivals.sent, "{:?}", outcome.arrivals);
    assert_eq!(outcome.latency.len(), outcome.arrivals.sent);

    let names = [left.name().to_owned(), right.name().to_owned()];
    drop(topology);
    assert!(names.iter().all(|name| !Path::new("/run/netns").join(name).exists()));
    assert!(!directory.exists());
}

#[test]
fn a_wire_that_drops_is_seen_to_drop() {
    if !root_or_skip("a_wire_that_drops_is_seen_to_drop") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, right) = wired(&mut topology);
    assert_eq!(ping(&left, RIGHT, 1, Duration::ZERO).unwrap().len(), 1);
    right.ip(&["link", "set", "eth0", "down"]).unwrap();
    let to = SocketAddrV4::new(RIGHT, 7007);
    let time = Duration::from_millis(50);
    let stream = UdpStream { from: &left, to: &right, destination: to, frame_bytes: 64, rate: 1_000.0, time };
    let outcome = stream.run().unwrap();
    assert!(outcome.arrivals.sent > 0);
    assert_eq!(outcome.arrivals.lost, outcome.arrivals.sent);
}

#[test]
fn a_napi_thread_is_found_and_pinned() {
    if !root_or_skip("a_napi_thread_is_found_and_pinned") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, right) = (topology.namespace("left").unwrap(), topology.namespace("right").unwrap());
    let interface = topology.interface("n");
    let end = End { namespace: &left, interface: &interface };
    topology.wire(end, End { namespace: &right, interface: "eth0" }, 1500).unwrap();
    assert!(left.pin_napi(&interface, 0).is_err(), "a veth without GRO and XDP has no NAPI instance");
    let gro = left.command("ethtool").args(["-K", &interface, "gro", "on"]).status().unwrap();
    assert!(gro.success());
    let threads = left.pin_napi(&interface, 0).unwrap();
    assert_eq!(threads.len(), 1);
    let status = std::fs::read_to_string(format!("/proc/{}/status", threads[0])).unwrap();
    assert!(status.contains("Cpus_allowed_list:\t0\n"), "{status}");
}

#[test]
fn threads_of_an_interface_of_the_same_name_are_told_apart() {
    if !root_or_skip("threads_of_an_interface_of_the_same_name_are_told_apart") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let interface = topology.interface("a");
    let [older, newer, right] = ["older", "newer", "right"].map(|role| topology.namespace(role).unwrap());
    let [before, after] = [(&older, "eth0"), (&newer, "eth1")].map(|(namespace, other)| {
        let end = End { namespace, interface: &interface };
        topology.wire(end, End { namespace: &right, interface: other }, 1500).unwrap();
        command::run(namespace.command("ethtool").args(["-K", &interface, "gro", "on"])).unwrap();
        namespace.pin_napi(&interface, 0).unwrap()
    });
    assert!(before.len() == 1 && after.len() == 1 && before != after, "{before:?} {after:?}");
}

/// Not a test of its own: the run that is killed in
/// [`what_a_killed_run_left_is_removed_by_the_next`].
#[test]
fn killed_run() {
    if std::env::var_os("PD_LAB_KILLED_RUN").is_none() {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let (left, _) = wired(&mut topology);
    let mut command = left.command("sleep");
    let sleeper = Running::start("sleep", command.arg("60")).unwrap();
    let _ = writeln!(std::io::stderr(), "made {} {}", left.name(), sleeper.id());
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    if !root_or_skip("what_a_killed_run_left_is_removed_by_the_next") {
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_run", "--nocapture"])
        .env("PD_LAB_KILLED_RUN", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let made =
        said.lines().find_map(|line| line.split_once("made ")).expect("the run has said what it made").1;
    let (name, sleeper) = made.split_once(' ').unwrap();
    let (namespace, process) = (Path::new("/run/netns").join(name), format!("/proc/{sleeper}"));
    assert!(namespace.exists(), "a killed run leaves its namespaces");
    drop(Topology::new().unwrap());
    assert!(!namespace.exists(), "the next run removes them");
    let status = std::fs::read_to_string(process + "/status").unwrap_or_default();
    assert!(status.is_empty() || status.contains("State:\tZ"), "and the processes in them");
}
