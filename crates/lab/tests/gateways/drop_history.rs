//! `polder show drops`: of a port, and of the last minutes.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, polder, root_or_skip, stream, wire};
use polder_testbed::command;
use polder_testbed::topology::Topology;
use serde_json::Value;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A queue that is soon full, at b alone, and a rule that drops.
const TEXT: &str = "[port.a]\ninterface = \"eth0\"\nmode = \"skb\"\non_exit = \"kernel\"\n[port.b]\ninterface = \"eth1\"\n\
    mode = \"skb\"\non_exit = \"kernel\"\nqueue = { kind = \"drop-tail\", limit_bytes = 20_000, rate_kbit = 200 }\n\
    [bridge.lan]\nmembers = [\"a\", \"b\"]\n\
    [[filter]]\nprotocol = \"icmp\"\nsource = \"10.93.0.9/32\"\naction = \"drop\"\n";

fn drops(socket: &Path, arguments: &[&str]) -> Value {
    let text = shown(socket, &[arguments, &["--json"]].concat());
    serde_json::from_str(&text).unwrap()
}

fn shown(socket: &Path, arguments: &[&str]) -> String {
    let mut show = Command::new(polder());
    show.args(["show", "drops"]).args(arguments).arg("--socket").arg(socket);
    command::run(&mut show).unwrap()
}

/// Packets of a reason.
fn of(shown: &Value, reason: &str) -> u64 {
    let rows = shown["drops"]["reasons"].as_array().unwrap();
    let row = rows.iter().find(|row| row["reason"] == reason);
    row.map_or(0, |row| row["packets"].as_u64().unwrap())
}

#[test]
fn drops_of_a_port_and_of_the_last_minutes_are_known() {
    if !root_or_skip("drops_of_a_port_and_of_the_last_minutes_are_known") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let mut new = |role| machine(&mut topology, role);
    let (left, namespace, right) = (new("left"), new("gateway"), new("right"));
    wire(&topology, (&left, "eth0"), (&namespace, "eth0"), 1500);
    wire(&topology, (&namespace, "eth1"), (&right, "eth0"), 1500);
    addresses(&left, "eth0", &["10.93.0.1/24", "10.93.0.9/24"]);
    addresses(&right, "eth0", &["10.93.0.2/24"]);
    let gateway = Gateway::start(&topology, &namespace, TEXT);
    let socket = gateway.socket().to_owned();
    reaches(&left, "10.93.0.2");
    stream(&left, &right, Ipv4Addr::new(10, 93, 0, 2), 2000.0, Duration::from_secs(1));
    let mut ping = Command::new("ip");
    ping.args(["netns", "exec", left.name(), "ping", "-c1", "-W1", "-I", "10.93.0.9", "10.93.0.2"]);
    assert!(!ping.output().unwrap().status.success());
    until("both have dropped", || {
        let all = drops(&socket, &[]);
        of(&all, "queue-full") > 0 && of(&all, "filtered") > 0
    });
    // Of a port is what its queue has dropped; what a rule has dropped is nobody's.
    let (all, of_b, of_a) = (drops(&socket, &[]), drops(&socket, &["b"]), drops(&socket, &["a"]));
    let full = of(&all, "queue-full");
    assert_eq!((of(&of_b, "queue-full"), of(&of_a, "queue-full")), (full, 0), "{of_b} {of_a}");
    for of_port in [&of_a, &of_b] {
        let apart = &of_port["drops"]["not_by_port"];
        assert_eq!(
            (apart["filtered"].as_u64(), apart["queue-full"].as_u64()),
            (Some(of(&all, "filtered")), None)
        );
    }
    assert!(shown(&socket, &["a"]).starts_with("no packet has been dropped at port a\nnot counted by port"));
    // The history begins with the gateway.
    let recent = drops(&socket, &["--since", "10m"]);
    assert_eq!(of(&recent, "queue-full"), full);
    let known = recent["since_nanos"].as_u64().unwrap();
    assert!((1..600_000_000_000).contains(&known), "{known}");
    assert!(shown(&socket, &["--since", "10m"]).starts_with("in the last "));
    assert!(shown(&socket, &["--since", "10m"]).contains("the gateway has no older history"));
    // It goes on in a reload and in an upgrade, and what is old leaves it.
    gateway.reload(&TEXT.replace("limit_bytes = 20_000", "limit_bytes = 30_000")).unwrap();
    command::run(Command::new(polder()).arg("upgrade").arg("--socket").arg(&socket)).unwrap();
    let next = polder_testbed::upgrade::Process::behind(&socket).unwrap();
    let kept = drops(&socket, &["b", "--since", "10m"]);
    assert_eq!(of(&kept, "queue-full"), full, "{kept}");
    assert!(kept["since_nanos"].as_u64().unwrap() > known, "{kept}");
    until("ten seconds without drops", || of(&drops(&socket, &["--since", "10s"]), "queue-full") == 0);
    assert_eq!(of(&drops(&socket, &["--since", "1h"]), "queue-full"), full);
    drop(next);
}
