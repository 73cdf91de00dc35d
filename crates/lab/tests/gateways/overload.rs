//! A flood of more than twice what the worker can take, beside what tells a network that a way is there.

use crate::support::{Gateway, address, assert_reaches, root_or_skip};
use polder_testbed::clock;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::raw::PacketSocket;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SENDER: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);
/// BFD's port (RFC 5881, section 4), its interval, and its detection time of three intervals.
const BFD: u16 = 3784;
const INTERVAL: Duration = Duration::from_millis(50);
const DETECTION: Duration = Duration::from_millis(150);
/// Packets of BFD, and of ARP.
const COUNT: u32 = 60;
/// Number of times at most that a flood is made which is none, or that is not the program's.
const ATTEMPTS: usize = 4;
/// Time until the worker has measured that it is overloaded, and has worked off what came before.
const WARM_UP: Duration = Duration::from_secs(3);

/// A gateway whose worker has a fiftieth of its core, so that any sender brings more than it takes.
fn tables(mode: &str) -> String {
    let port = |name: &str| {
        format!("[port.{name}]\ninterface = \"{name}\"\nmode = \"{mode}\"\nfast_path = \"off\"\n")
    };
    let ports = ["west", "east"].map(port).concat();
    format!("cpu_share = 2\nworkers = 1\n{ports}[bridge.lan]\nmembers = [\"west\", \"east\"]\n")
}

/// Packets that came through a flood.
struct Outcome {
    /// Packets of BFD and answers of ARP.
    came: [u32; 2],
    /// The longest way of a packet of BFD.
    longest: Duration,
    /// Control packets that were dropped.
    dropped: u64,
}

struct Net {
    sender: Namespace,
    receiver: Namespace,
    polder: Gateway,
    _topology: Topology,
}

impl Net {
    fn new(mode: &str, lacking: Option<&str>) -> Self {
        let mut topology = Topology::new().unwrap();
        let gateway = topology.namespace("gw").unwrap();
        let [sender, receiver] = ["west", "east"].map(|name| topology.namespace(name).unwrap());
        for (station, port, ip) in [(&sender, "west", SENDER), (&receiver, "east", RECEIVER)] {
            let pair = ["link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", gateway.name()];
            station.ip(&pair).unwrap();
            station.ip(&["link", "set", "eth0", "up"]).unwrap();
            gateway.ip(&["link", "set", port, "up"]).unwrap();
            address(station, "eth0", ip, 24);
        }
        let polder = Gateway::start_lacking(lacking, &topology, &gateway, &tables(mode));
        assert_reaches(&sender, RECEIVER);
        // The flood itself is not to ask.
        for (station, peer, ip) in [(&sender, &receiver, RECEIVER), (&receiver, &sender, SENDER)] {
            let mac = mac(peer).map(|byte| format!("{byte:02x}")).join(":");
            station.ip(&["neigh", "replace", &ip.to_string(), "lladdr", &mac, "dev", "eth0"]).unwrap();
        }
        Self { sender, receiver, polder, _topology: topology }
    }

    /// A socket of the receiver's.
    fn bound(&self, port: u16) -> UdpSocket {
        self.receiver.inside(|| UdpSocket::bind((RECEIVER, port))).unwrap().unwrap()
    }

    /// A socket of the sender's.
    fn toward(&self, port: u16) -> UdpSocket {
        let socket = self.sender.inside(|| UdpSocket::bind((SENDER, 0))).unwrap().unwrap();
        socket.connect((RECEIVER, port)).unwrap();
        socket
    }
}

fn mac(station: &Namespace) -> [u8; 6] {
    let said = station.ip(&["-j", "link", "show", "dev", "eth0"]).unwrap();
    let links = serde_json::from_str::<serde_json::Value>(&said).unwrap();
    let address = links[0]["address"].as_str().unwrap();
    let bytes = address.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect::<Vec<_>>();
    bytes.try_into().unwrap()
}

/// A question of ARP that the receiver's kernel answers.
fn question(from: [u8; 6]) -> Vec<u8> {
    let addresses = [&from[..], &SENDER.octets(), &[0; 6], &RECEIVER.octets()].concat();
    let head = [0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1];
    let mut frame = [&[0xff; 6][..], &from, &head, &addresses].concat();
    frame.resize(60, 0);
    frame
}

