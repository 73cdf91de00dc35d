//! Both programs, run on frames as if the loopback interface had brought and sent them.

use super::entry::{KEY_CHECK, NUMBER, VALUE_BYTES};
use super::generation::STAMP;
use super::{Connection, ConnectionTable, HEARTBEAT, Transport, Tuple, carry, evidence};
use crate::bpf::assembler::{Assembler, IS_FOR_OTHERS, Register, Width};
use crate::bpf::sys::{ProgramKind, RunAs, load, test_run_as};
use crate::bpf::taken::TakenMaps;
use crate::bpf::window::Windows;
use crate::bpf::yielded::cases;
use crate::netlink::link::LinkLayer;
use crate::skb::program::{DROP, NEXT, REDIRECT, ToTap};
use Register::{R0, R1, R5, R6};
use polder_datapath::wire::Checksum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, OwnedFd};

const LAN: u32 = 1;
/// Offset in the context of a program (`struct __sk_buff`).
const MARK: i16 = 8;
const INSIDE: Ipv4Addr = Ipv4Addr::new(192, 168, 0, 9);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

/// A router's programs at the loopback interface, which is both sides' interface here.
struct Bench {
    table: ConnectionTable,
    ingress: OwnedFd,
    egress: OwnedFd,
}

fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).expect("a time after the start")
}

