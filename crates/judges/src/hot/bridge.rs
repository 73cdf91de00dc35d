//! Stations at three ports of a bridge that keeps VLANs apart: two trunks, and a port of one VLAN.

use super::packets::length;
use super::{Frames, Stand, Subject, Tell};
use anyhow::{Context as _, ensure};
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use rustix::io::Errno;
use std::time::Duration;

/// Time for a packet to arrive.
const SOON: Duration = Duration::from_secs(2);
/// Time for flows to become hot.
const HOT: Duration = Duration::from_secs(40);
/// Time for a packet to pass through user space.
const SETTLED: Duration = Duration::from_millis(5);
/// Types of frames: ordinary frames, and frames that end a case.
const PLAIN: u16 = 0x88b5;
const MARKER: u16 = 0x88b6;
/// The gateway's links carry 1500 bytes where frames come from, and 1400 where they go to.
const MTU: [&str; 3] = ["1500", "1400", "1400"];

const PORTS: [(&str, &str); 3] = [
    ("lan1", "{ trunk = [7, 8, 9], native = 9 }"),
    ("lan2", "{ trunk = [7, 9], native = 9 }"),
    ("lan3", "{ access = 7 }"),
];
const STATIONS: [[u8; 6]; 3] = [[2, 0, 0, 0x97, 0, 1], [2, 0, 0, 0x97, 0, 2], [2, 0, 0, 0x97, 0, 3]];

/// Frames from the station of one port to that of another, with this VLAN in their tag or without one.
#[derive(Clone, Copy, Debug)]
struct Flow {
    tag: Option<u16>,
    from: usize,
    to: usize,
}

const FLOWS: [Flow; 4] = [
    Flow { tag: Some(7), from: 0, to: 1 },
    Flow { tag: Some(7), from: 0, to: 2 },
    Flow { tag: None, from: 0, to: 1 },
    Flow { tag: None, from: 2, to: 0 },
];

/// Three stations, all of this process, at the ports of a bridge.
#[derive(Debug)]
pub(super) struct BridgeStand {
    ends: Vec<PacketSocket>,
    gateway: Gateway,
    is_fast: bool,
    _topology: Topology,
}

impl Flow {
    fn stations(self) -> [[u8; 6]; 2] {
        [STATIONS[self.to], STATIONS[self.from]]
    }

    fn tags(self) -> Option<(u16, u16)> {
        self.tag.map(|vlan| (0x8100, vlan))
    }

    /// The VLAN in which the bridge forwards it: the third port is in the one that has tags.
    fn vlan(self) -> u16 {
        if self.from == 2 { 7 } else { self.tag.unwrap_or(9) }
    }

    /// Frames by name: ordinary frames, and frames that a program must not treat as ordinary.
    fn odd_frames(self) -> Vec<(String, Vec<u8>)> {
        let [to, from] = self.stations();
        let own = self.tags();
        let mut frames = Vec::new();
        let mut add = |name: &str, frame| frames.push((format!("{self:?} {name}"), frame));
        for bytes in [46, 60, 1396, 1397, 1400, 1401, 1404, 1405, 1496, 1500] {
            add(&format!("{bytes} bytes"), frame([to, from], own.as_slice(), PLAIN, &vec![0x5a; bytes]));
        }
        let payload = [0x5a; 46];
        for tag in [0x0000, 0x6000, 0x6007, 0x1007, 0x0008, 0x0009, 0x000a, 0x0fff] {
            add(&format!("tag {tag:#x}"), frame([to, from], &[(0x8100, tag)], PLAIN, &payload));
            add(&format!("provider's tag {tag:#x}"), frame([to, from], &[(0x88a8, tag)], PLAIN, &payload));
            let two = [own.unwrap_or((0x8100, 9)), (0x8100, tag)];
            add(&format!("second tag {tag:#x}"), frame([to, from], &two, PLAIN, &payload));
            let two = [own.unwrap_or((0x8100, 9)), (0x88a8, tag)];
            add(&format!("second tag {tag:#x} of a provider"), frame([to, from], &two, PLAIN, &payload));
        }
        let own = own.as_slice();
        for (name, to, from) in [
            ("to all", [0xff; 6], from),
            ("to a group", [1, 0, 0x5e, 0, 0, 9], from),
            ("to a bridge's group", [1, 0x80, 0xc2, 0, 0, 0], from),
            ("to nobody", [2, 0, 0, 0x97, 0, 9], from),
            ("to itself", from, from),
            ("from a group", to, [1, 0, 0x5e, 0, 0, 9]),
            ("from nobody", to, [0; 6]),
        ] {
            add(name, frame([to, from], own, PLAIN, &payload));
        }
        frames
    }
}

