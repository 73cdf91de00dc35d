//! Tunnels of the kernel's, and of other programs, between the ends of Polder's.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, polder, root_or_skip, wire};
use polder_testbed::topology::{Namespace, Topology};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto, socket_with,
};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 87, 0, 2);
const MODES: [&str; 3] = ["skb", "native", "generic"];

/// near: Polder and the kernel – far: the kernel.
struct Net {
    near: Namespace,
    far: Namespace,
    topology: Topology,
}

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (near, far) = (new("near"), new("far"));
        wire(&topology, (&near, "radio0"), (&far, "radio0"), 1500);
        addresses(&near, "radio0", &[&format!("{NEAR}/24"), "2001:db8:87::1/64"]);
        addresses(&far, "radio0", &[&format!("{FAR}/24"), "2001:db8:87::2/64"]);
        Self { near, far, topology }
    }

    /// Begins a gateway with one tunnel, whose other member is a TAP with an address.
    fn gateway(&self, mode: &str, tunnel: &str, inside: &str) -> Gateway {
        let gateway = Gateway::start(&self.topology, &self.near, &text(mode, tunnel));
        addresses(&self.near, "host0", &[inside]);
        self.near.ip(&["link", "set", "host0", "up"]).unwrap();
        gateway
    }
}

fn text(mode: &str, tunnel: &str) -> String {
    format!(
        "[port.host]\ntap = \"host0\"\n[port.radio0]\ninterface = \"radio0\"\nrole = \"underlay\"\nmode = \"{mode}\"\n\
         [tunnel.far]\nport = \"radio0\"\n{tunnel}[bridge.b]\nmembers = [\"host\", \"far\"]\n"
    )
}

/// An interface of the kernel's between two ends.
fn vxlan(namespace: &Namespace, vni: u8, (local, remote): (&str, &str), inside: &str) {
    let (name, vni) = (format!("vx{vni}"), vni.to_string());
    let words = ["link", "add", &name, "type", "vxlan", "id", &vni, "local", local, "remote", remote];
    namespace.ip(&[&words[..], &["dstport", "4789", "dev", "radio0"]].concat()).unwrap();
    addresses(namespace, &name, &[inside]);
    namespace.ip(&["link", "set", &name, "up"]).unwrap();
}

#[test]
fn a_second_network_between_the_same_ends_is_the_kernels() {
    if !root_or_skip("a_second_network_between_the_same_ends_is_the_kernels") {
        return;
    }
    for (near, far) in [("10.87.0.1", "10.87.0.2"), ("2001:db8:87::1", "2001:db8:87::2")] {
        let net = Net::new();
        vxlan(&net.near, 43, (near, far), "10.87.43.1/24");
        vxlan(&net.far, 43, (far, near), "10.87.43.2/24");
        vxlan(&net.far, 42, (far, near), "10.87.42.2/24");
        reaches(&net.near, "10.87.43.2");
        for mode in MODES {
            let tunnel = format!("kind = \"vxlan\"\nvni = 42\nlocal = \"{near}\"\nremote = \"{far}\"\n");
            let gateway = net.gateway(mode, &tunnel, "10.87.42.1/24");
            reaches(&net.near, "10.87.42.2");
            reaches(&net.near, "10.87.43.2");
            reaches(&net.far, "10.87.43.1");
            reaches(&net.far, "10.87.42.1");
            assert_eq!(gateway.drops("no-tunnel"), 0, "{mode}");
            gateway.stop();
        }
    }
}

/// GRE packets that the kernel receives, as a raw socket has them.
struct Raw(OwnedFd);

impl Raw {
    fn open(namespace: &Namespace) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let open = || socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::GRE)).unwrap();
        Self(namespace.inside(open).unwrap())
    }

    fn send(&self, payload: &[u8]) {
        sendto(&self.0, payload, SendFlags::empty(), &SocketAddr::new(NEAR.into(), 0)).unwrap();
    }

    /// Takes the marks of packets that have come, which are their last bytes.
    fn marks(&self, marks: &mut BTreeSet<u8>) {
        let mut room = [0; 2048];
        while let Ok((length, _)) = recv(&self.0, &mut room[..], RecvFlags::DONTWAIT) {
            marks.extend(room[..length].last());
        }
    }
}