/// Number of answers of ARP that wait in a socket.
fn answers(socket: &PacketSocket) -> u32 {
    let (mut room, mut count) = ([0; 2048], 0);
    while let Ok(length) = socket.receive(&mut room) {
        let is_answer = length >= 42 && room[12..14] == [0x08, 0x06] && room[21] == 2;
        count += u32::from(is_answer);
    }
    count
}

/// Reads until it has come or nothing comes for long; the numbers that came, with their times on the way.
fn arrivals(socket: &UdpSocket) -> Vec<(u32, Duration)> {
    socket.set_read_timeout(Some(10 * DETECTION)).unwrap();
    let (mut room, mut arrivals) = ([0; 64], Vec::new());
    while let Ok(length) = socket.recv(&mut room) {
        assert_eq!(length, 12);
        let number = u32::from_ne_bytes(room[..4].try_into().unwrap());
        let sent = u64::from_ne_bytes(room[4..12].try_into().unwrap());
        arrivals.push((number, Duration::from_nanos(clock::nanos().saturating_sub(sent))));
        if number + 1 == COUNT {
            break;
        }
    }
    arrivals
}

#[test]
fn control_packets_come_through_a_flood() {
    if !root_or_skip("control_packets_come_through_a_flood") {
        return;
    }
    for mode in ["skb", "native", "generic"] {
        let Outcome { came, longest, dropped } = flood(mode, None);
        assert_eq!((came, dropped), ([COUNT; 2], 0), "BFD and ARP, {mode}; {longest:?}");
    }
}

#[test]
fn without_a_reserve_control_packets_are_lost_in_a_flood() {
    if !root_or_skip("without_a_reserve_control_packets_are_lost_in_a_flood") {
        return;
    }
    let Outcome { came, .. } = flood("generic", Some("reserve"));
    assert!(came.iter().all(|&came| came < COUNT), "{came:?} of {COUNT}");
}

/// Sends BFD and ARP beside a flood; again where other work kept the flood's sender from its core, or the veth's ring in front
/// of the program from being emptied.
fn flood(mode: &str, lacking: Option<&str>) -> Outcome {
    let outcome = (0..ATTEMPTS).find_map(|_| flood_once(mode, lacking));
    outcome.expect("more than half of the packets are too many, and the ring has room for control packets")
}

/// `None` if that was no overload, or if a control packet may be one of those that the ring had no room for.
fn flood_once(mode: &str, lacking: Option<&str>) -> Option<Outcome> {
    let net = Net::new(mode, lacking);
    let (hears, _deaf) = (net.bound(BFD), net.bound(9));
    let (speaks, floods) = (net.toward(BFD), net.toward(9));
    let asks = net.sender.inside(|| PacketSocket::open("eth0")?.incoming_alone()).unwrap().unwrap();
    let question = question(mac(&net.sender));
    let is_over = AtomicBool::new(false);
    let (arrived, answered) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                floods.send(&[0; 18]).unwrap();
            }
        });
        std::thread::sleep(WARM_UP);
        let hearing = scope.spawn(|| arrivals(&hears));
        answers(&asks);
        let mut answered = 0;
        for number in 0..COUNT {
            let payload = [&number.to_ne_bytes()[..], &clock::nanos().to_ne_bytes()].concat();
            speaks.send(&payload).unwrap();
            asks.send(&question).unwrap();
            std::thread::sleep(INTERVAL);
            answered += answers(&asks);
        }
        let arrived = hearing.join();
        is_over.store(true, Ordering::Relaxed);
        (arrived.unwrap(), answered)
    });
    let [bulk, control] = ["rx-overrun", "rx-overrun-control"].map(|reason| net.polder.drops(reason));
    let received = net.polder.all("ports", "received").iter().sum::<u64>();
    let ring = net.sender.command("cat").arg("/sys/class/net/eth0/statistics/tx_dropped").output().unwrap();
    let lost_in_ring = String::from_utf8(ring.stdout).unwrap().trim().parse::<u64>().unwrap();
    let longest = arrived.iter().map(|&(_, time)| time).max().unwrap_or_default();
    net.polder.stop();
    let came = [u32::try_from(arrived.len()).unwrap(), answered];
    let is_the_ring = lost_in_ring > 0 && came != [COUNT; 2];
    let outcome = Outcome { came, longest, dropped: control };
    (bulk > received / 2 && !is_the_ring).then_some(outcome)
}