impl Bench {
    /// `None` without the right to load programs; the namespace tests say so.
    fn new() -> Option<Self> {
        let windows = Windows::new(1, 1 << 20).ok()?;
        let maps = TakenMaps::new(&cases::take(), Default::default()).ok()?;
        let table = ConnectionTable::new(16).ok()?;
        let target = ToTap {
            interface: LAN,
            layer: LinkLayer::Ethernet,
            tap: LAN,
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: 1 << 20,
            whole: &[libc::IPPROTO_TCP],
            connections: Some(table.maps()),
        };
        let whole = maps.taken().program(&target, None::<(&ToTap<'_>, _)>);
        load(ProgramKind::Tcx, "polder_router", &whole).expect("the verifier takes the whole program");
        // The kernel takes and returns no `tc_index` of a frame that nobody has sent: it stands in the mark.
        let mut ingress = Assembler::new();
        ingress.copy(R6, R1);
        carry(&mut ingress, table.maps(), &target);
        ingress.load(Width::Word, R5, R6, STAMP);
        ingress.store(Width::Word, R6, MARK, R5);
        ingress.set(R0, NEXT);
        ingress.exit();
        let mut egress = Assembler::new();
        egress.load(Width::Word, R5, R1, MARK);
        egress.store(Width::Word, R1, STAMP, R5);
        let egress = [egress.finish(), evidence(table.maps(), LinkLayer::Ethernet)].concat();
        let [ingress, egress] = [("polder_carry", ingress.finish()), ("polder_evidence", egress)]
            .map(|(name, program)| load(ProgramKind::Tcx, name, &program).expect("the verifier takes it"));
        table.beat(now());
        Some(Self { table, ingress, egress })
    }

    /// Runs the ingress program on a frame: the frame as it was sent on, or none; and its stamp.
    fn arrive(&self, frame: &[u8]) -> (Option<Vec<u8>>, u32) {
        self.table.beat(now());
        self.arrive_late(frame)
    }

    fn arrive_late(&self, frame: &[u8]) -> (Option<Vec<u8>>, u32) {
        let ran = test_run_as(self.ingress.as_fd(), frame, &RunAs::default()).expect("root runs programs");
        let is_carried = ran.answer == REDIRECT;
        (is_carried.then_some(ran.frame), ran.mark)
    }

    /// Shows the egress program a frame that the kernel has forwarded, stamped, from one interface to the loopback interface.
    fn forwarded_from(&self, input: u32, frame: &[u8], stamp: u32) {
        let run = RunAs { ingress_interface: input, mark: stamp, ..RunAs::default() };
        let ran = test_run_as(self.egress.as_fd(), frame, &run).expect("root runs programs");
        assert_eq!(ran.answer, NEXT.cast_unsigned());
    }

    fn forwarded(&self, frame: &[u8]) {
        self.forwarded_from(LAN, frame, self.stamp());
    }

    fn stamp(&self) -> u32 {
        0x8000 | u32::try_from(self.table.changes() & 0x7fff).expect("15 bits")
    }

    /// Enters a connection, and shows both programs its packets until it is open.
    fn open(&self, connection: &Connection) {
        self.table.enter(connection).expect("there is room");
        for tuple in [connection.original, connection.reply] {
            let leaves = if tuple == connection.original { connection.reply } else { connection.original };
            self.forwarded(&packet(leaves.reversed(), &[]));
        }
        assert!(self.is_open(connection), "{:?}", self.table.state(connection));
    }

    fn is_open(&self, connection: &Connection) -> bool {
        self.table.state(connection).iter().all(|direction| direction.is_open)
    }

    fn is_carried(&self, frame: &[u8]) -> bool {
        self.arrive(frame).0.is_some()
    }
}

fn tuple(
    source: impl Into<IpAddr>,
    destination: impl Into<IpAddr>,
    ports: [u16; 2],
    transport: Transport,
) -> Tuple {
    let (source, destination) = (source.into(), destination.into());
    Tuple { source, destination, source_port: ports[0], destination_port: ports[1], transport }
}

/// A connection from the inside that is masqueraded, with another port.
fn masqueraded(transport: Transport) -> Connection {
    let original = tuple(INSIDE, SERVER, [40_000, 443], transport);
    let reply = tuple(SERVER, OUTSIDE, [443, 61_007], transport);
    Connection { original, reply, window_shifts: [7, 7], number: 0, consents: false }
}

fn plain(transport: Transport) -> Connection {
    let [a, b] = [1, 2].map(|last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let original = tuple(a, b, [40_000, 443], transport);
    Connection { original, reply: original.reversed(), window_shifts: [7, 7], number: 0, consents: false }
}

/// The same of IPv6.
fn masqueraded6(transport: Transport) -> Connection {
    let [inside, outside, server] =
        [0x11, 0x22, 0x33].map(|last| Ipv6Addr::new(0x2001, 0xdb8, last, 4, 5, 6, 7, last));
    let original = tuple(inside, server, [40_000, 443], transport);
    let reply = tuple(server, outside, [443, 61_007], transport);
    Connection { original, reply, window_shifts: [7, 7], number: 0, consents: false }
}

/// Fields of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Flags(u8),
    Sequence(u32),
    Acknowledgement(u32),
    HopLimit(u8),
    Payload(usize),
    Fragment,
    Options,
    NoChecksum,
}

fn byte(number: u32) -> u8 {
    u8::try_from(number).expect("a byte")
}

/// A frame of a tuple with right checksums: by default an ACK with 30 bytes of data.
fn packet(tuple: Tuple, fields: &[Field]) -> Vec<u8> {
    let find = |find: &dyn Fn(&Field) -> Option<u32>, or: u32| fields.iter().find_map(find).unwrap_or(or);
    let flags =
        find(&|field| if let Field::Flags(flags) = field { Some((*flags).into()) } else { None }, 0x10);
    let sequence =
        find(&|field| if let Field::Sequence(number) = field { Some(*number) } else { None }, 1000);
    let acknowledged =
        find(&|field| if let Field::Acknowledgement(number) = field { Some(*number) } else { None }, 5000);
    let hops = find(&|field| if let Field::HopLimit(hops) = field { Some((*hops).into()) } else { None }, 64);
    let payload =
        find(&|field| if let Field::Payload(bytes) = field { u32::try_from(*bytes).ok() } else { None }, 30);
    let ports = [tuple.source_port.to_be_bytes(), tuple.destination_port.to_be_bytes()].concat();
    let payload = vec![0x5a; payload as usize];
    let (protocol, mut transport, at) = match tuple.transport {
        Transport::Tcp => {
            let numbers = [sequence.to_be_bytes(), acknowledged.to_be_bytes()].concat();
            let rest = [0x50, byte(flags), 1, 0, 0, 0, 0, 0];
            (6_u8, [&ports[..], &numbers, &rest, &payload].concat(), 16)
        }
        // A coverage of 0 is that of everything.
        Transport::UdpLite => (136, [&ports[..], &[0, 0], &[0, 0], &payload].concat(), 6),
        Transport::Udp => {
            let length = u16::try_from(8 + payload.len()).expect("short").to_be_bytes();
            (17, [&ports[..], &length, &[0, 0], &payload].concat(), 6)
        }
    };
    let length = u16::try_from(transport.len()).expect("short");
    let ends = match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => [source.octets(), destination.octets()].concat(),
        (IpAddr::V6(source), IpAddr::V6(destination)) => [source.octets(), destination.octets()].concat(),
        _ => unreachable!("one family"),
    };
    if !fields.contains(&Field::NoChecksum) {
        let mut sum = Checksum::new();
        sum.add(&[&ends[..], &[0, protocol], &length.to_be_bytes(), &transport].concat());
        let sum = sum.finish().to_be_bytes();
        transport[at..at + 2].copy_from_slice(&sum);
    }
    let hops = byte(hops);
    let (kind, ip) = if tuple.source.is_ipv4() {
        let fragment = if fields.contains(&Field::Fragment) { 0x20 } else { 0x40 };
        let first = if fields.contains(&Field::Options) { 0x46 } else { 0x45 };
        let total = (20 + length).to_be_bytes();
        let mut ip =
            [&[first, 0, total[0], total[1], 0, 7, fragment, 0, hops, protocol, 0, 0][..], &ends].concat();
        let mut sum = Checksum::new();
        sum.add(&ip);
        let sum = sum.finish().to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        ([8, 0], ip)
    } else {
        let length = length.to_be_bytes();
        ([0x86, 0xdd], [&[0x60, 0, 0, 0, length[0], length[1], protocol, hops][..], &ends].concat())
    };
    // The loopback interface has an address of zeros.
    [&[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9][..], &kind, &ip, &transport].concat()
}

/// Packets leave as the kernel would send them: rewritten, one hop less, with right checksums.
#[test]
fn packets_of_open_connections_leave_rewritten() {
    let Some(bench) = Bench::new() else { return };
    for connection in [
        masqueraded(Transport::Tcp),
        masqueraded(Transport::Udp),
        masqueraded6(Transport::Tcp),
        masqueraded6(Transport::Udp),
        masqueraded(Transport::UdpLite),
        masqueraded6(Transport::UdpLite),
        plain(Transport::Tcp),
        plain(Transport::Udp),
    ] {
        bench.open(&connection);
        for (comes, leaves) in
            [(connection.original, connection.reply), (connection.reply, connection.original)]
        {
            let (sent, _) = bench.arrive(&packet(comes, &[]));
            let wanted = packet(leaves.reversed(), &[Field::HopLimit(63)]);
            assert_eq!(sent, Some(wanted), "{comes:?}");
        }
        let packets = bench.table.state(&connection).map(|direction| direction.packets);
        assert_eq!(packets, [1, 1]);
    }
    // A sum that UDP leaves out stays left out.
    let connection = masqueraded(Transport::Udp);
    let (sent, _) = bench.arrive(&packet(connection.original, &[Field::NoChecksum]));
    let wanted = packet(connection.reply.reversed(), &[Field::NoChecksum, Field::HopLimit(63)]);
    assert_eq!(sent, Some(wanted));
}

#[test]
fn an_entry_is_closed_until_the_kernel_has_forwarded_both_directions() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    let [there, back] = [packet(connection.original, &[]), packet(connection.reply, &[])];
    let leaves = packet(connection.reply.reversed(), &[]);
    let returns = packet(connection.original.reversed(), &[]);
    bench.forwarded(&leaves);
    bench.table.enter(&connection).expect("there is room");
    assert!(!bench.is_carried(&there), "evidence before the entry is none");
    bench.forwarded(&leaves);
    assert!(!bench.is_carried(&there) && !bench.is_carried(&back), "one direction alone");
    bench.forwarded(&returns);
    assert!(bench.is_carried(&there) && bench.is_carried(&back));
    bench.table.leave(&connection);
    assert!(!bench.is_carried(&there));
}

