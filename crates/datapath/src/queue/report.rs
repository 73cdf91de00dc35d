//! Contents of a queue for people: flows, hosts and tins.

use super::list::Turn;
use super::store::{Chain, PacketStore};
use crate::steer::{Ends, FlowName, flow_name_of};
use crate::units::Nanos;
use crate::wire::MacAddress;
use core::fmt;
use polder_buffers::Packet;
use std::net::IpAddr;

/// Number of flows that take turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Flows in the list of new ones, which go first.
    pub new: u32,
    /// Flows in the list of old ones.
    pub old: u32,
    /// Times that a flow without packets got one, since the last look.
    pub started: u64,
}

impl FlowCounts {
    /// The numbers; those that count events are zero afterwards.
    pub(super) fn take(&mut self) -> Self {
        let started = core::mem::take(&mut self.started);
        Self { started, ..*self }
    }

    /// Counts a flow that moves to another list.
    #[inline]
    pub(super) fn moved(&mut self, from: Turn, to: Turn) {
        match from {
            Turn::Idle => self.started += 1,
            Turn::New => self.new -= 1,
            Turn::Old => self.old -= 1,
        }
        match to {
            Turn::Idle => {}
            Turn::New => self.new += 1,
            Turn::Old => self.old += 1,
        }
    }
}

/// Packets of a tin since the last look; a super-packet counts as its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TinEvents {
    /// Packets that entered, and were not dropped at once.
    pub entered: u64,
    /// Packets that left.
    pub left: u64,
    /// Bytes that left.
    pub left_bytes: u64,
    /// Packets dropped because the queue was full.
    pub full: u64,
    /// Packets dropped to limit the delay.
    pub delay: u64,
    /// Packets marked with "congestion experienced".
    pub marked: u64,
}

/// State of a tin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TinState {
    /// Events since the last look.
    pub events: TinEvents,
    /// Packets that wait.
    pub waiting: u64,
    /// Bytes that wait, Ethernet headers included, FCS excluded.
    pub waiting_bytes: u64,
    /// Time that the last packet spent in the queue.
    pub wait: Nanos,
}

impl TinState {
    /// Counts packets that have entered.
    #[inline]
    pub(super) fn add(&mut self, wire_packets: u64, bytes: u64) {
        self.events.entered += wire_packets;
        self.waiting += wire_packets;
        self.waiting_bytes += bytes;
    }

    /// Takes a packet out of the gauges.
    #[inline]
    pub(super) fn remove(&mut self, packet: &Packet) {
        self.waiting -= u64::from(packet.wire_packets);
        self.waiting_bytes -= packet.len() as u64;
    }

    /// Counts a packet that has left after a time.
    #[inline]
    pub(super) fn leave(&mut self, packet: &Packet, wait: Nanos) {
        self.remove(packet);
        self.events.left += u64::from(packet.wire_packets);
        self.events.left_bytes += packet.len() as u64;
        self.wait = wait;
    }
}

/// Flows and hosts of a queue with most bytes, largest first; at most [`MOST`](Self::MOST) of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueReport {
    /// Flows.
    pub flows: Vec<FlowReport>,
    /// Hosts between which the queue is fair.
    pub hosts: Vec<HostReport>,
}

impl QueueReport {
    /// Maximum number of flows, and of hosts.
    pub const MOST: usize = 10;
}

/// A flow that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// Addresses and ports of its first packet; `None` if the packet is malformed.
    pub name: Option<FlowName>,
    /// Bytes that wait, Ethernet headers included, FCS excluded.
    pub bytes: u32,
    /// Time for which its first packet has waited.
    pub wait: Nanos,
    /// True if it is in the list of new flows.
    pub is_new: bool,
    /// Number of its tin, 0 without tins.
    pub tin: usize,
}

/// A host with flows that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// Address; `None` if the packet that names it is malformed.
    pub address: Option<HostAddress>,
    /// True if the host sends the packets, false if it receives them.
    pub is_source: bool,
    /// Bytes that wait, Ethernet headers included, FCS excluded.
    pub bytes: u32,
    /// Number of its flows.
    pub flows: u32,
    /// Number of the tin.
    pub tin: usize,
}

/// Address of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAddress {
    /// IP address.
    Ip(IpAddr),
    /// MAC address of a host whose packets are not IP.
    Link(MacAddress),
}

impl HostAddress {
    /// Source or destination of a flow.
    pub(super) fn of(name: &FlowName, is_source: bool) -> Self {
        let index = usize::from(!is_source);
        match name.ends {
            Ends::Ip { addresses, .. } => Self::Ip(addresses[index]),
            Ends::Link(addresses) => Self::Link(addresses[index]),
        }
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(formatter),
            Self::Link(address) => address.fmt(formatter),
        }
    }
}

/// Report of a flow by its waiting packets.
pub(super) fn flow_report(
    (store, chain): (&PacketStore, Chain),
    (bytes, turn, tin): (u32, Turn, usize),
    now: Nanos,
) -> FlowReport {
    let first = store.first(chain);
    FlowReport {
        name: first.and_then(|(packet, _)| flow_name_of(packet)),
        bytes,
        wait: first.map(|(_, came)| now.since(came)).unwrap_or_default(),
        is_new: turn == Turn::New,
        tin,
    }
}

/// Numbers of bytes with their indices, largest first; at most [`QueueReport::MOST`], without zeros.
pub(super) fn largest(backlogs: &[u32]) -> Vec<(u32, usize)> {
    let mut largest = Vec::with_capacity(QueueReport::MOST + 1);
    for (index, &bytes) in backlogs.iter().enumerate().filter(|(_, bytes)| **bytes > 0) {
        if largest.len() == QueueReport::MOST && largest.last().is_some_and(|&(least, _)| bytes <= least) {
            continue;
        }
        let at = largest.partition_point(|&(more, _)| more >= bytes);
        largest.insert(at, (bytes, index));
        largest.truncate(QueueReport::MOST);
    }
    largest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_zeros_not_at_all() {
        assert_eq!(largest(&[0, 5, 0, 9, 5]), [(9, 3), (5, 1), (5, 4)]);
        let many = (0..101).map(|number| number * 7 % 101).collect::<Vec<_>>();
        let found = largest(&many).into_iter().map(|(bytes, _)| bytes).collect::<Vec<_>>();
        assert_eq!(found, (91..=100).rev().collect::<Vec<_>>());
    }
}
