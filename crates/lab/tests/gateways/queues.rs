//! Flow queueing in front of a port: delay of sparse flows, the rate, marks, and shares of hosts.

use crate::machines::{addresses, machine, reaches, until};
use crate::support::{Gateway, polder, root_or_skip, wire};
use polder_testbed::clock;
use polder_testbed::command;
use polder_testbed::topology::{Namespace, Topology};
use polder_testbed::traffic::sockets::{UdpOutcome, UdpStream};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 94, 0, 2);
/// Hosts that send; both are addresses of one machine.
const HOSTS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 94, 0, 1), Ipv4Addr::new(10, 94, 0, 3)];
const FLOOD: SocketAddrV4 = SocketAddrV4::new(RIGHT, 7019);
const PAYLOAD: [u8; 1400] = [7; 1400];
/// Bytes of a frame with this payload, FCS excluded.
const FRAME: u64 = 1400 + 8 + 20 + 14;
/// ECT(0).
const CAPABLE: u8 = 2;
/// Rate of the queue in bytes a second: 20 Mbit/s.
const RATE: u64 = 2_500_000;

/// A gateway between two machines, with a queue in front of the right one.
struct Net {
    left: Namespace,
    right: Namespace,
    gateway: Gateway,
    _topology: Topology,
}

fn text(queue: &str) -> String {
    format!(
        "[port.a]\ninterface = \"eth0\"\nmode = \"skb\"\n\
         [port.b]\ninterface = \"eth1\"\nmode = \"skb\"\nqueue = {{ {queue} }}\n\
         [bridge.lan]\nmembers = [\"a\", \"b\"]\n"
    )
}

impl Net {
    fn new(queue: &str) -> Self {
        let mut topology = Topology::new().unwrap();
        let mut new = |role| machine(&mut topology, role);
        let (left, namespace, right) = (new("left"), new("gateway"), new("right"));
        wire(&topology, (&left, "eth0"), (&namespace, "eth0"), 1500);
        wire(&topology, (&namespace, "eth1"), (&right, "eth0"), 1500);
        addresses(&left, "eth0", &HOSTS.map(|host| format!("{host}/24")).each_ref().map(String::as_str));
        addresses(&right, "eth0", &[&format!("{RIGHT}/24")]);
        let gateway = Gateway::start(&topology, &namespace, &text(queue));
        reaches(&left, &RIGHT.to_string());
        Self { left, right, gateway, _topology: topology }
    }

    /// The row of the queue.
    fn queue(&self) -> Value {
        self.gateway.show("queues")["queues"][0].clone()
    }

    fn number(&self, field: &str) -> u64 {
        self.queue()[field].as_u64().unwrap()
    }

    /// Lets the flows of both hosts send for `time` while `meanwhile` runs, and returns it with the arrivals.
    fn flood<T>(
        &self,
        flows: [usize; 2],
        each: [u32; 2],
        time: Duration,
        meanwhile: impl FnOnce() -> T,
    ) -> (T, Vec<Arrival>) {
        let receiver = self.right.inside(|| UdpSocket::bind(FLOOD)).unwrap().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 32 << 20).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let (left, done) = (&self.left, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| receive(&receiver, &done));
            let sending = scope.spawn(|| left.inside(|| send(flows, each, time)).unwrap());
            let result = meanwhile();
            sending.join().unwrap();
            // Relaxed: the flag orders nothing.
            done.store(true, Ordering::Relaxed);
            (result, receiving.join().unwrap())
        })
    }

    /// A flow of a packet each 10 ms.
    fn sparse(&self, time: Duration) -> UdpOutcome {
        let destination = SocketAddrV4::new(RIGHT, 7007);
        UdpStream { from: &self.left, to: &self.right, destination, frame_bytes: 128, rate: 100.0, time }
            .run()
            .unwrap()
    }
}

/// Source and time of a datagram.
type Arrival = (IpAddr, Duration);

