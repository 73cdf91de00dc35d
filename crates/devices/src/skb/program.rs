//! The programs of an interface and its TAP.
//!
//! | program | hook | function |
//! |---|---|---|
//! | those of [`taken`](crate::bpf::taken) | the interface's ingress | sends taken packets to the TAP, within the window ([`admit`]) |
//! | [`onward`] | the TAP's ingress | redirects packets written to the TAP to the interface |
//! | [`only_from`] | the TAP's egress | drops packets that the interface has not received |
//! | [`guard`] | the interface's clsact, without TCX | tail-calls the first, while the process lives |
//! | those of [`punt`](super::punt) | both directions of the punt path's TAP | return packets to the kernel |
//! | [`queue_of_flow`] | the TAP's choice of a queue | returns the flow's hash |

use super::connections::{self, ConnectionMaps};
use super::context::{DATA, DATA_END, LENGTH};
use super::layer;
use crate::bpf::admit::admit;
use crate::bpf::assembler::{Assembler, Condition, Helper, Label, Register, Width};
use crate::bpf::classify::{ETHERNET, IPV4, Target, need, network_order, untag_bytes};
use crate::bpf::flows::hook::Hook as _;
use crate::netlink::link::LinkLayer;
use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use std::os::fd::BorrowedFd;

/// The TCX hook of an interface, with the TAP that packets go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ToTap<'a> {
    /// The interface index.
    pub(super) interface: u32,
    /// Header of its packets.
    pub(super) layer: LinkLayer,
    /// The TAP's interface index.
    pub(super) tap: u32,
    /// Number of its queues.
    pub(super) queues: u16,
    /// The windows of the queues.
    pub(super) windows: BorrowedFd<'a>,
    /// Size of each window in bytes.
    pub(super) window_bytes: u32,
    /// Protocols over IP whose super-packets the TAP passes unsegmented.
    pub(super) whole: &'static [i32],
    /// Connections that are carried, if the kernel decides.
    pub(super) connections: Option<ConnectionMaps<'a>>,
}

/// Returns a program that redirects every packet to `interface`.
pub(super) fn onward(interface: u32) -> Vec<u64> {
    let mut program = Assembler::new();
    redirect(&mut program, interface);
    program.finish()
}

/// Returns names and instructions of the programs at the egress and the ingress of the TAP of `interface`.
pub(super) fn of_tap(interface: u32) -> [(&'static str, Vec<u64>); 2] {
    [("polder_only", only_from(interface)), ("polder_onward", onward(interface))]
}

/// Returns a program that passes packets received by `interface`, and drops all others.
pub(super) fn only_from(interface: u32) -> Vec<u64> {
    let mut program = Assembler::new();
    let drop = program.label();
    program.load(Width::Word, R0, R1, INGRESS_INTERFACE);
    program.jump_value(Condition::NotEqual, R0, interface.cast_signed(), drop);
    program.set(R0, NEXT);
    program.exit();
    program.place(drop);
    program.set(R0, DROP);
    program.exit();
    program.finish()
}

/// Returns a program that tail-calls the first program of a table; without one, it leaves packets to the next
/// filter.
pub(super) fn guard(programs: BorrowedFd<'_>) -> Vec<u64> {
    let mut program = Assembler::new();
    program.map(R2, programs);
    program.set(R3, 0);
    program.call(Helper::TailCall);
    program.set(R0, NEXT);
    program.exit();
    program.finish()
}

/// Returns a program that returns the flow's hash; the TAP takes it modulo its number of queues.
pub(super) fn queue_of_flow() -> Vec<u64> {
    let mut program = Assembler::new();
    program.load(Width::Word, R0, R1, HASH);
    program.exit();
    program.finish()
}

impl ToTap<'_> {
    /// Puts the number of packets that the TAP makes of this one into R1: a super-packet that its header
    /// cannot describe is segmented. R2 to R5 change.
    pub(super) fn count_pieces(&self, program: &mut Assembler) {
        let [several, ipv6, known, counted] = [(); 4].map(|()| program.label());
        program.set(R1, 1);
        program.load(Width::Word, R5, R6, GSO_SEGMENTS);
        program.jump_value(Condition::Greater, R5, 1, several);
        program.go(counted);
        program.place(several);
        self.frame(program);
        need(program, ETHERNET + IPV4, counted);
        self.ether_type(program, R2, R4);
        program.jump_value(Condition::Equal, R4, network_order(0x86dd), ipv6);
        program.jump_value(Condition::NotEqual, R4, network_order(0x0800), counted);
        program.load(Width::Byte, R4, R2, ETHERNET + 9);
        program.go(known);
        program.place(ipv6);
        program.load(Width::Byte, R4, R2, ETHERNET + 6);
        program.place(known);
        for &protocol in self.whole {
            program.jump_value(Condition::Equal, R4, protocol, counted);
        }
        program.copy(R1, R5);
        program.place(counted);
    }
}

