//! Open vSwitch's userspace tunnels of packets as the other ends of Polder's.

use crate::machines::{PATIENCE, addresses, machine, ping, route};
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_testbed::clock;
use polder_testbed::peers::switch::Switch;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::UdpStream;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Outer addresses: Polder's and the switch's.
const ENDS: [[&str; 2]; 2] = [["10.89.0.1", "10.89.0.2"], ["fd89::1", "fd89::2"]];
/// The switch's address on the link.
const MAC: &str = "02:00:00:00:89:02";
/// Destination address of packets that leave the switch's bridge; the tunnel takes it off.
const NOBODY: &str = "02:00:00:00:89:99";

/// Tunnels by number: what they are at the switch and at Polder.
struct Tunnel {
    v6: bool,
    switch: &'static [&'static str],
    polder: &'static str,
}

/// A key of 0 is none to the switch, and no tunnel of its has both checksums and sequence numbers. `ptap` is the tunnel that
/// carries frames and packets alike, by their type.
const TUNNELS: [Tunnel; 6] = [
    Tunnel { v6: false, switch: &["options:packet_type=legacy_l3"], polder: "" },
    Tunnel {
        v6: false,
        switch: &["options:packet_type=legacy_l3", "options:key=89", "options:csum=true"],
        polder: "key = 89\nchecksum = true",
    },
    Tunnel {
        v6: false,
        switch: &["options:packet_type=ptap", "options:key=2", "options:seq=true"],
        polder: "key = 2\nsequence = true",
    },
    Tunnel { v6: true, switch: &["options:packet_type=legacy_l3"], polder: "encapsulation_limit = \"none\"" },
    Tunnel {
        v6: true,
        switch: &["options:packet_type=ptap", "options:key=4294967295", "options:csum=true"],
        polder: "key = 4294967295\nchecksum = true",
    },
    Tunnel {
        v6: true,
        switch: &["options:packet_type=legacy_l3", "options:key=1", "options:seq=true"],
        polder: "key = 1\nsequence = true",
    },
];

/// The station at Polder's TAP, in both families.
fn near_station(number: usize) -> [String; 2] {
    [format!("10.90.{number}.2"), format!("fd90:{number}::2")]
}

/// The stack of the switch's bridge.
fn far_station(number: usize) -> [String; 2] {
    [format!("10.91.{number}.2"), format!("fd91:{number}::2")]
}

fn configuration() -> String {
    let mut text = "\n[port.cable]\ninterface = \"cable\"\nrole = \"underlay\"\n".to_owned();
    for (number, Tunnel { v6, polder, .. }) in TUNNELS.iter().enumerate() {
        let [local, remote] = ENDS[usize::from(*v6)];
        text.push_str(&format!(
            "[tunnel.t{number}]\nkind = \"gre\"\nport = \"cable\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n{polder}\n\
             addresses = [\"10.91.{number}.1/24\", \"fd91:{number}::1/64\"]\n\
             [port.h{number}]\ntap = \"h{number}\"\nrole = \"router\"\n\
             addresses = [\"10.90.{number}.1/24\", \"fd90:{number}::1/64\"]\n"
        ));
    }
    text
}

/// A bridge on the link, with the outer addresses; one for each tunnel, with the stack's own.
fn configure(switch: &Switch) -> anyhow::Result<()> {
    let space = switch.namespace();
    switch.bridge("outer")?;
    switch.vsctl(&["set", "bridge", "outer", &format!("other-config:hwaddr=\"{MAC}\"")])?;
    switch.vsctl(&["add-port", "outer", "cable"])?;
    addresses(space, "outer", &[&format!("{}/24", ENDS[0][1]), &format!("{}/64", ENDS[1][1])]);
    space.ip(&["link", "set", "outer", "up"])?;
    for (number, Tunnel { v6, switch: options, .. }) in TUNNELS.iter().enumerate() {
        let (bridge, port) = (format!("inner{number}"), format!("gre{number}"));
        let [remote, local] = ENDS[usize::from(*v6)];
        switch.bridge(&bridge)?;
        let mac = format!("02:00:00:00:91:{number:02x}");
        switch.vsctl(&["set", "bridge", &bridge, &format!("other-config:hwaddr=\"{mac}\"")])?;
        let (remote, local) = (format!("options:remote_ip={remote}"), format!("options:local_ip={local}"));
        let mut words = vec!["add-port", &bridge, &port, "--", "set", "interface", &port, "type=gre"];
        words.extend([remote.as_str(), local.as_str()]);
        words.extend(options.iter());
        switch.vsctl(&words)?;
        flows(switch, &bridge, &port, options[0], &mac)?;
        // The switch does not complete what its own port leaves unfinished.
        polder_testbed::command::run(space.command("ethtool").args(["-K", &bridge, "tx", "off"]))?;
        let [v4, v6] = far_station(number);
        addresses(space, &bridge, &[&format!("{v4}/24"), &format!("{v6}/64")]);
        // The switch cuts nothing.
        space.ip(&["link", "set", &bridge, "mtu", "1400", "up"])?;
        for (net, gateway) in [
            (format!("10.90.{number}.0/24"), format!("10.91.{number}.1")),
            (format!("fd90:{number}::/64"), format!("fd91:{number}::1")),
        ] {
            space.ip(&["neighbour", "add", &gateway, "lladdr", NOBODY, "dev", &bridge])?;
            route(space, &format!("add {net} via {gateway} dev {bridge}"));
        }
    }
    Ok(())
}

