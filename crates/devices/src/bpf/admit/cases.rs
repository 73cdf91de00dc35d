//! Packets of each class at a program that admits them, at either hook.

use crate::bpf::sys::test_run;
use crate::bpf::window::{
    ADMITTED_AT, CONSUMED_AT, CREDIT_AT, LIMIT_AT, NUMBER_AT, OVERRUNS_AT, OVERRUNS_CONTROL_AT, STALE,
    USED_AT, Windows,
};
use core::sync::atomic::Ordering;
use polder_datapath::forward::{ForwardGroups, LinkLocalGroup};
use std::os::fd::{AsFd as _, OwnedFd};

/// Bytes of the window.
pub(crate) const WINDOW: u32 = 1 << 20;
/// Address of the interface, which no packet is for.
pub(crate) const MAC: [u8; 6] = [2, 7, 1, 8, 2, 8];
const BULK: u64 = 3 << 18;
const TAGS: [&[u8]; 3] = [&[], &[0x81, 0, 0x20, 7], &[0x88, 0xa8, 0, 7]];

/// The program of an interface with a window of [`WINDOW`] bytes.
pub(crate) struct Bench {
    pub(crate) program: OwnedFd,
    pub(crate) windows: Windows,
    /// Answers of the program for a packet that is sent up, and for one that is dropped.
    pub(crate) answers: [u32; 2],
    /// Charge of each byte of a packet, and of the packet beside.
    pub(crate) charges: [u64; 2],
}

impl Bench {
    fn get(&self, at: i16) -> u64 {
        self.windows.at(at).load(Ordering::Relaxed)
    }

    fn set(&self, at: i16, value: u64) {
        self.windows.at(at).store(value, Ordering::Relaxed);
    }

    fn charge(&self, frame: &[u8]) -> u64 {
        let [each_byte, each] = self.charges;
        each_byte * frame.len() as u64 + each
    }

    /// Packets that have a number.
    pub(crate) fn numbered(&self) -> u64 {
        self.get(NUMBER_AT)
    }

    /// Packets that were dropped as bulk.
    pub(crate) fn overruns(&self) -> u64 {
        self.get(OVERRUNS_AT)
    }

    /// Lets so many bytes be in flight, of which the receiver has just read some.
    pub(crate) fn fill(&self, bytes: u64) {
        let consumed = self.get(CONSUMED_AT) + 1;
        self.set(CONSUMED_AT, consumed);
        self.set(ADMITTED_AT, consumed + bytes);
    }

    /// Runs the program on a frame; true if it is sent up.
    fn runs(&self, frame: &[u8]) -> bool {
        let answer = test_run(self.program.as_fd(), frame).expect("root runs programs");
        assert!(self.answers.contains(&answer), "{answer}");
        answer == self.answers[0]
    }

    /// The same with so many bytes in flight.
    fn admits(&self, frame: &[u8], bytes: u64) -> bool {
        self.fill(bytes);
        self.runs(frame)
    }

    /// Packets admitted, and dropped as bulk and as control, of 17 runs.
    fn seventeen(&self, frame: &[u8], bytes: u64) -> [u64; 3] {
        let counts = || [NUMBER_AT, OVERRUNS_AT, OVERRUNS_CONTROL_AT].map(|at| self.get(at));
        let before = counts();
        let admitted = (0..17).filter(|_| self.admits(frame, bytes)).count() as u64;
        let after = counts();
        let counted: [u64; 3] = core::array::from_fn(|at| after[at] - before[at]);
        assert_eq!(counted[0], admitted);
        counted
    }
}

/// All link-local groups that a bridge may forward: the port's program takes them.
pub(crate) fn all_groups() -> ForwardGroups {
    use LinkLocalGroup::{Dot1x, Lacp, Lldp, Stp};
    [Stp, Lacp, Dot1x, Lldp].into_iter().collect()
}

pub(crate) fn ethernet(destination: [u8; 6], tag: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 2], tag, &kind.to_be_bytes(), payload].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

pub(crate) fn ipv4(tag: &[u8], (protocol, fragment): (u8, u16), payload: &[u8]) -> Vec<u8> {
    let [high, low] = fragment.to_be_bytes();
    let header = [0x45, 0, 0, 60, 0, 0, high, low, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    ethernet([2, 0, 0, 0, 0, 1], tag, 0x0800, &[&header, payload].concat())
}

pub(crate) fn ipv6(tag: &[u8], next: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0x60, 0, 0, 0, 0, 20, next, 255];
    header.extend([0xfd; 32]);
    ethernet([2, 0, 0, 0, 0, 1], tag, 0x86dd, &[&header, payload].concat())
}

/// Ports, and zeros.
fn ports(source: u16, destination: u16) -> Vec<u8> {
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), &[0; 16]].concat()
}

fn icmp(kind: u8) -> Vec<u8> {
    [&[kind][..], &[0; 23]].concat()
}