/// Barriers and dependencies that x86 does without: the verifier takes them, and they change nothing.
#[test]
fn programs_for_processors_that_reorder_do_the_same() {
    IS_FOR_OTHERS.set(true);
    let bench = Bench::new();
    IS_FOR_OTHERS.set(false);
    let Some(bench) = bench else { return };
    let connection = masqueraded(Transport::Tcp);
    bench.open(&connection);
    let there = packet(connection.original, &[]);
    assert!(bench.is_carried(&there));
    bench.table.raise_generation();
    assert!(!bench.is_carried(&there));
    bench.open(&connection);
    bench.table.neighbour_changed([2, 0, 0, 0, 0, 9]);
    bench.table.neighbour_changed([0; 6]);
    assert!(!bench.is_carried(&there));
    bench.open(&connection);
    bench.forwarded_from(2, &packet(connection.reply.reversed(), &[]), bench.stamp());
    assert!(!bench.is_carried(&there), "a contradiction");
}

/// A packet that waited while the rules changed was judged by the old ones.
#[test]
fn evidence_counts_in_the_generation_in_which_the_packet_came() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    bench.open(&connection);
    let there = packet(connection.original, &[]);
    let old = bench.stamp();
    assert!(bench.is_carried(&there));
    bench.table.raise_generation();
    let (sent, stamp) = bench.arrive(&there);
    assert_eq!((sent, stamp), (None, bench.stamp()));
    assert_ne!(stamp, old);
    for stamp in [old, 0] {
        bench.forwarded_from(LAN, &packet(connection.reply.reversed(), &[]), stamp);
        bench.forwarded_from(LAN, &packet(connection.original.reversed(), &[]), stamp);
        assert!(!bench.is_carried(&there), "{stamp:x}");
    }
    // A packet of this machine's own is no evidence either.
    bench.forwarded_from(0, &packet(connection.reply.reversed(), &[]), bench.stamp());
    bench.forwarded_from(0, &packet(connection.original.reversed(), &[]), bench.stamp());
    assert!(!bench.is_carried(&there));
    bench.open(&connection);
}