fn receive(socket: &UdpSocket, done: &AtomicBool) -> Vec<Arrival> {
    let (mut arrivals, mut buffer) = (Vec::new(), [0; 2048]);
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((_, from)) => arrivals.push((from.ip(), clock::now())),
            Err(_) if done.load(Ordering::Relaxed) => return arrivals,
            Err(_) => {}
        }
    }
}

fn send(flows: [usize; 2], each: [u32; 2], time: Duration) {
    send_to(SocketAddr::V4(FLOOD), flows, each, time);
}

/// Sends ECN-capable datagrams for `time`: of each host, so many flows with `each` packets in a turn of 8 ms.
fn send_to(to: SocketAddr, flows: [usize; 2], each: [u32; 2], time: Duration) {
    let open = |host: Ipv4Addr| {
        let socket = UdpSocket::bind((host, 0)).unwrap();
        rustix::net::sockopt::set_ip_tos(&socket, CAPABLE).unwrap();
        socket.connect(to).unwrap();
        socket
    };
    let sockets =
        [0, 1].map(|host| std::iter::repeat_with(|| open(HOSTS[host])).take(flows[host]).collect::<Vec<_>>());
    let (start, turn) = (clock::now(), Duration::from_millis(8));
    let mut due = start;
    while clock::now() < start + time {
        for (sockets, each) in sockets.iter().zip(each) {
            // A full interface refuses a packet; the next turn brings others.
            (0..each).for_each(|_| sockets.iter().for_each(|socket| drop(socket.send(&PAYLOAD))));
        }
        due += turn;
        std::thread::sleep(due.saturating_sub(clock::now()));
    }
}

/// Rates in bytes a second: of all arrivals after the first 300 ms, and of the fastest tenth of a second in
/// which the machine had time for the gateway.
fn rates(arrivals: &[Arrival]) -> (u64, u64) {
    let start = arrivals[0].1 + Duration::from_millis(300);
    let times = arrivals.iter().map(|(_, at)| *at).filter(|at| *at >= start).collect::<Vec<_>>();
    let rate = |times: &[Duration]| {
        let elapsed = *times.last().unwrap() - times[0];
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap().max(1);
        (times.len() as u64 - 1) * FRAME * 1_000_000_000 / nanos
    };
    let window = usize::try_from(RATE / FRAME / 10).unwrap();
    (rate(&times), times.chunks_exact(window).map(rate).max().unwrap())
}

/// The rate is a promise in one direction: a busy machine is slower, but not all the time.
fn assert_rate(arrivals: &[Arrival], expected: u64) {
    let (all, best) = rates(arrivals);
    assert!(all <= expected * 102 / 100, "{all} of {expected} bytes a second");
    assert!(best >= expected * 98 / 100, "{best} of {expected} bytes a second at best");
}

const TIME: Duration = Duration::from_millis(1600);

#[test]
fn a_sparse_flow_does_not_wait_for_a_flood() {
    if !root_or_skip("a_sparse_flow_does_not_wait_for_a_flood") {
        return;
    }
    for kind in ["fq_codel", "cake"] {
        let queue = |rate: u64| format!("kind = {kind:?}, rate_kbit = {}", rate * 8 / 1000);
        let net = Net::new(&queue(RATE));
        // 40 Mbit/s.
        let ((sparse, shown), arrivals) = net.flood([1, 0], [28, 0], TIME, || {
            let sparse = net.sparse(TIME - Duration::from_millis(500));
            (sparse, net.queue())
        });
        assert_rate(&arrivals, RATE);
        assert_eq!(sparse.arrivals.lost, 0, "{kind}: {:?}", sparse.arrivals);
        let [median, most] = [0.5, 0.95].map(|part| sparse.latency.value_at_quantile(part));
        // A full packet takes 0.6 ms; a FIFO would take 200 ms.
        assert!(median < 4_000_000 && most < 30_000_000, "{kind}: {median} ns, {most} ns");
        let flow = &shown["flows"][0];
        let name = flow["flow"].as_str().unwrap();
        assert!(name.starts_with("UDP 10.94.0.1:") && name.ends_with(" → 10.94.0.2:7019"), "{shown}");
        assert!(flow["bytes"].as_u64().unwrap() > 100_000 && flow["list"] == "old", "{shown}");
        assert!(shown["marked"].as_u64().unwrap() > 10, "{shown}");
        until("all have left", || net.number("waiting") == 0);
        let [entered, left, full, delay] =
            ["entered", "left", "dropped_full", "dropped_delay"].map(|field| net.number(field));
        assert_eq!(entered, left + full + delay, "{}", net.queue());
        assert!(full > 1000 && delay == 0, "what is ECN-capable is marked: {}", net.queue());
        // Another rate, while packets wait.
        let (_, arrivals) = net.flood([1, 0], [40, 0], TIME, || {
            net.gateway.reload(&text(&queue(RATE * 2))).unwrap();
        });
        assert_rate(&arrivals, RATE * 2);
        assert_eq!(net.gateway.port("b")["openings"], 1);
        net.gateway.stop();
    }
}

