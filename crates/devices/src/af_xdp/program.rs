//! The end of an XDP program, for a packet that it takes from the kernel ([`taken`](crate::bpf::taken)).
//!
//! Packets are redirected to the AF_XDP socket of their queue; if there is no socket (before the start, after
//! the end of the process), the `action` decides: pass or drop.

use crate::bpf::assembler::{Assembler, Helper, Register, Width};
use crate::bpf::classify::Target;
use Register::{R0, R1, R2, R3, R6};
use std::os::fd::BorrowedFd;

/// Verdict on a packet without a socket (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Action {
    /// The packet is dropped.
    Drop = 1,
    /// The kernel receives the packet.
    Pass = 2,
}

/// Parameters of an XDP program that counts packets to its sockets, and may carry flows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counting<'a> {
    /// The interface index.
    pub(super) interface: u32,
    /// The interface's MAC address.
    pub(super) mac: [u8; 6],
    /// Number of queues with sockets.
    pub(super) queues: u32,
    /// The windows of these queues.
    pub(super) windows: BorrowedFd<'a>,
    /// Size of each window in bytes.
    pub(super) window_bytes: u32,
    /// True if senders may be on this host, and leave checksums to the device without a mark.
    pub(super) local_senders: bool,
}

/// The XDP hook of an interface, with the sockets of its queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets<'a> {
    pub(super) map: BorrowedFd<'a>,
    pub(super) action: Action,
    /// Counting of packets to the sockets, within their queues' windows.
    pub(super) counting: Option<Counting<'a>>,
}

impl Sockets<'_> {
    /// `return bpf_redirect_map(&sockets, ctx->rx_queue_index, action)`
    pub(super) fn redirect(&self, program: &mut Assembler) {
        program.load(Width::Word, R2, R6, CONTEXT_QUEUE);
        program.map(R1, self.map);
        program.set(R3, self.action as i32);
        program.call(Helper::RedirectMap);
        program.exit();
    }
}

impl Target for Sockets<'_> {
    fn open(&self, program: &mut Assembler) {
        program.load(Width::Word, R2, R6, CONTEXT_DATA);
        program.load(Width::Word, R3, R6, CONTEXT_DATA_END);
    }

    fn take(&self, program: &mut Assembler) {
        match self.counting {
            Some(counting) => counting.take(program, self),
            None => self.redirect(program),
        }
    }

    fn pass(&self, program: &mut Assembler) {
        program.set(R0, Action::Pass as i32);
        program.exit();
    }
}

/// Offsets in the context of a program (`struct xdp_md`).
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
pub(super) const CONTEXT_QUEUE: i16 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::af_xdp::hook::XdpHook;
    use crate::bpf::FlowTable;
    use crate::bpf::Take;
    use crate::bpf::admit::cases::{self, Bench};
    use crate::bpf::classify::cases as tunnels;
    use crate::bpf::port_frames::cases::{MAC, left};
    use crate::bpf::sys::{Map, MapKind, ProgramKind, load, test_run};
    use crate::bpf::taken::TakenMaps;
    use crate::bpf::window::{CHARGE, Windows};
    use std::os::fd::AsFd as _;

    /// A program whose windows are of [`cases::WINDOW`] bytes; `None` without the right to load programs, and the namespace
    /// tests say so.
    fn bench() -> Option<Bench> {
        let windows = Windows::new(1, cases::WINDOW).ok()?;
        let taken = TakenMaps::new(&Take::Whole, (MAC, cases::all_groups())).ok()?;
        let map = Map::new(MapKind::XskMap, "polder_sockets", 4, 4, 1).ok()?;
        // The kernel runs programs on frames as if the loopback interface had brought them; there is no socket.
        let counting = Counting {
            interface: 1,
            mac: [2; 6],
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: cases::WINDOW,
            local_senders: true,
        };
        let sockets = Sockets { map: map.as_fd(), action: Action::Pass, counting: Some(counting) };
        let program = taken.taken().program(&sockets, None::<(&XdpHook<'_>, _)>);
        let program = load(ProgramKind::Xdp, "polder_whole", &program).expect("the verifier takes it");
        let answers = [Action::Pass, Action::Drop].map(|action| (action as i32).cast_unsigned());
        Some(Bench { program, windows, answers, charges: [0, CHARGE.into()] })
    }

    /// With and without counters in front of the sockets, of which there is none, so that what is taken is dropped.
    #[test]
    fn a_bridge_leaves_the_ports_own_frames_to_the_kernel() {
        let Ok(windows) = Windows::new(1, cases::WINDOW) else { return };
        let Ok(map) = Map::new(MapKind::XskMap, "polder_sockets", 4, 4, 1) else { return };
        let taken = TakenMaps::new(&Take::Whole, (MAC, Default::default())).expect("maps can be made");
        let flows = FlowTable::new(1, 1, taken.taken().frames()).expect("maps can be made");
        let counting = Counting {
            interface: 1,
            mac: MAC,
            queues: 1,
            windows: windows.as_fd(),
            window_bytes: cases::WINDOW,
            local_senders: true,
        };
        for (counting, carries) in [(None, false), (Some(counting), false), (Some(counting), true)] {
            let sockets = Sockets { map: map.as_fd(), action: Action::Drop, counting };
            let hook = counting.map(|counting| (sockets, counting)).filter(|_| carries);
            let program = taken.taken().program(&sockets, hook.as_ref().map(|hook| (hook, flows.maps())));
            let program = load(ProgramKind::Xdp, "polder_whole", &program).expect("the verifier takes it");
            left(&taken, |frame| {
                let answer = test_run(program.as_fd(), frame).expect("root runs programs");
                match answer.cast_signed() {
                    answer if answer == Action::Pass as i32 => true,
                    answer if answer == Action::Drop as i32 => false,
                    answer => panic!("{answer}"),
                }
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

    #[test]
    fn the_packets_of_claimed_tunnels_are_taken_and_no_others() {
        for take in [Take::Tunnels(tunnels::endpoints()), Take::Routed(tunnels::endpoints())] {
            // Without the right to make maps there is no table; the namespace tests say so.
            let (Ok(maps), Ok(map)) = (
                TakenMaps::new(&take, Default::default()),
                Map::new(MapKind::XskMap, "polder_sockets", 4, 4, 1),
            ) else {
                return;
            };
            // There is no socket: a packet that is taken is dropped.
            let sockets = Sockets { map: map.as_fd(), action: Action::Drop, counting: None };
            let program = maps.taken().program(&sockets, None::<(&XdpHook<'_>, _)>);
            let program = load(ProgramKind::Xdp, "polder_tunnels", &program).expect("the verifier takes it");
            tunnels::tunnels(|frame| {
                let answer = test_run(program.as_fd(), frame).expect("root runs programs");
                let answers = [Action::Drop, Action::Pass].map(|action| (action as i32).cast_unsigned());
                assert!(answers.contains(&answer), "{answer}");
                answer == answers[0]
            });
        }
    }
}
