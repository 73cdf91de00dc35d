//! VXLAN with several remotes, which are kernels.

use crate::support::{Gateway, address, assert_reaches, polder, root_or_skip, soon, wire};
use polder_datapath::wire::Checksum;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, command};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto::ICMP, sendto, socket_with};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::time::Duration;

/// Frames of each kind.
const COUNT: usize = 5;
/// EtherType for experiments (IEEE 802).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];
/// Time after which nothing more is on its way.
const QUIET: Duration = Duration::from_millis(300);

fn underlay(end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 84, 0, end)
}

fn inside(end: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 85, 0, end)
}

/// Polder with a TAP, and two kernels, by one switch.
struct Net {
    near: Namespace,
    far: [Namespace; 2],
    topology: Topology,
}

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let mut namespace = |role| topology.namespace(role).unwrap();
        let (near, air) = (namespace("near"), namespace("air"));
        let far = [namespace("far2"), namespace("far3")];
        air.ip(&["link", "add", "br0", "type", "bridge"]).unwrap();
        air.ip(&["link", "set", "br0", "up"]).unwrap();
        for (end, namespace) in (1..).zip([&near].into_iter().chain(&far)) {
            let link = format!("to{end}");
            wire(&topology, (namespace, "radio0"), (&air, &link), 1500);
            air.ip(&["link", "set", &link, "master", "br0"]).unwrap();
            address(namespace, "radio0", underlay(end), 24);
        }
        for (end, namespace) in (2..).zip(&far) {
            let local = underlay(end).to_string();
            let link =
                ["link", "add", "vx0", "type", "vxlan", "id", "42", "local", &local, "dstport", "4789"];
            namespace.ip(&link).unwrap();
            for other in (1..=3).filter(|&other| other != end) {
                let remote = underlay(other).to_string();
                let entry = ["fdb", "append", "00:00:00:00:00:00", "dev", "vx0", "dst", &remote];
                let status = namespace.command("bridge").args(entry).status().unwrap();
                assert!(status.success(), "bridge fdb append");
            }
            address(namespace, "vx0", inside(end), 24);
            namespace.ip(&["link", "set", "vx0", "up"]).unwrap();
        }
        Self { near, far, topology }
    }

    fn gateway(&self, remotes: &[u8]) -> Gateway {
        let gateway = Gateway::start(&self.topology, &self.near, &configuration(remotes));
        address(&self.near, "host0", inside(1), 24);
        self.near.ip(&["link", "set", "host0", "up"]).unwrap();
        gateway
    }

    /// Sockets on the interfaces inside: the host's and both kernels'.
    fn sockets(&self) -> [PacketSocket; 3] {
        let open = |namespace: &Namespace, interface: &str| {
            namespace.inside(|| PacketSocket::open(interface)).unwrap().unwrap()
        };
        [open(&self.near, "host0"), open(&self.far[0], "vx0"), open(&self.far[1], "vx0")]
    }
}

fn configuration(remotes: &[u8]) -> String {
    let mut text =
        "[port.host]\ntap = \"host0\"\n[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\n"
            .to_owned();
    let mut members = vec!["\"host\"".to_owned()];
    for &end in remotes {
        text += &format!(
            "[tunnel.far{end}]\nkind = \"vxlan\"\nlocal = \"{}\"\nremote = \"{}\"\nport = \"radio0\"\nvni = 42\n\
             [bridge.fabric.port.far{end}]\nisolated = true\n",
            underlay(1),
            underlay(end)
        );
        members.push(format!("\"far{end}\""));
    }
    format!("{text}[bridge.fabric]\nmembers = [{}]\n", members.join(", "))
}

/// Output of `polder trace` for a frame of the host's.
fn trace(gateway: &Gateway, to: [u8; 6]) -> String {
    let to = to.map(|byte| format!("{byte:02x}")).join(":");
    let packet = format!("eth dst {to} / ip src {} dst {} / udp dport 53", inside(1), inside(2));
    let mut command = Command::new(polder());
    command::run(command.args(["trace", "host", &packet, "--json", "--socket"]).arg(gateway.socket()))
        .unwrap()
}

/// Number of frames with that mark that wait in a socket.
fn received(socket: &PacketSocket, mark: &[u8]) -> usize {
    let mut room = [0; 2048];
    let lengths = std::iter::from_fn(|| {
        let length = socket.receive(&mut room).ok()?;
        Some(room[12..length] == *mark)
    });
    lengths.filter(|&is_marked| is_marked).count()
}

