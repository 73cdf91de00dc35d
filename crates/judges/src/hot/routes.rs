//! A sender and a next hop, both of this process, at the ports of a router.

use super::packets::udp;
use super::route_packets::{Flow, SENDER, frame, odd_frames, packet, v4};
use super::sink::Sink;
use super::{Frames, Stand, Subject, Tell};
use anyhow::{Context as _, ensure};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use serde_json::Value;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Link-layer addresses: of the gateway's port, and of the next hop.
const WAN: [u8; 6] = [2, 0, 0, 0x98, 0, 0x0c];
/// Link-layer address of the next hop.
pub const HOP: &str = "02:00:00:98:02:09";
/// Time for a packet to arrive.
const SOON: Duration = Duration::from_secs(2);
/// Time for flows to become hot.
const HOT: Duration = Duration::from_secs(40);
/// Time for a packet to pass through user space.
const SETTLED: Duration = Duration::from_millis(5);
/// UDP destination port of packets that end a case.
const MARKER: u16 = 7099;

/// Flows: the second pair by a route with an MTU, the next two leave with a tag.
pub const FLOWS: [Flow; 10] = [
    (0, "10.98.0.5", "10.98.8.8"),
    (0, "fd98:0::5", "fd98:8::8"),
    (0, "10.98.0.5", "10.98.9.9"),
    (0, "fd98:0::5", "fd98:9::9"),
    (0, "10.98.0.5", "10.98.10.9"),
    (0, "fd98:0::5", "fd98:10::9"),
    (7, "10.98.7.5", "10.98.10.9"),
    (7, "fd98:7::5", "fd98:10::9"),
    (7, "10.98.7.5", "10.98.8.8"),
    (7, "fd98:7::5", "fd98:8::8"),
];
/// Addresses beside them, by the route of the first.
const BESIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 98, 0, 5), Ipv4Addr::new(10, 98, 8, 9)];
/// Number of flows without a tag, which come first.
const UNTAGGED: usize = 4;

/// A sender and a next hop, both of this process, at the ports of a router.
#[derive(Debug)]
pub struct RouteStand {
    here: PacketSocket,
    there: PacketSocket,
    /// The next hop's namespace.
    beyond: Namespace,
    sink: Option<Mutex<Sink>>,
    /// The gateway's namespace.
    pub near: Namespace,
    gateway: Gateway,
    /// Flows that there are networks for.
    pub flows: &'static [Flow],
    is_fast: bool,
    _topology: Topology,
}

