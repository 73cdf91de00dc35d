//! Frames of a bridge's ports and of its machine: daemons on a port hear their protocols, nobody draws the host's frames
//! to a port, and frames that leave by the port that they came in by do not melt the network.

use crate::events::{events, until_told};
use crate::machines::until;
use crate::support::{Gateway, address, assert_reaches, polder, root_or_skip, wire};
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

const MODES: [&str; 3] = ["skb", "native", "generic"];
const EAPOL: u16 = 0x888e;
const LLDP: u16 = 0x88cc;
const SLOW: u16 = 0x8809;
const PTP: u16 = 0x88f7;
/// The daemons' EtherTypes, and one that is nobody's.
const KINDS: [u16; 5] = [EAPOL, LLDP, SLOW, PTP, 0x88b5];
const STATION: [u8; 6] = [2, 0x81, 0, 0, 0, 1];
/// Group of PTP, which bridges forward as any.
const PTP_GROUP: [u8; 6] = [1, 0x1b, 0x19, 0, 0, 0];
/// Time in which a few frames arrive.
const WHILE: Duration = Duration::from_millis(300);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 1);
const NEAR: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);

fn group(last: u8) -> [u8; 6] {
    [1, 0x80, 0xc2, 0, 0, last]
}

fn frame(to: [u8; 6], from: [u8; 6], kind: u16) -> Vec<u8> {
    [&to[..], &from, &kind.to_be_bytes(), &[0; 46]].concat()
}

fn tagged(to: [u8; 6], control: u16, kind: u16) -> Vec<u8> {
    let mut frame = frame(to, STATION, kind);
    let [high, low] = control.to_be_bytes();
    frame.splice(12..12, [0x81, 0, high, low]);
    frame
}

/// Address of an interface.
fn mac(namespace: &Namespace, interface: &str) -> [u8; 6] {
    let text = namespace.ip(&["-br", "link", "show", interface]).unwrap();
    let word = text.split_whitespace().find(|word| word.split(':').count() == 6).unwrap();
    let bytes = word.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Frames that wait in a socket, by their destination and EtherType; of those with a tag, that of the tag.
fn heard(socket: &PacketSocket) -> Vec<([u8; 6], u16)> {
    let mut room = [0; 2048];
    let frames = std::iter::from_fn(|| socket.receive_tagged(&mut room).ok());
    let seen = frames.map(|frame| {
        let (to, kind) = (frame[..6].try_into().unwrap(), u16::from_be_bytes([frame[12], frame[13]]));
        (to, kind)
    });
    seen.filter(|(_, kind)| KINDS.contains(kind) || *kind == 0x8100).collect()
}

/// A gateway's namespace with two ports, a socket of each daemon on the first, and one on each wire's other end.
struct Net {
    daemons: Vec<(u16, PacketSocket)>,
    near: PacketSocket,
    far: PacketSocket,
    ends: [Namespace; 2],
    gw: Namespace,
    topology: Topology,
}

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let gw = topology.namespace("gw").unwrap();
        let ends = ["near", "far"].map(|name| {
            let end = topology.namespace(name).unwrap();
            wire(&topology, (&gw, name), (&end, "eth0"), 1500);
            end
        });
        let open = |end: &Namespace| end.inside(|| PacketSocket::open("eth0").unwrap()).unwrap();
        let daemon = |kind| gw.inside(|| PacketSocket::open_for("near", kind).unwrap()).unwrap();
        let daemons = KINDS.map(|kind| (kind, daemon(kind))).into();
        let [near, far] = [&ends[0], &ends[1]].map(open);
        Self { daemons, near, far, ends, gw, topology }
    }

    /// Sends frames by the near wire; those that daemons hear, and those that arrive at the far wire.
    fn send(&self, frames: &[Vec<u8>]) -> [Vec<([u8; 6], u16)>; 2] {
        for socket in self.daemons.iter().map(|(_, socket)| socket).chain([&self.far]) {
            heard(socket);
        }
        frames.iter().for_each(|frame| self.near.send(frame).unwrap());
        sleep(WHILE);
        let by_daemons = self.daemons.iter().flat_map(|(kind, socket)| {
            let frames = heard(socket);
            assert!(frames.iter().all(|(_, seen)| seen == kind || *seen == 0x8100), "{frames:x?}");
            frames
        });
        let mut by_daemons = by_daemons.collect::<Vec<_>>();
        let mut far = heard(&self.far);
        by_daemons.sort_unstable();
        far.sort_unstable();
        [by_daemons, far]
    }

    fn trace(&self, gateway: &Gateway, port: &str, frame: &[u8]) -> Value {
        let digits = frame.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut command = Command::new(polder());
        let said = command::run(
            command.args(["trace", port, "hex", &digits, "--json", "--socket"]).arg(gateway.socket()),
        );
        serde_json::from_str(&said.unwrap()).unwrap()
    }
}