/// Sends frames by one socket and counts their arrivals at the others.
fn exchange(sockets: &[PacketSocket; 3], from: usize, to: [u8; 6], kind: u8) -> [usize; 3] {
    let source = [2, 0, 0, 0, 9, u8::try_from(from).unwrap()];
    let mark = [&EXPERIMENT[..], &[kind; 46]].concat();
    for _ in 0..COUNT {
        sockets[from].send(&[&to[..], &source, &mark].concat()).unwrap();
    }
    let mut counts = [0; 3];
    let mut last = clock::now();
    let end = last + soon();
    while clock::now() - last < QUIET && clock::now() < end {
        for (count, socket) in counts.iter_mut().zip(sockets) {
            let came = received(socket, &mark);
            *count += came;
            last = if came > 0 { clock::now() } else { last };
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    counts
}

#[test]
fn several_remotes_have_floods_once_and_learnt_addresses_are_behind_one() {
    if !root_or_skip("several_remotes_have_floods_once_and_learnt_addresses_are_behind_one") {
        return;
    }
    const ALL: [u8; 6] = [0xff; 6];
    let net = Net::new();
    let gateway = net.gateway(&[2, 3]);
    assert_reaches(&net.near, inside(2));
    assert_reaches(&net.near, inside(3));
    assert_reaches(&net.far[0], inside(3));
    let sockets = net.sockets();
    assert_eq!(exchange(&sockets, 0, ALL, 1), [0, COUNT, COUNT], "a broadcast goes to all remotes");
    assert_eq!(exchange(&sockets, 1, ALL, 2), [COUNT, 0, COUNT], "and from one remote to no other");
    let second = [2, 0, 0, 0, 9, 1];
    assert_eq!(exchange(&sockets, 0, second, 3), [0, COUNT, 0], "what was learnt goes to one remote");
    let unknown = [2, 0, 0, 0, 9, 77];
    assert_eq!(exchange(&sockets, 0, unknown, 4), [0, COUNT, COUNT], "what is unknown goes to all");
    let shown = gateway.show("tunnels").to_string();
    assert!(shown.contains("\"vni\":42") && shown.contains("\"kind\":\"vxlan\""), "{shown}");
    let traced = trace(&gateway, second);
    let words = ["\"vni\":42", "\"tunnel\":\"far2\"", "VXLAN with VNI 42"];
    assert!(words.iter().all(|word| traced.contains(word)), "{traced}");
    gateway.assert_conserved();
    // A remote goes and comes again while the other one stays.
    gateway.reload(&configuration(&[2])).unwrap();
    assert_eq!(exchange(&sockets, 0, ALL, 5), [0, COUNT, 0], "a remote is gone");
    gateway.reload(&configuration(&[2, 3])).unwrap();
    assert_reaches(&net.near, inside(3));
    assert_eq!(exchange(&sockets, 0, ALL, 6), [0, COUNT, COUNT], "and is there again");
    drop(sockets);
    gateway.stop();
}

/// An ICMP message from the first kernel: a packet of the tunnel was too big for what lies behind.
fn complain(net: &Net, mtu: u16) {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend([0x45, 0, 0x05, 0xdc, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    message.extend([underlay(1).octets(), underlay(2).octets()].concat());
    message.extend([0xc0, 0, 0x12, 0xb5, 0x05, 0xc8, 0, 0]);
    let checksum = Checksum::of(&message);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let send = || {
        let socket =
            socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ICMP)).unwrap();
        sendto(&socket, &message, SendFlags::empty(), &SocketAddrV4::new(underlay(1), 0)).unwrap();
    };
    net.far[0].inside(send).unwrap();
}

#[test]
fn a_router_says_what_the_path_of_vxlan_carries() {
    if !root_or_skip("a_router_says_what_the_path_of_vxlan_carries") {
        return;
    }
    let net = Net::new();
    let gateway = net.gateway(&[2]);
    assert_reaches(&net.near, inside(2));
    assert_eq!(gateway.all("tunnels", "mtu"), [1450]);
    complain(&net, 1300);
    let end = clock::now() + soon();
    while gateway.all("tunnels", "path_mtu") != [1300] {
        assert!(clock::now() < end, "{:#}", gateway.show("tunnels"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(gateway.all("tunnels", "mtu"), [1250]);
    let mut ping = net.near.command("ping");
    let output = ping.args(["-c", "1", "-W", "2", "-M", "do", "-s", "1223", &inside(2).to_string()]).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(said.contains("mtu = 1250"), "{said}");
    gateway.stop();
}
