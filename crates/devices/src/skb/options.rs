//! Options of an interface.

use super::connections::ConnectionTable;
use crate::Receiving;
use crate::af_xdp::{OnExit, Take};
use polder_datapath::forward::ForwardGroups;
use std::sync::Arc;

/// Interface to be opened, and the way of opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The interface, of the calling thread's network namespace.
    pub interface: String,
    /// Packets that are taken.
    pub take: Take,
    /// Link-local groups that the bridge of the interface forwards; the kernel receives the others.
    pub forward_groups: ForwardGroups,
    /// The interface after the end.
    pub on_exit: OnExit,
    /// Number of queues of the TAP; a flow keeps its queue.
    pub queues: u16,
    /// The longest network packet that is sent, where the interface's MTU is larger.
    pub mtu: Option<u32>,
    /// True if packets may come that are to be cut into segments.
    pub segments: bool,
    /// True if flows may be carried by the interface's program; see [`FlowTable`](super::FlowTable).
    pub fast_path: bool,
    /// Time at which frames are taken for what is to come, and what becomes of small packets.
    pub receiving: Receiving,
    /// True if programs are attached by clsact also where there is TCX.
    pub clsact: bool,
    /// True if frames for other link-layer addresses are received, as a bridge needs it.
    pub promiscuous: bool,
    /// Bytes that may wait in each queue, headers of the kernel's included.
    pub window_bytes: u32,
    /// Connections that the programs carry, for a router's port where the kernel decides about packets; needs TCX.
    pub connections: Option<Arc<ConnectionTable>>,
}

impl Options {
    /// A port that takes what `take` says, with one queue.
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