fn frame([to, from]: [[u8; 6]; 2], tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let tags = tags.iter().flat_map(|(kind, tag)| [kind.to_be_bytes(), tag.to_be_bytes()].concat());
    let mut frame = [&to[..], &from].concat();
    frame.extend(tags);
    frame.extend(kind.to_be_bytes());
    frame.extend(payload);
    frame
}

impl BridgeStand {
    /// Lays wires and starts the gateway.
    ///
    /// # Errors
    /// When it does not start.
    pub(super) fn lay(mode: &str, subject: Subject) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let near = topology.namespace("near")?;
        let (mut ends, mut text) = (Vec::new(), String::new());
        let mut members = "[bridge.br0]\nmembers = [\"lan1\", \"lan2\", \"lan3\"]\n".to_owned();
        for ((name, vlan), mtu) in PORTS.into_iter().zip(MTU) {
            let station = topology.namespace(name)?;
            let end = |namespace, interface| End { namespace, interface };
            topology.wire_with_offloads(end(&station, "eth0"), end(&near, name), 2000)?;
            near.ip(&["link", "set", name, "mtu", mtu])?;
            if mode == "native" {
                end(&station, "eth0").take_frames(end(&near, name))?;
            }
            ends.push(station.inside(|| PacketSocket::open("eth0"))??);
            let keys = subject.keys();
            text += &format!("[port.{name}]\ninterface = \"{name}\"\nmode = \"{mode}\"\n{keys}\n");
            members += &format!("[bridge.br0.port.{name}]\nvlan = {vlan}\n");
        }
        text += &members;
        let gateway = Gateway::start_lacking(subject.lacking(), &near, topology.directory(), &text)?;
        Ok(Self { ends, gateway, is_fast: subject != Subject::Slow, _topology: topology })
    }

    fn send(&self, from: usize, frame: &[u8]) -> anyhow::Result<()> {
        match self.ends[from].send(frame) {
            // It is too long for the gateway's link.
            Ok(()) | Err(Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error).context("cannot send"),
        }
    }

    /// Frames of stations of ours that have come at an end.
    fn arrived(&self, end: usize) -> Vec<Vec<u8>> {
        let (mut seen, mut room) = (Vec::new(), [0; 4096]);
        while let Ok(frame) = self.ends[end].receive_tagged(&mut room) {
            // Kernels around have something to say, too.
            if has_type(&frame, &[PLAIN, MARKER]) {
                seen.push(frame);
            }
        }
        seen
    }

    /// Frames that have come at the flow's other two ends, the receiver's first, until two markers come that are sent now.
    ///
    /// The first goes to all stations of the VLAN, which only user space does: behind it comes nothing from there that was
    /// sent before. The second takes the way of the flow.
    fn until_marker(&self, flow: Flow, number: usize) -> anyhow::Result<Frames> {
        let third = (0..PORTS.len()).find(|end| ![flow.from, flow.to].contains(end)).unwrap_or_default();
        let mut seen = [Vec::new(), Vec::new()];
        let [to, from] = flow.stations();
        for (to, is_for_third) in [([0xff; 6], flow.vlan() == 7), (to, false)] {
            let mark = [&[0x5a; 48][..], &length(number % 60_000)].concat();
            self.send(flow.from, &frame([to, from], flow.tags().as_slice(), MARKER, &mark))?;
            let is_mark = |frame: &Vec<u8>| frame[..6] == to && frame.ends_with(&mark);
            let end = clock::now() + SOON;
            while !seen[0].iter().any(is_mark) || is_for_third && !seen[1].iter().any(is_mark) {
                ensure!(clock::now() < end, "the marker of packet {number} did not come: {flow:?}");
                interrupt::sleep(Duration::from_micros(200))?;
                seen[0].extend(self.arrived(flow.to));
                seen[1].extend(self.arrived(third));
            }
        }
        seen.iter_mut().for_each(|frames| frames.retain(|frame| !has_type(frame, &[MARKER])));
        Ok(seen)
    }

    /// Sends markers of a flow until one is carried, if the gateway has a fast path.
    fn warm_flow(&self, flow: Flow, number: usize) -> anyhow::Result<()> {
        let end = clock::now() + HOT;
        loop {
            let before = self.carried()?;
            self.until_marker(flow, number)?;
            if !self.is_fast || self.carried()? > before {
                return Ok(());
            }
            let has_time = clock::now() < end;
            ensure!(has_time, "{flow:?} is not carried: {}", self.gateway.show("flows")?);
            interrupt::sleep(SETTLED)?;
        }
    }

    /// Sends the packets of a flow. False when enough was seen.
    fn run_flow(&self, flow: Flow, tell: Tell<'_>) -> anyhow::Result<bool> {
        for (number, (name, odd)) in flow.odd_frames().into_iter().enumerate() {
            self.send(flow.from, &odd)?;
            if !tell(&name, self.until_marker(flow, number)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Stations make themselves known in their VLANs.
    fn announce(&self) -> anyhow::Result<()> {
        for (end, tag) in [(0, None), (1, None), (2, None), (0, Some(7)), (1, Some(7))] {
            let tags = tag.map(|vlan| (0x8100, vlan));
            self.send(end, &frame([[0xff; 6], STATIONS[end]], tags.as_slice(), PLAIN, &[0; 46]))?;
        }
        interrupt::sleep(4 * SETTLED)?;
        (0..PORTS.len()).for_each(|end| drop(self.arrived(end)));
        Ok(())
    }

    /// A station of the third port sends from the first one: its frames go there from then on.
    fn impostor(&self) -> anyhow::Result<Frames> {
        let [first, second, third] = STATIONS;
        self.send(0, &frame([second, third], &[(0x8100, 7)], PLAIN, &[1; 46]))?;
        interrupt::sleep(4 * SETTLED)?;
        (0..PORTS.len()).for_each(|end| drop(self.arrived(end)));
        self.send(1, &frame([third, second], &[(0x8100, 7)], PLAIN, &[2; 46]))?;
        interrupt::sleep(4 * SETTLED)?;
        let there = [self.arrived(0), self.arrived(2)];
        // What is carried to the station's old port must not be carried there any more.
        self.send(0, &frame([third, first], &[(0x8100, 7)], PLAIN, &[3; 46]))?;
        interrupt::sleep(4 * SETTLED)?;
        let [here, gone] = there;
        Ok([here, [gone, self.arrived(2)].concat()])
    }
}

impl Stand for BridgeStand {
    fn warm(&mut self) -> anyhow::Result<()> {
        self.announce()?;
        FLOWS.into_iter().enumerate().try_for_each(|(number, flow)| self.warm_flow(flow, number))
    }

    fn run(&mut self, tell: Tell<'_>) -> anyhow::Result<()> {
        for flow in FLOWS {
            if !self.run_flow(flow, tell)? {
                return Ok(());
            }
            // Some of them were a station's that is elsewhere.
            self.warm()?;
        }
        tell("a station at another port", self.impostor()?);
        Ok(())
    }

    fn carried(&self) -> anyhow::Result<u64> {
        let shown = self.gateway.show("flows")?;
        let ports = shown["flows"]["ports"].as_array().context("`show flows` lists no ports")?;
        Ok(ports.iter().filter_map(|port| port["received"].as_u64()).sum())
    }

    fn end(self: Box<Self>) -> anyhow::Result<()> {
        self.gateway.balances()?;
        self.gateway.stop()
    }
}

/// True if a frame has one of these types behind its tags.
fn has_type(frame: &[u8], types: &[u16]) -> bool {
    let mut at = 12;
    while frame.get(at..at + 2).is_some_and(|kind| [[0x81, 0], [0x88, 0xa8]].contains(&[kind[0], kind[1]])) {
        at += 4;
    }
    frame.get(at..at + 2).is_some_and(|kind| types.contains(&u16::from_be_bytes([kind[0], kind[1]])))
}