fn bridge(mode: &str, rest: &str) -> String {
    format!(
        "[port.near]\ninterface = \"near\"\nmode = \"{mode}\"\n[port.far]\ninterface = \"far\"\nmode = \"{mode}\"\n\
         [bridge.lan]\nmembers = [\"near\", \"far\"]\n{rest}"
    )
}

/// Frames of daemons: to groups, and to the port's own address.
fn control(own: [u8; 6]) -> Vec<([u8; 6], u16)> {
    let mut control = vec![
        (group(0), SLOW),
        (group(2), SLOW),
        (group(3), EAPOL),
        (group(0xe), LLDP),
        (group(0xe), PTP),
        (group(0xf), LLDP),
        (own, EAPOL),
        (own, PTP),
    ];
    control.sort_unstable();
    control
}

fn frames(all: &[([u8; 6], u16)]) -> Vec<Vec<u8>> {
    all.iter().map(|&(to, kind)| frame(to, STATION, kind)).collect()
}

#[test]
fn daemons_on_a_bridges_port_hear_their_frames_and_the_bridge_does_not() {
    let test = "daemons_on_a_bridges_port_hear_their_frames_and_the_bridge_does_not";
    if !root_or_skip(test) {
        return;
    }
    for mode in MODES {
        let net = Net::new();
        let own = mac(&net.gw, "near");
        let gateway = Gateway::start(&net.topology, &net.gw, &bridge(mode, ""));
        let control = control(own);
        assert_eq!(net.send(&frames(&control)), [control.clone(), vec![]], "{mode}");
        let learnt = gateway.show("fdb").to_string();
        assert!(!learnt.contains(&text(STATION)), "{mode}: {learnt}");
        assert_eq!(gateway.drops("reserved-multicast"), 0, "{mode}: the program passes them");
        // PTP's own group, other frames to the port's address, and what has a tag, are the bridge's.
        let others = [(PTP_GROUP, PTP), (own, 0x88b5), ([2, 0x81, 0, 0, 0, 9], EAPOL)];
        let [by_daemons, far] = net.send(&frames(&others));
        assert_eq!(by_daemons, [], "{mode}");
        assert_eq!(far, [(PTP_GROUP, PTP), ([2, 0x81, 0, 0, 0, 9], EAPOL)], "{mode}");
        assert_eq!(gateway.drops("same-port"), 1, "{mode}: a station of the port itself");
        let [by_daemons, _] = net.send(&[tagged(own, 7, EAPOL)]);
        assert_eq!(by_daemons, [], "{mode}");
        // With a priority alone it is the port's own. The kernel takes such a tag off.
        let [by_daemons, far] = net.send(&[tagged(own, 0xe000, EAPOL)]);
        assert_eq!((by_daemons.len(), far.len()), (1, 0), "{mode}: {by_daemons:x?}");
        // The trace says who has a frame.
        let traced = net.trace(&gateway, "near", &frame(group(0xe), STATION, LLDP));
        assert_eq!(traced["fate"], "kernel", "{mode}: {traced:#}");
        assert!(traced.to_string().contains("link-local group"), "{mode}: {traced:#}");
        let traced = net.trace(&gateway, "near", &frame(own, STATION, EAPOL));
        assert_eq!(traced["fate"], "kernel", "{mode}: {traced:#}");
        // Another address of the interface.
        let new = [2, 0x81, 0, 0, 0, 0x77];
        net.gw.ip(&["link", "set", "near", "address", &text(new)]).unwrap();
        until("the port's new address is known", || net.send(&frames(&[(new, EAPOL)]))[0] == [(new, EAPOL)]);
        assert_eq!(net.send(&frames(&[(own, EAPOL)])), [vec![], vec![(own, EAPOL)]], "{mode}");
        gateway.stop();
    }
}

