//! `polder trace` of a running gateway, and the very same packet on the wire: it goes where the trace said, byte for
//! byte, and the trace itself has left no mark.

use crate::machines::{reaches, route, until};
use crate::router::{Net, PORTS};
use crate::support::{Gateway, address, polder as program, root_or_skip, wire};
use polder::trace::spec::{Defaults, Spec, describe};
use polder::trace::{Trace, from_digits, to_digits};
use polder_datapath::wire::MacAddress;
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use rustix::io::Errno;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The station that packets come from which do not say it, as the command has it.
const STATION: MacAddress = MacAddress([0x02, 0, 0, 0, 0xfe, 0xed]);

/// A running gateway, with an eye on the other end of each of its wires.
struct Stand {
    gateway: Gateway,
    wires: BTreeMap<&'static str, PacketSocket>,
    /// Packets that came in by its ports.
    received: i64,
}

impl Stand {
    fn new(gateway: Gateway, ends: &[(&'static str, &Namespace)]) -> Self {
        let eye = |space: &Namespace| space.inside(|| PacketSocket::open("eth0").unwrap()).unwrap();
        let wires = ends.iter().map(|(port, space)| (*port, eye(space))).collect();
        let received = gateway.term("received");
        Self { gateway, wires, received }
    }

    /// Output of `polder trace PORT …`, a packet a line.
    fn traces(&self, port: &str, words: &[&str]) -> Vec<Trace> {
        let mut command = Command::new(program());
        command.args(["trace", port]).args(words).args(["--json", "--socket"]).arg(self.gateway.socket());
        let said = command::run(&mut command).unwrap();
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn trace(&self, port: &str, words: &[&str]) -> Trace {
        let mut traces = self.traces(port, words);
        assert_eq!(traces.len(), 1, "{words:?}: {traces:#?}");
        traces.remove(0)
    }

    /// The link-layer address of a port.
    fn mac(&self, port: &str) -> MacAddress {
        let shown = self.gateway.show("ports");
        let ports = shown.get("ports").and_then(Value::as_array).unwrap();
        let row = ports.iter().find(|row| row.get("name").and_then(Value::as_str) == Some(port)).unwrap();
        row.get("mac").and_then(Value::as_str).unwrap().parse().unwrap()
    }

    /// Counters and tables, without values that change by themselves: time, and the kernel's
    /// neighbour states.
    fn marks(&self) -> Vec<Value> {
        let views = ["counters", "drops", "tunnels", "fdb", "filters", "queues"];
        let mut marks = views.map(|view| self.gateway.show(view)).to_vec();
        marks.iter_mut().for_each(forget_time);
        marks
    }

    fn drops(&self) -> BTreeMap<String, u64> {
        let shown = self.gateway.show("counters");
        let drops = shown.get("counters").and_then(|counters| counters.get("drops")).unwrap();
        serde_json::from_value(drops.clone()).unwrap()
    }

    /// Traces a packet in words and in digits, sends it, and compares.
    fn walk(&mut self, port: &'static str, text: &str) -> (Trace, Vec<u8>) {
        let spec = Spec::parse(text).map_err(|error| error.render(text)).unwrap();
        let frame = spec.build(Defaults { src: STATION, dst: Some(self.mac(port)) }).unwrap();
        let before = self.marks();
        let trace = self.trace(port, &[text]);
        let in_digits = self.trace(port, &["hex", &to_digits(&frame)]);
        assert_eq!(decided(&in_digits), decided(&trace), "{text}: in digits");
        assert_eq!(self.marks(), before, "{text}: a trace has left a mark");
        self.send(port, &frame, &trace);
        (trace, frame)
    }

    /// Lets a packet come in, and compares its fate with the trace.
    fn send(&mut self, port: &str, frame: &[u8], trace: &Trace) {
        let drops = self.drops();
        self.wires[port].send(frame).unwrap();
        self.received += i64::from(trace.fate != "kernel");
        let mut expected =
            trace.sent.iter().map(|sent| (sent.port.as_str(), from_digits(&sent.frame).unwrap()));
        let mut expected = expected.by_ref().collect::<Vec<_>>();
        expected.sort_unstable();
        let mut arrived = Vec::new();
        until(&format!("{} leaves as foretold: {trace:#?}", trace.packet), || {
            self.look(&mut arrived);
            let is_settled =
                self.gateway.term("received") == self.received && self.gateway.term("unaccounted") == 0;
            is_settled && arrived.len() >= expected.len()
        });
        arrived.sort_unstable();
        let words = |all: &[(&str, Vec<u8>)]| {
            all.iter().map(|(port, frame)| format!("{port} {}", describe(frame))).collect::<Vec<_>>()
        };
        assert!(arrived == expected, "{:#?}\nforetold {:#?}\n{trace:#?}", words(&arrived), words(&expected));
        let mut grown = self.drops();
        for (reason, count) in drops {
            *grown.entry(reason).or_default() -= count;
        }
        grown.retain(|_, count| *count > 0);
        let said = trace.dropped.iter().map(|ended| (ended.reason.clone(), ended.packets)).collect();
        assert_eq!(grown, said, "{trace:#?}");
    }

    /// Collects the frames that have arrived at the other ends, without the traffic between their
    /// kernels and the gateway's.
    fn look<'s>(&'s self, arrived: &mut Vec<(&'s str, Vec<u8>)>) {
        for (port, wire) in &self.wires {
            let frames = std::iter::from_fn(|| next(wire)).filter(|frame| !is_talk(frame));
            arrived.extend(frames.map(|frame| (*port, frame)));
        }
    }

    /// Captures a number of packets that come in by a port.
    fn record(&self, port: &str, count: usize, file: &Path) -> Child {
        let mut command = Command::new(program());
        command.args(["capture", port, "--stage", "rx", "-c", &count.to_string(), "-w"]).arg(file);
        let child = command.arg("--socket").arg(self.gateway.socket()).stderr(Stdio::null()).spawn().unwrap();
        until("the capture has begun", || std::fs::metadata(file).is_ok_and(|file| file.len() > 0));
        child
    }
}

/// The next frame that has come by a wire.
fn next(wire: &PacketSocket) -> Option<Vec<u8>> {
    let mut room = [0; 4096];
    match wire.receive(&mut room) {
        Ok(length) => Some(room[..length].to_vec()),
        Err(errno) => {
            assert_eq!(errno, Errno::AGAIN);
            None
        }
    }
}

/// ARP, neighbour discovery and hosts' group membership messages.
fn is_talk(frame: &[u8]) -> bool {
    let kind = frame.get(54).or(frame.get(62)).copied();
    match frame.get(12..14) {
        Some([0x08, 0x06]) => true,
        // To a group, or between link-local addresses, or with the hop limit of neighbour discovery.
        Some([0x86, 0xdd]) => {
            frame[0] & 1 == 1 || frame[22..24] == [0xfe, 0x80] || (frame[21] == 255 && kind >= Some(133))
        }
        _ => false,
    }
}

fn forget_time(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_time = |key: &str| {
                key == "uptime_nanos"
                    || key.contains("age")
                    || key.ends_with("silent_nanos")
                    || key.ends_with("heard_nanos")
            };
            fields.retain(|key, _| !is_time(key));
            fields.values_mut().for_each(forget_time);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_time),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A trace without its words, which say how old entries are.
fn decided(trace: &Trace) -> Trace {
    Trace { steps: Vec::new(), effects: Vec::new(), ..trace.clone() }
}

/// Ports of the packets that leave, or the drop reason.
fn outcome(trace: &Trace) -> String {
    let sent = trace.sent.iter().map(|sent| sent.port.clone());
    let dropped = trace.dropped.iter().map(|ended| ended.reason.clone());
    sent.chain(dropped).collect::<Vec<_>>().join(" ")
}

/// Packets of a capture are the frames that were sent, and their traces equal those of the frames.
fn same_from_a_file(stand: &Stand, port: &str, file: &Path, walked: &[(Trace, Vec<u8>)]) {
    let path = file.display().to_string();
    let traces = stand.traces(port, &["--pcap", &path]);
    assert_eq!(traces.len(), walked.len());
    for (trace, (wanted, frame)) in traces.iter().zip(walked) {
        assert_eq!(trace.packet, wanted.packet);
        assert_eq!(trace.packet, describe(frame).brief().to_string());
        assert_eq!((outcome(trace), &trace.fate), (outcome(wanted), &wanted.fate), "{trace:#?}");
    }
    let last = stand.trace(port, &["--pcap", &path, "-n", &walked.len().to_string()]);
    assert_eq!(decided(&last), decided(&traces[walked.len() - 1]));
}

fn file(topology: &Topology) -> PathBuf {
    topology.directory().join("walked.pcapng")
}

#[test]
fn a_routed_packet_goes_where_its_trace_said() {
    const FILTER: &str = "[[filter]]\nprotocol = \"tcp\"\ndestination_port = 23\naction = \"drop\"\n";
    if !root_or_skip("a_routed_packet_goes_where_its_trace_said") {
        return;
    }
    let net = Net::new(1400);
    // The station there forwards nothing, and says nothing about it.
    route(&net.gateway, "add 10.96.0.0/16 via 10.83.2.2");
    route(&net.gateway, "add fd96::/32 via fd83:2::2");
    route(&net.gateway, "add blackhole 10.98.0.0/16");
    route(&net.gateway, "add prohibit fd98::/32");
    route(&net.gateway, "add local 10.97.0.0/16 dev lo");
    let gateway = Gateway::start(&net.topology, &net.gateway, &format!("{PORTS}{FILTER}"));
    // Everybody knows everybody's address afterwards.
    for to in ["10.83.2.2", "fd83:2::2"] {
        reaches(&net.left, to);
    }
    gateway.assert_conserved();
    let mut stand = Stand::new(gateway, &[("west", &net.left), ("east", &net.right)]);
    let (v4, v6) = ("ip src 10.83.1.2 dst 10.96.0.9", "ip src fd83:1::2 dst fd96::9");
    let taken = [
        (format!("{v4} ttl 9 dscp 46 ecn 1 id 77 / udp sport 4000 dport 5000 / payload 64"), "east"),
        (format!("{v6} ttl 9 flow 77 / udp sport 4000 dport 5000 / payload 64"), "east"),
        (format!("{v4} ttl 2 / tcp dport 80 mss 1460"), "east"),
        (format!("{v4} / tcp dport 23"), "filtered"),
        (format!("{v4} ttl 1 / udp / payload 8"), "west time-exceeded"),
        (format!("{v6} ttl 1 / udp / payload 8"), "west time-exceeded"),
        (format!("{v4} checksum 7 / udp"), "ipv4-bad-checksum"),
        (format!("{v4} id 9 / udp / payload 1450"), "east east"),
        (format!("{v4} df / udp / payload 1450"), "west too-big"),
        (format!("{v6} / udp / payload 1450"), "west too-big"),
        ("ip src 10.83.1.2 dst 10.98.0.1 / udp".to_owned(), "blackhole"),
        ("ip src fd83:1::2 dst fd98::1 / udp".to_owned(), "west prohibited"),
        ("ip src 10.83.1.2 dst 192.0.2.1 / udp".to_owned(), "west no-route"),
    ];
    let file = file(&net.topology);
    let mut recorder = stand.record("west", taken.len(), &file);
    let mut walked = Vec::new();
    for (text, wanted) in &taken {
        let (trace, frame) = stand.walk("west", text);
        assert_eq!(outcome(&trace), *wanted, "{text}: {trace:#?}");
        walked.push((trace, frame));
    }
    until("the capture has all packets", || recorder.try_wait().unwrap().is_some());
    let before = stand.marks();
    same_from_a_file(&stand, "west", &file, &walked);
    assert_eq!(stand.marks(), before, "the traces of a file have left a mark");
    // These are the kernel's: Polder does not see them.
    for to in ["10.83.1.1", "10.97.3.4"] {
        let (trace, _) = stand.walk("west", &format!("ip src 10.83.1.9 dst {to} / udp dport 7 / payload 9"));
        assert_eq!((trace.fate.as_str(), trace.sent.len()), ("kernel", 0), "{trace:#?}");
    }
    stand.gateway.stop();
}

/// The gateway's end of the tunnel and the other one.
const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 96, 0, 1), Ipv4Addr::new(10, 96, 0, 2)];

const TUNNEL: &str = r#"
[port.lan]
interface = "lan"
[port.dmz]
interface = "dmz"
[port.air]
interface = "air"
role = "underlay"
[tunnel.far]
kind = "gretap"
local = "10.96.0.1"
remote = "10.96.0.2"
port = "air"
key = 96
checksum = true
sequence = true
next_hop_mac = "02:00:00:00:96:02"
[bridge.br0]
members = ["lan", "dmz", "far"]
static = [{ mac = "02:00:00:00:96:0f", port = "far" }]
"#;

#[test]
fn a_packet_of_a_tunnel_goes_where_its_trace_said() {
    if !root_or_skip("a_packet_of_a_tunnel_goes_where_its_trace_said") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    // Namespaces without IPv6, in which nobody says anything unasked.
    let gateway = topology.namespace("gw").unwrap();
    let others = ["lan", "dmz", "air"].map(|role| {
        let other = topology.namespace(role).unwrap();
        wire(&topology, (&gateway, role), (&other, "eth0"), 1500);
        other
    });
    address(&gateway, "air", ENDS[0], 24);
    let running = Gateway::start(&topology, &gateway, TUNNEL);
    let mut stand = Stand::new(running, &[("lan", &others[0]), ("dmz", &others[1]), ("air", &others[2])]);
    let (near, far) = ("02:00:00:00:96:0a", "02:00:00:00:96:0f");
    let outer = "ip src 10.96.0.2 dst 10.96.0.1 / gre key 96 checksum seq";
    let inner = "ip src 10.95.0.2 dst 10.95.0.1";
    let file = file(&topology);
    let mut recorder = stand.record("lan", 3, &file);
    let mut walked = Vec::new();
    for (text, wanted) in [
        (format!("eth src {near} dst {far} / {inner} dscp 10 / udp / payload 31"), "air"),
        // Sequence numbers and identifications count, and a trace does not.
        (format!("eth src {near} dst {far} / {inner} / tcp flags S mss 1460"), "air"),
        (
            format!(
                "eth src {near} dst ff:ff:ff:ff:ff:ff / ip src 10.95.0.2 dst 255.255.255.255 / udp dport 67"
            ),
            "air dmz",
        ),
    ] {
        let (trace, frame) = stand.walk("lan", &text);
        let mut ports = trace.sent.iter().map(|sent| sent.port.as_str()).collect::<Vec<_>>();
        ports.sort_unstable();
        assert_eq!(ports.join(" "), wanted, "{text}: {trace:#?}");
        walked.push((trace, frame));
    }
    until("the capture has all packets", || recorder.try_wait().unwrap().is_some());
    same_from_a_file(&stand, "lan", &file, &walked);
    for (text, wanted) in [
        (format!("{outer} 7 / eth src {far} dst {near} / {inner} / udp / payload 9"), "lan"),
        // The same once more is out of sequence.
        (
            format!("{outer} 7 / eth src {far} dst {near} / {inner} / udp / payload 9"),
            "tunnel-out-of-sequence",
        ),
        (format!("{outer} 8 / eth src {far} dst {near} / {inner} ecn 2 / icmp"), "lan"),
    ] {
        let (trace, _) = stand.walk("air", &text);
        assert_eq!(outcome(&trace), wanted, "{text}: {trace:#?}");
    }
    let other = "ip src 10.96.0.2 dst 10.96.0.1 / gre key 97 / eth dst 02:00:00:00:96:0a / ip dst 10.0.0.1";
    let trace = stand.trace("air", &[other]);
    assert_eq!((trace.fate.as_str(), trace.sent.len()), ("kernel", 0), "the key of no tunnel: {trace:#?}");
    stand.gateway.stop();
}
