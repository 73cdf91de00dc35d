//! Flows that ports' programs carry: beside the same traffic without them, while stations move and settings change.

use crate::machines::until;
use crate::support::{FAST_MODES, Gateway, address, assert_reaches, root_or_skip, stream};
use polder_judges::hot::{Bench, Place, Sink, Subject};
use polder_testbed::topology::{End, Namespace, Topology};
use polder_testbed::traffic::packet::Mac;
use polder_testbed::traffic::raw::PacketSocket;
use polder_testbed::traffic::sockets::tcp_goodput;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const MOMENT: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);
pub(crate) const ADDRESSES: [Ipv4Addr; 3] =
    [Ipv4Addr::new(10, 95, 0, 1), Ipv4Addr::new(10, 95, 0, 2), Ipv4Addr::new(10, 95, 0, 3)];
const NAMES: [&str; 3] = ["lan1", "lan2", "lan3"];

/// Three stations on veths as `ip link` makes them, at the ports of a bridge.
pub(crate) struct Net {
    pub(crate) topology: Topology,
    pub(crate) stations: [Namespace; 3],
    pub(crate) gateway: Namespace,
    pub(crate) polder: Gateway,
}

/// A configuration with these keys in each port, and these lines behind.
fn text(keys: &str, more: &str) -> String {
    text_of("skb", keys, more)
}

/// The same in another mode.
pub(crate) fn text_of(mode: &str, keys: &str, more: &str) -> String {
    let port = |name: &str| format!("[port.{name}]\ninterface = \"{name}\"\nmode = \"{mode}\"\n{keys}\n");
    let ports = NAMES.map(port).concat();
    format!("{ports}[bridge.lan]\nmembers = [\"lan1\", \"lan2\", \"lan3\"]\n{more}\n")
}

impl Net {
    pub(crate) fn new(text: &str) -> Self {
        let mut topology = Topology::new().unwrap();
        let gateway = topology.namespace("gw").unwrap();
        let stations = NAMES.map(|name| topology.namespace(name).unwrap());
        for ((station, port), ip) in stations.iter().zip(NAMES).zip(ADDRESSES) {
            let pair = ["link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", gateway.name()];
            station.ip(&pair).unwrap();
            station.ip(&["link", "set", "eth0", "up"]).unwrap();
            gateway.ip(&["link", "set", port, "up"]).unwrap();
            address(station, "eth0", ip, 24);
            if text.contains("native") {
                let end = |namespace, interface| End { namespace, interface };
                end(station, "eth0").take_frames(end(&gateway, port)).unwrap();
            }
        }
        let polder = Gateway::start(&topology, &gateway, text);
        Self { topology, stations, gateway, polder }
    }

    /// Bytes each way, by TCP with all offloads.
    pub(crate) fn exchange(&self) {
        let [a, b, _] = &self.stations;
        assert_reaches(a, ADDRESSES[1]);
        let to = |ip| SocketAddrV4::new(ip, 7018);
        let there = tcp_goodput(a, b, to(ADDRESSES[1]), MOMENT, MOMENT).unwrap();
        let back = tcp_goodput(b, a, to(ADDRESSES[0]), MOMENT, MOMENT).unwrap();
        assert!(there > 1e7 && back > 1e7, "{there} {back}");
    }

    /// Packets that were carried, as the ports received and as they transmitted them.
    pub(crate) fn carried(&self) -> [u64; 2] {
        let shown = self.polder.show("flows");
        ["received", "transmitted"].map(|name| {
            let ports = shown["flows"]["ports"].as_array().unwrap();
            ports.iter().map(|port| port[name].as_u64().unwrap()).sum()
        })
    }

    /// Part of the packets of one exchange that were carried.
    fn carried_share(&self) -> f64 {
        let count = || (self.carried()[0], self.received());
        let before = count();
        self.exchange();
        let after = count();
        (after.0 - before.0) as f64 / (after.1 - before.1) as f64
    }

    fn flows(&self) -> Vec<Value> {
        self.polder.show("flows")["flows"]["flows"].as_array().unwrap().clone()
    }

    /// Reason why no port has a fast path; empty if all have one.
    fn obstacle(&self) -> String {
        let shown = self.polder.show("flows");
        let ports = shown["flows"]["ports"].as_array().unwrap();
        ports[0]["obstacle"].as_str().unwrap_or_default().to_owned()
    }