impl RouteStand {
    /// Lays wires and starts the gateway.
    ///
    /// # Errors
    /// When it does not start.
    pub fn lay(mode: &str, subject: Subject) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [here, near, there] = ["here", "near", "there"].map(|role| machine(&mut topology, role));
        let (here, near, there) = (here?, near?, there?);
        for (outside, port, mac) in
            [(&here, "lan", "02:00:00:98:00:0b"), (&there, "wan", "02:00:00:98:00:0c")]
        {
            let end = |namespace, interface| End { namespace, interface };
            topology.wire_with_offloads(end(outside, "eth0"), end(&near, port), 2000)?;
            near.ip(&["link", "set", port, "address", mac])?;
            if mode == "native" {
                end(outside, "eth0").take_frames(end(&near, port))?;
            }
        }
        near.ip(&["link", "set", "wan", "mtu", "1420"])?;
        let flows = networks(&near)?;
        let keys = subject.keys();
        let port = |name: &str| {
            format!("[port.{name}]\ninterface = \"{name}\"\nrole = \"router\"\nmode = \"{mode}\"\n{keys}\n")
        };
        let text = ["lan", "wan"].map(port).concat();
        let gateway = Gateway::start_lacking(subject.lacking(), &near, topology.directory(), &text)?;
        let open = |namespace: &Namespace| -> anyhow::Result<PacketSocket> {
            Ok(namespace.inside(|| PacketSocket::open("eth0"))??)
        };
        let (here, beyond, there) = (open(&here)?, there.clone(), open(&there)?);
        let (is_fast, sink) = (subject != Subject::Slow, None);
        Ok(Self { here, there, beyond, sink, near, gateway, flows, is_fast, _topology: topology })
    }

    /// Receives in the order in which frames come, also where a veth's other end has none: [`drain`](Self::drain) alone sees
    /// them from here on, those without a tag.
    ///
    /// # Errors
    /// When the interface cannot be opened.
    pub fn receive_in_order(&mut self) -> anyhow::Result<()> {
        self.sink = Some(Mutex::new(Sink::open(&self.beyond, "eth0")?));
        Ok(())
    }

    /// Entries of the gateway.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn entries(&self) -> anyhow::Result<Vec<Value>> {
        let shown = self.gateway.show("flows")?;
        shown["flows"]["flows"].as_array().cloned().context("`show flows` lists no flows")
    }

    /// Packets that were carried, as the one port received and as the other transmitted them.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn ways(&self) -> anyhow::Result<[u64; 2]> {
        let shown = self.gateway.show("flows")?;
        let of = |port: usize, name: &str| {
            shown["flows"]["ports"][port][name].as_u64().context("`show flows` lists no ports")
        };
        Ok([of(0, "received")?, of(1, "transmitted")?])
    }

    /// Sends a frame to the router.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send(&self, frame: &[u8]) -> anyhow::Result<()> {
        self.here.send(frame).context("cannot send")
    }

    /// Sends two packets that end a case, and answers what has left by the far port before they do.
    ///
    /// The first has options, which only user space looks at: behind it comes nothing from there that was sent before. The
    /// second takes the way of the flow.
    fn until_marker(&self, flow: Flow, number: usize) -> anyhow::Result<Vec<Vec<u8>>> {
        let mark = [&udp(MARKER, 8)[..], &super::packets::length(number % 60_000)].concat();
        let mut seen = Vec::new();
        self.send(&frame(FLOWS[0], &v4(64, 0, 17, BESIDE, &[1, 1, 1, 0], &mark)))?;
        self.until_ends_with(&mark, &mut seen).with_context(|| format!("packet {number} of {flow:?}"))?;
        self.send(&frame(flow, &packet([flow.1, flow.2], 64, 17, &mark)))?;
        self.until_ends_with(&mark, &mut seen).with_context(|| format!("packet {number} of {flow:?}"))?;
        Ok(seen)
    }

    /// Adds what leaves by the far port until a packet does that ends with `mark`.
    fn until_ends_with(&self, mark: &[u8], seen: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
        let (mut room, end) = ([0; 4096], clock::now() + SOON);
        loop {
            ensure!(clock::now() < end, "its marker did not come");
            let Ok(frame) = self.there.receive_tagged(&mut room) else {
                interrupt::sleep(Duration::from_micros(200))?;
                continue;
            };
            if frame[6..12] != WAN || !is_routed(&frame) {
                continue;
            }
            if frame.ends_with(mark) {
                return Ok(());
            }
            seen.push(frame);
        }
    }

    /// Packets that the gateway has sent to the sender.
    pub fn answers(&self) -> Vec<Vec<u8>> {
        let (mut seen, mut room) = (Vec::new(), [0; 4096]);
        while let Ok(frame) = self.here.receive_tagged(&mut room) {
            if frame[..6] == SENDER && is_routed(&frame) {
                seen.push(normalized(frame));
            }
        }
        seen
    }

    /// Frames that come of a packet, at either side.
    fn results(&self, flow: Flow, odd: &[u8], number: usize) -> anyhow::Result<Frames> {
        self.send(odd)?;
        let there = self.until_marker(flow, number)?;
        // Answers are limited in rate.
        interrupt::sleep(SETTLED)?;
        Ok([there, self.answers()])
    }

    /// Numbers at the ends of packets that have come, and their destination addresses.
    pub fn drain(&self, numbers: &mut Vec<u16>) -> Vec<[u8; 6]> {
        let (mut room, mut hops) = ([0; 4096], Vec::new());
        let mut each = |frame: &[u8]| {
            if frame[6..12] == WAN && is_routed(frame) {
                numbers.extend(frame.last_chunk().copied().map(u16::from_be_bytes));
                hops.extend(frame.first_chunk());
            }
        };
        if let Some(sink) = &self.sink {
            sink.lock().unwrap_or_else(PoisonError::into_inner).frames(each);
            return hops;
        }
        while let Ok(frame) = self.there.receive_tagged(&mut room) {
            each(&frame);
        }
        hops
    }
}

impl Stand for RouteStand {
    fn warm(&mut self) -> anyhow::Result<()> {
        let (mut number, end) = (0, clock::now() + HOT);
        loop {
            for &flow in self.flows {
                self.until_marker(flow, number)?;
                number += 1;
            }
            let is_hot = |row: &&Value| row["state"] == "carried" && row["packets"].as_u64() > Some(0);
            if !self.is_fast || self.entries()?.iter().filter(is_hot).count() == self.flows.len() {
                return Ok(());
            }
            ensure!(clock::now() < end, "the flows are not carried");
            interrupt::sleep(SETTLED)?;
        }
    }

