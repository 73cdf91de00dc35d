//! Any Linux interface, through a TAP that keeps the kernel's metadata of packets.
//!
//! A program at the interface's ingress sends the taken packets to a TAP. Reading the TAP's file returns each with
//! a virtio-net header: super-packets, partial checksums, VLAN tags. Packets that Polder sends are written to the
//! file with such a header, and a program at the TAP's ingress redirects them to the interface.
//!
//! ```text
//!                 ingress                          virtio-net header
//!   interface ──▶ classify ─▶ window ─▶ TAP ─▶ queue of a worker ─▶ read ──▶ … stages …
//!   interface ◀── redirect ◀────────────────── TAP ◀────────────────────── write ◀──┘
//! ```
//!
//! The TAP carries no other packets: a program at its egress drops packets that the interface's program has not
//! sent there, and no packet written to it reaches the host's own stack.
//!
//! The bytes in the TAP's queue are limited. The interface's program counts the bytes that it sends there; the
//! receiver publishes the bytes that it has read, and how many waiting bytes the worker can use. The program drops
//! the excess, counted as `rx-overrun`, control packets last.
//!
//! The programs are at TCX. They are detached with the end of the process (BPF links), unless they are pinned for
//! `on_exit = "drop"`: then they drop the packets that no process reads. Before Linux 6.6 they are BPF filters at
//! clsact, which survive the process (`skb/clsact.rs` describes the treatment of packets then).
//!
//! Source: Linux, Documentation/networking/tuntap.rst; net/core/dev.c and net/core/filter.c (redirects).

mod options;

mod context;
mod hook;
mod layer;
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
