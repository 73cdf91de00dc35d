//! gre: tunnels of packets between two routers, over both families, also where a router's port carries them.

use crate::machines::{addresses, machine, ping, reaches, route, until};
use crate::router::tcp;
use crate::support::{Gateway, root_or_skip, wire};
use polder_testbed::topology::{Namespace, Topology};

/// left – near – air – far – right; the air is a kernel bridge.
pub(crate) struct Net {
    pub(crate) left: Namespace,
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) right: Namespace,
    pub(crate) topology: Topology,
}

/// The addresses of both gateways on the air, and inside the tunnel.
const ENDS: [[&str; 2]; 2] = [["10.85.0.1", "10.85.0.2"], ["fd85::1", "fd85::2"]];
const INSIDE: [[&str; 2]; 2] = [["10.85.9.0", "fd85:9::"], ["10.85.9.1", "fd85:9::1"]];
/// Stations.
const LEFT: [&str; 2] = ["10.84.1.2", "fd84:1::2"];
const RIGHT: [&str; 2] = ["10.84.2.2", "fd84:2::2"];

impl Net {
    pub(crate) fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, near, air, far, right) = (new("left"), new("near"), new("air"), new("far"), new("right"));
        wire(&topology, (&left, "eth0"), (&near, "eth0"), 1500);
        wire(&topology, (&near, "radio0"), (&air, "near"), 1500);
        wire(&topology, (&air, "far"), (&far, "radio0"), 1500);
        wire(&topology, (&far, "eth0"), (&right, "eth0"), 1500);
        air.ip(&["link", "add", "br0", "type", "bridge"]).unwrap();
        for link in ["near", "far"] {
            air.ip(&["link", "set", link, "master", "br0"]).unwrap();
        }
        air.ip(&["link", "set", "br0", "up"]).unwrap();
        for (number, (station, gateway)) in [(&left, &near), (&right, &far)].into_iter().enumerate() {
            let net = number + 1;
            addresses(gateway, "eth0", &[&format!("10.84.{net}.1/24"), &format!("fd84:{net}::1/64")]);
            addresses(station, "eth0", &[&format!("10.84.{net}.2/24"), &format!("fd84:{net}::2/64")]);
            route(station, &format!("add default via 10.84.{net}.1"));
            route(station, &format!("add default via fd84:{net}::1"));
            let [v4, v6] = ENDS.map(|ends| ends[number]);
            addresses(gateway, "radio0", &[&format!("{v4}/24"), &format!("{v6}/64")]);
        }
        Self { left, near, far, right, topology }
    }

    /// Both gateways, with a tunnel over IPv4 or IPv6 and `options` for both its ends.
    fn gateways(&self, role: &str, v6: bool, options: &str) -> [Gateway; 2] {
        [0, 1].map(|number| {
            let space = [&self.near, &self.far][number];
            Gateway::start(&self.topology, space, &configuration(number, role, v6, options))
        })
    }
}

/// One end of the tunnel, and the route through it to the other one's network.
pub(crate) fn configuration(number: usize, role: &str, v6: bool, options: &str) -> String {
    let ends = ENDS[usize::from(v6)];
    let (local, remote, [inside4, inside6]) = (ends[number], ends[1 - number], INSIDE[number]);
    let (net, via) = (2 - number, INSIDE[1 - number][0]);
    format!(
        r#"
[port.eth0]
interface = "eth0"
role = "router"
[port.radio0]
interface = "radio0"
role = "{role}"
[tunnel.peer]
kind = "gre"
addresses = ["{inside4}/31", "{inside6}/127"]
local = "{local}"
remote = "{remote}"
port = "radio0"
{options}
[[router.route]]
to = "10.84.{net}.0/24"
via = "{via}"
[[router.route]]
to = "fd84:{net}::/64"
port = "peer"
"#
    )
}

/// Stations reach each other and both ends, at sizes around those that fit, and by TCP.
fn carries(net: &Net) {
    for (to, back) in RIGHT.iter().zip(LEFT) {
        reaches(&net.left, to);
        reaches(&net.right, back);
        for size in ["0", "56", "1400", "1448", "1450", "1472", "4000"] {
            until(&format!("{size} bytes to {to}"), || {
                ping(&net.left, to, &["-s", size]).contains(" 0% packet loss")
            });
        }
        tcp(&net.left, &net.right, to.parse().unwrap());
    }
    for end in INSIDE.iter().flatten() {
        reaches(&net.left, end);
    }
}

#[test]
fn two_networks_reach_each_other_through_a_tunnel_of_packets() {
    if !root_or_skip("two_networks_reach_each_other_through_a_tunnel_of_packets") {
        return;
    }
    let net = Net::new();
    let guarded = "key = 85\nchecksum = true\nsequence = true\nttl = \"inherit\"";
    for (v6, options) in [(false, ""), (true, guarded)] {
        let gateways = net.gateways("underlay", v6, options);
        carries(&net);
        let shown = gateways[0].show("tunnels");
        assert!(shown.to_string().contains(r#""kind":"gre""#), "{shown:#}");
        gateways.into_iter().for_each(Gateway::stop);
    }
}

#[test]
fn senders_hear_what_a_tunnel_of_packets_carries() {
    if !root_or_skip("senders_hear_what_a_tunnel_of_packets_carries") {
        return;
    }
    let net = Net::new();
    let gateways = net.gateways("underlay", false, "dont_fragment = true");
    let hears = |to: &str, options: &[&str], words: &[&str]| {
        until(&format!("{words:?} from {to}"), || {
            let said = ping(&net.left, to, options);
            words.iter().all(|word| said.contains(word))
        });
    };
    for ((to, size), gateway) in RIGHT.iter().zip(["1460", "1440"]).zip(["10.84.1.1", "fd84:1::1"]) {
        reaches(&net.left, to);
        hears(to, &["-M", "do", "-s", size], &["mtu", "1476"]);
        hears(to, &["-t", "1"], &[gateway]);
    }
    // The other end is a router too, and speaks with its address inside.
    hears(RIGHT[0], &["-t", "2"], &["From 10.85.9.1", "Time to live exceeded"]);
    hears(RIGHT[1], &["-t", "2"], &["fd85:9::1", "Time exceeded"]);
    // A narrower path becomes the tunnel's MTU.
    route(&net.near, "add 10.85.0.2/32 dev radio0 mtu 1200");
    for to in RIGHT {
        hears(to, &["-M", "do", "-s", "1300"], &["mtu", "1176"]);
    }
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn a_routers_port_carries_tunnels_beside_what_it_routes() {
    if !root_or_skip("a_routers_port_carries_tunnels_beside_what_it_routes") {
        return;
    }
    let net = Net::new();
    // The far gateway's kernel answers the left network past the tunnel.
    route(&net.far, "add 10.84.1.0/24 via 10.85.0.1");
    for v6 in [false, true] {
        let gateways = net.gateways("router", v6, "");
        carries(&net);
        // What has nothing to do with the tunnel: to the other gateway's kernel, routed and its neighbour's own.
        reaches(&net.left, ENDS[0][1]);
        reaches(&net.near, ENDS[0][1]);
        reaches(&net.near, ENDS[1][1]);
        for gateway in &gateways {
            assert_eq!((gateway.drops("not-for-us"), gateway.drops("no-tunnel")), (0, 0));
        }
        gateways.into_iter().for_each(Gateway::stop);
    }
}
