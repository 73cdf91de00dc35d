//! Interfaces that are renamed under a port.

use crate::machines::{addresses, machine, ping, reaches, until};
use crate::router::{Net, PORTS};
use crate::support::{FAST_MODES, Gateway, root_or_skip, stream, wire};
use polder_testbed::topology::Topology;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The interface that `polder show ports` has for the last port.
fn shown(polder: &Gateway) -> String {
    let ports = polder.show("ports");
    let row = ports["ports"].as_array().unwrap().iter().find(|row| row["name"] == "east").unwrap();
    assert_eq!(row["state"], "open", "{row}");
    row["interface"].as_str().unwrap().to_owned()
}

fn ports(text: &str, mode: &str) -> String {
    text.replace("[port.west]\n", &format!("[port.west]\nmode = \"{mode}\"\n"))
        .replace("[port.east]\n", &format!("[port.east]\nmode = \"{mode}\"\n"))
}

/// A router's port goes on under the new name, also when another interface takes the old one; a reload knows both names.
#[test]
fn a_routers_port_follows_its_interface() {
    if !root_or_skip("a_routers_port_follows_its_interface") {
        return;
    }
    for mode in [FAST_MODES[0], FAST_MODES[1], "generic"] {
        let net = Net::new(1500);
        let mut polder = Gateway::start(&net.topology, &net.gateway, &ports(PORTS, mode));
        ["10.83.2.2", "fd83:2::2"].iter().for_each(|to| reaches(&net.left, to));
        let name = |from, to| net.gateway.ip(&["link", "set", from, "name", to]).unwrap();
        let right = Ipv4Addr::new(10, 83, 2, 2);
        let arrivals = std::thread::scope(|scope| {
            let stream = scope.spawn(|| stream(&net.left, &net.right, right, 200.0, Duration::from_secs(2)));
            std::thread::sleep(Duration::from_millis(700));
            name("east", "east9");
            stream.join().unwrap()
        });
        assert_eq!(arrivals.lost, 0, "{mode}: {arrivals:?}");
        until("the new name is shown", || shown(&polder) == "east9");
        polder.wait_until_said("was renamed to east9");
        let other = ["link", "add", "east", "type", "veth", "peer", "name", "other"];
        net.gateway.ip(&other).unwrap();
        net.gateway.ip(&["link", "set", "east", "up"]).unwrap();
        ["10.83.2.2", "fd83:2::2"].iter().for_each(|to| reaches(&net.left, to));
        assert_eq!(shown(&polder), "east9");
        let said = polder.reload(&ports(PORTS, mode)).unwrap();
        assert!(said.contains("renamed to east9"), "{said}");
        let renamed = ports(&PORTS.replace("\"east\"", "\"east9\""), mode);
        let said = polder.reload(&renamed).unwrap();
        assert!(!said.contains("warning"), "{said}");
        assert!(ping(&net.left, "10.83.2.2", &[]).contains(" 0% packet loss"));
        // It comes again, as an adapter does, by the name that the file has.
        net.gateway.ip(&["link", "del", "east9"]).unwrap();
        wire(&net.topology, (&net.gateway, "east9"), (&net.right, "eth0"), 1500);
        addresses(&net.gateway, "east9", &["10.83.2.1/24"]);
        addresses(&net.right, "eth0", &["10.83.2.2/24"]);
        crate::machines::route(&net.right, "add default via 10.83.2.1");
        reaches(&net.left, "10.83.2.2");
        polder.stop();
    }
}

const BRIDGE: &str = r#"
[port.west]
interface = "west"
[port.east]
interface = "east"
[bridge.br0]
members = ["west", "east"]
"#;

#[test]
fn a_bridges_port_follows_its_interface() {
    if !root_or_skip("a_bridges_port_follows_its_interface") {
        return;
    }
    for mode in [FAST_MODES[0], FAST_MODES[1], "generic"] {
        let mut topology = Topology::new().unwrap();
        let [left, gateway, right] = ["left", "gw", "right"].map(|role| machine(&mut topology, role));
        wire(&topology, (&gateway, "west"), (&left, "eth0"), 1500);
        wire(&topology, (&gateway, "east"), (&right, "eth0"), 1500);
        addresses(&left, "eth0", &["10.83.1.1/24"]);
        addresses(&right, "eth0", &["10.83.1.2/24"]);
        let mut polder = Gateway::start(&topology, &gateway, &ports(BRIDGE, mode));
        reaches(&left, "10.83.1.2");
        gateway.ip(&["link", "set", "east", "name", "east9"]).unwrap();
        gateway.ip(&["link", "add", "east", "type", "veth", "peer", "name", "other"]).unwrap();
        until("the new name is shown", || shown(&polder) == "east9");
        assert!(ping(&left, "10.83.1.2", &[]).contains(" 0% packet loss"), "{mode}");
        gateway.ip(&["link", "set", "east9", "down"]).unwrap();
        polder.wait_until_said("port east: east9 is down");
        polder.stop();
    }
}
