//! Interface of queue disciplines.

use crate::units::Nanos;
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

    /// True if the queue is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
