//! Packets that travel between workers while their order is restored elsewhere.

use polder_buffers::reorder::Ticket;
use polder_buffers::{Batch, Packet};

/// The packets of one bucket in one received batch, with their ticket. It goes to an idle worker,
/// from there to the bucket's home, and back to where it came from, always: emptied, perhaps, but
/// never taken apart.
#[derive(Debug)]
pub struct WorkBatch {
    /// Its place in the line.
    pub(crate) ticket: Ticket,
    /// Line of the receiving worker.
    pub(crate) lane: u16,
    /// The receiving worker.
    pub(crate) from: u16,
    /// The worker that lets it go.
    pub(crate) home: u16,
    /// Packets of the receiving worker that the home must have sent before.
    pub(crate) after: u64,
    /// The packets; when it is redeemed, what is left of them.
    pub batch: Batch,
    /// Resulting packets beyond one batch.
    pub more: Vec<Packet>,
}

impl WorkBatch {
    /// An empty one.
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

    /// Its ticket.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Puts a packet that is left behind those that are there.
    ///
    /// Allocates when there are more than ever before beyond one batch.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        if !self.more.is_empty() {
            return self.more.push(packet);
        }
        if let Err(packet) = self.batch.push(packet) {
            self.more.push(packet);
        }
    }

    /// Packets in it.
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
