//! Flows that programs carry into and out of tunnels, beside the same packets without a fast path: byte by byte.

use crate::machines::until;
use crate::support::{FAST_MODES, Gateway, address, root_or_skip, take_frames};
use polder_datapath::wire::Checksum;
use polder_lab::clock;
use polder_lab::topology::{End, Namespace, Topology};
use polder_lab::traffic::raw::PacketSocket;
use std::net::Ipv4Addr;
use std::time::Duration;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const FAR: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// Stations: one behind the gateway's port, one behind the tunnel.
const HERE: [u8; 6] = [2, 0, 0, 0x99, 0, 1];
const THERE: [u8; 6] = [2, 0, 0, 0x99, 0, 2];
/// Time for a packet to arrive.
const SOON: Duration = Duration::from_secs(2);
/// Time for a packet to pass through user space.
const SETTLED: Duration = Duration::from_millis(20);
/// Packets in one direction.
const PACKETS: u16 = 5000;
/// UDP destination port of packets that end a case.
const MARKER: u16 = 7099;

/// A tunnel: its keys in the configuration, and its headers behind the outer IPv4 header.
struct Kind {
    keys: &'static str,
    protocol: u8,
    header: &'static [u8],
}

const KINDS: [Kind; 3] = [
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

/// A station on a port of a gateway, and its tunnel, whose other end is this test.
struct Stand {
    _topology: Topology,
    here: PacketSocket,
    far: PacketSocket,
    polder: Gateway,
    /// Addresses of the underlay: ours as the other end, and the gateway's.
    macs: [[u8; 6]; 2],
}

fn ethernet(destination: [u8; 6], source: [u8; 6], kind: u16) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes()].concat()
}

fn v4(class: u8, ttl: u8, fragment: u16, protocol: u8, ends: [Ipv4Addr; 2], rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(20 + rest.len()).unwrap().to_be_bytes();
    let fragment = fragment.to_be_bytes();
    let mut header = [0x45, class, length[0], length[1], 0, 7, fragment[0], fragment[1], ttl, protocol, 0, 0]
        .into_iter()
        .chain(ends[0].octets())
        .chain(ends[1].octets())
        .collect::<Vec<_>>();
    let mut sum = Checksum::new();
    sum.add(&header);
    header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    header.extend(rest);
    header
}

fn v6(class: u8, next: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    let mut header = vec![0x60 | class >> 4, class << 4, 0, 0, length[0], length[1], next, 9];
    for last in [1, 2] {
        header.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    header.extend(rest);
    header
}

const INSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 100, 0, 1), Ipv4Addr::new(10, 100, 0, 2)];

fn udp(port: u16, bytes: usize) -> Vec<u8> {
    let length = u16::try_from(8 + bytes).unwrap().to_be_bytes();
    let ports = [9000_u16.to_be_bytes(), port.to_be_bytes()].concat();
    [&ports[..], &length, &[0, 0], &vec![0x5a; bytes]].concat()
}

fn tcp(flags: u8, options: &[u8], bytes: usize) -> Vec<u8> {
    let words = u8::try_from(5 + options.len() / 4).unwrap();
    let head = [0x23, 0x28, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, words << 4, flags, 0xff, 0xff, 0, 0, 0, 0];
    [&head[..], options, &vec![0x5a; bytes]].concat()
}

