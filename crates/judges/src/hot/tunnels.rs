//! A station on a port of a gateway, and its tunnel, whose other end is this process.

use super::packets::{ethernet, mend, udp, v4};
use super::sink::Sink;
use super::tunnel_packets::packets;
use super::{Frames, Stand, Subject, Tell};
use anyhow::{Context as _, ensure};
use polder_datapath::wire::Checksum;
use polder_testbed::peers::gateway::Gateway;
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::{clock, interrupt};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Ends of the tunnel.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// Addresses of packets inside.
pub(super) const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 100, 0, 1), Ipv4Addr::new(10, 100, 0, 2)];
/// Stations: one behind the gateway's port, one behind the tunnel.
const HERE: [u8; 6] = [2, 0, 0, 0x99, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0x99, 0, 2];
/// Time for a packet to arrive.
const SOON: Duration = Duration::from_secs(2);
/// Time for flows to become hot.
const HOT: Duration = Duration::from_secs(40);
/// Time for a packet to pass through user space.
const SETTLED: Duration = Duration::from_millis(20);
/// UDP destination port of packets that end a case.
const MARKER: u16 = 7099;
/// Longest frame that goes into the tunnel at the other end.
const LONGEST_INSIDE: usize = 1450;

/// A tunnel: its keys in the configuration, and its headers behind the outer IPv4 header.
#[derive(Debug)]
pub struct Kind {
    /// Keys of the tunnel.
    pub keys: &'static str,
    protocol: u8,
    header: &'static [u8],
}

/// Tunnels that are examined.
pub const KINDS: [Kind; 3] = [
    Kind { keys: "kind = \"gretap\"", protocol: 47, header: &[0, 0, 0x65, 0x58] },
    Kind {
        keys: "kind = \"gretap\"\nkey = 66051\nttl = \"inherit\"",
        protocol: 47,
        header: &[0x20, 0, 0x65, 0x58, 0, 1, 2, 3],
    },
    Kind {
        keys: "kind = \"vxlan\"\nvni = 42",
        protocol: 17,
        header: &[0xd0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 42, 0],
    },
];

