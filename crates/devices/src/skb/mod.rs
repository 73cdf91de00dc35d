//! Any Linux interface, through a TAP that keeps what the kernel knows of its packets.
//!
//! A program at the interface's ingress sends what is taken to a TAP of Polder's, whose file brings it with its
//! virtio-net header: packets that were not cut yet, checksums that nobody has computed yet, VLAN tags. What Polder
//! sends is written to the file with such a header, and a program at the TAP's ingress sends it on by the interface.
//!
//! ```text
//!                 ingress                          virtio-net header
//!   interface ──▶ classify ─▶ window ─▶ TAP ─▶ queue of a worker ─▶ read ──▶ … stages …
//!   interface ◀── redirect ◀────────────────── TAP ◀────────────────────── write ◀──┘
//! ```
//!
//! The TAP carries nothing else: a program at its egress drops what was not sent there by the interface's program, and
//! nothing that is written to it reaches the machine's own stack.
//!
//! The TAP's queue is bounded in bytes: the interface's program counts what it sends there, the receiver publishes
//! what it has read, and how much of what may wait is of use to the worker. What would exceed that is dropped by the
//! program and counted as `rx-overrun`, packets of control protocols last.
//!
//! The programs are at TCX. They go with the process (BPF links), unless they are pinned for `on_exit = "drop"`: then they
//! drop what nobody reads. Before Linux 6.6 they are BPF filters at clsact, which outlive the process
//! (`skb/clsact.rs` says what becomes of packets then).
//!
//! Source: Linux, Documentation/networking/tuntap.rst; net/core/dev.c and net/core/filter.c (what a redirect does).

mod options;

mod hook;
mod program;

pub mod connections;

mod attach;
mod clsact;
mod settings;

mod init;
mod parts;
mod port;
mod spare;

mod copies;
mod rx;

pub mod punt;

mod preflight;

mod error;

#[cfg(feature = "models")]
mod redirect;
#[cfg(test)]
mod routed;

pub use crate::bpf::{Carried, Entry, FlowTable, Reached};
pub use attach::{foreign_programs, programs_of_others};
pub use clsact::{is_left, is_own_filter, release};
pub use copies::{Copies, Copy, CopyError};
pub use error::{Hook, OpenError};
pub use init::{adopt, open};
pub use options::Options;
pub use parts::{LAYOUT, Parts};
pub use port::{Opened, Port};
pub use preflight::{Advice, advice, has_tcx, inspect};
#[cfg(feature = "models")]
pub use redirect::{redirect, set_hash, use_control_block};
pub use spare::Spare;
