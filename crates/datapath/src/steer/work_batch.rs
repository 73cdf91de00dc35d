//! Work batch: packets that travel between workers under one ticket.

use polder_buffers::reorder::Ticket;
use polder_buffers::{Batch, Packet};

/// Packets of one bucket in one received batch, with their ticket. A work batch goes to an idle worker, then
/// to the bucket's home, and back to the receiving worker, even if all its packets were dropped.
#[derive(Debug)]
pub struct WorkBatch {
    /// Position of the batch in its lane's order.
    pub(crate) ticket: Ticket,
    /// Lane of the receiving worker.
    pub(crate) lane: u16,
    /// The receiving worker.
    pub(crate) from: u16,
    /// Home of the bucket, the worker that sends the packets.
    pub(crate) home: u16,
    /// Number of the receiving worker's packets that the home must have sent first.
    pub(crate) after: u64,
    /// Packets; after processing, the packets to be sent.
    pub batch: Batch,
    /// Packets to be sent that exceed `batch`.
    pub more: Vec<Packet>,
}

impl WorkBatch {
    /// An empty work batch.
    pub fn new() -> Self {
        Self {
            ticket: Ticket::default(),
            lane: 0,
            from: 0,
            home: 0,
            after: 0,
            batch: Batch::new(),
            more: Vec::new(),
        }
    }

    /// The work batch's ticket.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Appends a packet.
    ///
    /// Allocates when `more` grows beyond its capacity.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        if !self.more.is_empty() {
            return self.more.push(packet);
        }
        if let Err(packet) = self.batch.push(packet) {
            self.more.push(packet);
        }
    }

    /// Number of packets in the work batch.
    #[expect(clippy::len_without_is_empty, reason = "an empty work is as good as a full one")]
    pub fn len(&self) -> usize {
        self.batch.len() + self.more.len()
    }
}

impl Default for WorkBatch {
    fn default() -> Self {
        Self::new()
    }
}
