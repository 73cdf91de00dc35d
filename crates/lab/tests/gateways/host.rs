//! The machine itself as a member of a bridge, long frames, and the gateway's needs of the machine.

use crate::support::{Gateway, address, assert_reaches, root_or_skip, wire};
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::tcp_goodput;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const STATION: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 2);
const MOMENT: Duration = Duration::from_millis(300);

fn station_and_gateway(mtu: u32) -> (Topology, Namespace, Namespace) {
    let mut topology = Topology::new().unwrap();
    let (station, gateway) = (topology.namespace("sta").unwrap(), topology.namespace("gw").unwrap());
    wire(&topology, (&gateway, "eth0"), (&station, "eth0"), mtu);
    address(&station, "eth0", STATION, 24);
    (topology, station, gateway)
}

#[test]
fn the_host_is_a_member_of_the_bridge_through_a_tap() {
    if !root_or_skip("the_host_is_a_member_of_the_bridge_through_a_tap") {
        return;
    }
    let (topology, station, gateway) = station_and_gateway(1500);
    let text = r#"
[port.lan]
interface = "eth0"
[port.host]
tap = "host0"
[bridge.br0]
members = ["lan", "host"]
"#;
    let polder = Gateway::start(&topology, &gateway, text);
    gateway.ip(&["link", "set", "host0", "up"]).unwrap();
    address(&gateway, "host0", HOST, 24);
    assert_reaches(&station, HOST);
    // The host leaves checksums and segmentation to its device, which is us.
    let to = |ip| SocketAddrV4::new(ip, 7007);
    let out = tcp_goodput(&gateway, &station, to(STATION), MOMENT, MOMENT).unwrap();
    let back = tcp_goodput(&station, &gateway, to(HOST), MOMENT, MOMENT).unwrap();
    assert!(out > 1e7 && back > 1e7, "{out} {back}");
    polder.stop();
}

#[test]
fn nine_thousand_bytes_cross_as_several_frames_of_memory() {
    if !root_or_skip("nine_thousand_bytes_cross_as_several_frames_of_memory") {
        return;
    }
    let (mut topology, station, gateway) = station_and_gateway(9000);
    let other = topology.namespace("oth").unwrap();
    wire(&topology, (&gateway, "eth1"), (&other, "eth0"), 9000);
    address(&other, "eth0", HOST, 24);
    let text = r#"
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[bridge.br0]
members = ["eth0", "eth1"]
"#;
    let polder = Gateway::start(&topology, &gateway, text);
    assert_reaches(&station, HOST);
    for data in ["1472", "2048", "4096", "8191", "8972"] {
        let mut ping = station.command("ping");
        ping.args(["-c", "2", "-i", "0.01", "-W", "10", "-M", "do", "-s", data, &HOST.to_string()]);
        let said = command::run(&mut ping).unwrap();
        assert!(said.contains(" 0% packet loss"), "{data}: {said}");
    }
    let goodput = tcp_goodput(&station, &other, SocketAddrV4::new(HOST, 7007), MOMENT, MOMENT).unwrap();
    assert!(goodput > 1e7, "{goodput}");
    polder.stop();
}

/// Two interfaces, a tunnel and a bridge in the memory that a small box has to spare.
#[test]
fn memory_stays_within_what_was_promised() {
    if !root_or_skip("memory_stays_within_what_was_promised") {
        return;
    }
    let (topology, station, gateway) = station_and_gateway(1500);
    gateway.ip(&["link", "add", "eth1", "type", "veth", "peer", "name", "far1"]).unwrap();
    // The program of a test has more code than the one that ships: six mebibytes are for that.
    for (limits, settings) in [((40 << 10, 64 << 10), ""), ((8 << 10, 22 << 10), "memory_mib = 4\n")] {
        let text = format!(
            r#"{settings}
[port.eth0]
interface = "eth0"
[port.eth1]
interface = "eth1"
[bridge.br0]
members = ["eth0", "eth1"]
"#
        );
        let mut polder = Gateway::start(&topology, &gateway, &text);
        // Frames are touched when packets come.
        let _ = polder_testbed::traffic::sockets::wait_for_ping(&station, HOST, Duration::from_millis(300));
        let (own, resident) = polder.resident_kib();
        let fits = own <= limits.0 && resident <= limits.1;
        assert!(fits, "{own} of {resident} KiB with {settings:?}: {}", polder.said());
        polder.stop();
    }
}

