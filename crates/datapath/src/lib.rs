//! The journey of a packet, from receive to transmit: pure, bounded decisions over batches.
//!
//! ```text
//! device rx ─▶ receive ─▶ steer ─▶ parse ─▶ tunnel in ─▶ forward ─▶ tunnel out ─▶ reorder ─▶ sequence ─▶ transmit ─▶ device tx
//!              budget     worker   offsets  decapsulate  bridge     encapsulate   order      what     one batch
//!              turn       ticket   or drop  reassemble   or drop    in headroom   again      needs    a port
//!                         if asked reason                                                    order
//! ```
//!
//! A [`filter`] stands before and behind `forward` where there are rules, and nowhere else; [`route`] stands before
//! `forward` where there is a router.
//!
//! Nothing here reads a clock, blocks, allocates per packet or does a system call: time, memory and
//! devices are arguments. A stage takes a [`Batch`](polder_buffers::Batch) and works on it in place;
//! a packet that ends its journey is marked with [`drops::Context::discard`], counted by reason,
//! skipped by the later stages and released in bulk at the end of the turn.
//!
//! Modules stand in the order in which a packet meets them; instruments come last.
#![forbid(unsafe_code)]

pub mod port;
pub mod wire;

pub mod scheduler;

pub mod steer;

pub mod parse;

pub mod tunnel;

pub mod filter;

pub mod route;

pub mod forward;

pub mod offload;

pub mod segment;

pub mod reorder;

pub mod sequence;

pub mod queue;

pub mod coalesce;

pub mod transmit;

pub mod capture;

pub mod trace;

pub mod engine;
pub mod worker_group;

pub mod counter;
pub mod counters;
pub mod drops;
mod headroom;
mod remedies;
pub mod units;

mod sync;