#[test]
fn listed_groups_pass_the_bridge_and_not_to_the_kernel() {
    if !root_or_skip("listed_groups_pass_the_bridge_and_not_to_the_kernel") {
        return;
    }
    for mode in MODES {
        let net = Net::new();
        let own = mac(&net.gw, "near");
        let lists = |list: &str| bridge(mode, &format!("forward_groups = {list}\n"));
        let gateway = Gateway::start(&net.topology, &net.gw, &lists("[\"lldp\", \"dot1x\"]"));
        let control = control(own);
        let is_listed = |&(to, _): &([u8; 6], u16)| to == group(3) || to == group(0xe);
        let (listed, rest): (Vec<_>, Vec<_>) = control.iter().partition(|&frame| is_listed(frame));
        assert_eq!(net.send(&frames(&control)), [rest, listed], "{mode}");
        // PAUSE is neither forwarded nor learnt.
        let pause = [frame(group(1), [2, 0x81, 0, 0, 0, 5], 0x8808)];
        assert_eq!(net.send(&pause)[1], [], "{mode}");
        assert!(!gateway.show("fdb").to_string().contains("02:81:00:00:00:05"), "{mode}");
        let traced = net.trace(&gateway, "near", &frame(group(0xe), STATION, LLDP));
        assert!(traced.to_string().contains("flooded to far"), "{mode}: {traced:#}");
        // A reload changes the set without opening the port anew.
        let opened = || events(&gateway).iter().filter(|event| event["event"] == "port-opened").count();
        let before = opened();
        gateway.reload(&lists("[\"stp\", \"lacp\"]")).unwrap();
        let is_listed = |&(to, _): &([u8; 6], u16)| to == group(0) || to == group(2);
        let (listed, rest): (Vec<_>, Vec<_>) = control.iter().partition(|&frame| is_listed(frame));
        assert_eq!(net.send(&frames(&control)), [rest, listed], "{mode}");
        gateway.reload(&bridge(mode, "")).unwrap();
        assert_eq!(net.send(&frames(&control)), [control.clone(), vec![]], "{mode}");
        assert_eq!(opened(), before, "{mode}");
        gateway.stop();
    }
}

/// The kernel's bridge and Polder's leave the same frames to daemons of a port; unicast, which the kernel's bridge hands
/// to its own interface, aside.
#[test]
fn the_kernels_bridge_keeps_the_same_groups_on_the_link() {
    if !root_or_skip("the_kernels_bridge_keeps_the_same_groups_on_the_link") {
        return;
    }
    let net = Net::new();
    net.gw.ip(&["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"]).unwrap();
    for port in ["near", "far"] {
        net.gw.ip(&["link", "set", port, "master", "br0"]).unwrap();
    }
    net.gw.ip(&["link", "set", "br0", "up"]).unwrap();
    until("the bridge forwards", || !net.send(&frames(&[(PTP_GROUP, PTP)]))[1].is_empty());
    let groups = [(group(2), SLOW), (group(3), EAPOL), (group(0xe), LLDP), (group(0xe), PTP)];
    let mut heard = groups.to_vec();
    heard.sort_unstable();
    assert_eq!(net.send(&frames(&groups)), [heard, vec![]]);
    assert_eq!(
        net.send(&[tagged(group(0xe), 7, LLDP), tagged(group(2), 7, SLOW)])[1],
        [],
        "tags do not matter"
    );
    assert_eq!(net.send(&frames(&[(PTP_GROUP, PTP)])), [vec![], vec![(PTP_GROUP, PTP)]]);
}

#[test]
fn a_hosts_own_address_is_nobody_elses() {
    if !root_or_skip("a_hosts_own_address_is_nobody_elses") {
        return;
    }
    for mode in MODES {
        let net = Net::new();
        let text_of = bridge(mode, "").replace("members = [", "members = [\"host\", ");
        let gateway =
            Gateway::start(&net.topology, &net.gw, &format!("[port.host]\ntap = \"host\"\n{text_of}"));
        address(&net.gw, "host", HOST, 24);
        net.gw.ip(&["link", "set", "host", "up"]).unwrap();
        address(&net.ends[0], "eth0", NEAR, 24);
        let own = mac(&net.gw, "host");
        let entry = |mac: [u8; 6]| gateway.show("fdb").to_string().contains(&text(mac));
        assert!(entry(own), "{mode}: an entry from the start");
        assert_reaches(&net.ends[0], HOST);
        // Somebody behind the other port says that he is the host.
        let forge = |own: [u8; 6]| {
            for _ in 0..5 {
                net.far.send(&frame([0xff; 6], own, 0x88b5)).unwrap();
            }
        };
        forge(own);
        until("forgeries are dropped", || gateway.drops("own-address") == 5);
        until_told(
            &gateway,
            json!({ "event": "own-address", "bridge": "lan", "port": "far", "address": text(own), "level": "warn" }),
        );
        forge(own);
        until("forgeries are dropped", || gateway.drops("own-address") == 10);
        assert_reaches(&net.ends[0], HOST);
        let traced = net.trace(&gateway, "far", &frame([0xff; 6], own, 0x88b5));
        assert!(traced.to_string().contains("is the address of host itself"), "{mode}: {traced:#}");
        // The TAP gets an address that a station of the other port has used.
        let new = [2, 0x81, 0, 0, 0, 0x78];
        net.far.send(&frame([0xff; 6], new, 0x88b5)).unwrap();
        until("the station is known", || entry(new));
        net.gw.ip(&["link", "set", "host", "address", &text(new)]).unwrap();
        until("the new address is the host's", || {
            forge(new);
            gateway.drops("own-address") > 10
        });
        until("the old one is forgotten", || !entry(own));
        net.ends[0].ip(&["neighbour", "flush", "dev", "eth0"]).unwrap();
        assert_reaches(&net.ends[0], HOST);
        sleep(2 * Duration::from_secs(1));
        let told = events(&gateway).iter().filter(|event| event["event"] == "own-address").count();
        assert_eq!(told, 2, "{mode}: once for each address in a minute");
        gateway.stop();
    }
}

