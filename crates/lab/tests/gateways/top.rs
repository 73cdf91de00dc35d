//! `polder top` on a terminal.

use crate::support::{Gateway, address, assert_reaches, polder, root_or_skip, skip, stream, wire};
use polder_testbed::topology::Topology;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const LEFT: Ipv4Addr = Ipv4Addr::new(10, 84, 0, 1);
const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 84, 0, 2);

const BRIDGE: &str = r#"
[port.eth0]
interface = "eth0"
fast_path = "off"
[port.eth1]
interface = "eth1"
fast_path = "off"
[bridge.lan]
members = ["eth0", "eth1"]
"#;

/// Another gateway, whose name has no letter where the first one has it.
const OTHER: &str = r#"name = "zzzzz"
[port.a]
tap = "pdta"
[port.b]
tap = "pdtb"
[bridge.lan]
members = ["a", "b"]
"#;

#[test]
fn top_draws_rates_on_a_terminal_obeys_keys_and_leaves_it_as_it_was() {
    let test = "top_draws_rates_on_a_terminal_obeys_keys_and_leaves_it_as_it_was";
    if !root_or_skip(test) {
        return;
    }
    if Command::new("script").arg("--version").output().is_err() {
        return skip(test, "`script` is not installed");
    }
    let mut topology = Topology::new().unwrap();
    let gateway = topology.namespace("gw").unwrap();
    let (left, right) = (topology.namespace("left").unwrap(), topology.namespace("right").unwrap());
    for (host, interface, ip) in [(&left, "eth0", LEFT), (&right, "eth1", RIGHT)] {
        wire(&topology, (&gateway, interface), (host, "eth0"), 1500);
        address(host, "eth0", ip, 24);
    }
    let polder_gateway = Gateway::start(&topology, &gateway, BRIDGE);
    let second = Gateway::start(&topology, &right, OTHER);
    assert_reaches(&left, RIGHT);
    let screen = std::thread::scope(|scope| {
        scope.spawn(|| stream(&left, &right, RIGHT, 2_000.0, Duration::from_secs(8)));
        // Three samples of the ports, one of the stages, one of the other gateway.
        let sockets = [polder_gateway.socket(), second.socket()];
        on_a_terminal(&sockets, &[("", 4), ("2", 2), ("g", 2), ("q", 1)])
    });
    let (first, other) = screen.split_once("zzzzz").unwrap_or_else(|| panic!("no second gateway: {screen}"));
    assert!(first.contains("time each") && !other.is_empty(), "{screen}");
    // 2 000 packets a second, and what the streams' ends say beside.
    assert!(screen.contains("2.0 k") || screen.contains("1.9 k") || screen.contains("2.1 k"), "{screen}");
    for part in ["eth0", "eth1", "drops/s", "time each", "bridge"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    assert!(
        screen.contains("\x1b[?1049h") && screen.contains("\x1b[?1049l"),
        "no screen of its own: {screen}"
    );
    second.stop();
    polder_gateway.stop();
}

/// Output on a terminal of 100 columns; keys are pressed, each followed by a pause in seconds. Panics unless it ends with 0.
fn on_a_terminal(sockets: &[&Path], keys: &[(&str, u64)]) -> String {
    let sockets = sockets.iter().map(|socket| format!(" --socket {}", socket.display())).collect::<String>();
    let command = format!("stty rows 30 cols 100; exec {} top{sockets}", polder().display());
    let mut terminal = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keyboard = terminal.stdin.take().unwrap();
    for (key, pause) in keys {
        keyboard.write_all(key.as_bytes()).unwrap();
        sleep(Duration::from_secs(*pause));
    }
    let output = terminal.wait_with_output().unwrap();
    let screen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{screen}");
    screen
}