    /// Packets that interfaces have dropped behind the gateway.
    fn link_dropped(&self) -> u64 {
        let shown = self.polder.show("ports");
        let ports = shown["ports"].as_array().unwrap();
        ports.iter().filter_map(|port| port["link_dropped"].as_u64()).sum()
    }

    /// Failed redirects, and what counts them at each port.
    pub(crate) fn failed(&self) -> (u64, Vec<String>) {
        let shown = self.polder.show("flows");
        let ports = shown["flows"]["ports"].as_array().unwrap();
        let sources = ports.iter().map(|port| port["failed"]["source"].as_str().unwrap().to_owned());
        (ports.iter().map(|port| port["failed"]["packets"].as_u64().unwrap()).sum(), sources.collect())
    }

    fn received(&self) -> u64 {
        self.polder.all("ports", "received").iter().sum()
    }
}

#[test]
fn flows_are_carried_and_off_changes_nothing_but_their_way() {
    if !root_or_skip("flows_are_carried_and_off_changes_nothing_but_their_way") {
        return;
    }
    FAST_MODES.into_iter().for_each(carry_and_do_not);
}

fn carry_and_do_not(mode: &str) {
    let text = |keys| text_of(mode, keys, "");
    let net = Net::new(&text(""));
    // Entries are made while the worker gets its turns, which other loads may put off.
    let share = (0..4).map(|_| net.carried_share()).find(|share| *share > 0.9);
    assert!(share.is_some(), "{:?} of all packets were carried in {mode} mode", net.carried());
    let [received, transmitted] = net.carried();
    assert_eq!(received, transmitted);
    let pairs = net.flows().len();
    assert!(pairs >= 2, "{pairs}");
    net.polder.assert_conserved();
    // The same bridge, without.
    net.polder.reload(&text("fast_path = \"off\"")).unwrap();
    assert_eq!((net.obstacle().as_str(), net.flows().len()), ("switched off", 0));
    let before = net.carried();
    net.exchange();
    assert_eq!(net.carried(), before);
    // And with.
    net.polder.reload(&text("")).unwrap();
    net.exchange();
    assert!(net.carried()[0] > before[0]);
    net.polder.stop();
}

#[test]
fn frames_of_hot_bridges_leave_as_they_do_without_a_fast_path() {
    if !root_or_skip("frames_of_hot_bridges_leave_as_they_do_without_a_fast_path") {
        return;
    }
    for mode in FAST_MODES {
        let bench = Bench { place: Place::Bridge, mode };
        let findings = bench.examine(&bench.reference().unwrap(), Subject::Fast).unwrap();
        assert!(findings.packets > 150, "{findings:?}");
        assert_eq!(findings.different, [""; 0], "{mode}");
    }
}

#[test]
fn what_only_user_space_does_ends_the_fast_path_and_says_so() {
    if !root_or_skip("what_only_user_space_does_ends_the_fast_path_and_says_so") {
        return;
    }
    let net = Net::new(&text("", ""));
    net.exchange();
    let filter = "[[filter]]\nprotocol = \"udp\"\ndestination_port = 9\naction = \"drop\"";
    for (keys, more, why) in [
        ("", filter, "filters examine its packets"),
        ("queue = { kind = \"codel\" }", "", "it has a queue"),
        ("shaper = { down = \"1 Gbit/s\" }", "", "its `shaper` limits what comes in"),
        ("mtu = 1400", "", "its configured MTU differs from the interface's"),
    ] {
        net.polder.reload(&text(keys, more)).unwrap();
        assert_eq!(net.obstacle(), why);
        let before = net.carried();
        assert_reaches(&net.stations[0], ADDRESSES[1]);
        assert_eq!((net.carried(), net.flows().len()), (before, 0), "{why}");
    }
    net.polder.reload(&text("", "")).unwrap();
    net.exchange();
    assert!(!net.flows().is_empty());
    net.polder.stop();
}

