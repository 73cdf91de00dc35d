//! The reader of connection tracking, in a masquerading router between real network stacks.

#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

use polder::kernel::conntrack::message::{Record, Status, Tuple, Update, events, update};
use polder::kernel::conntrack::socket::{BUFFER_BYTES, Reading, Socket};
use polder::kernel::conntrack::{self, AllEvents, Change, Connection, Connections, Event, Limits, settings};
use polder_datapath::units::Nanos;
use polder_devices::netlink::{Client, attributes, find};
use polder_testbed::clock;
use polder_testbed::command::{exists, run};
use polder_testbed::skip::skip;
use polder_testbed::topology::{End, Namespace, Topology, is_root};
use rustix::net::netlink::NETFILTER;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// A station, a router that masquerades what leaves by `wan`, and a server.
struct Net {
    _topology: Topology,
    station: Namespace,
    router: Namespace,
    server: Namespace,
}

/// Address of the server in both families, and that of the router on its side.
const WAYS: [[&str; 2]; 2] = [["10.71.2.2", "10.71.2.1"], ["fd71:2::2", "fd71:2::1"]];

impl Net {
    fn new() -> Self {
        let mut topology = Topology::new().unwrap();
        let [station, router, server] = ["station", "router", "server"].map(|role| {
            let namespace = topology.namespace(role).unwrap();
            for key in ["ipv6/conf/all/disable_ipv6", "ipv6/conf/default/disable_ipv6"] {
                set(&namespace, key, "0");
            }
            namespace
        });
        for (near, interface) in [(&station, "lan"), (&server, "wan")] {
            let [near, far] = [(near, "eth0"), (&router, interface)];
            let end = |(namespace, interface)| End { namespace, interface };
            topology.wire(end(near), end(far), 1500).unwrap();
        }
        for (namespace, interface, network, host) in [
            (&station, "eth0", 1, 2),
            (&router, "lan", 1, 1),
            (&router, "wan", 2, 1),
            (&server, "eth0", 2, 2),
        ] {
            let v4 = format!("10.71.{network}.{host}/24");
            let v6 = format!("fd71:{network}::{host}/64");
            namespace.ip(&["address", "add", &v4, "dev", interface]).unwrap();
            namespace.ip(&["address", "add", &v6, "dev", interface, "nodad"]).unwrap();
        }
        for (family, router) in [("-4", "10.71.1.1"), ("-6", "fd71:1::1")] {
            station.ip(&[family, "route", "add", "default", "via", router]).unwrap();
        }
        set(&router, "ipv4/ip_forward", "1");
        set(&router, "ipv6/conf/all/forwarding", "1");
        run(router.command("nft").arg(RULES)).unwrap();
        Self { _topology: topology, station, router, server }
    }
}

const RULES: &str = "add table inet own; \
    add chain inet own nat { type nat hook postrouting priority 100; }; \
    add rule inet own nat oifname wan masquerade; \
    add chain inet own forw { type filter hook forward priority 0; policy drop; }; \
    add rule inet own forw ct state established,related accept; \
    add rule inet own forw iifname lan accept";

fn set(namespace: &Namespace, key: &str, value: &str) {
    namespace.inside(|| std::fs::write(format!("/proc/sys/net/{key}"), value).unwrap()).unwrap();
}

fn can_run(test: &str) -> bool {
    if !is_root() {
        skip(test, "namespaces need root");
    } else if !exists("nft") {
        skip(test, "`nft` is not installed");
    } else if let Err(error) = Socket::open(BUFFER_BYTES) {
        skip(test, error);
    } else {
        return true;
    }
    false
}

/// A reader in the router's namespace.
struct Reader {
    socket: Socket,
    connections: Connections,
    events: Vec<Event>,
    changes: Vec<Change>,
}

impl Reader {
    fn start(net: &Net) -> Self {
        let socket = net.router.inside(|| {
            std::fs::write("/proc/sys/net/netfilter/nf_conntrack_events", "1").unwrap();
            Socket::open(BUFFER_BYTES).unwrap()
        });
        let socket = socket.unwrap();
        let connections = Connections::new(Limits::new(ROOM), socket.port_id(), false);
        let mut reader = Self { socket, connections, events: Vec::new(), changes: Vec::new() };
        reader.until("the first dump is complete", |reader| reader.connections.is_settled().then_some(()));
        reader
    }