/// Packets that the ingress program has redirected pass an egress program, too.
#[test]
fn carried_packets_are_no_evidence() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    bench.open(&connection);
    let before = bench.table.counters();
    let run = RunAs::default();
    let ran = test_run_as(bench.ingress.as_fd(), &packet(connection.original, &[]), &run).expect("root");
    assert_eq!(ran.answer, REDIRECT);
    assert_ne!(ran.control_block, [0; 2]);
    let run = RunAs { ingress_interface: LAN, mark: bench.stamp(), control_block: ran.control_block };
    test_run_as(bench.egress.as_fd(), &ran.frame, &run).expect("root runs programs");
    assert_eq!(bench.table.counters(), before);
}

/// `dup`, `fwd` and mirrors send a copy elsewhere with the same tuple.
#[test]
fn contradicting_evidence_closes_both_directions_for_a_generation() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    let there = packet(connection.original, &[]);
    bench.open(&connection);
    bench.forwarded_from(2, &packet(connection.reply.reversed(), &[]), bench.stamp());
    assert!(!bench.is_carried(&there));
    assert!(bench.table.state(&connection).iter().all(|direction| direction.is_contradicted));
    bench.forwarded(&packet(connection.reply.reversed(), &[]));
    bench.forwarded(&packet(connection.original.reversed(), &[]));
    assert!(!bench.is_carried(&there), "for the rest of the generation");
    assert_eq!(bench.table.counters().contradictions, 1);
    bench.table.raise_generation();
    bench.forwarded(&packet(connection.reply.reversed(), &[]));
    bench.forwarded(&packet(connection.original.reversed(), &[]));
    assert!(bench.is_carried(&there));
    // Another next hop is a contradiction, too.
    let mut elsewhere = packet(connection.reply.reversed(), &[]);
    elsewhere[5] ^= 1;
    bench.forwarded(&elsewhere);
    assert!(!bench.is_carried(&there));
}