#[test]
fn hosts_with_1_and_32_flows_share_equally() {
    if !root_or_skip("hosts_with_1_and_32_flows_share_equally") {
        return;
    }
    let net = Net::new("kind = \"cake\", isolation = \"source\", rate_kbit = 20_000");
    // The first host sends 23 Mbit/s, the second 46.
    let (shown, arrivals) = net.flood([1, 32], [16, 1], TIME, || {
        std::thread::sleep(TIME / 2);
        net.queue()
    });
    let mut shares = BTreeMap::<IpAddr, u64>::new();
    let start = arrivals[0].1 + Duration::from_millis(300);
    let end = arrivals[0].1 + TIME - Duration::from_millis(100);
    for (from, _) in arrivals.iter().filter(|(_, at)| (start..end).contains(at)) {
        *shares.entry(*from).or_default() += 1;
    }
    let shares = shares.into_values().map(|packets| packets as f64).collect::<Vec<_>>();
    let squares = shares.iter().map(|share| share * share).sum::<f64>();
    let jain = shares.iter().sum::<f64>().powi(2) / (2.0 * squares);
    assert!(shares.len() == 2 && jain >= 0.99, "{shares:?}: {jain}");
    let hosts = shown["hosts"].as_array().unwrap();
    let of = |host: Ipv4Addr| {
        let row = hosts.iter().find(|row| row["host"] == host.to_string());
        row.map_or(0, |row| row["flows"].as_u64().unwrap())
    };
    assert_eq!(HOSTS.map(of), [1, 32], "{shown}");
    assert!(hosts.iter().all(|row| row["role"] == "source" && row["tin"] == "best-effort"), "{shown}");
    let tin = |field: &str| shown["tins"][1][field].as_u64().unwrap();
    assert!(tin("left") > 1000 && tin("waiting") > 0, "{shown}");
    net.gateway.stop();
}

/// Machines behind two ports, to which packets come in by a third.
const BEHIND: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 94, 0, 5), Ipv4Addr::new(10, 94, 0, 6)];