fn control_packets(tag: &[u8]) -> Vec<(String, Vec<u8>)> {
    let station = [2, 0, 0, 0, 0, 1];
    let mut packets = vec![
        ("ARP".to_owned(), ethernet([0xff; 6], tag, 0x0806, &[0; 28])),
        ("OSPF".to_owned(), ipv4(tag, (89, 0), &[2, 1])),
        ("OSPF, a later fragment".to_owned(), ipv4(tag, (89, 0x20b9), &[0; 8])),
        ("VRRP".to_owned(), ipv4(tag, (112, 0), &[0x31])),
        ("OSPFv3".to_owned(), ipv6(tag, 89, &[3, 1])),
        ("VRRP over IPv6".to_owned(), ipv6(tag, 112, &[0x31])),
        ("unicast LLDP is no group".to_owned(), ethernet(station, tag, 0x0806, &[0; 28])),
    ];
    for last in [0x00, 0x02, 0x03, 0x0e, 0x14, 0x15] {
        let group = [0x01, 0x80, 0xc2, 0, 0, last];
        packets.push((format!("group {last:02x}"), ethernet(group, tag, 0x8809, &[1; 46])));
    }
    for port in [3784, 3785, 4784, 6784] {
        packets.push((format!("BFD {port}"), ipv4(tag, (17, 0x4000), &ports(49152, port))));
        packets.push((format!("BFD {port} over IPv6"), ipv6(tag, 17, &ports(49152, port))));
    }
    for (source, destination) in [(179, 40000), (40000, 179)] {
        packets.push(("BGP".to_owned(), ipv4(tag, (6, 0x4000), &ports(source, destination))));
        packets.push(("BGP over IPv6".to_owned(), ipv6(tag, 6, &ports(source, destination))));
    }
    packets.extend((133..=137).map(|kind| (format!("ICMPv6 {kind}"), ipv6(tag, 58, &icmp(kind)))));
    packets
}

fn bulk_packets(tag: &[u8]) -> Vec<(String, Vec<u8>)> {
    let station = [2, 0, 0, 0, 0, 1];
    let mut options = ipv4(tag, (17, 0), &[&[0; 4][..], &ports(49152, 3784)].concat());
    options[14 + tag.len()] = 0x46;
    let mut packets = vec![
        ("another EtherType".to_owned(), ethernet(station, tag, 0x88b5, &[0; 46])),
        ("another group".to_owned(), ethernet([1, 0x80, 0xc2, 0, 1, 2], tag, 0x88b5, &[0; 46])),
        ("a neighbour of the groups".to_owned(), ethernet([1, 0x80, 0xc3, 0, 0, 2], tag, 0x88b5, &[0; 46])),
        ("UDP".to_owned(), ipv4(tag, (17, 0), &ports(3784, 3783))),
        ("UDP over IPv6".to_owned(), ipv6(tag, 17, &ports(3784, 53))),
        ("TCP".to_owned(), ipv4(tag, (6, 0), &ports(80, 3784))),
        ("TCP over IPv6".to_owned(), ipv6(tag, 6, &ports(80, 3784))),
        ("SCTP".to_owned(), ipv4(tag, (132, 0), &ports(179, 179))),
        ("the first fragment of UDP".to_owned(), ipv4(tag, (17, 0x2000), &ports(49152, 3784))),
        ("a later fragment of UDP".to_owned(), ipv4(tag, (17, 0x0010), &ports(49152, 3784))),
        ("UDP behind options".to_owned(), options),
        ("a fragment over IPv6".to_owned(), ipv6(tag, 44, &[17, 0, 0, 1, 0, 0, 0, 1])),
    ];
    packets.extend([128, 132, 138].map(|kind| (format!("ICMPv6 {kind}"), ipv6(tag, 58, &icmp(kind)))));
    packets
}

/// Control packets are admitted where bulk is dropped, and seventeen are counted as seventeen.
pub(crate) fn classes(bench: &Bench) {
    for tag in TAGS {
        for (name, frame) in &control_packets(tag) {
            bench.set(USED_AT, 0);
            assert_eq!(bench.seventeen(frame, BULK + 5000), [17, 0, 0], "{name}, {tag:x?}");
            let used = 17 * bench.charge(frame);
            assert_eq!(bench.get(USED_AT), used, "{name}, {tag:x?}");
            let full = u64::from(WINDOW) + 1;
            assert_eq!(bench.seventeen(frame, full), [0, 0, 17], "{name}, {tag:x?}");
        }
        for (name, frame) in &bulk_packets(tag) {
            assert_eq!(bench.seventeen(frame, BULK - 5000), [17, 0, 0], "{name}, {tag:x?}");
            assert_eq!(bench.seventeen(frame, BULK + 5000), [0, 17, 0], "{name}, {tag:x?}");
        }
    }
}

/// A flood of control packets has its credit, and then what bulk has.
pub(crate) fn credit(bench: &Bench) {
    let (_, arp) = &control_packets(&[])[0];
    let each = bench.charge(arp);
    let reserve = u64::from(WINDOW) - BULK;
    let admitted = (0..1000).filter(|_| bench.admits(arp, BULK + 5000)).count() as u64;
    assert_eq!(admitted, reserve.div_ceil(each));
    assert_eq!(bench.get(OVERRUNS_CONTROL_AT), 1000 - admitted);
    assert!(bench.admits(arp, BULK - 5000), "as bulk");
    // The receiver has read something.
    bench.set(CREDIT_AT, bench.get(USED_AT) + 3 * each);
    assert_eq!(bench.seventeen(arp, BULK + 5000), [3, 0, 14]);
}

/// A limit holds while the worker reads, and no longer than [`STALE`] after it has read last.
pub(crate) fn limit(bench: &Bench) {
    let (_, bulk) = &bulk_packets(&[])[3];
    bench.set(LIMIT_AT, 100_000);
    assert_eq!(bench.seventeen(bulk, 99_000), [17, 0, 0]);
    assert_eq!(bench.seventeen(bulk, 101_000), [0, 17, 0]);
    assert!(!bench.runs(bulk));
    std::thread::sleep(STALE);
    // Nothing was read since: the bound by bytes alone holds.
    assert!(bench.runs(bulk));
    assert!(bench.runs(bulk));
    bench.set(ADMITTED_AT, bench.get(CONSUMED_AT) + BULK + 1);
    assert!(!bench.runs(bulk));
    // It reads again.
    assert_eq!(bench.seventeen(bulk, 101_000), [0, 17, 0]);
}