/// Packets inside, by name: ordinary ones, and those that a program must not treat as ordinary.
fn packets() -> Vec<(String, u16, Vec<u8>)> {
    let plain = |class, ttl, protocol, rest: &[u8]| v4(class, ttl, 0, protocol, INSIDE, rest);
    let mut packets = Vec::new();
    let mut add = |name: &str, kind, bytes| packets.push((name.to_owned(), kind, bytes));
    for class in [0, 1, 2, 3, 0xb8, 0xbb] {
        add(&format!("class {class}"), 0x0800, plain(class, 64, 17, &udp(53, 40)));
        add(&format!("class {class} in IPv6"), 0x86dd, v6(class, 17, &udp(53, 40)));
    }
    for ttl in [0, 1, 255] {
        add(&format!("ttl {ttl}"), 0x0800, plain(0, ttl, 17, &udp(53, 9)));
    }
    for length in [0, 1, 1400, 1430, 1434, 1440, 1472] {
        add(&format!("{length} bytes"), 0x0800, plain(0, 64, 17, &udp(53, length)));
        add(&format!("{length} bytes, DF"), 0x0800, v4(0, 64, 0x4000, 17, INSIDE, &udp(53, length)));
    }
    for flags in [0x02, 0x12, 0x10, 0x18, 0x11] {
        let mss = [2, 4, 0x05, 0xb4];
        add(&format!("TCP {flags:#x}"), 0x0800, plain(0, 64, 6, &tcp(flags, &mss, 20)));
        add(&format!("TCP {flags:#x} in IPv6"), 0x86dd, v6(0, 6, &tcp(flags, &mss, 20)));
    }
    add("TCP cut off", 0x0800, plain(0, 64, 6, &tcp(0x10, &[], 0)[..12]));
    add("UDP cut off", 0x0800, plain(0, 64, 17, &udp(53, 0)[..6]));
    add("ICMP", 0x0800, plain(0, 64, 1, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]));
    add("ICMPv6", 0x86dd, v6(0, 58, &[128, 0, 0, 0, 0, 0, 0, 0]));
    add("hop-by-hop options", 0x86dd, v6(0, 0, &[&[17, 0, 1, 4, 0, 0, 0, 0], &udp(53, 9)[..]].concat()));
    add("GRE inside", 0x0800, v4(0, 64, 0, 47, [NEAR, FAR], &[0, 0, 0x65, 0x58, 1, 2, 3, 4]));
    add("VXLAN inside", 0x0800, v4(0, 64, 0, 17, [NEAR, FAR], &udp(4789, 40)));
    add("port of VXLAN", 0x0800, plain(0, 64, 17, &udp(4789, 40)));
    for fragment in [0x2000, 0x0003, 0x2003] {
        add(&format!("fragment {fragment:#x}"), 0x0800, v4(0, 64, fragment, 17, INSIDE, &udp(53, 32)));
    }
    let mut options = plain(0, 64, 17, &udp(53, 32));
    options[0] = 0x46;
    add("options", 0x0800, options);
    let mut version = plain(0, 64, 17, &udp(53, 32));
    version[0] = 0x55;
    add("version 5", 0x0800, version);
    add("no IP", 0x88b5, vec![7; 60]);
    add("ARP", 0x0806, vec![0; 46]);
    packets
}

impl Stand {
    fn new(kind: &Kind, mode: &str, keys: &str) -> Self {
        let mut topology = Topology::new().unwrap();
        let [here, near, far] = ["here", "near", "far"].map(|name| topology.namespace(name).unwrap());
        let wire = |a: (&Namespace, &str), b: (&Namespace, &str)| {
            let end = |(namespace, interface)| End { namespace, interface };
            topology.wire_with_offloads(end(a), end(b), 1500).unwrap();
        };
        wire((&here, "eth0"), (&near, "lan0"));
        wire((&near, "radio0"), (&far, "radio0"));
        for (namespace, mac) in [(&far, "02:00:00:99:00:0a"), (&near, "02:00:00:99:00:0b")] {
            namespace.ip(&["link", "set", "radio0", "address", mac]).unwrap();
        }
        if mode == "native" {
            take_frames((&here, "eth0"), (&near, "lan0"));
            take_frames((&far, "radio0"), (&near, "radio0"));
        }
        let macs = [10, 11].map(|last| [2, 0, 0, 0x99, 0, last]);
        address(&near, "radio0", NEAR, 24);
        address(&far, "radio0", FAR, 24);
        let text = format!(
            "[port.lan]\ninterface = \"lan0\"\nmode = \"{mode}\"\n{keys}\n\
             [port.radio]\ninterface = \"radio0\"\nrole = \"underlay\"\nmode = \"{mode}\"\n{keys}\n\
             [tunnel.peer]\n{}\nlocal = \"{NEAR}\"\nremote = \"{FAR}\"\nport = \"radio\"\n\
             [bridge.br0]\nmembers = [\"lan\", \"peer\"]\n",
            kind.keys
        );
        let polder = Gateway::start(&topology, &near, &text);
        let open = |namespace: &Namespace, interface: &str| {
            namespace.inside(|| PacketSocket::open(interface)).unwrap().unwrap()
        };
        Self { here: open(&here, "eth0"), far: open(&far, "radio0"), polder, macs, _topology: topology }
    }

    /// Packets that programs have carried into the tunnel and out of it.
    fn carried(&self) -> [u64; 2] {
        let shown = self.polder.show("flows");
        ["transmitted", "received"].map(|name| shown["flows"]["tunnels"][0][name].as_u64().unwrap())
    }

    /// Sends a frame into the tunnel, or out of it.
    fn send(&self, kind: &Kind, outward: bool, frame: &[u8]) {
        if outward {
            self.here.send(frame).unwrap();
        } else {
            self.far.send(&self.outer(kind, 0, frame)).unwrap();
        }
    }

