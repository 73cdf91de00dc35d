//! Admission of a packet to the TAP: bulk within the limit of what the worker can use, control packets within the window.
//!
//! ```text
//! in flight below the limit? ─ yes ───────────────────────────────────────────────────────▶ admitted
//!   no: below bulk's part of the window, and nothing read for 100 ms? ─ yes ──────────────▶ admitted
//!     no: a control packet? ─ no ──────────────────────────────────────────▶ dropped, rx-overrun
//!       yes: within the window, and on credit? ─ yes ─────────────────────────────────────▶ admitted
//!         no ───────────────────────────────────────────────────────▶ dropped, rx-overrun-control
//! ```
//!
//! The words are those of [`window`](crate::bpf::window).

use super::program::{LENGTH, ToTap, headers, redirect};
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{CONTROL_HEADERS, control};
use crate::bpf::flows::hook::Hook as _;
use crate::bpf::window::{
    ADMITTED_AT, CHARGE, CONSUMED_AT, CREDIT_AT, LIMIT_AT, NUMBER_AT, OVERRUNS_AT, OVERRUNS_CONTROL_AT,
    SEEN_AT, SEEN_TIME_AT, STALE, USED_AT, bulk_bytes,
};
use Register::{R0, R1, R2, R6, R7, R8, R9};

impl ToTap<'_> {
    /// Redirects the packet to the TAP within the window at R7, and ends the program. The packet's number is left at
    /// offset `mark` from R9. Places `drop`, where it is dropped.
    pub(super) fn admit(&self, program: &mut Assembler, mark: Option<i16>, drop: Label) {
        let [admitted, full] = [(); 2].map(|()| program.label());
        program.load(Width::Double, R8, R7, ADMITTED_AT);
        program.load(Width::Double, R2, R7, CONSUMED_AT);
        program.subtract(R8, R2);
        program.load(Width::Double, R1, R7, LIMIT_AT);
        program.jump(Condition::SignedGreater, R1, R8, admitted);
        self.beyond_limit(program, admitted, full);
        program.place(admitted);
        self.charge(program, R8);
        program.count(R7, ADMITTED_AT, R8);
        self.pieces(program);
        program.count(R7, NUMBER_AT, R1);
        if let Some(mark) = mark {
            // Another processor may have counted on: then the mark is a little late.
            program.load(Width::Double, R1, R7, NUMBER_AT);
            program.store(Width::Double, R9, mark, R1);
        }
        redirect(program, self.tap);
        program.place(full);
        program.set(R1, 1);
        program.count(R7, OVERRUNS_AT, R1);
        program.place(drop);
        self.discard(program);
    }

    /// Goes on to `admitted` if the packet is admitted although R8 bytes in the window at R7 are as many as the worker can
    /// use, to `full` if it is bulk, and else ends the program.
    fn beyond_limit(&self, program: &mut Assembler, admitted: Label, full: Label) {
        let [is_beyond, is_control, dropped] = [(); 3].map(|()| program.label());
        program.jump_value(
            Condition::SignedGreater,
            R8,
            bulk_bytes(self.window_bytes).cast_signed(),
            is_beyond,
        );
        if_stale(program, admitted);
        program.place(is_beyond);
        headers(program, CONTROL_HEADERS);
        control(program, is_control, full);
        program.place(is_control);
        program.jump_value(Condition::SignedGreater, R8, self.window_bytes.cast_signed(), dropped);
        program.load(Width::Double, R1, R7, USED_AT);
        program.load(Width::Double, R2, R7, CREDIT_AT);
        program.subtract(R1, R2);
        program.jump_value(Condition::SignedGreater, R1, -1, dropped);
        self.charge(program, R1);
        program.count(R7, USED_AT, R1);
        program.go(admitted);
        program.place(dropped);
        program.set(R1, 1);
        program.count(R7, OVERRUNS_CONTROL_AT, R1);
        self.discard(program);
    }

    /// Puts the packet's charge into `to`.
    fn charge(&self, program: &mut Assembler, to: Register) {
        program.load(Width::Word, to, R6, LENGTH);
        program.add(to, i32::from(CHARGE));
    }
}

