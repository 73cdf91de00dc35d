//! A router's port with VLANs, on a kernel that has them: `polder` runs in a guest with Debian's kernel, follows the VLAN
//! interfaces there, and routes between stations that talk in tags.
//!
//! ```text
//!  left  (v10) ─┐
//!  right (v20) ─┼─ trunk1 ═══ trunk0, trunk0.10, trunk0.20 ─ polder
//!  plain ───────┘
//! ```

use crate::machine::{Inside, Machine};
use crate::says;
use polder_testbed::guest::agent::Request;
use polder_testbed::skip::skip;

const INSIDE: Inside<'_> = Inside {
    modules: &["veth", "8021q"],
    spare_modules: &[],
    suite: None,
    programs: &["ip", "ping", "iperf3", "ethtool"],
    setup: SETUP,
};

const CONFIGURATION: &str = r#"
version = 1
[gateway]
control = "/run/gw.sock"
[port.trunk]
interface = "trunk0"
role = "router"
"#;

/// Offloads are off as on any wire of these tests; the stations are moved to where nobody has their neighbours'
/// addresses.
const SETUP: &str = "
    ip netns add left
    ip netns add right
    ip netns add plain
    ip link add trunk0 type veth peer name trunk1
    ethtool -K trunk0 tx off rx off gso off gro off tso off txvlan off rxvlan off
    ethtool -K trunk1 tx off rx off gso off gro off tso off txvlan off rxvlan off
    ip link set trunk1 netns plain
    ip link add link trunk0 name trunk0.10 type vlan id 10
    ip link add link trunk0 name trunk0.20 type vlan id 20
    ip -n plain link add link trunk1 name v10 type vlan id 10
    ip -n plain link add link trunk1 name v20 type vlan id 20
    ip -n plain link set v10 netns left
    ip -n plain link set v20 netns right
    ip address add 10.88.0.1/24 dev trunk0
    ip address add 10.88.10.1/24 dev trunk0.10
    ip address add 10.88.20.1/24 dev trunk0.20
    ip address add fd88::1/64 dev trunk0 nodad
    ip address add fd88:10::1/64 dev trunk0.10 nodad
    ip address add fd88:20::1/64 dev trunk0.20 nodad
    ip link set trunk0 up
    ip link set trunk0.10 up
    ip link set trunk0.20 up
    ip -n plain address add 10.88.0.2/24 dev trunk1
    ip -n plain address add fd88::2/64 dev trunk1 nodad
    ip -n plain link set trunk1 up
    ip -n plain route add default via 10.88.0.1
    ip -n plain -6 route add default via fd88::1
    ip -n left address add 10.88.10.2/24 dev v10
    ip -n left address add fd88:10::2/64 dev v10 nodad
    ip -n left link set v10 up
    ip -n left route add default via 10.88.10.1
    ip -n left -6 route add default via fd88:10::1
    ip -n right address add 10.88.20.2/24 dev v20
    ip -n right address add fd88:20::2/64 dev v20 nodad
    ip -n right link set v20 up
    ip -n right route add default via 10.88.20.1
    ip -n right -6 route add default via fd88:20::1
";

#[test]
fn stations_in_vlans_reach_each_other_through_a_router() {
    let kernel = match INSIDE.available() {
        Ok(kernel) => kernel,
        Err(reason) => {
            return skip("stations_in_vlans_reach_each_other_through_a_router", format!("{reason:#}"));
        }
    };
    let says = says();
    let mut machine = Machine::boot(&kernel, &INSIDE);
    machine.gateway(CONFIGURATION);
    says("started");
    for (from, to) in
        [("left", "10.88.20.2"), ("left", "fd88:20::2"), ("right", "10.88.0.2"), ("plain", "fd88:10::2")]
    {
        for options in ["", "-s 1452", "-s 4000"] {
            machine.reaches(from, to, options);
        }
    }
    // The kernel's own addresses stay its own, in every VLAN.
    for to in ["10.88.10.1", "10.88.20.1", "fd88:10::1"] {
        machine.reaches("left", to, "");
    }
    let near = machine.says("ip netns exec left ping -n -c 1 -W 2 -t 1 10.88.20.2").text;
    assert!(near.contains("From 10.88.10.1") && near.contains("Time to live exceeded"), "{near}");
    says("pings");
    let server = ["ip", "netns", "exec", "right", "iperf3", "-s"].map(str::to_owned).to_vec();
    machine.guest.ask(&Request::Start(server)).unwrap();
    for to in ["10.88.20.2", "fd88:20::2"] {
        for direction in ["", "-R"] {
            let line = format!("ip netns exec left iperf3 -c {to} -n 1M {direction}");
            machine.until(&line, |machine| machine.says(&line).ok);
        }
    }
    says("TCP");
    let shown = machine.show("routes").unwrap().to_string();
    assert!(shown.contains("trunk.10") && shown.contains("trunk.20"), "{shown}");
    machine.until("every packet is accounted for", |machine| {
        machine.count("counters", "unaccounted") == Some(0)
    });
    let received = machine.count("counters", "received").unwrap();
    assert!(received > 1000, "{received} packets were routed");
    let Machine { mut guest, polder } = machine;
    guest.ask(&Request::Stop(polder)).unwrap();
    guest.power_off().unwrap();
    says("ended");
}