    fn outer(&self, kind: &Kind, class: u8, frame: &[u8]) -> Vec<u8> {
        let mut header = kind.header.to_vec();
        if kind.protocol == 17 {
            let length = u16::try_from(header.len() + frame.len()).unwrap();
            header[4..6].copy_from_slice(&length.to_be_bytes());
        }
        header.extend(frame);
        let packet = v4(class, 64, 0, kind.protocol, [FAR, NEAR], &header);
        [ethernet(self.macs[1], self.macs[0], 0x0800), packet].concat()
    }

    /// Frames that leave by the other side until a marker does, which is sent now.
    fn until_marker(&self, kind: &Kind, outward: bool, number: usize) -> Vec<Vec<u8>> {
        let ends = if outward { [THERE, HERE] } else { [HERE, THERE] };
        let mark = u16::try_from(number % 1000).unwrap().to_be_bytes();
        let marker = v4(0, 64, 0, 17, INSIDE, &[&udp(MARKER, 8)[..], &mark].concat());
        let marker = [ethernet(ends[0], ends[1], 0x0800), marker].concat();
        self.send(kind, outward, &marker);
        let socket = if outward { &self.far } else { &self.here };
        let (mut seen, mut room, end) = (Vec::new(), [0; 4096], clock::now() + SOON);
        loop {
            assert!(clock::now() < end, "the marker of case {number} did not come");
            let Ok(length) = socket.receive(&mut room) else {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let frame = room[..length].to_vec();
            if !self.is_of_interest(&frame, outward) {
                continue;
            }
            if frame.ends_with(&marker[20..]) {
                return seen;
            }
            seen.push(normalized(frame, outward));
        }
    }

    /// False for what the kernels around say of their own accord.
    fn is_of_interest(&self, frame: &[u8], outward: bool) -> bool {
        let source = &frame[6..12];
        if outward { source == self.macs[1] && frame[12..14] == [8, 0] } else { source == THERE }
    }

    /// Adds the numbers at the ends of packets that have come.
    fn drain(&self, outward: bool, numbers: &mut Vec<u16>) {
        let (socket, mut room) = (if outward { &self.far } else { &self.here }, [0; 4096]);
        while let Ok(length) = socket.receive(&mut room) {
            let frame = &room[..length];
            // What a kernel answers to an outer packet quotes it.
            if self.is_of_interest(frame, outward) && frame[length - 3] == 0x5a {
                numbers.push(u16::from_be_bytes([frame[length - 2], frame[length - 1]]));
            }
        }
    }

    /// Makes the pair's entry hot, if there is to be one.
    fn warm(&self, kind: &Kind, is_fast: bool) {
        // Each station has been heard of before the other sends to it.
        self.send(kind, false, &[ethernet([0xff; 6], THERE, 0x0806), vec![0; 46]].concat());
        self.send(kind, true, &[ethernet([0xff; 6], HERE, 0x0806), vec![0; 46]].concat());
        std::thread::sleep(Duration::from_millis(50));
        let mut number = 0;
        until("the flows are carried", || {
            for outward in [true, false] {
                self.until_marker(kind, outward, number);
                number += 1;
            }
            !is_fast || self.carried().into_iter().all(|carried| carried > 0)
        });
    }

    /// Frames that come of each packet, by name.
    fn run(&self, kind: &Kind, outward: bool) -> Vec<(String, Vec<Vec<u8>>)> {
        let ends = if outward { [THERE, HERE] } else { [HERE, THERE] };
        let mut results = Vec::new();
        for (number, (name, ether_type, packet)) in packets().into_iter().enumerate() {
            let frame = [ethernet(ends[0], ends[1], ether_type), packet].concat();
            if !outward && frame.len() > 1450 {
                continue;
            }
            self.send(kind, outward, &frame);
            results.push((name, self.until_marker(kind, outward, number)));
        }
        results
    }

    /// Frames that come of odd outer headers, by name.
    fn run_outer(&self, kind: &Kind) -> Vec<(String, Vec<Vec<u8>>)> {
        let inside = |class| {
            let packet = v4(class, 64, 0, 17, INSIDE, &udp(53, 40));
            [ethernet(HERE, THERE, 0x0800), packet].concat()
        };
        let whole = self.outer(kind, 0, &inside(0));
        let changed = |at: usize, value: u8| {
            let mut frame = whole.clone();
            frame[at] = value;
            let mut sum = Checksum::new();
            frame[24..26].fill(0);
            sum.add(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.finish().to_be_bytes());
            frame
        };
        let mut cases = vec![("whole".to_owned(), whole.clone())];
        for outer in 0..4 {
            for inner in 0..4 {
                let name = format!("congestion {outer} around {inner}");
                cases.push((name, self.outer(kind, outer, &inside(inner))));
            }
        }
        let last = whole.len() - 1;
        cases.push(("cut off".to_owned(), whole[..last].to_vec()));
        cases.push(("padded".to_owned(), [&whole[..], &[0; 7]].concat()));
        cases.push(("header alone".to_owned(), whole[..34 + kind.header.len()].to_vec()));
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
            ("fifteenth byte", 48, 0x33),
            ("sixteenth byte", 49, 0x33),
        ] {
            cases.push((name.to_owned(), changed(at, value)));
        }
        let mut bad = whole.clone();
        bad[25] ^= 1;
        cases.push(("bad checksum".to_owned(), bad));
        let results = cases.into_iter().enumerate().map(|(number, (name, frame))| {
            self.far.send(&frame).unwrap();
            // The order of a flow holds among packets whose outer headers are as a stage of ours writes them.
            std::thread::sleep(SETTLED);
            (name, self.until_marker(kind, false, number))
        });
        results.collect()
    }
}