#[test]
fn nothing_is_carried_without_a_heartbeat() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    let there = packet(connection.original, &[]);
    bench.open(&connection);
    assert!(bench.is_carried(&there));
    let age = u64::try_from(HEARTBEAT.as_nanos()).expect("short");
    // The clock of programs may be a tick of the kernel behind.
    bench.table.beat(now() - 2 * age);
    assert_eq!(bench.arrive_late(&there).0, None);
    assert_eq!(bench.table.counters().late_heartbeats, 1);
    assert!(bench.is_carried(&there));
}

/// Packets that the kernel looks at more closely are its own; the connection stays open.
#[test]
fn odd_packets_are_the_kernels() {
    let Some(bench) = Bench::new() else { return };
    for connection in [masqueraded(Transport::Tcp), plain(Transport::Tcp)] {
        bench.open(&connection);
        let tuple = connection.original;
        let mut odd = vec![packet(tuple, &[Field::HopLimit(1)]), packet(tuple, &[Field::HopLimit(0)])];
        let whole = packet(tuple, &[]);
        odd.push([&whole[..], &[0]].concat());
        odd.push(whole[..whole.len() - 1].to_vec());
        // Longer than what the kernel was seen to forward.
        odd.push(packet(tuple, &[Field::Payload(31)]));
        odd.push(packet(Tuple { source_port: 40_001, ..tuple }, &[]));
        if tuple.source.is_ipv4() {
            odd.extend([Field::Fragment, Field::Options].map(|field| packet(tuple, &[field])));
            let mut wrong = whole.clone();
            wrong[24] ^= 1;
            odd.push(wrong);
        }
        for frame in odd {
            assert!(!bench.is_carried(&frame), "{frame:02x?}");
            assert!(bench.is_open(&connection));
        }
        assert!(bench.is_carried(&whole));
    }
}

#[test]
fn segments_that_end_a_connection_are_told_from_forged_ones() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Tcp);
    let tuple = connection.original;
    let segment = |flags, sequence| packet(tuple, &[Field::Flags(flags), Field::Sequence(sequence)]);
    let begin = || {
        bench.table.leave(&connection);
        bench.open(&connection);
        // The client has sent up to 9030, of which the server has acknowledged up to 9000.
        assert!(bench.is_carried(&segment(0x10, 9000)));
        let acknowledges = packet(connection.reply, &[Field::Acknowledgement(9000)]);
        assert!(bench.is_carried(&acknowledges));
    };
    for (flags, sequence, ends) in [
        (0x14, 9000, true),
        (0x14, 9030, true),
        (0x04, 9000, true),
        (0x14, 9001, false),
        (0x14, 500_000, false),
        (0x11, 9030, true),
        (0x11, 9000, true),
        // The server's window is 256 << 7.
        (0x11, 9030 + (256 << 7), true),
        (0x11, 9031 + (256 << 7), false),
        (0x11, 0x8000_0000, false),
    ] {
        begin();
        assert_eq!(bench.is_carried(&segment(flags, sequence)), !ends, "{flags:x} {sequence}");
        assert_eq!(bench.table.state(&connection).map(|direction| direction.has_ended), [ends; 2]);
        assert_eq!(bench.is_carried(&segment(0x10, 9030)), !ends, "{flags:x} {sequence}");
        if ends {
            // Packets that the kernel forwards afterwards open nothing.
            bench.forwarded(&packet(connection.reply.reversed(), &[]));
            bench.forwarded(&packet(connection.original.reversed(), &[]));
            assert!(!bench.is_carried(&segment(0x10, 9030)));
        }
    }
    // A forged segment far away changes nothing of this; it is carried, and its receiver drops it.
    begin();
    assert!(bench.is_carried(&segment(0x10, 90_000_000)));
    assert!(bench.is_carried(&segment(0x14, 90_000_030)), "no exact RST");
    assert!(!bench.is_carried(&segment(0x11, 9030)), "the FIN of the sender ends it");
    // Neither acknowledges nor resets: the kernel calls it invalid.
    for flags in [0, 0x01, 0x08, 0x20] {
        begin();
        assert!(!bench.is_carried(&segment(flags, 9030)), "{flags:x}");
        assert!(bench.is_carried(&segment(0x10, 9030)), "{flags:x}");
    }
    begin();
    assert!(!bench.is_carried(&segment(0x02, 1)), "a SYN is the kernel's");
    assert!(!bench.is_carried(&segment(0x10, 9030)), "and closes both directions");
    bench.forwarded(&packet(connection.reply.reversed(), &[]));
    bench.forwarded(&packet(connection.original.reversed(), &[]));
    assert!(bench.is_carried(&segment(0x10, 9000)), "until there is new evidence");
}

