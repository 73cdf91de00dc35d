//! The contract of queue disciplines.

use crate::units::Nanos;
use polder_buffers::Packet;

/// Reason why a packet does not leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue was full when it came.
    Full,
    /// Packets wait too long (CoDel).
    Delay,
}

/// Packets that wait, the order in which they leave, and which of them do not.
pub trait QueueDiscipline: core::fmt::Debug + Send {
    /// Takes a packet that came at `came`, or refuses packets for it.
    fn enqueue(&mut self, packet: Packet, came: Nanos, refuse: &mut dyn FnMut(Packet, Refusal));

    /// The packet that is to leave next, and when it came; packets that are not to leave go to `refuse`.
    fn dequeue(&mut self, now: Nanos, refuse: &mut dyn FnMut(Packet, Refusal)) -> Option<(Packet, Nanos)>;

    /// Takes out a packet, and when it came, without deciding on it; in the order of leaving.
    fn pop(&mut self) -> Option<(Packet, Nanos)>;

    /// Packets in the queue.
    fn len(&self) -> usize;

    /// Bytes in the queue, Ethernet headers included, FCS excluded.
    fn bytes(&self) -> u64;

    /// True if no packet waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