/// Both ways, and the packets are carried all the time.
#[test]
fn a_capture_sees_copies_of_what_is_carried() {
    if !root_or_skip("a_capture_sees_copies_of_what_is_carried") {
        return;
    }
    let net = Net::new(&text("", ""));
    let [a, b, _] = &net.stations;
    net.exchange();
    let file = std::env::temp_dir().join(format!("{}.pcapng", net.gateway.name()));
    let capture = |arguments: &[&str]| {
        // It is there again when the capture has begun.
        drop(std::fs::remove_file(&file));
        let mut command = Command::new(crate::support::polder());
        command.args(["capture", "lan1"]).args(arguments).arg("-w").arg(&file);
        let child = command.arg("--socket").arg(net.polder.socket()).spawn().unwrap();
        until("the capture has begun", || std::fs::metadata(&file).is_ok_and(|file| file.len() > 0));
        child
    };
    let mut both = capture(&["udp and dst port 7007", "--count", "1500"]);
    let carried = net.carried()[0];
    for (from, to, address) in [(a, b, ADDRESSES[1]), (b, a, ADDRESSES[0])] {
        let arrivals = stream(from, to, address, 1000.0, SECOND);
        assert!(arrivals.received >= 900, "{arrivals:?}");
    }
    assert!(both.wait().unwrap().success());
    assert_eq!(net.obstacle(), "");
    assert!(net.carried()[0] > carried + 1800);
    let occurrences = |wanted: &[u8]| {
        let bytes = std::fs::read(&file).unwrap();
        bytes.windows(wanted.len()).filter(|window| *window == wanted).count()
    };
    // A comment and its padding.
    let copies = || [b"\x02\0rx\0\0", b"\x02\0tx\0\0"].map(|comment| occurrences(comment));
    let [received, sent] = copies();
    assert_eq!(received + sent, 1500);
    assert!(received >= 900 && sent >= 400, "{received} {sent}");
    // The kernel has taken the tag off before the filter, which is compiled for a tag in the frame; it is there again.
    let mut tagged = capture(&["vlan 7 and icmp", "--stage", "rx", "--count", "17"]);
    a.inside(|| {
        let socket = PacketSocket::open("eth0").unwrap();
        for number in 0..34 {
            let mut frame = [&[2; 12][..], &[0x81, 0, 0, 7 + number % 2, 8, 0, 0x45, 0, 0, 20]].concat();
            frame.extend([0, 0, 0, 0, 64, 1, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
            frame.resize(64, 0);
            socket.send(&frame).unwrap();
        }
    })
    .unwrap();
    assert!(tagged.wait().unwrap().success());
    assert_eq!(copies(), [17, 0]);
    assert_eq!([7, 8].map(|vlan| occurrences(&[2, 2, 0x81, 0, 0, vlan, 8, 0, 0x45])), [17, 0]);
    // It ends with its interface, and says so by ending.
    let mut over = capture(&["udp port 1"]);
    net.gateway.ip(&["link", "set", "lan1", "down"]).unwrap();
    until("the capture has ended", || over.try_wait().unwrap().is_some());
    std::fs::remove_file(&file).unwrap();
    net.polder.assert_conserved();
    net.polder.stop();
}

/// A capture whose file nobody reads: the kernel has room for some copies, and counts the others; the packets themselves are
/// carried. One that matches nothing is told how many packets its filter was asked about.
#[test]
fn copies_that_nobody_reads_are_counted_as_lost() {
    if !root_or_skip("copies_that_nobody_reads_are_counted_as_lost") {
        return;
    }
    const COUNT: u64 = 12_000;
    let net = Net::new(&text("", ""));
    let [a, b, _] = &net.stations;
    net.exchange();
    let capture = |filter: &str| {
        let mut command = Command::new(crate::support::polder());
        command.args(["capture", "lan1", "--stage", "rx", filter, "--socket"]).arg(net.polder.socket());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It captures when its file has a beginning.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
        child
    };
    let [unread, unmatched] = ["udp and dst port 7008", "udp port 1"].map(capture);
    let sink = b.inside(|| UdpSocket::bind((ADDRESSES[1], 7008))).unwrap().unwrap();
    let carried = net.carried()[0];
    a.inside(|| {
        let socket = UdpSocket::bind((ADDRESSES[0], 0)).unwrap();
        for _ in 0..COUNT {
            socket.send_to(&[7; 1400], (ADDRESSES[1], 7008)).unwrap();
        }
    })
    .unwrap();
    drop(sink);
    assert!(net.carried()[0] > carried + COUNT / 2);
    let summary = |child: Child| {
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        let words = said.split(|character: char| !character.is_ascii_digit());
        words.filter_map(|word| word.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    let [captured, matched, asked, lost] = summary(unread)[..] else { panic!("four numbers") };
    assert_eq!((matched, captured + lost), (COUNT, COUNT));
    assert!(lost > COUNT / 4 && asked >= COUNT, "{lost} {asked}");
    let [captured, matched, asked, lost] = summary(unmatched)[..] else { panic!("four numbers") };
    assert!((captured, matched, lost) == (0, 0, 0) && asked >= COUNT, "{captured} {matched} {lost} {asked}");
    net.polder.assert_conserved();
    net.polder.stop();
}

/// A filter that is too long for a program of the kernel takes the fast path from the port while the capture runs.
#[test]
fn a_filter_that_the_kernel_does_not_take_runs_in_user_space() {
    if !root_or_skip("a_filter_that_the_kernel_does_not_take_runs_in_user_space") {
        return;
    }
    let mut net = Net::new(&text("", ""));
    net.exchange();
    // Loads behind the index, and a match of everything.
    let program = ["004800000000000e".repeat(4000), "0006000000040000".to_owned()].concat();
    let ask = json!({
        "polder": 1, "ask": "capture", "port": "lan1", "rx": true, "tx": false, "drops": false,
        "longest": 64, "count": 17, "program": program,
    });
    let mut capture = UnixStream::connect(net.polder.socket()).unwrap();
    capture.write_all(format!("{ask}\n").as_bytes()).unwrap();
    net.polder.wait_until_said(
        "the fast path of lan1 is disabled during a capture: the capture filter is too long",
    );
    until("the fast path is gone", || net.obstacle() == "a capture runs on it");
    let [a, b, _] = &net.stations;
    assert!(stream(a, b, ADDRESSES[1], 1000.0, MOMENT).received > 200);
    let mut file = Vec::new();
    capture.read_to_end(&mut file).unwrap();
    assert_eq!(file.windows(4).filter(|window| window == b"rx, ").count(), 17);
    until("the fast path is there again", || net.obstacle().is_empty());
    net.polder.stop();
}

/// A reload and a link that goes down end the entries that they touch: a fast flow without a pause goes on beside those
/// that touch none of its ports.
#[test]
fn a_flow_that_a_reload_does_not_touch_stays_carried() {
    if !root_or_skip("a_flow_that_a_reload_does_not_touch_stays_carried") {
        return;
    }
    const RATE: f64 = 20_000.0;
    for mode in FAST_MODES {
        let net = Net::new(&text_of(mode, "", ""));
        let [a, b, c] = &net.stations;
        assert_reaches(a, ADDRESSES[1]);
        // The flow finds its way, which may cost packets of one without a pause.
        stream(a, b, ADDRESSES[1], 1000.0, MOMENT);
        until("the flow is carried", || {
            stream(a, b, ADDRESSES[1], 100.0, MOMENT);
            net.carried()[0] > 0
        });
        // An entry counts from its beginning, and the one with most packets is the first: if it ended, its packets are lost here.
        let of_entry = || net.flows().first().and_then(|flow| flow["packets"].as_u64()).unwrap_or(0);
        let (fence, before, received) = (net.polder.drops("fence"), of_entry(), net.received());
        let arrivals = std::thread::scope(|scope| {
            let streaming = scope.spawn(|| stream(a, b, ADDRESSES[1], RATE, 2 * SECOND));
            for round in 0..6 {
                std::thread::sleep(MOMENT / 2);
                let bridge = format!(
                    "ageing_seconds = {}\n[bridge.lan.port.lan3]\nisolated = {}\n",
                    100 + round,
                    round % 2 == 0
                );
                net.polder.reload(&text_of(mode, "", &bridge)).unwrap();
                // The link of the third port goes down and comes up.
                c.ip(&["link", "set", "eth0", ["down", "up"][round % 2]]).unwrap();
            }
            streaming.join().unwrap()
        });
        // Workers count theirs some turns later.
        until("all packets are counted", || net.received() - received >= arrivals.received);
        let above = arrivals.received.saturating_sub(of_entry().saturating_sub(before));
        assert_eq!((arrivals.lost, net.polder.drops("fence") - fence), (0, 0), "{mode}: {arrivals:?}");
        // Less than one that had ended at the first reload would lack.
        let has_stayed = above < arrivals.received / 100;
        assert!(has_stayed, "{mode}: {above} of {arrivals:?} by user space; {:?}", net.flows());
        // One that touches the flow's own port ends its entry.
        let weighed = text_of(mode, "", "").replacen("[port.lan2]\n", "[port.lan2]\nweight = 2\n", 1);
        net.polder.reload(&weighed).unwrap();
        assert_eq!(net.polder.show("flows")["flows"]["flows"].as_array().map(Vec::len), Some(0));
        net.polder.stop();
    }
}

/// A station behind a port that others send to by a flow that is carried comes to another port.
#[test]
fn a_flow_follows_its_station_to_another_port() {
    if !root_or_skip("a_flow_follows_its_station_to_another_port") {
        return;
    }
    FAST_MODES.into_iter().for_each(follow_station);
}

fn follow_station(mode: &str) {
    let net = Net::new(&text_of(mode, "", ""));
    let [a, b, c] = &net.stations;
    let mac = "02:00:5e:00:53:07";
    for (station, ip) in [(b, "10.95.0.9/24"), (c, "10.95.0.9/24")] {
        station.ip(&["link", "set", "eth0", "address", mac]).unwrap();
        station.ip(&["address", "add", ip, "dev", "eth0"]).unwrap();
    }
    let target = Ipv4Addr::new(10, 95, 0, 9);
    a.ip(&["neigh", "replace", "10.95.0.9", "lladdr", mac, "dev", "eth0"]).unwrap();
    let announce = |station: &Namespace| {
        let mut ping = station.command("ping");
        // An answer goes to the station that asks; that the frame came is enough.
        drop(ping.args(["-c", "1", "-W", "1", "-I", "10.95.0.9", "10.95.0.1"]).output().unwrap());
    };
    for here in [b, c, b, c] {
        announce(here);
        let before = net.carried();
        let arrivals = stream(a, here, target, 1000.0, SECOND);
        assert_eq!(arrivals.reordered, 0, "{arrivals:?}");
        assert!(arrivals.lost <= net.polder.drops("fence"), "{arrivals:?}");
        assert!(net.carried()[0] > before[0] + 900, "the flow is carried");
    }
    net.polder.stop();
}

pub(crate) fn mac_of(station: &Namespace) -> Mac {
    let output = station.command("cat").arg("/sys/class/net/eth0/address").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

/// Packets that a station's veth has dropped, because its other end did not take them.
fn not_sent(station: &Namespace) -> u64 {
    let output = station.command("cat").arg("/proc/net/dev").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, counts) = text.split_once("eth0:").unwrap();
    counts.split_whitespace().nth(11).unwrap().parse().unwrap()
}

/// Packets that found the buffer of a UDP socket full: a frame that an XDP program redirected takes a page of it.
fn full_sockets(station: &Namespace) -> u64 {
    let output = station.command("cat").arg("/proc/net/snmp").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let [names, counts] = [lines.next().unwrap(), lines.next().unwrap()].map(str::split_whitespace);
    let (_, count) = names.zip(counts).find(|(name, _)| *name == "RcvbufErrors").unwrap();
    count.parse().unwrap()
}

/// A further station behind `station`'s port, for a moment.
fn appear(station: &Namespace) {
    station.ip(&["link", "add", "mover", "link", "eth0", "type", "macvlan"]).unwrap();
    station.ip(&["link", "set", "mover", "address", "02:00:5e:00:53:08", "up"]).unwrap();
    station.ip(&["address", "add", "10.95.1.1/24", "dev", "mover"]).unwrap();
    let mut ping = station.command("ping");
    drop(ping.args(["-c", "1", "-W", "0.05", "-I", "mover", "10.95.1.2"]).output().unwrap());
    station.ip(&["link", "del", "mover"]).unwrap();
}

/// Entries end many times a second, each time with packets in both ways.
#[test]
fn packets_keep_their_order_when_a_flow_changes_its_way() {
    if !root_or_skip("packets_keep_their_order_when_a_flow_changes_its_way") {
        return;
    }
    let net = Net::new(&text("", ""));
    let [a, b, c] = &net.stations;
    net.exchange();
    let is_over = AtomicBool::new(false);
    let (arrivals, moves) = std::thread::scope(|scope| {
        // A station that is now here, now there: each time all entries end.
        let mover = scope.spawn(|| {
            let mut moves = 0;
            while !is_over.load(Ordering::Relaxed) {
                appear([b, c][moves % 2]);
                moves += 1;
            }
            moves
        });
        let arrivals = stream(a, b, ADDRESSES[1], 20_000.0, 5 * SECOND);
        is_over.store(true, Ordering::Relaxed);
        (arrivals, mover.join().unwrap())
    });
    let moved = net.polder.all("counters", "moved").iter().sum::<u64>();
    assert!(moves >= 10 && moved >= 10, "{moved} moves of {moves} were seen");
    assert_eq!((arrivals.reordered, arrivals.duplicated), (0, 0), "{arrivals:?} after {moved} moves");
    let counted = || {
        let reasons = ["fence", "rx-overrun", "tx-error"].map(|reason| net.polder.drops(reason));
        reasons.iter().sum::<u64>() + net.link_dropped() + full_sockets(b) + not_sent(a)
    };
    until("what was lost is counted", || arrivals.lost <= counted());
    let fence = net.polder.drops("fence");
    assert!(fence < arrivals.sent / 10, "{fence} of {arrivals:?}");
    net.polder.stop();
}

/// The same where programs are at the XDP hook. A socket would not see frames of programs and of user space in their order.
#[test]
fn frames_keep_their_order_at_the_xdp_hook_when_a_flow_changes_its_way() {
    if !root_or_skip("frames_keep_their_order_at_the_xdp_hook_when_a_flow_changes_its_way") {
        return;
    }
    let net = Net::new(&text_of("native", "", ""));
    let [a, b, c] = &net.stations;
    net.exchange();
    let mut sink = Sink::open(b, "eth0").unwrap();
    let [to_b, of_a] = [b, a].map(mac_of);
    let sender = a.inside(|| PacketSocket::open("eth0")).unwrap().unwrap();
    let known = b.inside(|| PacketSocket::open("eth0")).unwrap().unwrap();
    let head = [&to_b[..], &of_a, &[0x88, 0xb5]].concat();
    let is_over = AtomicBool::new(false);
    let (carried, moved) = (net.carried()[0], net.polder.all("counters", "moved").iter().sum::<u64>());
    let send = |number: u64| {
        let mut frame = [&head[..], &number.to_be_bytes()].concat();
        frame.resize(60, 0);
        sender.send(&frame).unwrap();
        std::thread::sleep(Duration::from_micros(500 * u64::from(number.is_multiple_of(20))));
        if number.is_multiple_of(4000) {
            appear([b, c][usize::try_from(number / 4000 % 2).unwrap()]);
            // The station's own stack gets no frames beside the sink, and the bridge forgets it in time.
            known.send(&[&[0xff; 6][..], &to_b, &[0x88, 0xb6], &[0; 46]].concat()).unwrap();
        }
    };
    let number_of = |frame: &[u8]| {
        let number = frame.strip_prefix(&head[..]).and_then(<[u8]>::first_chunk);
        number.map(|number| u64::from_be_bytes(*number))
    };
    let mut arrived = Vec::new();
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            // One core, so that the kernel keeps the order.
            polder_testbed::topology::pin_here(0).unwrap();
            (0..40_000).for_each(&send);
            std::thread::sleep(MOMENT);
            is_over.store(true, Ordering::Relaxed);
        });
        while !is_over.load(Ordering::Relaxed) {
            sink.frames(|frame| arrived.extend(number_of(frame)));
            std::thread::sleep(Duration::from_micros(100));
        }
        sending.join().unwrap();
    });
    let moved = net.polder.all("counters", "moved").iter().sum::<u64>() - moved;
    let carried = net.carried()[0] - carried;
    let received = arrived.len() as u64;
    let is_in_order = arrived.is_sorted_by(|one, other| one < other);
    assert!(moved >= 2 && received > 20_000, "{moved} moves, {received} frames");
    assert!(carried > 10_000 && carried < received, "{carried} of {received} were carried");
    assert!(is_in_order, "{carried} of {received} carried, {moved} moves");
    net.polder.stop();
}