#[test]
fn a_full_table_refuses_and_keeps_no_half() {
    let Ok(table) = ConnectionTable::new(1) else { return };
    let first = masqueraded(Transport::Udp);
    table.enter(&first).expect("there is room for one");
    assert!(table.enter(&plain(Transport::Udp)).is_err());
    let mut count = 0;
    table.for_each(|_| count += 1).expect("entries are read");
    assert_eq!(count, 2);
    table.leave(&first);
    table.enter(&plain(Transport::Udp)).expect("there is room again");
}

/// Routes and neighbours close what they touch; a packet that was under way meanwhile opens nothing.
#[test]
fn a_route_or_a_neighbour_closes_what_it_touches() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    let [there, back] = [packet(connection.original, &[]), packet(connection.reply, &[])];
    bench.open(&connection);
    for network in [("10.0.0.0", 8), ("198.51.100.8", 29), ("203.0.113.1", 32), ("2001:db8::", 32)] {
        let before = bench.stamp();
        bench.table.route_changed((network.0.parse().expect("an address"), network.1));
        assert!(bench.is_carried(&there) && bench.is_carried(&back), "{network:?}");
        assert_eq!(bench.stamp(), before, "no connection has an end there");
    }
    for network in [("192.168.0.0", 24), ("198.51.100.7", 32), ("0.0.0.0", 0)] {
        let before = bench.stamp();
        bench.table.route_changed((network.0.parse().expect("an address"), network.1));
        assert!(!bench.is_carried(&there) && !bench.is_carried(&back), "{network:?}");
        bench.forwarded_from(LAN, &packet(connection.reply.reversed(), &[]), before);
        bench.forwarded_from(LAN, &packet(connection.original.reversed(), &[]), before);
        assert!(!bench.is_carried(&there), "{network:?}: packets that were under way");
        bench.forwarded(&packet(connection.reply.reversed(), &[]));
        bench.forwarded(&packet(connection.original.reversed(), &[]));
        assert!(bench.is_carried(&there) && bench.is_carried(&back), "{network:?}");
    }
    // The loopback interface has one link-layer address for both directions.
    bench.table.neighbour_changed([2, 0, 0, 0, 0, 1]);
    assert!(bench.is_carried(&there) && bench.is_carried(&back));
    bench.table.neighbour_changed([0; 6]);
    assert!(!bench.is_carried(&there) && !bench.is_carried(&back));
    let mut elsewhere = packet(connection.reply.reversed(), &[]);
    elsewhere[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
    bench.forwarded(&elsewhere);
    assert!(bench.is_carried(&there), "another link-layer address is no contradiction after such a change");
    assert!(!bench.is_carried(&back), "its own next hop is not confirmed yet");
    let (sent, _) = bench.arrive(&there);
    assert_eq!(sent.map(|sent| sent[..6].to_vec()), Some(vec![2, 0, 0, 0, 0, 2]));
    bench.forwarded(&packet(connection.original.reversed(), &[]));
    assert!(bench.is_carried(&back));
    assert_eq!(bench.table.counters().contradictions, 0);
    // One direction's next hop closes that direction alone.
    bench.table.neighbour_changed([2, 0, 0, 0, 0, 2]);
    assert!(!bench.is_carried(&there) && bench.is_carried(&back));
}