/// State of the port `host`.
fn state(polder: &Gateway) -> String {
    let shown = polder.show("ports");
    let rows = shown["ports"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == "host").unwrap()["state"].as_str().unwrap().to_owned()
}

const TAP: &str = "[port.lan]\ninterface = \"eth0\"\n[bridge.br0]\nmembers = [\"lan\", \"host\"]\n\
                   [port.host]\ntap = \"host0\"\n";

#[test]
fn a_tap_that_is_down_is_said_to_be_so() {
    if !root_or_skip("a_tap_that_is_down_is_said_to_be_so") {
        return;
    }
    let (topology, station, gateway) = station_and_gateway(1500);
    let mut polder = Gateway::start(&topology, &gateway, TAP);
    polder.wait_until_said("host0 is down: `ip link set dev host0 up`");
    assert_eq!(state(&polder), "down");
    gateway.ip(&["link", "set", "host0", "up"]).unwrap();
    address(&gateway, "host0", HOST, 24);
    polder.wait_until_said("the link of host0 is up");
    assert_eq!(state(&polder), "open");
    assert_reaches(&station, HOST);
    polder.stop();
}

#[test]
fn a_tap_takes_no_name_of_another_interface() {
    if !root_or_skip("a_tap_takes_no_name_of_another_interface") {
        return;
    }
    let (topology, _station, gateway) = station_and_gateway(1500);
    let polder = Gateway::start(&topology, &gateway, TAP);
    let file = polder.socket().with_extension("toml");
    let said = || {
        let program = crate::support::polder().display().to_string();
        let output = gateway.command(&program).arg("check").arg(&file).output().unwrap();
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let why = "host0 is a bridge of the kernel's: choose another name for the TAP";
    assert!(!said().contains(why), "{}", said());
    polder.stop();
    gateway.ip(&["link", "add", "host0", "type", "bridge"]).unwrap();
    assert!(said().contains(why), "{}", said());
}

#[test]
fn a_tap_has_the_addresses_of_the_file_whenever_it_is_made() {
    if !root_or_skip("a_tap_has_the_addresses_of_the_file_whenever_it_is_made") {
        return;
    }
    let (topology, station, gateway) = station_and_gateway(1500);
    gateway.inside(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "0")).unwrap().unwrap();
    let text = format!("{TAP}addresses = [\"{HOST}/24\", \"fd90::2/64\"]\n");
    let mut polder = Gateway::start(&topology, &gateway, &text);
    assert_reaches(&station, HOST);
    let shown = || gateway.ip(&["address", "show", "dev", "host0"]).unwrap();
    assert!(shown().contains("fd90::2/64"), "{}", shown());
    // Its neighbours never ask again.
    let mac = || {
        let shown = gateway.ip(&["-o", "link", "show", "dev", "host0"]).unwrap();
        shown.split("link/ether ").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    };
    let first = mac();
    station.ip(&["neighbour", "replace", &HOST.to_string(), "lladdr", &first, "dev", "eth0"]).unwrap();
    // Whoever takes it away gets another one.
    gateway.ip(&["link", "delete", "host0"]).unwrap();
    polder.wait_until_said("port host: closed");
    assert_reaches(&station, HOST);
    assert_eq!((state(&polder).as_str(), mac()), ("open", first.clone()));
    polder.stop();
    let again = Gateway::start(&topology, &gateway, &text);
    assert_reaches(&station, HOST);
    assert_eq!(mac(), first);
    again.stop();
    let other = Gateway::start(&topology, &gateway, &text.replace("host0", "host1"));
    let shown = gateway.ip(&["-o", "link", "show", "dev", "host1"]).unwrap();
    assert!(!shown.contains(&first), "{shown}");
    other.stop();
}

#[test]
fn a_tap_made_beforehand_keeps_its_addresses() {
    if !root_or_skip("a_tap_made_beforehand_keeps_its_addresses") {
        return;
    }
    let (topology, station, gateway) = station_and_gateway(1500);
    gateway.ip(&["tuntap", "add", "host0", "mode", "tap"]).unwrap();
    gateway.ip(&["link", "set", "host0", "up"]).unwrap();
    address(&gateway, "host0", HOST, 24);
    for _ in 0..2 {
        let polder = Gateway::start(&topology, &gateway, TAP);
        assert_reaches(&station, HOST);
        assert_eq!(state(&polder), "open");
        polder.stop();
    }
    assert!(gateway.ip(&["address", "show", "dev", "host0"]).unwrap().contains("10.90.0.2/24"));
}
