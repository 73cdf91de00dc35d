//! A USB adapter as a port of a gateway: a model behind USB/IP, whose wire is an interface of a station's
//! kernel.

use crate::support::{Gateway, address, assert_reaches, assert_silent, root_or_skip, soon, stream};
use polder_devices::lan78xx::model;
use polder_judges::lan78xx::{Door, Shown, Wire};
use polder_testbed::clock;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::tcp_goodput;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

const STATION: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 90, 0, 2);
const MOMENT: Duration = Duration::from_millis(300);

/// A station, and a gateway whose one cable is that of a USB adapter.
pub(crate) struct Desk {
    topology: Topology,
    station: Namespace,
    pub(crate) gateway: Namespace,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let (station, gateway) = (topology.namespace("sta").unwrap(), topology.namespace("gw").unwrap());
        Self { topology, station, gateway }
    }

    /// Plugs the adapter in: the other end of its cable is `wire0` of the station.
    pub(crate) fn plug_in(&self, door: Door) -> Shown {
        let wire = Wire::Tap { name: "wire0".to_owned(), mtu: 1500 };
        let options = model::Options::default();
        let shown = self.station.inside(|| Shown::start(options, wire, door, "1-1")).unwrap().unwrap();
        self.station.ip(&["link", "set", "wire0", "up"]).unwrap();
        address(&self.station, "wire0", STATION, 24);
        shown
    }

    pub(crate) fn start(&self, server: &str, more: &str) -> Gateway {
        let text = format!(
            r#"
[port.usb]
lan78xx = {{ usbip = "{server}", busid = "1-1"{more} }}
[port.host]
tap = "host0"
[bridge.br0]
members = ["usb", "host"]
"#
        );
        let polder = Gateway::start(&self.topology, &self.gateway, &text);
        self.gateway.ip(&["link", "set", "host0", "up"]).unwrap();
        address(&self.gateway, "host0", HOST, 24);
        // A TAP that is made anew has another address than the one that the station may remember.
        self.station.ip(&["neigh", "flush", "dev", "wire0"]).unwrap();
        polder
    }

    /// TCP and UDP, each way.
    fn traffic(&self) {
        assert_reaches(&self.station, HOST);
        let to = |ip| SocketAddrV4::new(ip, 7007);
        let out = tcp_goodput(&self.gateway, &self.station, to(STATION), MOMENT, MOMENT).unwrap();
        let back = tcp_goodput(&self.station, &self.gateway, to(HOST), MOMENT, MOMENT).unwrap();
        assert!(out > 1e6 && back > 1e6, "{out} {back}");
        for (from, into, ip) in
            [(&self.station, &self.gateway, HOST), (&self.gateway, &self.station, STATION)]
        {
            let arrivals = stream(from, into, ip, 500.0, MOMENT);
            assert!(arrivals.received > 0, "{arrivals:?}");
        }
    }
}

/// View of the port.
fn port(polder: &Gateway) -> Value {
    polder.show("ports")["ports"][0].clone()
}