/// The kernel keeps time for packets that it sees: the table tells when that may have been those of a connection.
#[test]
fn packets_that_go_up_and_ends_are_told() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Tcp);
    bench.open(&connection);
    let ups = || bench.table.counters().passed_up;
    let before = ups();
    assert!(bench.is_carried(&packet(connection.original, &[])));
    let stranger = Tuple { source_port: 40_001, ..connection.original };
    assert!(!bench.is_carried(&packet(stranger, &[])));
    assert_eq!(ups(), before);
    assert!(!bench.is_carried(&packet(connection.original, &[Field::Options])));
    assert!(!bench.is_carried(&packet(connection.original, &[Field::HopLimit(1)])));
    assert_eq!(ups(), before + 2);
    let is_told = || rustix::io::read(bench.table.events(), &mut [0; 8]).is_ok();
    assert!(!is_told());
    assert!(!bench.is_carried(&packet(connection.original, &[Field::Flags(0x14), Field::Sequence(1030)])));
    bench.table.beat(now());
    assert!(is_told() && !is_told());
    let (mut read, mut numbers) = (0, Vec::new());
    assert!(bench.table.told(&mut read, |number| numbers.push(number)));
    assert_eq!((read, &numbers[..]), (1, &[connection.number][..]));
    assert!(bench.table.told(&mut read, |number| panic!("{number} again")));
    // More than there is room for.
    let end = packet(connection.original, &[Field::Flags(0x14), Field::Sequence(1030)]);
    for _ in 0..257 {
        bench.open(&connection);
        assert!(!bench.is_carried(&end));
    }
    assert!(!bench.table.told(&mut read, |number| panic!("{number} of too many")));
    bench.open(&connection);
    assert!(!bench.is_carried(&end));
    assert!(bench.table.told(&mut read, |number| numbers.push(number)));
    assert_eq!((read, numbers.len()), (259, 2));
}

#[test]
fn connections_that_consent_are_carried_where_rules_look_at_each_packet() {
    let Some(bench) = Bench::new() else { return };
    let [mut consenting, other] = [masqueraded(Transport::Udp), masqueraded6(Transport::Udp)];
    consenting.consents = true;
    for connection in [consenting, other] {
        bench.open(&connection);
    }
    let is_carried = |connection: Connection| bench.is_carried(&packet(connection.original, &[]));
    assert!(is_carried(consenting) && is_carried(other));
    bench.table.set_looked_at(&[[LAN, LAN]]);
    assert!(is_carried(consenting) && !is_carried(other));
    bench.table.set_looked_at(&[[LAN, 2], [2, LAN]]);
    assert!(is_carried(consenting) && is_carried(other));
}