/// A GRE header, a broadcast frame and a mark.
fn marked(header: &[u8], mark: u8) -> Vec<u8> {
    let frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0x87, mark, 0x88, 0xb5], &[mark; 46]].concat();
    [header, &frame].concat()
}

#[test]
fn gre_with_another_key_version_or_payload_is_the_kernels() {
    if !root_or_skip("gre_with_another_key_version_or_payload_is_the_kernels") {
        return;
    }
    // Ours first.
    let headers: [&[u8]; 7] = [
        &[0x20, 0, 0x65, 0x58, 0, 0, 0, 7],
        &[0x20, 0, 0x65, 0x58, 0, 0, 0, 8],
        &[0, 0, 0x65, 0x58],
        &[0x20, 0, 0x08, 0, 0, 0, 0, 7],
        &[0x30, 0x81, 0x88, 0x0b, 0, 60, 0, 7, 0, 0, 0, 1],
        &[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1],
        &[0x20, 0, 0, 0, 0, 0, 0, 7],
    ];
    let net = Net::new();
    let (sender, kernel) = (Raw::open(&net.far), Raw::open(&net.near));
    for mode in MODES {
        let tunnel = format!("kind = \"gretap\"\nkey = 7\nlocal = \"{NEAR}\"\nremote = \"{FAR}\"\n");
        let gateway = net.gateway(mode, &tunnel, "10.87.42.1/24");
        let mut marks = BTreeSet::new();
        kernel.marks(&mut marks);
        marks.clear();
        for (mark, header) in (1..).zip(headers) {
            sender.send(&marked(header, mark));
        }
        until("the kernel has what is its own", || {
            kernel.marks(&mut marks);
            marks.len() == headers.len() - 1
        });
        assert!(!marks.contains(&1), "{mode}: {marks:?}");
        until("Polder has the packet of its tunnel", || {
            gateway.all("tunnels", "received").first().is_some_and(|&received| received > 0)
        });
        kernel.marks(&mut marks);
        assert!(!marks.contains(&1), "{mode}: {marks:?}");
        assert_eq!(gateway.drops("no-tunnel") + gateway.drops("tunnel-bad-protocol"), 0, "{mode}");
        gateway.stop();
    }
}

/// Fragments of two tunnels of GRE cannot be told apart, and neither can packets with the same number; `check` says it.
#[test]
fn check_names_the_kernels_tunnel_with_the_same_number() {
    if !root_or_skip("check_names_the_kernels_tunnel_with_the_same_number") {
        return;
    }
    let net = Net::new();
    let said = |vni: u8| {
        let tunnel = format!("kind = \"vxlan\"\nvni = {vni}\nlocal = \"{NEAR}\"\nremote = \"{FAR}\"\n");
        let file = net.topology.directory().join("check.toml");
        std::fs::write(&file, format!("version = 1\n{}", text("skb", &tunnel))).unwrap();
        check(&net.near, &file)
    };
    let quiet = said(43);
    assert!(!quiet.contains("kernel tunnel"), "{quiet}");
    vxlan(&net.near, 43, ("10.87.0.1", "10.87.0.2"), "10.87.43.1/24");
    let found = said(43);
    assert!(found.contains("the kernel's vx43 (vxlan) has the same ends, UDP port and VNI 43"), "{found}");
    let other = said(42);
    assert!(!other.contains("kernel tunnel"), "{other}");
}

fn check(namespace: &Namespace, file: &Path) -> String {
    let program = polder().display().to_string();
    let mut command: Command = namespace.command(&program);
    let output = command.arg("check").arg(file).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat())
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