fn wait_until_open(polder: &Gateway, open: bool) -> Value {
    let end = clock::now() + soon();
    loop {
        let row = port(polder);
        if row["open"] == open {
            return row;
        }
        assert!(clock::now() < end, "{row:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until each buffer of a transfer is free or in flight: nothing moves, so none is held.
fn wait_until_transfers_rest(polder: &Gateway) {
    let end = clock::now() + 6 * soon();
    loop {
        let shown = polder.show("buffers");
        let rows = shown["buffers"]["transfers"].as_array().unwrap();
        let count = |row: &Value, what: &str| row[what].as_u64().unwrap();
        let rests = |row| count(row, "total") == count(row, "free") + count(row, "in_flight");
        let names = rows.iter().map(|row| (&row["port"], &row["direction"])).collect::<Vec<_>>();
        assert_eq!(names, [(&"usb".into(), &"in".into()), (&"usb".into(), &"out".into())]);
        // The adapter may send at any moment, so transfers wait for that.
        if rows.iter().all(rests) && count(&rows[0], "in_flight") > 0 {
            return;
        }
        assert!(clock::now() < end, "{shown:#}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_adapter_on_another_machine_is_a_port_that_comes_and_goes() {
    if !root_or_skip("an_adapter_on_another_machine_is_a_port_that_comes_and_goes") {
        return;
    }
    let desk = Desk::new();
    let listen = |port: u16| desk.gateway.inside(|| TcpListener::bind(("127.0.0.1", port))).unwrap().unwrap();
    let shown = desk.plug_in(Door::Tcp(listen(0)));
    let (number, server) = (shown.port(), format!("127.0.0.1:{}", shown.port()));
    let polder = desk.start(&server, "");
    desk.traffic();
    let row = port(&polder);
    assert_eq!((&row["name"], &row["kind"], &row["openings"]), (&"usb".into(), &"lan78xx".into(), &1.into()));
    let adapter = &row["adapter"];
    assert_eq!((&adapter["link_mbit"], &adapter["receive_urbs"]), (&1000.into(), &30.into()), "{row:#}");
    assert_eq!((&adapter["bus"], &adapter["phy"]), (&"USB 3".into(), &"0007:c132 at 1".into()), "{row:#}");
    assert!(adapter["sent_bytes"].as_u64() > Some(100_000), "{row:#}");
    // The cable is pulled out and plugged in.
    shown.bench().adapter.set_link(false);
    assert_silent(&desk.station, HOST);
    shown.bench().adapter.set_link(true);
    assert_reaches(&desk.station, HOST);
    // The adapter goes, with traffic on its way, and comes back.
    let received = row["received"].as_u64();
    drop(shown);
    let row = wait_until_open(&polder, false);
    assert!(row["trouble"].as_str().is_some_and(|why| !why.is_empty()), "{row:#}");
    let shown = desk.plug_in(Door::Tcp(listen(number)));
    let row = wait_until_open(&polder, true);
    assert_eq!((&row["name"], &row["openings"]), (&"usb".into(), &2.into()), "{row:#}");
    assert!(row["received"].as_u64() >= received, "the counters go on: {row:#}");
    desk.traffic();
    // Taken away at once, without a word to the client.
    shown.bench().adapter.unplug();
    let end = clock::now() + soon();
    while port(&polder)["openings"].as_u64() < Some(3) {
        assert!(clock::now() < end, "{:#}", port(&polder));
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until_open(&polder, true);
    desk.traffic();
    polder.stop();
}

/// A router's port is what an underlay is elsewhere: packets of tunnels are Polder's, and what is for the machine
/// reaches it, by its TAP.
#[test]
fn an_adapter_carries_tunnels_beside_what_is_for_the_machine() {
    if !root_or_skip("an_adapter_carries_tunnels_beside_what_is_for_the_machine") {
        return;
    }
    let desk = Desk::new();
    let path = desk.topology.directory().join("usbip.sock");
    let _shown = desk.plug_in(socket(&path));
    let text = format!(
        r#"
[router]
routes = "static"
[port.usb]
usbip = "{}/1-1"
role = "router"
addresses = ["10.90.0.3/24"]
[port.host]
tap = "host0"
role = "router"
addresses = ["10.91.0.1/24"]
[tunnel.vx]
kind = "vxlan"
vni = 7
local = "10.90.0.3"
remote = "{STATION}"
port = "usb"
[port.inner]
tap = "inner0"
[bridge.inside]
members = ["vx", "inner"]
"#,
        path.display()
    );
    let polder = Gateway::start(&desk.topology, &desk.gateway, &text);
    let (station, machine) = (&desk.station, &desk.gateway);
    for (interface, its) in [("host0", [10, 91, 0, 2]), ("inner0", [10, 92, 0, 2])] {
        machine.ip(&["link", "set", interface, "up"]).unwrap();
        address(machine, interface, its.into(), 24);
    }
    machine.ip(&["route", "add", "10.90.0.0/24", "via", "10.91.0.1"]).unwrap();
    let tunnel = ["link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", "4789", "dev", "wire0"];
    let ends = ["local", &STATION.to_string(), "remote", "10.90.0.3"];
    station.ip(&[&tunnel[..], &ends].concat()).unwrap();
    station.ip(&["link", "set", "vx0", "up"]).unwrap();
    address(station, "vx0", [10, 92, 0, 1].into(), 24);
    station.ip(&["route", "add", "10.91.0.0/24", "via", "10.90.0.3"]).unwrap();
    for own in [[10, 92, 0, 2], [10, 91, 0, 2], [10, 90, 0, 3]] {
        assert_reaches(station, own.into());
    }
    for (from, into, to) in [(station, machine, [10, 92, 0, 2]), (machine, station, [10, 92, 0, 1])] {
        let goodput = tcp_goodput(from, into, SocketAddrV4::new(to.into(), 7007), MOMENT, MOMENT).unwrap();
        assert!(goodput > 1e6, "{to:?}: {goodput}");
    }
    let shown = polder.show("tunnels")["tunnels"][0].clone();
    assert_eq!((&shown["port"], &shown["port_open"]), (&"usb".into(), &true.into()), "{shown:#}");
    let counts = ["sent", "received"].map(|name| shown["counters"][name].as_u64());
    assert!(counts.iter().all(|count| *count > Some(100)), "{shown:#}");
    polder.stop();
}

#[test]
fn a_gateway_starts_without_its_adapter_and_takes_it_when_it_comes() {
    if !root_or_skip("a_gateway_starts_without_its_adapter_and_takes_it_when_it_comes") {
        return;
    }
    let desk = Desk::new();
    let path = desk.topology.directory().join("usbip.sock");
    let text = format!(
        "[port.usb]\nlan78xx = {{ usbip = \"{}\", busid = \"1-1\" }}\n[port.host]\ntap = \"host0\"\n\
         [bridge.br0]\nmembers = [\"usb\", \"host\"]\n",
        path.display()
    );
    let polder = Gateway::start(&desk.topology, &desk.gateway, &text);
    let row = port(&polder);
    let trouble = row["trouble"].as_str().unwrap_or_default();
    assert!(row["open"] == false && row["openings"] == 0, "{row:#}");
    assert!(trouble.contains("cannot reach the USB/IP server"), "{trouble}");
    for key in ["interface", "mode", "queues", "driver"] {
        assert!(!trouble.contains(&format!("`{key}`")), "{trouble} names a key of interfaces");
    }
    desk.gateway.ip(&["link", "set", "host0", "up"]).unwrap();
    address(&desk.gateway, "host0", HOST, 24);
    let shown = desk.plug_in(socket(&path));
    let row = wait_until_open(&polder, true);
    assert_eq!(row["openings"], 1, "{row:#}");
    assert_reaches(&desk.station, HOST);
    polder.stop();
    drop(shown);
}

fn socket(path: &Path) -> Door {
    let _ = std::fs::remove_file(path);
    Door::Unix(UnixListener::bind(path).unwrap())
}

#[test]
fn a_local_socket_will_do_with_any_techniques() {
    if !root_or_skip("a_local_socket_will_do_with_any_techniques") {
        return;
    }
    let off = ", poll_cycle = false, urb_pools = false, pending_queue = false, resubmit_in_cycle = false, \
               frame_is_unit = false, vlan_offload = true";
    let desk = Desk::new();
    let path = desk.topology.directory().join("usbip.sock");
    let server = path.display().to_string();
    let shown = desk.plug_in(socket(&path));
    for more in [off, ""] {
        let polder = desk.start(&server, more);
        desk.traffic();
        wait_until_transfers_rest(&polder);
        polder.stop();
    }
    drop(shown);
}

#[test]
fn what_stands_in_the_way_of_an_adapter_is_told() {
    if !root_or_skip("what_stands_in_the_way_of_an_adapter_is_told") {
        return;
    }
    let desk = Desk::new();
    let path = desk.topology.directory().join("usbip.sock");
    let check = |place: &str| {
        let file = desk.topology.directory().join("check.toml");
        let text = format!(
            "version = 1\n[port.usb]\nlan78xx = {{ {place} }}\n[port.host]\ntap = \"host0\"\n\
             [bridge.br0]\nmembers = [\"usb\", \"host\"]\n"
        );
        std::fs::write(&file, text).unwrap();
        let program = crate::support::polder();
        let output = std::process::Command::new(program).arg("check").arg(file).output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let here = format!("usbip = \"{}\", busid = \"1-1\"", path.display());
    let (code, text) = check(&here);
    assert_eq!(code, Some(0), "the port waits for it: {text}");
    assert!(text.contains("cannot reach the USB/IP server") && text.contains("usbipd"), "{text}");

    let shown = desk.plug_in(socket(&path));
    let (code, text) = check(&here);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("✓ adapter LAN7800 1-1 of"), "{text}");
    let (code, text) = check(&here.replace("1-1", "1-7"));
    assert_eq!(code, Some(0), "the port waits for it: {text}");
    assert!(text.contains("usbip bind -b 1-7"), "{text}");
    drop(shown);

    let slow = model::Options { speed: polder_devices::usb::Speed::High, ..model::Options::default() };
    let shown = Shown::start(slow, Wire::None, socket(&path), "1-1").unwrap();
    let (code, text) = check(&here);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("! bus the adapter runs at USB 2 speed") && text.contains("USB 3 port"), "{text}");
    drop(shown);

    let (code, text) = check("usb = \"9-9\"");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("9-9") || text.contains("cannot list USB devices"), "{text}");
}