/// Sequence numbers begin anywhere, and segments that the kernel has count.
#[test]
fn ends_are_known_at_any_sequence_number() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Tcp);
    for first in [1, 0x7fff_ff00, 0x8000_0000, 0xc000_0000, u32::MAX - 20] {
        let segment = |flags, offset: u32| {
            let sequence = first.wrapping_add(offset);
            packet(connection.original, &[Field::Flags(flags), Field::Sequence(sequence)])
        };
        let acknowledges =
            |offset: u32| packet(connection.reply, &[Field::Acknowledgement(first.wrapping_add(offset))]);
        let forwarded = |offset: u32| {
            let sequence = Field::Sequence(first.wrapping_add(offset));
            bench.forwarded(&packet(connection.reply.reversed(), &[sequence]));
            let acknowledgement = Field::Acknowledgement(first.wrapping_add(offset + 30));
            bench.forwarded(&packet(connection.original.reversed(), &[acknowledgement]));
            assert!(bench.is_open(&connection));
        };
        bench.table.leave(&connection);
        bench.table.enter(&connection).expect("there is room");
        forwarded(0);
        assert!(bench.is_carried(&segment(0x10, 30)) && bench.is_carried(&acknowledges(60)));
        // The kernel has these, as while rules are read.
        bench.table.raise_generation();
        for offset in (30..60_000).step_by(30_000) {
            assert!(
                !bench.is_carried(&segment(0x10, offset)) && !bench.is_carried(&acknowledges(offset + 30))
            );
        }
        forwarded(30_030);
        assert!(bench.is_carried(&segment(0x14, 999)), "no exact RST");
        assert!(!bench.is_carried(&segment(0x11, 30_060)), "{first:x}: a FIN behind its data");
        assert!(bench.table.state(&connection).iter().all(|direction| direction.has_ended));
    }
}

/// A segment that comes in where the connection does not is noted nowhere: it says nothing of what ends the connection.
#[test]
fn segments_of_other_interfaces_are_not_noted() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Tcp);
    let segment =
        |flags, sequence| packet(connection.original, &[Field::Flags(flags), Field::Sequence(sequence)]);
    bench.table.enter(&connection).expect("there is room");
    // Before the first evidence the connection has no interface.
    assert!(!bench.is_carried(&segment(0x10, 0x7000_0000)));
    for tuple in [connection.reply, connection.original] {
        bench.forwarded(&packet(tuple.reversed(), &[]));
    }
    assert!(bench.is_open(&connection));
    assert!(!bench.is_carried(&segment(0x11, 1030)), "the FIN behind what the kernel has forwarded");
    assert!(bench.table.state(&connection).iter().all(|direction| direction.has_ended));
}

/// Changes bytes of the entry of a tuple, as if its memory were reused for another connection.
fn overwrite(bench: &Bench, tuple: Tuple, at: i16, with: &[u8]) {
    let (key, mut value) = (tuple.key(), [0; VALUE_BYTES as usize]);
    bench.table.entries.get(&key, &mut value).expect("an entry");
    let at = usize::from(at.unsigned_abs());
    value[at..at + with.len()].copy_from_slice(with);
    bench.table.entries.set(&key, &value).expect("room");
}

/// The kernel may reuse an entry while the ingress program has it.
#[test]
fn a_packet_is_lost_whose_entry_is_reused() {
    let Some(bench) = Bench::new() else { return };
    for connection in [masqueraded(Transport::Udp), masqueraded6(Transport::Tcp)] {
        bench.open(&connection);
        let there = packet(connection.original, &[]);
        assert!(bench.is_carried(&there));
        let (_, other) = connection.entries()[1];
        let check = usize::from(KEY_CHECK.unsigned_abs());
        overwrite(&bench, connection.original, KEY_CHECK, &other[check..check + 2]);
        assert!(bench.is_open(&connection));
        let ran = test_run_as(bench.ingress.as_fd(), &there, &RunAs::default()).expect("root");
        assert_eq!(ran.answer, DROP.cast_unsigned());
    }
}

/// The kernel may reuse either entry while the egress program has both.
#[test]
fn an_entry_stays_closed_that_is_reused() {
    let Some(bench) = Bench::new() else { return };
    let connection = masqueraded(Transport::Udp);
    for reused in [connection.original, connection.reply] {
        bench.table.enter(&connection).expect("room");
        overwrite(&bench, reused, NUMBER, &7_u32.to_ne_bytes());
        for tuple in [connection.reply, connection.original] {
            bench.forwarded(&packet(tuple.reversed(), &[]));
            assert!(bench.table.state(&connection).iter().all(|way| !way.is_open && !way.has_evidence));
        }
        bench.open(&connection);
    }
}
