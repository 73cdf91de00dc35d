//! Route look-ups.
//!
//! Addresses are looked up in batches: each level of the table is read for all addresses before the next, so
//! that cache misses overlap.

use super::NextHopId;
use super::arena::{Arena, EntryIndex, NODE, Words};
use crate::sync::{AtomicU64, Ordering};
use polder_buffers::BATCH;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Value of a seat without an active view.
pub(super) const AWAY: u64 = u64::MAX;

/// Epoch in which a reader's view began, or [`AWAY`]; in a cache line of its own.
#[derive(Debug)]
#[cfg_attr(target_arch = "aarch64", repr(align(128)))]
#[cfg_attr(not(target_arch = "aarch64"), repr(align(64)))]
pub(super) struct Seat(pub(super) AtomicU64);

/// Releases the seat at the end of a view.
#[derive(Debug)]
pub(super) struct Leave<'a>(pub(super) &'a Seat);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `Fib::reclaim`: a writer that sees the seat released may reuse
        // the lines.
        self.0.0.store(AWAY, Ordering::Release);
    }
}

/// View of a table for one batch.
#[derive(Debug)]
pub struct View<'a> {
    arena: &'a Arena,
    _leave: Leave<'a>,
}

impl<'a> View<'a> {
    #[inline]
    pub(super) fn new(arena: &'a Arena, leave: Leave<'a>) -> Self {
        Self { arena, _leave: leave }
    }

    /// Next hop of one address, in a table for IPv4.
    pub fn lookup_v4(&self, address: Ipv4Addr) -> NextHopId {
        let mut next_hops = [NextHopId::NONE];
        self.lookup_all(&[address.octets()], &mut next_hops);
        next_hops[0]
    }

    /// Next hop of one address, in a table for IPv6.
    pub fn lookup_v6(&self, address: Ipv6Addr) -> NextHopId {
        let mut next_hops = [NextHopId::NONE];
        self.lookup_all(&[address.octets()], &mut next_hops);
        next_hops[0]
    }

    /// Looks up several addresses of the table's family: as many as both slices and a batch hold.
    pub fn lookup_all<const N: usize>(&self, addresses: &[[u8; N]], next_hops: &mut [NextHopId]) {
        let count = addresses.len().min(next_hops.len()).min(BATCH);
        let (mut padded, mut found) = ([[0; N]; BATCH], [NextHopId::NONE; BATCH]);
        padded[..count].copy_from_slice(&addresses[..count]);
        self.lookup_batch(&padded, &mut found, count);
        next_hops[..count].copy_from_slice(&found[..count]);
    }

    /// Looks up the first `count` addresses of a batch.
    ///
    /// Cost: three cache lines for most IPv4 addresses in a large table, six or seven for IPv6; cache misses
    /// of all addresses overlap. No branch depends on the length of a prefix.
    #[inline]
    pub fn lookup_batch<const N: usize>(
        &self,
        addresses: &[[u8; N]; BATCH],
        next_hops: &mut [NextHopId; BATCH],
        count: usize,
    ) {
        const { assert!(N >= 4, "four bytes or sixteen") };
        let (words, count) = (self.arena.words(), count.min(BATCH));
        let mut inner = Inner { list: [0; BATCH], places: [EntryIndex::default(); BATCH] };
        let mut left = 0;
        let start = if let Some(direct) = self.arena.direct() {
            for index in 0..count {
                let address = &addresses[index];
                let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
                // Acquire pairs with the Releases in `Arena`: a reader that sees an entry sees its node.
                let entry = direct[first].load(Ordering::Acquire);
                words.prefetch_head(entry, address[2]);
                left = inner.note(left, index, entry);
                next_hops[index] = NextHopId(entry);
            }
            2
        } else {
            let top = self.arena.top();
            next_hops[..count].fill(NextHopId(top));
            for index in 0..count {
                left = inner.note(left, index, top);
            }
            0
        };
        for depth in start..N {
            if left == 0 {
                break;
            }
            left = inner.descend(left, words, addresses, next_hops, depth);
        }
        // An entry that still is a node after the last byte was read during a change, or is corrupt.
        next_hops.iter_mut().for_each(|way| way.0 &= !NODE);
    }
}

/// Addresses whose entry is a node.
struct Inner {
    /// Indices of the addresses in the batch.
    list: [u8; BATCH],
    /// Index of each address's entry in its node.
    places: [EntryIndex; BATCH],
}

impl Inner {
    /// Stores an address at index `count` if its entry is a node, and returns the new count; the store is
    /// unconditional to avoid a branch.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an index in a batch is below 64")]
    fn note(&mut self, count: usize, index: usize, entry: u32) -> usize {
        self.list[count % BATCH] = index as u8;
        count.wrapping_add(usize::from(entry & NODE != 0))
    }

    /// Descends one level for the first `count` addresses; returns the number whose new entry is a node,
    /// stored first.
    #[inline(always)]
    fn descend<const N: usize>(
        &mut self,
        count: usize,
        words: Words<'_>,
        addresses: &[[u8; N]; BATCH],
        next_hops: &mut [NextHopId; BATCH],
        depth: usize,
    ) -> usize {
        let count = count.min(BATCH);
        for at in 0..count {
            let index = usize::from(self.list[at]) % BATCH;
            self.places[at] = words.place(next_hops[index].0, addresses[index][depth]);
            words.prefetch(self.places[at]);
        }
        let next = (depth + 1).min(N - 1);
        // Addresses that continue are stored before the unread addresses.
        let mut left = 0;
        for at in 0..count {
            let index = usize::from(self.list[at]) % BATCH;
            let entry = words.load(self.places[at]);
            next_hops[index] = NextHopId(entry);
            words.prefetch_head(entry, addresses[index][next]);
            left = self.note(left, index, entry);
        }
        left
    }
}