/// A frame without what may differ from one to the next: the outer identification, and with it the checksum.
fn normalized(mut frame: Vec<u8>, outward: bool) -> Vec<u8> {
    if outward {
        let mut sum = Checksum::new();
        sum.add(&frame[14..34]);
        assert!(sum.is_valid(), "the outer header's checksum: {frame:02x?}");
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
    frame
}

/// Packets of one flow, some of which a program can carry and some of which it cannot, arrive in the order in which they
/// were sent.
#[test]
fn packets_that_go_up_do_not_change_places_with_those_that_are_carried() {
    if !root_or_skip("packets_that_go_up_do_not_change_places_with_those_that_are_carried") {
        return;
    }
    for (kind, mode) in KINDS.iter().flat_map(|kind| FAST_MODES.map(|mode| (kind, mode))) {
        let stand = Stand::new(kind, mode, "");
        stand.warm(kind, true);
        for (at, outward) in [true, false].into_iter().enumerate() {
            let before = stand.carried()[at];
            let sent = (1..=PACKETS).collect::<Vec<_>>();
            assert_eq!(mixed(&stand, kind, outward), sent, "{mode}: {}, outward: {outward}", kind.keys);
            let carried = stand.carried()[at] - before;
            assert!((1..u64::from(PACKETS) * 6 / 7 + 1).contains(&carried), "{carried} were carried");
        }
        stand.polder.assert_conserved();
        stand.polder.stop();
    }
}

/// Sends packets of one flow, of which one in seven is a fragment, which goes up. The numbers of those that come.
fn mixed(stand: &Stand, kind: &Kind, outward: bool) -> Vec<u16> {
    let ends = if outward { [THERE, HERE] } else { [HERE, THERE] };
    let frame = |number: u16| {
        let fragment = if number.is_multiple_of(7) { 0x2000 } else { 0 };
        let rest = [&udp(53, 16)[..], &number.to_be_bytes()].concat();
        let packet = v4(0, 64, fragment, 17, INSIDE, &rest);
        [ethernet(ends[0], ends[1], 0x0800), packet].concat()
    };
    let mut numbers = Vec::new();
    for number in 1..=PACKETS {
        stand.send(kind, outward, &frame(number));
        // Bursts, and pauses in which the worker is through with what went up.
        if number.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(300));
            stand.drain(outward, &mut numbers);
        }
    }
    until("all have come", || {
        stand.drain(outward, &mut numbers);
        numbers.len() >= usize::from(PACKETS)
    });
    numbers
}

#[test]
fn packets_of_hot_tunnels_leave_as_they_do_without_a_fast_path() {
    if !root_or_skip("packets_of_hot_tunnels_leave_as_they_do_without_a_fast_path") {
        return;
    }
    for (kind, mode) in KINDS.iter().flat_map(|kind| FAST_MODES.map(|mode| (kind, mode))) {
        let results = ["fast_path = \"off\"", ""].map(|keys| {
            let stand = Stand::new(kind, mode, keys);
            let is_fast = keys.is_empty();
            stand.warm(kind, is_fast);
            let before = stand.carried();
            let results = [stand.run(kind, true), stand.run(kind, false), stand.run_outer(kind)];
            let carried = stand.carried();
            assert_eq!(before == carried, !is_fast, "{before:?} {carried:?}");
            stand.polder.assert_conserved();
            stand.polder.stop();
            results
        });
        let [slow, fast] = results;
        for (slow, fast) in slow.iter().flatten().zip(fast.iter().flatten()) {
            assert_eq!(slow, fast, "{mode}: {}, with a fast path on the right", kind.keys);
        }
    }
}
