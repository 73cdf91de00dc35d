//! Packet processing from receive to transmit: one module for each stage, each working on a batch at a time.
//!
//! ```text
//! device rx ─▶ receive ─▶ parse ─▶ decapsulate ─▶ filter ─▶ route ─▶ bridge ─▶ segment
//!           ─▶ encapsulate ─▶ reorder ─▶ sequence ─▶ coalesce ─▶ queue ─▶ transmit ─▶ device tx
//!
//! receive      packets taken from a device, within a budget
//! parse        link header checked
//! decapsulate  outer headers checked and removed, fragments reassembled
//! filter       rules applied, on the way in and on the way out
//! route        next hop looked up, where there is a router
//! bridge       egress port looked up, or flooded
//! segment      super-packets segmented for ports that take none
//! encapsulate  outer headers written into headroom, IP identification, MSS clamped
//! reorder      order of arrival restored, where several workers share a flow
//! sequence     GRE sequence numbers assigned
//! coalesce     segments merged for ports that take super-packets
//! queue        packets queued for a port with a queue
//! transmit     a batch handed to a device
//! ```
//!
//! No function here reads a clock, blocks, allocates memory per packet or makes a system call: time, memory
//! and devices are arguments. A stage modifies a [`Batch`](polder_buffers::Batch) in place. A dropped packet
//! is marked by [`drops::Context::discard`], counted by reason, skipped by the later stages and released in
//! bulk at the end of the turn.
//!
//! Modules are declared in the order in which a packet meets them; counters and tracing come last.
#![forbid(unsafe_code)]

pub mod port;
pub mod wire;

pub mod scheduler;

pub mod steer;

pub mod parse;

pub mod next_hop;
pub mod tunnel;

pub mod filter;

pub mod route;

pub mod flags;
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
pub mod fast_path;
pub mod worker_group;

pub mod counter;
pub mod counters;
pub mod drops;
mod headroom;
mod reply;
pub mod stage;
pub mod units;

mod sync;