/// Packets that come in by one port leave by two others, and have one rate and one queue.
#[test]
fn what_comes_in_by_a_port_has_one_rate_whatever_port_it_leaves_by() {
    if !root_or_skip("what_comes_in_by_a_port_has_one_rate_whatever_port_it_leaves_by") {
        return;
    }
    let mut topology = Topology::new().unwrap();
    let mut new = |role| machine(&mut topology, role);
    let (wan, namespace, lans) = (new("wan"), new("gateway"), [new("one"), new("two")]);
    wire(&topology, (&wan, "eth0"), (&namespace, "eth0"), 1500);
    addresses(&wan, "eth0", &["10.94.0.1/24"]);
    for (lan, (port, address)) in lans.iter().zip(["eth1", "eth2"].into_iter().zip(BEHIND)) {
        wire(&topology, (&namespace, port), (lan, "eth0"), 1500);
        addresses(lan, "eth0", &[&format!("{address}/24")]);
    }
    let text = "[port.wan]\ninterface = \"eth0\"\nmode = \"skb\"\n\
                [port.wan.shaper]\ndown = \"20 Mbit/s\"\n\
                [port.a]\ninterface = \"eth1\"\nmode = \"skb\"\n[port.b]\ninterface = \"eth2\"\nmode = \"skb\"\n\
                [bridge.lan]\nmembers = [\"wan\", \"a\", \"b\"]\n";
    let gateway = Gateway::start(&topology, &namespace, text);
    BEHIND.iter().for_each(|address| reaches(&wan, &address.to_string()));
    let flood = |expected: u64| {
        // One flow to the first machine, 16 to the second, each of them 23 Mbit/s and more.
        let arrivals = between(&wan, &lans, [(1, 16), (16, 1)], TIME);
        let mut all = arrivals.concat();
        all.sort_unstable_by_key(|(_, at)| *at);
        assert_rate(&all, expected);
        let start = all[0].1 + Duration::from_millis(300);
        let end = all[0].1 + TIME - Duration::from_millis(100);
        let of =
            |arrivals: &Vec<Arrival>| arrivals.iter().filter(|(_, at)| (start..end).contains(at)).count();
        let shares = [of(&arrivals[0]), of(&arrivals[1])].map(|packets| packets as f64);
        let jain =
            (shares[0] + shares[1]).powi(2) / (2.0 * shares.map(|share| share * share).iter().sum::<f64>());
        assert!(jain >= 0.99, "{shares:?}: {jain}");
    };
    flood(RATE);
    let row = gateway.show("queues")["queues"][0].clone();
    assert_eq!((row["way"].as_str(), row["kind"].as_str()), (Some("down"), Some("cake")), "{row}");
    assert!(row["left"].as_u64().unwrap() > 1000 && row["dropped_full"].as_u64().unwrap() > 1000, "{row}");
    assert!(gateway.port("wan")["drops"]["queue-full"].as_u64().unwrap() > 1000);
    // Another rate by command, until the next reload.
    let mut rate = Command::new(polder());
    rate.args(["queue", "wan", "down", "40Mbit/s", "--socket"]).arg(gateway.socket());
    assert_eq!(command::run(&mut rate).unwrap().trim(), "wan: 20 Mbit/s → 40 Mbit/s");
    flood(2 * RATE);
    let mut rate = Command::new(polder());
    rate.args(["queue", "a", "up", "40Mbit/s", "--socket"]).arg(gateway.socket());
    let refused = format!("{:#}", command::run(&mut rate).unwrap_err());
    assert!(refused.contains("port a has no queue"), "{refused}");
    gateway.reload(text).unwrap();
    assert_eq!(gateway.show("queues")["queues"][0]["rate_kbit"], 20_000);
    gateway.stop();
}

/// Lets one machine send to two others, to each so many flows with so many packets in a turn; returns the
/// arrivals at each.
fn between(
    from: &Namespace,
    to: &[Namespace; 2],
    flows: [(usize, u32); 2],
    time: Duration,
) -> Vec<Vec<Arrival>> {
    let done = AtomicBool::new(false);
    let open = |(machine, address): (&Namespace, Ipv4Addr)| {
        let receiver = machine.inside(|| UdpSocket::bind((address, FLOOD.port()))).unwrap().unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 32 << 20).unwrap();
        receiver.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        receiver
    };
    let receivers = to.iter().zip(BEHIND).map(open).collect::<Vec<_>>();
    std::thread::scope(|scope| {
        let receiving =
            receivers.iter().map(|receiver| scope.spawn(|| receive(receiver, &done))).collect::<Vec<_>>();
        let sending = BEHIND.into_iter().zip(flows).map(|(address, (flows, each))| {
            scope.spawn(move || {
                let send = || send_to(SocketAddr::from((address, FLOOD.port())), [flows, 0], [each, 0], time);
                from.inside(send).unwrap();
            })
        });
        sending.collect::<Vec<_>>().into_iter().for_each(|sending| sending.join().unwrap());
        // Relaxed: the flag orders nothing.
        done.store(true, Ordering::Relaxed);
        receiving.into_iter().map(|receiving| receiving.join().unwrap()).collect()
    })
}
