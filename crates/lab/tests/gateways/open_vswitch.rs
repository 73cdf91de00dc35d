//! Open vSwitch's userspace tunnels as the other ends of Polder's.

use crate::machines::{PATIENCE, addresses, machine, ping};
use crate::support::{Gateway, root_or_skip, skip, wire};
use polder_testbed::clock;
use polder_testbed::peers::switch::Switch;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::UdpStream;
use std::net::SocketAddrV4;
use std::time::Duration;

/// Outer addresses: Polder's and the switch's.
const ENDS: [[&str; 2]; 2] = [["10.86.0.1", "10.86.0.2"], ["fd86::1", "fd86::2"]];
/// The switch's address on the link.
const MAC: &str = "02:00:00:00:86:02";

/// Tunnels by number: what they are at the switch and at Polder.
struct Tunnel {
    v6: bool,
    switch: &'static [&'static str],
    polder: &'static str,
}

/// The switch sums up a packet before it writes the sequence number (`netdev_gre_push_header`, 3.1), so no tunnel
/// has both; and a key of 0 is none to it.
const TUNNELS: [Tunnel; 6] = [
    Tunnel { v6: false, switch: &[], polder: "" },
    Tunnel {
        v6: false,
        switch: &["options:key=86", "options:csum=true"],
        polder: "key = 86\nchecksum = true",
    },
    Tunnel { v6: false, switch: &["options:key=2", "options:seq=true"], polder: "key = 2\nsequence = true" },
    Tunnel { v6: true, switch: &[], polder: "encapsulation_limit = \"none\"" },
    Tunnel {
        v6: true,
        switch: &["options:key=4294967295", "options:csum=true"],
        polder: "key = 4294967295\nchecksum = true",
    },
    Tunnel { v6: true, switch: &["options:key=1", "options:seq=true"], polder: "key = 1\nsequence = true" },
];

/// The stack at Polder's TAP, and that of the switch's bridge.
fn inside(number: usize) -> [String; 2] {
    [1, 2].map(|end| format!("10.87.{number}.{end}"))
}

fn configuration() -> String {
    let mut text = "\n[port.cable]\ninterface = \"cable\"\nrole = \"underlay\"\n".to_owned();
    for (number, Tunnel { v6, polder, .. }) in TUNNELS.iter().enumerate() {
        let [local, remote] = ENDS[usize::from(*v6)];
        text.push_str(&format!(
            "[tunnel.t{number}]\nkind = \"gretap\"\nport = \"cable\"\nlocal = \"{local}\"\nremote = \"{remote}\"\n\
             {polder}\n[port.h{number}]\ntap = \"h{number}\"\n[bridge.b{number}]\nmembers = [\"t{number}\", \"h{number}\"]\n"
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
    space.ip(&["address", "add", &format!("{}/24", ENDS[0][1]), "dev", "outer"])?;
    space.ip(&["address", "add", &format!("{}/64", ENDS[1][1]), "dev", "outer", "nodad"])?;
    space.ip(&["link", "set", "outer", "up"])?;
    for (number, Tunnel { v6, switch: options, .. }) in TUNNELS.iter().enumerate() {
        let (bridge, port) = (format!("inner{number}"), format!("gre{number}"));
        let [remote, local] = ENDS[usize::from(*v6)];
        switch.bridge(&bridge)?;
        let (remote, local) = (format!("options:remote_ip={remote}"), format!("options:local_ip={local}"));
        let mut words = vec!["add-port", &bridge, &port, "--", "set", "interface", &port, "type=gre"];
        words.extend([remote.as_str(), local.as_str()]);
        words.extend(options.iter());
        switch.vsctl(&words)?;
        // The switch does not complete what its own port leaves unfinished.
        polder_testbed::command::run(space.command("ethtool").args(["-K", &bridge, "tx", "off"]))?;
        space.ip(&["address", "add", &format!("{}/24", inside(number)[1]), "dev", &bridge])?;
        // The switch cuts nothing.
        space.ip(&["link", "set", &bridge, "mtu", "1400", "up"])?;
    }
    Ok(())
}

/// Waits for an answer to a ping.
fn answers(from: &Namespace, to: &str, size: &str, number: usize, polder: &Gateway) {
    let end = clock::now() + PATIENCE;
    while !ping(from, to, &["-s", size]).contains(" 0% packet loss") {
        let shown = || format!("{:#} {:#}", polder.show("drops"), polder.show("tunnels"));
        assert!(clock::now() < end, "{size} bytes to {to} through tunnel {number}: {}", shown());
    }
}

/// Nothing is lost either way, at several sizes.
fn streams(near: &Namespace, far: &Namespace, number: usize) {
    let ends = inside(number).map(|address| address.parse().unwrap());
    for frame_bytes in [64, 333, 1024, 1400] {
        for (from, to, address) in [(near, far, ends[1]), (far, near, ends[0])] {
            let destination = SocketAddrV4::new(address, 7086);
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
fn open_vswitch_is_the_other_end() {
    const NAME: &str = "open_vswitch_is_the_other_end";
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
        near.ip(&["address", "add", &format!("{}/24", inside(number)[0]), "dev", &tap]).unwrap();
        near.ip(&["link", "set", &tap, "mtu", "1400", "up"]).unwrap();
    }
    for number in 0..TUNNELS.len() {
        let [ours, theirs] = inside(number);
        for (from, to) in [(&near, &theirs), (&far, &ours)] {
            for size in ["0", "56", "333", "1001", "1372"] {
                answers(from, to, size, number, &polder);
            }
        }
        streams(&near, &far, number);
    }
    assert_eq!((polder.drops("gre-bad-checksum"), polder.drops("tunnel-out-of-sequence")), (0, 0));
    polder.stop();
}