impl Target for ToTap<'_> {
    fn begin(&self, program: &mut Assembler) {
        super::punt::pass_marked(program, self.windows, self.connections);
        if let Some(maps) = self.connections {
            connections::carry(program, maps, self);
        }
    }

    fn open(&self, program: &mut Assembler) {
        self.headers(program);
    }

    fn destination(&self, program: &mut Assembler, [first, last]: [Register; 2]) {
        layer::destination(program, self.layer, (R2, [first, last]));
    }

    /// The kernel has read the Ethernet header in place.
    fn peek(&self, program: &mut Assembler) {
        self.frame(program);
    }

    /// The kernel has moved the frame's first tag into metadata; in a test run the tag is still in the frame.
    fn untag(&self, program: &mut Assembler, pass: Label) {
        if !self.has_ethernet() {
            program.set(R8, 0);
            return self.ether_type(program, R2, R9);
        }
        let [beside, known] = [(); 2].map(|()| program.label());
        program.load(Width::Word, R5, R6, VLAN_PRESENT);
        program.jump_value(Condition::NotEqual, R5, 0, beside);
        untag_bytes(program, pass);
        program.go(known);
        program.place(beside);
        program.load(Width::Word, R5, R6, VLAN_PROTOCOL);
        program.jump_value(Condition::NotEqual, R5, network_order(0x8100), pass);
        program.load(Width::Word, R8, R6, VLAN_TAG);
        program.and(R8, 0x0fff);
        program.network_order(R8);
        program.load(Width::Half, R9, R2, 12);
        program.place(known);
    }

    fn take(&self, program: &mut Assembler) {
        let [examined, sent, drop] = [(); 3].map(|()| program.label());
        self.if_examined(program, examined);
        program.go(sent);
        program.place(examined);
        program.set(R0, REDIRECT.cast_signed());
        program.exit();
        program.place(sent);
        self.queue(program, drop);
        program.map_value(R7, self.windows);
        program.add_register(R7, R0);
        admit(program, self, None, drop);
    }

    fn pass(&self, program: &mut Assembler) {
        program.set(R0, NEXT);
        program.exit();
    }
}

/// Puts the start of the frame into R2 and the end of its readable bytes into R3. If the first `bytes` bytes
/// are not all in the packet's first buffer, they are pulled there.
pub(super) fn headers(program: &mut Assembler, bytes: i32) {
    let [short, pull, ready] = [(); 3].map(|()| program.label());
    program.load(Width::Word, R2, R6, DATA);
    program.load(Width::Word, R3, R6, DATA_END);
    program.copy(R4, R2);
    program.add(R4, bytes);
    program.jump(Condition::Greater, R4, R3, short);
    program.go(ready);
    program.place(short);
    program.copy(R1, R6);
    program.load(Width::Word, R2, R6, LENGTH);
    program.jump_value(Condition::Greater, R2, bytes, pull);
    program.call(Helper::PullData);
    program.load(Width::Word, R2, R6, DATA);
    program.load(Width::Word, R3, R6, DATA_END);
    program.go(ready);
    program.place(pull);
    program.set(R2, bytes);
    program.call(Helper::PullData);
    program.load(Width::Word, R2, R6, DATA);
    program.load(Width::Word, R3, R6, DATA_END);
    program.place(ready);
}

pub(super) fn redirect(program: &mut Assembler, interface: u32) {
    program.set(R1, interface.cast_signed());
    program.set(R2, 0);
    program.call(Helper::Redirect);
    program.exit();
}

