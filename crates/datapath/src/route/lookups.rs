//! Route look-ups of a batch, with the header rewrites of their packets.

use super::{FibReader, NextHopId};
use polder_buffers::{BATCH, Batch};

/// Look-ups of a batch.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) v4: Lookups<4>,
    pub(super) v6: Lookups<16>,
    /// Look-ups of the sources of the packets in `v4`, at the same index.
    pub(super) origins: Lookups<4>,
}

/// Look-ups of one address family.
#[derive(Debug)]
pub(super) struct Lookups<const N: usize> {
    pub(super) count: usize,
    pub(super) positions: [u8; BATCH],
    pub(super) addresses: [[u8; N]; BATCH],
    pub(super) found: [NextHopId; BATCH],
    pub(super) plans: [Plan; BATCH],
}

/// Result of the header check: the rewritten header word, and the packet's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Four header bytes with decremented TTL and updated checksum.
    pub(super) word: [u8; 4],
    /// Length of the IP packet in bytes; `u32::MAX` for a packet on the slow path.
    pub(super) total: u32,
}

impl Plan {
    /// Value for a packet on the slow path.
    const CLOSELY: Self = Self { word: [0; 4], total: u32::MAX };
}

impl<const N: usize> Lookups<N> {
    pub(super) const fn new() -> Self {
        let (positions, addresses, found) = ([0; BATCH], [[0; N]; BATCH], [NextHopId::NONE; BATCH]);
        Self { count: 0, positions, addresses, found, plans: [Plan::CLOSELY; BATCH] }
    }

    /// Stores a packet at index `count`; returns the new count.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "positions in a batch are below 64")]
    pub(super) fn put_at(&mut self, count: usize, position: usize, address: [u8; N], plan: Plan) -> usize {
        let at = count % BATCH;
        (self.positions[at], self.addresses[at], self.plans[at]) = (position as u8, address, plan);
        count + 1
    }

    /// Stores a packet for the slow path.
    pub(super) fn put(&mut self, position: usize, address: [u8; N]) {
        self.count = self.put_at(self.count, position, address, Plan::CLOSELY);
    }

    /// Looks up the first `count` stored addresses.
    #[inline]
    pub(super) fn lookup_first(&mut self, count: usize, reader: &mut FibReader) {
        reader.view().lookup_batch(&self.addresses, &mut self.found, count);
    }

    #[inline]
    pub(super) fn lookup(&mut self, reader: &mut FibReader) {
        if self.count > 0 {
            self.lookup_first(self.count, reader);
        }
    }
}

impl Work {
    /// Looks up the routes to the sources of the packets in `v4`.
    pub(super) fn look_back(&mut self, batch: &Batch, reader: &mut FibReader) {
        let Self { v4, origins, .. } = self;
        for (source, &position) in origins.addresses.iter_mut().zip(&v4.positions).take(v4.count) {
            let packet = batch.get(usize::from(position));
            let field =
                packet.and_then(|packet| packet.bytes().get(usize::from(packet.network_offset) + 12..));
            *source = field.and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        }
        origins.lookup_first(v4.count, reader);
    }
}
