//! End of a program of this driver, for a packet that it takes from the kernel ([`taken`](crate::bpf::taken)).
//!
//! All hand it to the AF_XDP socket of its queue; where no socket is (before start, after the end of the process), the
//! `action` decides: to the kernel, or nowhere.

use super::hook::Carrying;
use crate::bpf::assembler::{Assembler, Helper, Register, Width};
use crate::bpf::classify::Target;
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
