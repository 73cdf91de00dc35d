//! The XDP programs of this driver: what is taken from the kernel, packet by packet.
//!
//! [`whole`] takes everything, for a port of a bridge; what the others take is said in [`classify`](crate::bpf::classify).
//! All hand the packet to the AF_XDP socket of its queue; where no socket is (before start, after the end of the
//! process), the `action` decides: to the kernel, or nowhere. Flows that the program carries itself are looked at in front
//! of all that.

use super::hook::{Carrying, XdpHook};
use crate::bpf::assembler::{Assembler, Helper, Label, Register, Width};
use crate::bpf::classify::{self, RouterMaps, Target};
use crate::bpf::endpoints::Tables;
use crate::bpf::flows::program::carry;
use crate::bpf::flows::{FlowMaps, decapsulate, route};
use Register::{R0, R1, R2, R3, R6};
use std::os::fd::BorrowedFd;

/// Verdict on a packet that no socket takes (`enum xdp_action`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Action {
    /// It is dropped.
    Drop = 1,
    /// The kernel receives it.
    Pass = 2,
}

/// The XDP hook of an interface, with the sockets of its queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sockets<'a> {
    pub(super) map: BorrowedFd<'a>,
    pub(super) action: Action,
    /// Numbers of packets that go to the sockets, for a program that carries flows.
    pub(super) carrying: Option<Carrying<'a>>,
}

/// Tables of what a program takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken<'a> {
    /// Everything.
    Whole,
    /// Packets of tunnels.
    Tunnels(Tables<'a>),
    /// Those, and packets that a router forwards.
    Routed(RouterMaps<'a>),
}

/// The program for what is taken, without the flows that it carries itself.
pub(super) fn program(sockets: Sockets<'_>, taken: Taken<'_>, flows: Option<FlowMaps<'_>>) -> Vec<u64> {
    let mut program = Assembler::new();
    program.copy(R6, R1);
    if let (Some(carrying), Some(flows)) = (sockets.carrying, flows) {
        carry_flows(&mut program, (sockets, carrying), taken, flows);
    }
    match taken {
        Taken::Whole => sockets.take(&mut program),
        Taken::Tunnels(tables) => classify::claim(&mut program, &sockets, tables),
        Taken::Routed(maps) => classify::route(&mut program, &sockets, maps),
    }
    program.finish()
}

fn carry_flows(program: &mut Assembler, hook: XdpHook<'_>, taken: Taken<'_>, flows: FlowMaps<'_>) {
    let rest: Label = program.label();
    hook.1.if_examined(program, rest);
    match taken {
        Taken::Whole => carry(program, flows, &hook, rest),
        Taken::Tunnels(_) => decapsulate::carry(program, flows, &hook, rest),
        Taken::Routed(_) => route::carry(program, flows, &hook, rest),
    }
    program.place(rest);
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
        if let Some(carrying) = self.carrying {
            carrying.number(program);
        }
        self.redirect(program);
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
