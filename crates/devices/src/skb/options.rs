//! Options of opening an interface.

use super::connections::ConnectionTable;
use crate::Receiving;
use crate::af_xdp::{OnExit, Take};
use polder_datapath::forward::ForwardGroups;
use std::sync::Arc;

/// Interface to open, and options of opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interface, in the calling thread's network namespace.
    pub interface: String,
    /// Packets that are taken.
    pub take: Take,
    /// Link-local groups that the port's bridge forwards; the kernel receives the others.
    pub forward_groups: ForwardGroups,
    /// Treatment of packets after the end of the process.
    pub on_exit: OnExit,
    /// Number of queues of the TAP; a flow keeps its queue.
    pub queues: u16,
    /// Maximum length of a sent network packet in bytes, if the interface's MTU is larger.
    pub mtu: Option<u32>,
    /// True if super-packets, which are still to be segmented, may arrive.
    pub segments: bool,
    /// True if the interface's program may carry flows; see [`FlowTable`](super::FlowTable).
    pub fast_path: bool,
    /// Refill threshold, and treatment of small packets.
    pub receiving: Receiving,
    /// True to attach the programs by clsact even if the kernel has TCX.
    pub clsact: bool,
    /// True to receive frames for other MAC addresses, as a bridge needs.
    pub promiscuous: bool,
    /// Maximum number of bytes that wait in each queue, kernel overhead included.
    pub window_bytes: u32,
    /// Connections that the programs carry, for a router's port if the kernel decides; needs TCX.
    pub connections: Option<Arc<ConnectionTable>>,
}

impl Options {
    /// Returns options of a port that takes the packets of `take`, with one queue.
    pub fn new(interface: impl Into<String>, take: Take) -> Self {
        let promiscuous = take == Take::Whole;
        Self {
            interface: interface.into(),
            take,
            forward_groups: ForwardGroups::NONE,
            on_exit: OnExit::default(),
            queues: 1,
            mtu: None,
            segments: true,
            fast_path: false,
            receiving: Receiving::default(),
            clsact: false,
            promiscuous,
            window_bytes: WINDOW,
            connections: None,
        }
    }
}

/// Bytes that may wait in a queue: a few milliseconds at 10 Gbit/s.
const WINDOW: u32 = 4 << 20;
