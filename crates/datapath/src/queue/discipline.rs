//! Interface of queue disciplines.

use super::report::{FlowCounts, QueueReport, TinState};
use crate::units::Nanos;
use core::any::Any;
use polder_buffers::Packet;

/// Reason why a queue drops a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue was full.
    Full,
    /// The delay was too long (CoDel).
    Delay,
}

/// Queue of packets that decides about their order and about drops.
pub trait QueueDiscipline: core::fmt::Debug + Send {
    /// Enqueues a packet that arrived at `came`; dropped packets are passed to `refuse`.
    fn enqueue(&mut self, packet: Packet, came: Nanos, refuse: &mut dyn FnMut(Packet, Refusal));

    /// Dequeues the next packet with its time of arrival; packets that the discipline drops are passed to
    /// `refuse`.
    fn dequeue(&mut self, now: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)>;

    /// Dequeues the next packet with its time of arrival, without dropping.
    fn pop(&mut self) -> Option<(Packet, Nanos)>;

    /// Number of packets in the queue.
    fn len(&self) -> usize;

    /// Bytes in the queue, Ethernet headers included, FCS excluded.
    fn bytes(&self) -> u64;

    /// The queue itself, for a change of parameters that only its own kind has.
    fn as_any(&mut self) -> &mut dyn Any;

    /// Number of packets marked with "congestion experienced" since the last call; a super-packet counts as
    /// its segments.
    fn take_marks(&mut self) -> u64 {
        0
    }

    /// State of each tin, whose events the caller takes; empty for a discipline without tins.
    fn tins(&mut self) -> &mut [TinState] {
        &mut []
    }

    /// Number of flows that take turns, and of those that started since the last call; 0 for a discipline
    /// without flows.
    fn take_flow_counts(&mut self) -> FlowCounts {
        FlowCounts::default()
    }

    /// Flows and hosts with most bytes; empty for a discipline without flows.
    #[cold]
    fn report(&self, _now: Nanos) -> QueueReport {
        QueueReport::default()
    }

    /// True if the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