#[test]
fn a_hairpin_port_reflects_and_another_does_not() {
    if !root_or_skip("a_hairpin_port_reflects_and_another_does_not") {
        return;
    }
    let [one, two] = [[2, 0x81, 0, 0, 1, 1], [2, 0x81, 0, 0, 1, 2]];
    for mode in MODES {
        let net = Net::new();
        let hairpin = |on: &str| bridge(mode, &format!("[bridge.lan.port.near]\nhairpin = {on}\n"));
        let gateway = Gateway::start(&net.topology, &net.gw, &hairpin("true"));
        let send = |frame: &[u8]| {
            heard(&net.near);
            net.near.send(frame).unwrap();
            sleep(WHILE);
            heard(&net.near).len()
        };
        assert_eq!(send(&frame([0xff; 6], one, 0x88b5)), 1, "{mode}: a broadcast comes back");
        for _ in 0..5 {
            assert_eq!(send(&frame(one, two, 0x88b5)), 1, "{mode}: to a station of the same port");
        }
        gateway.reload(&hairpin("false")).unwrap();
        assert_eq!(send(&frame([0xff; 6], one, 0x88b5)), 0, "{mode}");
        assert_eq!(send(&frame(one, two, 0x88b5)), 0, "{mode}");
        assert_eq!(gateway.drops("same-port"), 1, "{mode}");
        gateway.stop();
    }
}

/// Packets that an interface has received.
fn received(namespace: &Namespace, interface: &str) -> u64 {
    let shown = namespace.ip(&["-j", "-s", "link", "show", interface]).unwrap();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// Two gateways whose hairpin ports face each other, or one whose peer is a kernel's bridge; a host behind each.
fn facing(mode: &str, peer_is_kernel: bool) {
    const LIMIT: u64 = 100;
    let mut topology = Topology::new().unwrap();
    let [left, right] = ["left", "right"].map(|name| topology.namespace(name).unwrap());
    wire(&topology, (&left, "cable"), (&right, "cable"), 1500);
    let hosts = [(&left, "lefth", NEAR), (&right, "righth", HOST)].map(|(switch, name, ip)| {
        let host = topology.namespace(name).unwrap();
        wire(&topology, (switch, "port"), (&host, "eth0"), 1500);
        address(&host, "eth0", ip, 24);
        host
    });
    let text = format!(
        "[port.cable]\ninterface = \"cable\"\nmode = \"{mode}\"\n[port.port]\ninterface = \"port\"\nmode = \"{mode}\"\n\
         [bridge.lan]\nmembers = [\"cable\", \"port\"]\n\
         [bridge.lan.port.cable]\nhairpin = true\nhairpin_flood_limit = {LIMIT}\n"
    );
    let mut gateways = vec![Gateway::start(&topology, &left, &text)];
    if peer_is_kernel {
        right.ip(&["link", "add", "br0", "type", "bridge", "mcast_snooping", "0"]).unwrap();
        for port in ["cable", "port"] {
            right.ip(&["link", "set", port, "master", "br0"]).unwrap();
        }
        right.ip(&["link", "set", "cable", "type", "bridge_slave", "hairpin", "on"]).unwrap();
        right.ip(&["link", "set", "br0", "up"]).unwrap();
    } else {
        gateways.push(Gateway::start(&topology, &right, &text));
    }
    let before = received(&left, "cable");
    for _ in 0..3 {
        for (host, to) in hosts.iter().zip([HOST, NEAR]) {
            let _ = host.command("ping").args(["-c", "3", "-i", "0.2", "-W", "1", &to.to_string()]).output();
        }
    }
    until_told(&gateways[0], json!({ "event": "hairpin-loop", "port": "cable", "level": "warn" }));
    sleep(Duration::from_secs(2));
    let crossed = received(&left, "cable") - before;
    // Some tens of seconds at most, at the limit, and what each of the pings causes.
    assert!(crossed < 40 * LIMIT, "{mode}, kernel {peer_is_kernel}: {crossed} packets crossed");
    gateways.into_iter().for_each(Gateway::stop);
}

#[test]
fn two_facing_hairpin_ports_do_not_melt() {
    if !root_or_skip("two_facing_hairpin_ports_do_not_melt") {
        return;
    }
    facing("skb", false);
    facing("native", false);
    facing("skb", true);
}