    fn attend(&mut self) {
        loop {
            let reading = self.socket.read().unwrap();
            assert_ne!(reading, Reading::Lost, "8 MiB are enough");
            let Reading::Datagram(datagram) = reading else { break };
            for event in events(datagram) {
                self.events.push(event);
                self.connections.take(event, Nanos(clock::nanos()));
            }
        }
        while let Some(requests) = self.connections.next_requests(Nanos(clock::nanos())) {
            self.socket.send(&requests).unwrap();
        }
        self.changes.extend(self.connections.changes());
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = clock::now() + Duration::from_secs(20);
        loop {
            self.attend();
            if let Some(found) = found(self) {
                return found;
            }
            assert!(clock::now() < end, "never: {what}: {:?} {:#?}", self.changes, self.events);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a connection with that protocol is entered.
    fn entered(&mut self, protocol: u8) -> Connection {
        self.until("it is entered", |reader| {
            let connection = reader.changes.iter().find_map(|change| match change {
                Change::Enter(connection) if connection.original.protocol == protocol => Some(*connection),
                Change::Enter(_) | Change::Leave(_) => None,
            });
            reader.changes.clear();
            connection
        })
    }

    fn until_left(&mut self, connection: &Connection) {
        self.until("it leaves", |reader| {
            reader.changes.contains(&Change::Leave(connection.id)).then_some(())
        });
    }

    /// Sends a request of one's own, and returns the kernel's answer.
    fn ask(&mut self, request: &[u8]) -> i32 {
        self.socket.send(request).unwrap();
        self.until("the kernel answers", |reader| reader.events.iter().find_map(answer))
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        self.events.iter().filter_map(|event| match event {
            Event::Changed(record) => Some(*record),
            Event::Destroyed(_) | Event::Done { .. } | Event::Error { .. } | Event::Other => None,
        })
    }
}

/// Connections that find room.
const ROOM: usize = 100;
/// A number that no request of `Connections` has.
const ASKED: u32 = u32::MAX;

/// The entry of a connection as the kernel dumps it: timeout in seconds, and flags of TCP in both directions.
fn dumped(net: &Net, original: &Tuple) -> (u32, Vec<u8>) {
    let answers = net.router.inside(|| Client::open(Some(NETFILTER)).unwrap().dump(0x101, &[0; 4]).unwrap());
    let answers = answers.unwrap();
    let body = answers.iter().map(|(_, body)| body).find(|body| {
        let message = polder_devices::netlink::message(0x100, 0, 0, body);
        let event = events(&message).next();
        matches!(event, Some(Event::Changed(record)) if record.original == *original)
    });
    let rest = &body.unwrap()[4..];
    let flags = find(rest, 4).and_then(|protocol| find(protocol, 1)).map(|tcp| {
        attributes(tcp).filter(|(kind, _)| matches!(kind, 4 | 5)).map(|(_, value)| value[0]).collect()
    });
    (u32::from_be_bytes(find(rest, 7).unwrap().try_into().unwrap()), flags.unwrap_or_default())
}

/// Asserts that the entry is the connection between these sockets, masqueraded.
fn assert_is(connection: &Connection, near: SocketAddr, server: SocketAddr, seen: SocketAddr) {
    let Connection { original, reply, .. } = connection;
    let ends = |tuple: &Tuple| {
        let source = SocketAddr::new(tuple.source, tuple.source_port);
        (source, SocketAddr::new(tuple.destination, tuple.destination_port))
    };
    assert_eq!((ends(original), ends(reply)), ((near, server), (server, seen)));
}

/// Asserts that the kernel's own list has the connection.
fn assert_listed(net: &Net, connection: &Connection) {
    let list = net.router.inside(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack")).unwrap();
    let Ok(list) = list else { return skip("nf_conntrack", "the kernel has no such file") };
    let words = |tuple: &Tuple| {
        let address = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => {
                let words = address.segments().map(|segment| format!("{segment:04x}"));
                words.join(":")
            }
        };
        let (source, destination) = (address(tuple.source), address(tuple.destination));
        format!("src={source} dst={destination} sport={} dport={}", tuple.source_port, tuple.destination_port)
    };
    let (original, reply) = (words(&connection.original), words(&connection.reply));
    let is_listed =
        |line: &str| line.contains(&original) && line.contains(&reply) && line.contains("[ASSURED]");
    assert!(list.lines().any(is_listed), "{original} {reply}: {list}");
}

#[test]
fn connections_of_tcp_are_followed_and_loosened() {
    if !can_run("connections_of_tcp_are_followed_and_loosened") {
        return;
    }
    let net = Net::new();
    let mut reader = Reader::start(&net);
    for [server, router] in WAYS {
        let listener = net.server.inside(|| TcpListener::bind((server, 80)).unwrap()).unwrap();
        let mut near = net.station.inside(|| TcpStream::connect((server, 80)).unwrap()).unwrap();
        let (mut far, seen) = listener.accept().unwrap();
        let connection = reader.entered(6);
        assert_is(&connection, near.local_addr().unwrap(), near.peer_addr().unwrap(), seen);
        assert_eq!(seen.ip(), router.parse::<IpAddr>().unwrap());
        assert_listed(&net, &connection);
        let of_it = |record: &Record| record.original == connection.original;
        let handshake =
            reader.records().find(|record| !record.is_dumped && !record.status.has(Status::ASSURED));
        assert_eq!(handshake, None, "before it is assured");
        assert!(
            reader.records().any(|record| record.port_id == reader.socket.port_id() && of_it(&record)),
            "own"
        );
        let (timeout, flags) = dumped(&net, &connection.original);
        assert!(timeout > 431_000, "{timeout}");
        assert!(flags.len() == 2 && flags.iter().all(|flags| flags & 0x28 == 0x08), "{flags:x?}");

        // A packet by the kernel has it remember acknowledgements again; the next update has it forget them.
        near.write_all(b"question").unwrap();
        far.read_exact(&mut [0; 8]).unwrap();
        far.write_all(b"answer").unwrap();
        near.read_exact(&mut [0; 6]).unwrap();
        assert!(dumped(&net, &connection.original).1.iter().any(|flags| flags & 0x20 != 0));
        reader.events.clear();
        let code =
            reader.ask(&update(ASKED, &connection.original, Update { timeout: Some(1000), loosen: true }));
        let (timeout, flags) = dumped(&net, &connection.original);
        assert!(code == 0 && (990..=1000).contains(&timeout), "{code} {timeout}");
        assert!(flags.iter().all(|flags| flags & 0x28 == 0x08), "{flags:x?}");
        reader.connections.moved(connection.id, 1 << 30, Nanos(clock::nanos()));
        reader.until("the timer is set again", |_| {
            (dumped(&net, &connection.original).0 > 431_000).then_some(())
        });

        drop((near, far));
        reader.until_left(&connection);
        reader.events.clear();
        let gone = Tuple { source_port: 1, ..connection.original };
        assert_eq!(reader.ask(&update(ASKED, &gone, Update::default())), libc::ENOENT);
        reader.events.clear();
    }
    assert_eq!(reader.connections.counters().refused_by_kernel, 0);
}

#[test]
fn connections_of_udp_are_followed_to_their_end() {
    if !can_run("connections_of_udp_are_followed_to_their_end") {
        return;
    }
    let net = Net::new();
    let mut reader = Reader::start(&net);
    for [server, _] in WAYS {
        let far = net.server.inside(|| UdpSocket::bind((server, 53)).unwrap()).unwrap();
        let any = if server.contains(':') { "::" } else { "0.0.0.0" };
        let near = net.station.inside(|| UdpSocket::bind((any, 0)).unwrap()).unwrap();
        near.connect((server, 53)).unwrap();
        let mut seen = None;
        let connection = reader.until("it is assured", |reader| {
            near.send(b"question").unwrap();
            let (_, from) = far.recv_from(&mut [0; 8]).unwrap();
            far.send_to(b"answer", from).unwrap();
            near.recv(&mut [0; 6]).unwrap();
            seen = Some(from);
            std::thread::sleep(Duration::from_millis(100));
            reader.changes.iter().find_map(|change| match change {
                Change::Enter(connection) => Some(*connection),
                Change::Leave(_) => None,
            })
        });
        assert_is(&connection, near.local_addr().unwrap(), near.peer_addr().unwrap(), seen.unwrap());
        assert_listed(&net, &connection);
        // One without an answer ends before it.
        near.send_to(b"question", (server, 9)).unwrap();
        let silent = Tuple { destination_port: 9, ..connection.original };
        reader.events.clear();
        for (original, expected) in [(silent, false), (connection.original, true)] {
            // `IPCTNL_MSG_CT_DELETE`.
            let mut delete = update(ASKED, &original, Update::default());
            delete[4..6].copy_from_slice(&0x102_u16.to_ne_bytes());
            assert_eq!(reader.ask(&delete), 0, "{original:?}");
            reader.events.retain(|event| answer(event).is_none());
            if expected {
                reader.until_left(&connection);
            }
            let is_told = reader.events.iter().any(|event| matches!(event, Event::Destroyed(_)));
            assert_eq!(is_told, expected, "DESTROY of {original:?}");
        }
        (reader.events, reader.changes) = (Vec::new(), Vec::new());
    }
    assert_eq!(reader.connections.len(), 0);
}

#[test]
fn events_that_do_not_fit_are_lost_loudly_and_a_dump_has_the_rest() {
    if !can_run("events_that_do_not_fit_are_lost_loudly_and_a_dump_has_the_rest") {
        return;
    }
    let net = Net::new();
    let mut reader = Reader::start(&net);
    let mut small = net.router.inside(|| Socket::open(1).unwrap()).unwrap();
    let listener = net.server.inside(|| TcpListener::bind((WAYS[0][0], 80)).unwrap()).unwrap();
    let connect = |_| {
        let near = net.station.inside(|| TcpStream::connect((WAYS[0][0], 80)).unwrap()).unwrap();
        (near, listener.accept().unwrap())
    };
    let ends = (0..200).map(connect).collect::<Vec<_>>();
    let share = u64::try_from(Limits::new(ROOM).share).unwrap();
    let entered = |reader: &mut Reader| (reader.connections.counters().entered == share).then_some(());
    reader.until("all that find room are entered", entered);
    let mut told = 0;
    loop {
        match small.read().unwrap() {
            Reading::Datagram(datagram) => told += events(datagram).count(),
            Reading::Lost => break,
            Reading::Nothing => panic!("{told} of 200 fit into the smallest buffer"),
        }
    }
    assert!(told < 200, "{told}");
    reader.connections.lost(Nanos(clock::nanos()));
    reader.events.clear();
    reader.until("the dump is complete", |reader| reader.connections.is_settled().then_some(()));
    let dumped = reader.records().filter(|record| record.is_dumped && record.original.protocol == 6).count();
    assert!(dumped >= 200, "{dumped}");
    drop(ends);
}

/// The setting has its old value again after an orderly end, and after that of a process that left no time for it.
#[test]
fn the_setting_of_events_is_the_namespaces() {
    if !can_run("the_setting_of_events_is_the_namespaces") {
        return;
    }
    let net = Net::new();
    let check = || {
        let before = settings::events().unwrap();
        assert_ne!(before, 1);
        let mut events = AllEvents::open(false).unwrap();
        events.want().unwrap();
        assert_eq!(settings::events().unwrap(), 1);
        // Another gateway beside it leaves it to this one.
        let mut other = AllEvents::open(false).unwrap();
        other.want().unwrap();
        other.end().unwrap();
        assert!(!conntrack::restore_left().unwrap());
        assert_eq!(settings::events().unwrap(), 1);
        events.end().unwrap();
        assert_eq!(settings::events().unwrap(), before);
        assert!(!conntrack::restore_left().unwrap());
        let mut killed = AllEvents::open(false).unwrap();
        killed.want().unwrap();
        drop(killed);
        assert_eq!(settings::events().unwrap(), 1);
        assert!(conntrack::restore_left().unwrap());
        assert_eq!(settings::events().unwrap(), before);
    };
    net.router.inside(check).unwrap();
    set(&net.router, "netfilter/nf_conntrack_tcp_timeout_established", "777");
    assert_eq!(net.router.inside(|| settings::timeouts().established).unwrap(), 777);
}

/// Code of the answer to the request that was asked.
fn answer(event: &Event) -> Option<i32> {
    if let Event::Error { code, sequence: ASKED } = event { Some(*code) } else { None }
}
