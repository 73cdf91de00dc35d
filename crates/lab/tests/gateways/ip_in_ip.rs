//! ipip and sit: two gateways route IPv4 and IPv6 through tunnels without a header of their own.

use crate::machines::{ping, reaches, until};
use crate::routed_tunnel::Net;
use crate::router::tcp;
use crate::support::{Gateway, root_or_skip};

/// Outer addresses of both gateways, which both tunnels have, and stations behind them.
const ENDS: [&str; 2] = ["10.85.0.1", "10.85.0.2"];
const LEFT: [&str; 2] = ["10.84.1.2", "fd84:1::2"];
const RIGHT: [&str; 2] = ["10.84.2.2", "fd84:2::2"];

/// One end of both tunnels, whose port has that role, and routes through them to the other end's networks.
fn configuration(number: usize, role: &str, options: &str) -> String {
    let (local, remote, other, net) = (ENDS[number], ENDS[1 - number], 1 - number, 2 - number);
    format!(
        r#"
[port.eth0]
interface = "eth0"
role = "router"
[port.radio0]
interface = "radio0"
role = "{role}"
[tunnel.four]
kind = "ipip"
addresses = ["10.85.9.{number}/31"]
local = "{local}"
remote = "{remote}"
port = "radio0"
{options}
[tunnel.six]
kind = "sit"
addresses = ["fd85:9::{number}/127"]
local = "{local}"
remote = "{remote}"
port = "radio0"
{options}
[[router.route]]
to = "10.84.{net}.0/24"
via = "10.85.9.{other}"
[[router.route]]
to = "fd84:{net}::/64"
port = "six"
"#
    )
}

fn gateways(net: &Net, role: &str, options: &str) -> [Gateway; 2] {
    [0, 1].map(|number| {
        let space = [&net.near, &net.far][number];
        Gateway::start(&net.topology, space, &configuration(number, role, options))
    })
}

/// Stations reach each other, at sizes around those that fit, and by TCP; both ends of the tunnels answer.
fn carries(net: &Net) {
    for (to, back) in RIGHT.iter().zip(LEFT) {
        reaches(&net.left, to);
        reaches(&net.right, back);
        for size in ["0", "56", "1400", "1432", "1452", "1472", "4000"] {
            until(&format!("{size} bytes to {to}"), || {
                ping(&net.left, to, &["-s", size]).contains(" 0% packet loss")
            });
        }
        tcp(&net.left, &net.right, to.parse().unwrap());
        tcp(&net.right, &net.left, back.parse().unwrap());
    }
    for end in ["10.85.9.0", "10.85.9.1", "fd85:9::", "fd85:9::1"] {
        reaches(&net.left, end);
    }
}

#[test]
fn ip_in_ip_routes_between_two_networks() {
    if !root_or_skip("ip_in_ip_routes_between_two_networks") {
        return;
    }
    let net = Net::new();
    for (role, options) in [("underlay", ""), ("router", "ttl = \"inherit\"")] {
        let gateways = gateways(&net, role, options);
        carries(&net);
        for gateway in &gateways {
            let shown = gateway.show("tunnels").to_string();
            for kind in ["ipip", "sit"] {
                assert!(shown.contains(&format!(r#""kind":"{kind}""#)), "{shown}");
            }
            assert_eq!((gateway.drops("not-for-us"), gateway.drops("no-tunnel")), (0, 0));
            gateway.assert_conserved();
        }
        gateways.into_iter().for_each(Gateway::stop);
    }
}

#[test]
fn senders_hear_what_ip_in_ip_carries() {
    if !root_or_skip("senders_hear_what_ip_in_ip_carries") {
        return;
    }
    let net = Net::new();
    let gateways = gateways(&net, "underlay", "dont_fragment = true");
    for (to, size) in RIGHT.iter().zip(["1472", "1452"]) {
        reaches(&net.left, to);
        until(&format!("the MTU on the way to {to}"), || {
            let said = ping(&net.left, to, &["-M", "do", "-s", size]);
            said.contains("mtu") && said.contains("1480")
        });
    }
    gateways.into_iter().for_each(Gateway::stop);
}