/// Maximum number of header bytes that programs read: Ethernet, a tag, IPv6 with two extension headers, UDP.
pub(super) const HEADERS: i32 = 14 + 4 + 40 + 8 + 8 + 8;
/// Verdicts on a packet (`enum tcx_action_base`).
pub(super) const NEXT: i32 = -1;
pub(super) const DROP: i32 = 2;
/// `TC_ACT_REDIRECT`.
pub(super) const REDIRECT: u32 = 7;
/// Offsets in the context of a program (`struct __sk_buff`).
pub(super) const VLAN_PRESENT: i16 = 20;
pub(super) const VLAN_TAG: i16 = 24;
pub(super) const VLAN_PROTOCOL: i16 = 28;
pub(super) const INGRESS_INTERFACE: i16 = 36;
pub(super) const INTERFACE: i16 = 40;
pub(super) const CONTROL_BLOCK: i16 = 48;
const HASH: i16 = 68;
pub(super) const GSO_SEGMENTS: i16 = 164;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::admit::cases::{self, Bench, ethernet, ipv4, ipv6};
    use crate::bpf::classify::cases as tunnels;
    use crate::bpf::endpoints::Tables;
    use crate::bpf::port_frames::cases::{MAC, left};
    use crate::bpf::sys::{ProgramKind, load, test_run, test_run_segments};
    use crate::bpf::taken::{Taken, TakenMaps};
    use crate::bpf::window::{CHARGE, Windows};
    use crate::bpf::{FlowTable, Take};
    use std::os::fd::AsFd;

    /// A program whose windows are of [`cases::WINDOW`] bytes; `None` without the right to load programs, and the namespace
    /// tests say so.
    fn bench() -> Option<Bench> {
        let windows = Windows::new(1, cases::WINDOW).ok()?;
        // The kernel runs programs on frames as if the loopback interface had brought them, and redirects none.
        let target = ToTap {
            interface: 1,
            layer: LinkLayer::Ethernet,
            tap: 1,
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: cases::WINDOW,
            whole: &[libc::IPPROTO_TCP],
            connections: None,
        };
        let taken = TakenMaps::new(&Take::Whole, (MAC, cases::all_groups())).ok()?;
        let program = taken.taken().program(&target, None::<(&ToTap<'_>, _)>);
        let program = load(ProgramKind::Tcx, "polder_whole", &program).expect("the verifier takes it");
        let answers = [REDIRECT, DROP.cast_unsigned()];
        Some(Bench { program, windows, answers, charges: [1, CHARGE.into()] })
    }

    #[test]
    fn a_bridge_leaves_the_ports_own_frames_to_the_kernel() {
        let Ok(windows) = Windows::new(1, cases::WINDOW) else { return };
        let taken = TakenMaps::new(&Take::Whole, (MAC, Default::default())).expect("maps can be made");
        let flows = FlowTable::new(1, 1, taken.taken().frames()).expect("maps can be made");
        let target = ToTap {
            interface: 1,
            layer: LinkLayer::Ethernet,
            tap: 1,
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: cases::WINDOW,
            whole: &[libc::IPPROTO_TCP],
            connections: None,
        };
        for carries in [false, true] {
            let program = taken.taken().program(&target, carries.then(|| (&target, flows.maps())));
            let program = load(ProgramKind::Tcx, "polder_whole", &program).expect("the verifier takes it");
            left(&taken, |frame| match test_run(program.as_fd(), frame).expect("root runs programs") {
                REDIRECT => false,
                answer if answer == NEXT.cast_unsigned() => true,
                answer => panic!("{answer}"),
            });
        }
    }

    #[test]
    fn control_packets_are_admitted_where_bulk_is_dropped_and_seventeen_are_seventeen() {
        let Some(bench) = bench() else { return };
        cases::classes(&bench);
    }

    #[test]
    fn a_flood_of_control_packets_has_its_credit_and_then_what_bulk_has() {
        let Some(bench) = bench() else { return };
        cases::credit(&bench);
    }

    #[test]
    fn a_limit_holds_while_the_worker_reads() {
        let Some(bench) = bench() else { return };
        cases::limit(&bench);
    }

    /// An overrun counts packets as they are on a link; a mark in front of packets that the TAP cuts counts what arrives.
    #[test]
    fn super_packets_count_as_what_the_tap_makes_of_them() {
        let Some(bench) = bench() else { return };
        let counted = |frame: &[u8], segments| {
            let before = bench.numbered();
            bench.fill(0);
            test_run_segments(bench.program.as_fd(), frame, [segments, 1400]).expect("root runs programs");
            bench.numbered() - before
        };
        let payload = [0; 64];
        for (protocol, pieces) in [(6, 1), (17, 17), (47, 17), (4, 17)] {
            assert_eq!(counted(&ipv4(&[], (protocol, 0), &payload), 17), pieces, "{protocol}");
            assert_eq!(counted(&ipv6(&[], protocol, &payload), 17), pieces, "{protocol} over IPv6");
            assert_eq!(counted(&ipv4(&[], (protocol, 0), &payload), 1), 1, "{protocol}");
        }
        assert_eq!(counted(&ethernet([2, 0, 0, 0, 0, 1], &[], 0x88b5, &payload), 17), 1);
        let frame = ipv4(&[], (6, 0), &payload);
        for (segments, lost) in [(17, 17), (1, 1), (0, 1)] {
            let before = bench.overruns();
            bench.fill(cases::WINDOW.into());
            test_run_segments(bench.program.as_fd(), &frame, [segments, 1400]).expect("root runs programs");
            assert_eq!(bench.overruns() - before, lost, "{segments}");
        }
    }

    #[test]
    fn the_packets_of_claimed_tunnels_are_taken_and_no_others() {
        for take in [Take::Tunnels(tunnels::endpoints()), Take::Routed(tunnels::endpoints())] {
            // Without the right to make maps there is no table; the namespace tests say so.
            let (Ok(windows), Ok(maps)) =
                (Windows::new(1, 1 << 20), TakenMaps::new(&take, Default::default()))
            else {
                return;
            };
            let flows = FlowTable::new(1, 1, maps.taken().frames()).expect("maps can be made");
            let target = ToTap {
                interface: 1,
                layer: LinkLayer::Ethernet,
                tap: 1,
                queues: 1,
                windows: windows.as_fd(),
                window_bytes: 1 << 20,
                whole: &[],
                connections: None,
            };
            let program = maps.taken().program(&target, Some((&target, flows.maps())));
            let program = load(ProgramKind::Tcx, "polder_tunnels", &program).expect("the verifier takes it");
            tunnels::tunnels(|frame| {
                let answer = test_run(program.as_fd(), frame).expect("root runs programs");
                assert!([REDIRECT, NEXT.cast_unsigned()].contains(&answer), "{answer}");
                answer == REDIRECT
            });
        }
    }

    #[test]
    fn programs_assemble() {
        let stdin = std::io::stdin();
        let fd = stdin.as_fd();
        for queues in [1, 2, 3] {
            let window_bytes = 1 << 20;
            let whole_kinds = [&[][..], &[libc::IPPROTO_TCP], &[libc::IPPROTO_TCP, libc::IPPROTO_UDP]]
                [usize::from(queues) - 1];
            let target = ToTap {
                interface: 3,
                layer: LinkLayer::Ethernet,
                tap: 7,
                queues,
                windows: fd,
                window_bytes,
                whole: whole_kinds,
                connections: None,
            };
            let tables = Tables { v4: fd, v6: fd };
            for taken in [Taken::Whole(fd), Taken::Tunnels(tables)] {
                let program = taken.program(&target, None::<(&ToTap<'_>, _)>);
                assert!(program.len() < 600, "{} instructions", program.len());
            }
            verifies(target);
        }
        assert_eq!((onward(3).len(), only_from(3).len(), queue_of_flow().len()), (4, 6, 2));
    }

    /// The verifier takes the programs that carry flows.
    fn verifies(target: ToTap<'_>) {
        for take in [Take::Whole, Take::Tunnels(Vec::new()), Take::Routed(Vec::new())] {
            // Without the right to make maps there is no table; the namespace tests say so.
            let (Ok(windows), Ok(maps)) =
                (Windows::new(target.queues, 1 << 20), TakenMaps::new(&take, Default::default()))
            else {
                return;
            };
            let taken = maps.taken();
            let flows = FlowTable::new(7, target.queues, taken.frames()).expect("maps can be made");
            let target = ToTap { windows: windows.as_fd(), ..target };
            let program = taken.program(&target, Some((&target, flows.maps())));
            assert!(program.len() < 2048, "{} instructions", program.len());
            load(ProgramKind::Tcx, "polder_flows", &program).expect("the verifier takes it");
        }
    }
}
