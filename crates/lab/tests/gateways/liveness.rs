//! Tunnels whose other end falls silent and comes back, with Polder at both ends.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, root_or_skip, wire};
use polder_testbed::topology::{Namespace, Topology};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::net::UdpSocket;

/// Ends on the underlay of both families.
const ENDS: [[&str; 2]; 2] = [["10.86.0.1", "10.86.0.2"], ["fd86::1", "fd86::2"]];
/// Tunnels: each with a bridge and a TAP of its own; true for an IPv6 underlay.
const TUNNELS: [(&str, &str, bool); 4] =
    [("four", "gretap", false), ("six", "gretap", true), ("vx4", "vxlan", false), ("vx6", "vxlan", true)];

/// near: Polder ══ radio0 ══ far: Polder
struct Pair {
    spaces: [Namespace; 2],
    topology: Topology,
}

impl Pair {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let spaces = [machine(&mut topology, "near"), machine(&mut topology, "far")];
        wire(&topology, (&spaces[0], "radio0"), (&spaces[1], "radio0"), 1500);
        for (end, space) in spaces.iter().enumerate() {
            let own = [format!("{}/24", ENDS[0][end]), format!("{}/64", ENDS[1][end])];
            addresses(space, "radio0", &own.each_ref().map(String::as_str));
        }
        Self { spaces, topology }
    }

    /// Starts one end; `watch` gives the keys of each tunnel by which it is watched.
    fn start(&self, end: usize, watch: impl Fn(usize) -> String) -> Gateway {
        let gateway = Gateway::start(&self.topology, &self.spaces[end], &configuration(end, watch));
        for number in 0..TUNNELS.len() {
            let (tap, address) = (format!("host{number}"), inside(number, end));
            addresses(&self.spaces[end], &tap, &[&format!("{address}/24")]);
            self.spaces[end].ip(&["link", "set", &tap, "up"]).unwrap();
        }
        gateway
    }

    /// Sends a datagram into each tunnel.
    fn send(&self) {
        let send = || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            for number in 0..TUNNELS.len() {
                socket.send_to(b"anybody", (inside(number, 1), 9)).unwrap();
            }
        };
        self.spaces[0].inside(send).unwrap();
    }
}

/// Address in front of a tunnel.
fn inside(number: usize, end: usize) -> String {
    format!("10.87.{number}.{}", end + 1)
}

fn configuration(end: usize, watch: impl Fn(usize) -> String) -> String {
    let mut text = "[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n".to_owned();
    for (number, (name, kind, is_v6)) in TUNNELS.into_iter().enumerate() {
        let ends = ENDS[usize::from(is_v6)];
        let vni = if kind == "vxlan" { "vni = 42" } else { "key = 42" };
        text += &format!(
            "[port.host{number}]\ntap = \"host{number}\"\n[tunnel.{name}]\nkind = \"{kind}\"\nlocal = \"{}\"\n\
             remote = \"{}\"\nport = \"radio0\"\n{vni}\n{}\n[bridge.br{number}]\nmembers = [\"host{number}\", \
             \"{name}\"]\n",
            ends[end],
            ends[1 - end],
            watch(number)
        );
    }
    text
}

/// The row of a tunnel.
fn row(gateway: &Gateway, name: &str) -> Value {
    named(&gateway.show("tunnels"), name).expect("it has the tunnel")
}

fn named(value: &Value, name: &str) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let is_it = fields.contains_key("counters") && fields.get("name").is_some_and(|own| own == name);
            let own = is_it.then(|| value.clone());
            own.or_else(|| fields.values().find_map(|inner| named(inner, name)))
        }
        Value::Array(all) => all.iter().find_map(|inner| named(inner, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// True if all tunnels are in that state, by what watches them.
fn are(gateway: &Gateway, watch: &str, state: &str) -> bool {
    TUNNELS.iter().all(|(name, ..)| row(gateway, name)[watch]["state"] == state)
}

fn carries_nothing(gateway: &Gateway, watch: &str) -> bool {
    TUNNELS.iter().all(|(name, ..)| row(gateway, name)[watch]["carries"] == false)
}

/// Packets sent into all tunnels.
fn sent(gateway: &Gateway) -> u64 {
    TUNNELS.iter().filter_map(|(name, ..)| row(gateway, name)["counters"]["sent"].as_u64()).sum()
}

fn signal(gateway: &Gateway, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(gateway.id()).unwrap()).unwrap(), signal).unwrap();
}

/// Packets for which no port was left.
fn stranded(gateway: &Gateway) -> u64 {
    gateway.drops("no-member") + gateway.drops("port-down")
}

/// Tunnels come up, are no destination while the far gateway stands still, and carry again.
fn die_and_come_back(pair: &Pair, watch: &str, [near, far]: [Gateway; 2]) {
    until("the tunnels are up", || are(&near, watch, "up") && are(&far, watch, "up"));
    (0..TUNNELS.len()).for_each(|number| reaches(&pair.spaces[0], &inside(number, 1)));
    signal(&far, Signal::STOP);
    until("silence is noticed", || are(&near, watch, "down"));
    until("nothing carries", || carries_nothing(&near, watch));
    let learnt = |name: &str| near.show("fdb").to_string().contains(&format!("\"port\":\"{name}\""));
    until("stations are forgotten", || !TUNNELS.iter().any(|(name, ..)| learnt(name)));
    let (before, none) = (sent(&near), stranded(&near));
    pair.send();
    until("it is known where packets are", || stranded(&near) >= none + 4);
    assert_eq!(sent(&near), before, "a dead tunnel is no destination");
    signal(&far, Signal::CONT);
    until("the tunnels are up again", || are(&near, watch, "up") && are(&far, watch, "up"));
    (0..TUNNELS.len()).for_each(|number| reaches(&pair.spaces[0], &inside(number, 1)));
    near.stop();
    // It has said that it ends, or is missed.
    until("the other end is missed", || carries_nothing(&far, watch));
    far.stop();
}

/// Keepalives ask for the address in front of the tunnel's other end.
#[test]
fn with_keepalives_a_tunnel_whose_end_stands_still_is_no_destination() {
    if !root_or_skip("with_keepalives_a_tunnel_whose_end_stands_still_is_no_destination") {
        return;
    }
    let pair = Pair::new();
    let gateways = [0, 1].map(|end| {
        pair.start(end, |number| {
            let asked = inside(number, 1 - end);
            format!("keepalive = {{ interval_ms = 200, retries = 5, address = \"{asked}\" }}")
        })
    });
    die_and_come_back(&pair, "keepalive", gateways);
}

#[test]
fn with_bfd_a_tunnel_whose_end_stands_still_is_no_destination() {
    if !root_or_skip("with_bfd_a_tunnel_whose_end_stands_still_is_no_destination") {
        return;
    }
    let pair = Pair::new();
    let watch = |_| "bfd = { interval_ms = 50, multiplier = 20 }".to_owned();
    let gateways = [0, 1].map(|end| pair.start(end, watch));
    die_and_come_back(&pair, "bfd", gateways);
}