/// Adds flows: a packet out of the tunnel gets a link header for the bridge's own port, and a
/// packet into it loses its header.
fn flows(switch: &Switch, bridge: &str, port: &str, kind: &str, mac: &str) -> anyhow::Result<()> {
    let is_tap = kind.ends_with("ptap");
    let header = format!("set_field:{mac}->eth_dst,LOCAL");
    let (take, give) = if is_tap { ("decap,", "encap(ethernet),") } else { ("", "") };
    switch.flow(bridge, &format!("priority=10,in_port=LOCAL,ip,actions={take}output:{port}"))?;
    switch.flow(bridge, &format!("priority=10,in_port=LOCAL,ipv6,actions={take}output:{port}"))?;
    if is_tap {
        for kind in ["(1,0x800)", "(1,0x86dd)"] {
            let flow = format!("priority=10,in_port={port},packet_type={kind},actions={give}{header}");
            switch.flow(bridge, &flow)?;
        }
        return Ok(());
    }
    switch.flow(bridge, &format!("priority=10,in_port={port},actions={header}"))
}

/// Waits for an answer to a ping.
fn answers(from: &Namespace, to: &str, size: &str, number: usize, polder: &Gateway, switch: &Switch) {
    let end = clock::now() + PATIENCE;
    while !ping(from, to, &["-s", size]).contains(" 0% packet loss") {
        let shown = || format!("{:#} {:#}\n{}", polder.show("drops"), polder.show("tunnels"), switch.said());
        assert!(clock::now() < end, "{size} bytes to {to} through tunnel {number}: {}", shown());
    }
}

/// Nothing is lost either way, at several sizes.
fn streams(near: &Namespace, far: &Namespace, number: usize) {
    let ends = [near_station(number), far_station(number)].map(|[v4, _]| v4.parse().unwrap());
    for frame_bytes in [64, 333, 1024, 1400] {
        for (from, to, address) in [(near, far, ends[1]), (far, near, ends[0])] {
            let destination = SocketAddrV4::new(address, 7089);
            let time = Duration::from_millis(150);
            let stream = UdpStream { from, to, destination, frame_bytes, rate: 300.0, time };
            let arrivals = stream.run().unwrap().arrivals;
            let bad = (arrivals.duplicated, arrivals.reordered);
            assert_eq!(bad, (0, 0), "tunnel {number}, {frame_bytes} bytes: {arrivals:?}");
            assert!(arrivals.loss_ratio() == 0.0, "tunnel {number}, {frame_bytes} bytes: {arrivals:?}");
        }
    }
}

#[test]
fn open_vswitch_is_the_other_end_of_tunnels_of_packets() {
    const NAME: &str = "open_vswitch_is_the_other_end_of_tunnels_of_packets";
    if !root_or_skip(NAME) {
        return;
    }
    if let Err(reason) = Switch::available() {
        return skip(NAME, &format!("{reason:#}"));
    }
    let mut topology = Topology::new().unwrap();
    let (near, far) = (machine(&mut topology, "near"), machine(&mut topology, "ovs"));
    wire(&topology, (&near, "cable"), (&far, "cable"), 1500);
    addresses(&near, "cable", &[&format!("{}/24", ENDS[0][0]), &format!("{}/64", ENDS[1][0])]);
    let polder = Gateway::start(&topology, &near, &configuration());
    let switch = Switch::start(&far, topology.directory(), None).unwrap();
    configure(&switch).unwrap_or_else(|error| panic!("{error:#}: {}", switch.said()));
    for number in 0..TUNNELS.len() {
        let tap = format!("h{number}");
        let [v4, v6] = near_station(number);
        addresses(&near, &tap, &[&format!("{v4}/24"), &format!("{v6}/64")]);
        near.ip(&["link", "set", &tap, "mtu", "1400", "up"]).unwrap();
        route(&near, &format!("add 10.91.{number}.0/24 via 10.90.{number}.1"));
        route(&near, &format!("add fd91:{number}::/64 via fd90:{number}::1"));
    }
    for number in 0..TUNNELS.len() {
        for (ours, theirs) in near_station(number).iter().zip(&far_station(number)) {
            for size in ["0", "56", "333", "1001", "1352"] {
                answers(&near, theirs, size, number, &polder, &switch);
                answers(&far, ours, size, number, &polder, &switch);
            }
        }
        streams(&near, &far, number);
    }
    assert_eq!((polder.drops("gre-bad-checksum"), polder.drops("tunnel-out-of-sequence")), (0, 0));
    polder.stop();
}