    fn run(&mut self, tell: Tell<'_>) -> anyhow::Result<()> {
        let odd = |&flow: &Flow| odd_frames(flow).into_iter().map(move |(name, odd)| (flow, name, odd));
        for (number, (flow, name, odd)) in self.flows.iter().flat_map(odd).enumerate() {
            if !tell(&name, self.results(flow, &odd, number)?) {
                break;
            }
        }
        Ok(())
    }

    fn carried(&self) -> anyhow::Result<u64> {
        let [received, transmitted] = self.ways()?;
        ensure!(received == transmitted, "{received} were carried in and {transmitted} out");
        Ok(received)
    }

    fn end(self: Box<Self>) -> anyhow::Result<()> {
        self.gateway.balances()?;
        self.gateway.stop()
    }
}

/// A namespace with IPv6 that forwards nothing by itself.
fn machine(topology: &mut Topology, role: &str) -> anyhow::Result<Namespace> {
    let namespace = topology.namespace(role)?;
    namespace.inside(|| {
        for (key, value) in [
            ("ipv6/conf/all/disable_ipv6", "0"),
            ("ipv6/conf/default/disable_ipv6", "0"),
            ("ipv6/conf/default/accept_dad", "0"),
            ("ipv6/conf/all/forwarding", "0"),
            ("ipv4/ip_forward", "0"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
        ] {
            std::fs::write(format!("/proc/sys/net/{key}"), value)
                .with_context(|| format!("cannot set {key}"))?;
        }
        anyhow::Ok(())
    })??;
    Ok(namespace)
}

/// Configures the router's addresses, routes and neighbours; returns the flows that use these networks.
fn networks(near: &Namespace) -> anyhow::Result<&'static [Flow]> {
    let vlan = |port: &str, vlan: &str| {
        let name = format!("{port}.{vlan}");
        near.ip(&["link", "add", "link", port, "name", &name, "type", "vlan", "id", vlan]).is_ok()
            && near.ip(&["link", "set", &name, "up"]).is_ok()
    };
    // A kernel without the module 8021q has no such interfaces.
    let has_vlans = vlan("lan", "7") && vlan("wan", "9");
    let mut nets = vec![("lan", "0", "", ""), ("wan", "1", "8", ""), ("wan", "1", "9", "mtu 1300")];
    if has_vlans {
        near.ip(&["link", "set", "wan.9", "mtu", "1400"])?;
        nets.extend([("lan.7", "7", "", ""), ("wan.9", "2", "10", "")]);
    }
    let run = |line: String| near.ip(&line.split_whitespace().collect::<Vec<_>>()).map(drop);
    for (interface, net, other, mtu) in nets {
        if mtu.is_empty() {
            run(format!("address add 10.98.{net}.1/24 dev {interface}"))?;
            run(format!("address add fd98:{net}::1/64 dev {interface} nodad"))?;
        }
        if other.is_empty() {
            neighbour(near, interface, &format!("10.98.{net}.5"), "02:00:00:98:01:05")?;
            neighbour(near, interface, &format!("fd98:{net}::5"), "02:00:00:98:01:05")?;
        } else {
            run(format!("-4 route add 10.98.{other}.0/24 via 10.98.{net}.9 {mtu}"))?;
            run(format!("-6 route add fd98:{other}::/64 via fd98:{net}::9 {mtu}"))?;
            neighbour(near, interface, &format!("10.98.{net}.9"), HOP)?;
            neighbour(near, interface, &format!("fd98:{net}::9"), HOP)?;
        }
    }
    Ok(if has_vlans { &FLOWS } else { &FLOWS[..UNTAGGED] })
}

/// Enters the link-layer address of a neighbour.
///
/// # Errors
/// When the kernel refuses.
pub fn neighbour(near: &Namespace, interface: &str, address: &str, mac: &str) -> anyhow::Result<()> {
    near.ip(&["neigh", "replace", address, "lladdr", mac, "nud", "permanent", "dev", interface]).map(drop)
}

/// False for what the kernels around say of their own accord: ARP, and IPv6 to groups.
fn is_routed(frame: &[u8]) -> bool {
    let kind = if frame[12..14] == [0x81, 0] { &frame[16..18] } else { &frame[12..14] };
    kind != [8, 6] && frame[..2] != [0x33, 0x33]
}

/// A message of the gateway's without what may differ from one to the next: the identification, and the checksum with it.
fn normalized(mut frame: Vec<u8>) -> Vec<u8> {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    if frame[ip] >> 4 == 4 {
        frame[ip + 4..ip + 6].fill(0);
        frame[ip + 10..ip + 12].fill(0);
    }
    frame
}