/// Jumps to `stale` if the receiver of the window at R7 has read nothing for [`STALE`].
fn if_stale(program: &mut Assembler, stale: Label) {
    let [unchanged, fresh] = [(); 2].map(|()| program.label());
    program.call(Helper::Now);
    program.load(Width::Double, R1, R7, CONSUMED_AT);
    program.load(Width::Double, R2, R7, SEEN_AT);
    program.jump(Condition::Equal, R1, R2, unchanged);
    program.store(Width::Double, R7, SEEN_AT, R1);
    program.store(Width::Double, R7, SEEN_TIME_AT, R0);
    program.go(fresh);
    program.place(unchanged);
    program.load(Width::Double, R2, R7, SEEN_TIME_AT);
    program.subtract(R0, R2);
    let stale_after = i32::try_from(STALE.as_nanos()).expect("less than two seconds");
    program.jump_value(Condition::SignedGreater, R0, stale_after, stale);
    program.place(fresh);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::sys::{ProgramKind, load, test_run, test_run_segments};
    use crate::bpf::taken::Taken;
    use crate::bpf::window::Windows;
    use crate::skb::program::{DROP, REDIRECT};
    use core::sync::atomic::Ordering;
    use std::os::fd::{AsFd as _, OwnedFd};

    const WINDOW: u32 = 1 << 20;
    const BULK: u64 = 3 << 18;
    const TAGS: [&[u8]; 3] = [&[], &[0x81, 0, 0x20, 7], &[0x88, 0xa8, 0, 7]];

    /// The program of an interface, and its window.
    struct Bench {
        program: OwnedFd,
        windows: Windows,
    }

    impl Bench {
        /// `None` without the right to load programs; the namespace tests say so.
        fn new() -> Option<Self> {
            let windows = Windows::new(1, WINDOW).ok()?;
            // The kernel runs programs on frames as if the loopback interface had brought them, and redirects none.
            let target = ToTap {
                interface: 1,
                tap: 1,
                queues: 1,
                windows: windows.as_fd(),
                window_bytes: WINDOW,
                whole: &[libc::IPPROTO_TCP],
            };
            let program = Taken::Whole.program(&target, None::<(&ToTap<'_>, _)>);
            let program = load(ProgramKind::Tcx, "polder_whole", &program).expect("the verifier takes it");
            Some(Self { program, windows })
        }

        fn get(&self, at: i16) -> u64 {
            self.windows.at(at).load(Ordering::Relaxed)
        }

        fn set(&self, at: i16, value: u64) {
            self.windows.at(at).store(value, Ordering::Relaxed);
        }

        /// Lets so many bytes be in flight, of which the receiver has just read some.
        fn fill(&self, bytes: u64) {
            let consumed = self.get(CONSUMED_AT) + 1;
            self.set(CONSUMED_AT, consumed);
            self.set(ADMITTED_AT, consumed + bytes);
        }

        /// Runs the program on a frame with so many bytes in flight; true if it is sent up.
        fn admits(&self, frame: &[u8], bytes: u64) -> bool {
            self.fill(bytes);
            let answer = test_run(self.program.as_fd(), frame).expect("root runs programs");
            assert!([REDIRECT, DROP.cast_unsigned()].contains(&answer), "{answer}");
            answer == REDIRECT
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

    fn ethernet(destination: [u8; 6], tag: &[u8], kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = [&destination[..], &[2, 0, 0, 0, 0, 2], tag, &kind.to_be_bytes(), payload].concat();
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn ipv4(tag: &[u8], (protocol, fragment): (u8, u16), payload: &[u8]) -> Vec<u8> {
        let [high, low] = fragment.to_be_bytes();
        let header = [0x45, 0, 0, 60, 0, 0, high, low, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        ethernet([2, 0, 0, 0, 0, 1], tag, 0x0800, &[&header, payload].concat())
    }

    fn ipv6(tag: &[u8], next: u8, payload: &[u8]) -> Vec<u8> {
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
            (
                "a neighbour of the groups".to_owned(),
                ethernet([1, 0x80, 0xc3, 0, 0, 2], tag, 0x88b5, &[0; 46]),
            ),
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

    #[test]
    fn control_packets_are_admitted_where_bulk_is_dropped_and_seventeen_are_seventeen() {
        let Some(bench) = Bench::new() else { return };
        for tag in TAGS {
            for (name, frame) in control_packets(tag) {
                bench.set(USED_AT, 0);
                assert_eq!(bench.seventeen(&frame, BULK + 5000), [17, 0, 0], "{name}, {tag:x?}");
                let used = 17 * (frame.len() as u64 + u64::from(CHARGE));
                assert_eq!(bench.get(USED_AT), used, "{name}, {tag:x?}");
                let full = u64::from(WINDOW) + 1;
                assert_eq!(bench.seventeen(&frame, full), [0, 0, 17], "{name}, {tag:x?}");
            }
            for (name, frame) in bulk_packets(tag) {
                assert_eq!(bench.seventeen(&frame, BULK - 5000), [17, 0, 0], "{name}, {tag:x?}");
                assert_eq!(bench.seventeen(&frame, BULK + 5000), [0, 17, 0], "{name}, {tag:x?}");
            }
        }
    }

    #[test]
    fn a_flood_of_control_packets_has_its_credit_and_then_what_bulk_has() {
        let Some(bench) = Bench::new() else { return };
        let (_, arp) = &control_packets(&[])[0];
        let each = arp.len() as u64 + u64::from(CHARGE);
        let reserve = u64::from(WINDOW) - BULK;
        let admitted = (0..1000).filter(|_| bench.admits(arp, BULK + 5000)).count() as u64;
        assert_eq!(admitted, reserve.div_ceil(each));
        assert_eq!(bench.get(OVERRUNS_CONTROL_AT), 1000 - admitted);
        assert!(bench.admits(arp, BULK - 5000), "as bulk");
        // The receiver has read something.
        bench.set(CREDIT_AT, bench.get(USED_AT) + 3 * each);
        assert_eq!(bench.seventeen(arp, BULK + 5000), [3, 0, 14]);
    }

    /// An overrun counts a packet; a mark in front of packets that the TAP cuts counts what arrives.
    #[test]
    fn super_packets_count_as_what_the_tap_makes_of_them() {
        let Some(bench) = Bench::new() else { return };
        let counted = |frame: &[u8], segments| {
            let before = bench.get(NUMBER_AT);
            bench.fill(0);
            test_run_segments(bench.program.as_fd(), frame, [segments, 1400]).expect("root runs programs");
            bench.get(NUMBER_AT) - before
        };
        let payload = [0; 64];
        for (protocol, pieces) in [(6, 1), (17, 17), (47, 17), (4, 17)] {
            assert_eq!(counted(&ipv4(&[], (protocol, 0), &payload), 17), pieces, "{protocol}");
            assert_eq!(counted(&ipv6(&[], protocol, &payload), 17), pieces, "{protocol} over IPv6");
            assert_eq!(counted(&ipv4(&[], (protocol, 0), &payload), 1), 1, "{protocol}");
        }
        assert_eq!(counted(&ethernet([2, 0, 0, 0, 0, 1], &[], 0x88b5, &payload), 17), 1);
    }

    #[test]
    fn a_limit_holds_while_the_worker_reads() {
        let Some(bench) = Bench::new() else { return };
        let (_, bulk) = &bulk_packets(&[])[3];
        bench.set(LIMIT_AT, 100_000);
        assert_eq!(bench.seventeen(bulk, 99_000), [17, 0, 0]);
        assert_eq!(bench.seventeen(bulk, 101_000), [0, 17, 0]);
        let stalled = || test_run(bench.program.as_fd(), bulk).expect("root runs programs");
        assert_eq!(stalled(), DROP.cast_unsigned());
        std::thread::sleep(STALE);
        // Nothing was read since: the bound by bytes alone holds.
        assert_eq!(stalled(), REDIRECT);
        assert_eq!(stalled(), REDIRECT);
        bench.set(ADMITTED_AT, bench.get(CONSUMED_AT) + BULK + 1);
        assert_eq!(stalled(), DROP.cast_unsigned());
        // It reads again.
        assert_eq!(bench.seventeen(bulk, 101_000), [0, 17, 0]);
    }
}