/// A station on a port of a gateway, and its tunnel, whose other end is this process.
#[derive(Debug)]
pub struct TunnelStand {
    kind: &'static Kind,
    is_fast: bool,
    here: PacketSocket,
    far: PacketSocket,
    /// The stations' namespaces and interfaces: here, and beyond the tunnel.
    places: [(Namespace, &'static str); 2],
    sinks: Option<[Mutex<Sink>; 2]>,
    gateway: Gateway,
    /// Addresses of the underlay: ours as the other end, and the gateway's.
    macs: [[u8; 6]; 2],
    _topology: Topology,
}

impl TunnelStand {
    /// Lays wires and starts the gateway.
    ///
    /// # Errors
    /// When it does not start.
    pub fn lay(kind: &'static Kind, mode: &str, subject: Subject) -> anyhow::Result<Self> {
        let mut topology = Topology::new()?;
        let [here, near, far] = ["here", "near", "far"].map(|name| topology.namespace(name));
        let (here, near, far) = (here?, near?, far?);
        for (outside, interface, port) in [(&here, "eth0", "lan0"), (&far, "radio0", "radio0")] {
            let end = |namespace, interface| End { namespace, interface };
            topology.wire_with_offloads(end(outside, interface), end(&near, port), 1500)?;
            if mode == "native" {
                end(outside, interface).take_frames(end(&near, port))?;
            }
        }
        for (namespace, mac, address) in
            [(&far, "02:00:00:99:00:0a", FAR), (&near, "02:00:00:99:00:0b", NEAR)]
        {
            namespace.ip(&["link", "set", "radio0", "address", mac])?;
            namespace.ip(&["address", "add", &format!("{address}/24"), "dev", "radio0"])?;
        }
        let macs = [10, 11].map(|last| [2, 0, 0, 0x99, 0, last]);
        let keys = subject.keys();
        let text = format!(
            "[port.lan]\ninterface = \"lan0\"\nmode = \"{mode}\"\n{keys}\n\
             [port.radio]\ninterface = \"radio0\"\nrole = \"underlay\"\nmode = \"{mode}\"\n{keys}\n\
             [tunnel.peer]\n{}\nlocal = \"{NEAR}\"\nremote = \"{FAR}\"\nport = \"radio\"\n\
             [bridge.br0]\nmembers = [\"lan\", \"peer\"]\n",
            kind.keys
        );
        let gateway = Gateway::start_lacking(subject.lacking(), &near, topology.directory(), &text)?;
        let open = |namespace: &Namespace, interface: &str| -> anyhow::Result<PacketSocket> {
            Ok(namespace.inside(|| PacketSocket::open(interface))??)
        };
        let places = [(here, "eth0"), (far, "radio0")];
        let [here, far] = places.each_ref().map(|(namespace, interface)| open(namespace, interface));
        let (here, far) = (here?, far?);
        let is_fast = subject != Subject::Slow;
        Ok(Self { kind, is_fast, here, far, places, sinks: None, gateway, macs, _topology: topology })
    }

    /// Receives in the order in which frames come, also where a veth's other end has none: [`drain`](Self::drain) alone sees
    /// them from here on.
    ///
    /// # Errors
    /// When an interface cannot be opened.
    pub fn receive_in_order(&mut self) -> anyhow::Result<()> {
        let [here, far] = self.places.each_ref().map(|(place, interface)| Sink::open(place, interface));
        self.sinks = Some([Mutex::new(here?), Mutex::new(far?)]);
        Ok(())
    }

    /// Packets that programs have carried into the tunnel and out of it.
    ///
    /// # Errors
    /// When the gateway does not answer.
    pub fn ways(&self) -> anyhow::Result<[u64; 2]> {
        let shown = self.gateway.show("flows")?;
        let tunnel = &shown["flows"]["tunnels"][0];
        let of = |name: &str| tunnel[name].as_u64().context("`show flows` has no tunnel");
        Ok([of("transmitted")?, of("received")?])
    }

    /// Sends a frame into the tunnel, or out of it.
    fn send(&self, outward: bool, frame: &[u8]) -> anyhow::Result<()> {
        let sent = if outward { self.here.send(frame) } else { self.far.send(&self.outer(0, frame)) };
        sent.context("cannot send")
    }

    fn outer(&self, class: u8, frame: &[u8]) -> Vec<u8> {
        let Kind { protocol, header, .. } = *self.kind;
        let mut header = header.to_vec();
        if protocol == 17 {
            let length = super::packets::length(header.len() + frame.len());
            header[4..6].copy_from_slice(&length);
        }
        header.extend(frame);
        let packet = v4(class, 64, 0, protocol, [FAR, NEAR], &header);
        [ethernet(self.macs[1], self.macs[0], 0x0800), packet].concat()
    }

    /// Frames that leave by the other side until a marker does, which is sent now and is of the flow.
    fn until_marker(&self, outward: bool, number: usize) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut seen = Vec::new();
        self.mark((outward, 0), number, &mut seen)?;
        Ok(seen)
    }

    /// The same where the order of the flow does not hold: a fragment comes first, which only user space takes, and behind
    /// which comes nothing from there that was sent before.
    fn until_markers(&self, outward: bool, number: usize) -> anyhow::Result<Vec<Vec<u8>>> {
        let mut seen = Vec::new();
        self.mark((outward, 0x2000), number, &mut seen)?;
        // The flow is carried again.
        interrupt::sleep(SETTLED)?;
        self.mark((outward, 0), number, &mut seen)?;
        Ok(seen)
    }

    fn mark(
        &self,
        (outward, fragment): (bool, u16),
        number: usize,
        seen: &mut Vec<Vec<u8>>,
    ) -> anyhow::Result<()> {
        let ends = if outward { [THERE, HERE] } else { [HERE, THERE] };
        let mark = super::packets::length(number % 1000);
        let marker = v4(0, 64, fragment, 17, INSIDE, &[&udp(MARKER, 8)[..], &mark].concat());
        let marker = [ethernet(ends[0], ends[1], 0x0800), marker].concat();
        self.send(outward, &marker)?;
        self.until_ends_with(outward, &marker[20..], seen).with_context(|| format!("packet {number}"))
    }

    /// Adds frames that leave by the other side until one does that ends with `mark`.
    fn until_ends_with(&self, outward: bool, mark: &[u8], seen: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
        let socket = if outward { &self.far } else { &self.here };
        let (mut room, end) = ([0; 4096], clock::now() + SOON);
        loop {
            ensure!(clock::now() < end, "its marker did not come");
            let Ok(length) = socket.receive(&mut room) else {
                interrupt::sleep(Duration::from_micros(200))?;
                continue;
            };
            let frame = room[..length].to_vec();
            if !self.is_of_interest(&frame, outward) {
                continue;
            }
            if frame.ends_with(mark) {
                return Ok(());
            }
            seen.push(normalized(frame, outward)?);
        }
    }

    /// False for what the kernels around say of their own accord.
    fn is_of_interest(&self, frame: &[u8], outward: bool) -> bool {
        let source = &frame[6..12];
        if outward { source == self.macs[1] && frame[12..14] == [8, 0] } else { source == THERE }
    }

    /// Sends a numbered packet of the flow, in a fragment or whole.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn send_number(&self, outward: bool, number: u16, in_fragment: bool) -> anyhow::Result<()> {
        let ends = if outward { [THERE, HERE] } else { [HERE, THERE] };
        let fragment = if in_fragment { 0x2000 } else { 0 };
        let rest = [&udp(53, 16)[..], &number.to_be_bytes()].concat();
        let packet = v4(0, 64, fragment, 17, INSIDE, &rest);
        self.send(outward, &[ethernet(ends[0], ends[1], 0x0800), packet].concat())
    }

