//! gretap across a radio, with a gateway at both ends: `mac80211_hwsim` plays the radios in a guest, and the station
//! goes over from one access point to the other.
//!
//! ```text
//!  client ── polder ── wlan1 ~~~~~ wlan0 (hostapd)    ┐
//!            (namespace `station`)                    ├─ br0 ── polder ── server
//!                            ~~~~~ wlan0_1 (hostapd)  ┘
//! ```

use crate::machine::{Inside, Machine};
use crate::says;
use polder_testbed::guest::agent::Request;
use polder_testbed::peers::polder::find;
use polder_testbed::skip::skip;
use serde_json::Value;

const TEST: &str = "a_tunnel_across_a_radio_outlives_a_change_of_the_access_point";
const INSIDE: Inside<'_> = Inside {
    modules: &["mac80211_hwsim", "veth", "bridge", "tun"],
    spare_modules: &[],
    suite: None,
    programs: &["ip", "iw", "hostapd", "ping", "iperf3", "ethtool"],
    setup: SETUP,
};

/// Both access points have one network, and the kernel's bridge joins them.
const HOSTAPD: &str = "\
interface=wlan0
bridge=br0
hw_mode=g
channel=1
ssid=polder
bss=wlan0_1
bridge=br0
ssid=polder
";

const SETUP: &str = "
    ip netns add client
    ip netns add server
    ip netns add station
    ip link add lan0 type veth peer name eth0 netns server
    ip link set lan0 up
    ip -n server address add 10.78.0.1/24 dev eth0
    ip -n server link set eth0 up
    ip -n station link add lan0 type veth peer name eth0 netns client
    ip -n station link set lan0 up
    ip -n client address add 10.78.0.2/24 dev eth0
    ip -n client link set eth0 up
    iw phy phy1 set netns name station
    ip link add br0 type bridge
    ip address add 10.77.0.1/24 dev br0
    ip link set br0 up
";

/// Configuration of one end.
fn configuration(interface: &str, (local, remote): (&str, &str), socket: &str) -> String {
    format!(
        r#"
version = 1
[gateway]
control = "{socket}"
[port.lan]
interface = "lan0"
[port.radio]
interface = "{interface}"
role = "underlay"
[tunnel.peer]
kind = "gretap"
local = "{local}"
remote = "{remote}"
port = "radio"
next_hop = "{remote}"
[bridge.br]
members = ["lan", "peer"]
"#
    )
}

const NEAR: &str = "/run/gw.sock";
const FAR: &str = "/run/station.sock";

fn show(machine: &mut Machine, socket: &str, what: &str) -> Option<Value> {
    let answer = machine.says(&format!("polder show {what} --json --socket {socket}"));
    serde_json::from_str(&answer.text).ok().filter(|_| answer.ok)
}

/// Has the station join the access point of that interface, and waits until it is there.
fn join(machine: &mut Machine, access_point: &str) -> String {
    let address = machine.guest.run(&format!("ip -br link show {access_point}")).unwrap();
    let address = address.split_whitespace().nth(2).unwrap().to_owned();
    machine.until("the station is associated", |machine| {
        // It is refused while the access point is not there, and while it is joining one.
        machine.says(&format!("ip netns exec station iw dev wlan1 connect polder 2412 {address}"));
        let link = machine.says("ip netns exec station iw dev wlan1 link").text;
        link.starts_with(&format!("Connected to {address}"))
    });
    address
}

fn start(machine: &mut Machine, line: &str) -> u32 {
    let words = line.split(' ').map(str::to_owned).collect();
    machine.guest.ask(&Request::Start(words)).unwrap().parse().unwrap()
}

fn carries_tcp(machine: &mut Machine) {
    for direction in ["", "-R"] {
        let line = format!("ip netns exec client iperf3 -c 10.78.0.1 -n 2M {direction}");
        machine.until(&line, |machine| machine.says(&line).ok);
    }
}

#[test]
fn a_tunnel_across_a_radio_outlives_a_change_of_the_access_point() {
    let kernel = match INSIDE.available() {
        Ok(kernel) => kernel,
        Err(reason) => return skip(TEST, format!("{reason:#}")),
    };
    let says = says();
    let mut machine = Machine::boot(&kernel, &INSIDE);
    machine.guest.ask(&Request::Write("/tmp/ap.conf".to_owned(), HOSTAPD.to_owned())).unwrap();
    start(&mut machine, "hostapd /tmp/ap.conf");
    machine.until("both access points", |machine| machine.says("ip link show wlan0_1").ok);
    machine.guest.run("ip -n station link set wlan1 up").unwrap();
    machine.guest.run("ip -n station address add 10.77.0.2/24 dev wlan1").unwrap();
    let first = join(&mut machine, "wlan0");
    machine.reaches("station", "10.77.0.1", "");
    says("associated");

    machine.gateway(&configuration("br0", ("10.77.0.1", "10.77.0.2"), NEAR));
    let far = configuration("wlan1", ("10.77.0.2", "10.77.0.1"), FAR);
    machine.guest.ask(&Request::Write("/tmp/far.toml".to_owned(), far)).unwrap();
    let far = start(&mut machine, "ip netns exec station polder run --yes /tmp/far.toml");
    for options in ["", "-s 1400", "-s 4000"] {
        machine.reaches("client", "10.78.0.1", options);
    }
    start(&mut machine, "ip netns exec server iperf3 -s");
    carries_tcp(&mut machine);
    says("ping and TCP");

    machine.guest.run("ip netns exec station iw dev wlan1 disconnect").unwrap();
    let second = join(&mut machine, "wlan0_1");
    assert_ne!(first, second);
    says("another access point");
    machine.reaches("client", "10.78.0.1", "");
    carries_tcp(&mut machine);
    says("ping and TCP");

    for socket in [NEAR, FAR] {
        let ports = show(&mut machine, socket, "ports").unwrap();
        println!("{}: {}", kernel.version(), find(&ports["ports"][1], "mode").unwrap());
        let tunnels = show(&mut machine, socket, "tunnels").unwrap();
        assert!(find(&tunnels, "received").and_then(Value::as_u64) > Some(1000), "{tunnels:#}");
        machine.until("every packet is accounted for", |machine| {
            let counters = show(machine, socket, "counters");
            counters.and_then(|counters| find(&counters, "unaccounted")?.as_i64()) == Some(0)
        });
    }
    let Machine { mut guest, polder } = machine;
    for process in [far, polder] {
        guest.ask(&Request::Stop(process)).unwrap();
    }
    guest.power_off().unwrap();
    says("ended");
}