    /// Adds the numbers of packets that have come.
    pub fn drain(&self, outward: bool, numbers: &mut Vec<u16>) {
        let mut each = |frame: &[u8]| {
            // What a kernel answers to an outer packet quotes it.
            if self.is_of_interest(frame, outward) && frame[frame.len() - 3] == 0x5a {
                numbers.extend(frame.last_chunk().copied().map(u16::from_be_bytes));
            }
        };
        if let Some(sinks) = &self.sinks {
            let mut sink = sinks[usize::from(outward)].lock().unwrap_or_else(PoisonError::into_inner);
            return sink.frames(each);
        }
        let (socket, mut room) = (if outward { &self.far } else { &self.here }, [0; 4096]);
        while let Ok(length) = socket.receive(&mut room) {
            each(&room[..length]);
        }
    }

    /// Sends packets that are odd inside. False when enough was seen.
    fn run_inside(&self, outward: bool, tell: Tell<'_>) -> anyhow::Result<bool> {
        let ends = if outward { [THERE, HERE] } else { [HERE, THERE] };
        for (number, (name, ether_type, packet)) in packets().into_iter().enumerate() {
            let frame = [ethernet(ends[0], ends[1], ether_type), packet].concat();
            if !outward && frame.len() > LONGEST_INSIDE {
                continue;
            }
            self.send(outward, &frame)?;
            let way = if outward { "in" } else { "out" };
            let seen = self.until_marker(outward, number)?;
            if !tell(&format!("{} {way}: {name}", self.kind.keys), one_end(seen)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends packets whose outer headers are odd.
    fn run_outside(&self, tell: Tell<'_>) -> anyhow::Result<()> {
        for (number, (name, frame)) in self.odd_outside().into_iter().enumerate() {
            self.far.send(&frame).context("cannot send")?;
            let seen = self.until_markers(false, number)?;
            if !tell(&format!("{} outside: {name}", self.kind.keys), one_end(seen)) {
                break;
            }
        }
        Ok(())
    }

    fn odd_outside(&self) -> Vec<(String, Vec<u8>)> {
        let inside = |class| {
            let packet = v4(class, 64, 0, 17, INSIDE, &udp(53, 40));
            [ethernet(HERE, THERE, 0x0800), packet].concat()
        };
        let whole = self.outer(0, &inside(0));
        let mut packets = vec![("whole".to_owned(), whole.clone())];
        for outer in 0..4 {
            for inner in 0..4 {
                let name = format!("congestion {outer} around {inner}");
                packets.push((name, self.outer(outer, &inside(inner))));
            }
        }
        packets.push(("cut off".to_owned(), whole[..whole.len() - 1].to_vec()));
        packets.push(("padded".to_owned(), [&whole[..], &[0; 7]].concat()));
        packets.push(("header alone".to_owned(), whole[..34 + self.kind.header.len()].to_vec()));
        for (name, at, value) in [
            ("another station", 0, 0x06),
            ("a group", 0, 0x01),
            ("more fragments", 20, 0x20),
            ("version 5", 14, 0x55),
            ("from elsewhere", 29, 9),
            ("to elsewhere", 33, 9),
            ("protocol 4", 23, 4),
            ("first byte", 34, 0x80),
            ("second byte", 35, 7),
            ("third byte", 36, 7),
            ("fourth byte", 37, 7),
            ("sixth byte", 39, 99),
            ("eighth byte", 41, 9),
            ("ninth byte", 42, 0x0c),
            ("nothing in the ninth byte", 42, 0),
            ("tenth byte", 43, 0x80),
            ("fifteenth byte", 48, 0x33),
            ("sixteenth byte", 49, 0x33),
        ] {
            let mut frame = whole.clone();
            frame[at] = value;
            mend(&mut frame[14..34]);
            packets.push((name.to_owned(), frame));
        }
        let mut bad = whole;
        bad[25] ^= 1;
        packets.push(("bad checksum".to_owned(), bad));
        packets
    }
}

impl Stand for TunnelStand {
    fn warm(&mut self) -> anyhow::Result<()> {
        // Each station has been heard of before the other sends to it.
        self.send(false, &[ethernet([0xff; 6], THERE, 0x0806), vec![0; 46]].concat())?;
        self.send(true, &[ethernet([0xff; 6], HERE, 0x0806), vec![0; 46]].concat())?;
        interrupt::sleep(Duration::from_millis(50))?;
        let end = clock::now() + HOT;
        for number in 0.. {
            for outward in [true, false] {
                self.until_marker(outward, number)?;
            }
            if !self.is_fast || self.ways()?.into_iter().all(|carried| carried > 0) {
                break;
            }
            ensure!(clock::now() < end, "the flows are not carried");
            interrupt::sleep(SETTLED)?;
        }
        Ok(())
    }

    fn run(&mut self, tell: Tell<'_>) -> anyhow::Result<()> {
        if self.run_inside(true, tell)? && self.run_inside(false, tell)? {
            self.run_outside(tell)?;
        }
        Ok(())
    }

    fn carried(&self) -> anyhow::Result<u64> {
        Ok(self.ways()?.into_iter().sum())
    }

    fn end(self: Box<Self>) -> anyhow::Result<()> {
        self.gateway.balances()?;
        self.gateway.stop()
    }
}

fn one_end(seen: Vec<Vec<u8>>) -> Frames {
    [seen, Vec::new()]
}

/// A frame without what may differ from one to the next: the outer identification, and with it the checksum.
fn normalized(mut frame: Vec<u8>, outward: bool) -> anyhow::Result<Vec<u8>> {
    if outward {
        let mut sum = Checksum::new();
        sum.add(&frame[14..34]);
        ensure!(sum.is_valid(), "the outer header's checksum: {frame:02x?}");
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    Ok(frame)
}
