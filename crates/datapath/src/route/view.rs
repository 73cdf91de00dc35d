//! Look-ups.
//!
//! Many at a time: each level of all addresses is looked up before the next, so that the memory of all is
//! on its way at once.

use super::NextHopId;
use super::arena::{Arena, EntryIndex, NODE, Words};
use super::fib::Leave;
use crate::sync::Ordering;
use polder_buffers::BATCH;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A table, for one batch.
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

    /// The way of one IPv4 address, in a table for IPv4.
    pub fn lookup_v4(&self, address: Ipv4Addr) -> NextHopId {
        let mut next_hops = [NextHopId::NONE];
        self.lookup_all(&[address.octets()], &mut next_hops);
        next_hops[0]
    }

    /// The way of one IPv6 address, in a table for IPv6.
    pub fn lookup_v6(&self, address: Ipv6Addr) -> NextHopId {
        let mut next_hops = [NextHopId::NONE];
        self.lookup_all(&[address.octets()], &mut next_hops);
        next_hops[0]
    }

    /// The next hops of several addresses of the table's family: as many as both slices and a batch hold.
    pub fn lookup_all<const N: usize>(&self, addresses: &[[u8; N]], next_hops: &mut [NextHopId]) {
        let count = addresses.len().min(next_hops.len()).min(BATCH);
        let (mut padded, mut found) = ([[0; N]; BATCH], [NextHopId::NONE; BATCH]);
        padded[..count].copy_from_slice(&addresses[..count]);
        self.lookup_batch(&padded, &mut found, count);
        next_hops[..count].copy_from_slice(&found[..count]);
    }

    /// The next hops of the first `count` addresses of a batch.
    ///
    /// Cost: three lines of memory for most IPv4 addresses in a large table, six or seven for IPv6; those
    /// of all addresses are fetched side by side. No branch depends on where a route ends.
    #[inline]
    pub fn lookup_batch<const N: usize>(
        &self,
        addresses: &[[u8; N]; BATCH],
        next_hops: &mut [NextHopId; BATCH],
        count: usize,
    ) {
        const { assert!(N >= 4, "four bytes or sixteen") };
        let count = count.min(BATCH);
        let (words, mut inner) = (self.arena.words(), Inner::new());
        let start = if let Some(direct) = self.arena.direct() {
            for (index, (address, way)) in addresses.iter().zip(next_hops.iter_mut()).enumerate().take(count)
            {
                let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
                // Acquire pairs with the Releases in `Arena`: who sees an entry sees its node.
                let entry = direct[first].load(Ordering::Acquire);
                words.prefetch_head(entry, address[2]);
                inner.note(index, entry);
                *way = NextHopId(entry);
            }
            2
        } else {
            let top = self.arena.top();
            for (index, way) in next_hops.iter_mut().enumerate().take(count) {
                inner.note(index, top);
                *way = NextHopId(top);
            }
            0
        };
        for depth in start..N {
            if inner.count == 0 {
                break;
            }
            descend(words, addresses, next_hops, &mut inner, depth);
        }
        // What still names a node after the last byte was read while it changed, or is broken.
        next_hops.iter_mut().for_each(|way| way.0 &= !NODE);
    }
}

/// Goes one level down for all that have been led to a node; leaves those that are led on.
#[inline(always)]
fn descend<const N: usize>(
    words: Words<'_>,
    addresses: &[[u8; N]; BATCH],
    next_hops: &mut [NextHopId; BATCH],
    inner: &mut Inner,
    depth: usize,
) {
    let mut places = [EntryIndex::default(); BATCH];
    let count = inner.count.min(BATCH);
    for (place, &index) in places.iter_mut().zip(&inner.list).take(count) {
        let index = usize::from(index) % BATCH;
        *place = words.place(next_hops[index].0, addresses[index][depth]);
        words.prefetch(*place);
    }
    let next = (depth + 1).min(N - 1);
    // Those that are led on are noted in front of those that are still to be read.
    inner.count = 0;
    for (at, &place) in places.iter().enumerate().take(count) {
        let index = usize::from(inner.list[at]) % BATCH;
        let entry = words.load(place);
        next_hops[index] = NextHopId(entry);
        words.prefetch_head(entry, addresses[index][next]);
        inner.note(index, entry);
    }
}

/// Indices of the addresses that have reached a node.
struct Inner {
    list: [u8; BATCH],
    count: usize,
}

impl Inner {
    const fn new() -> Self {
        Self { list: [0; BATCH], count: 0 }
    }

    /// Notes an address if its entry is a node; writes in any case, so that nothing has to be guessed.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an index in a batch is below 64")]
    fn note(&mut self, index: usize, entry: u32) {
        self.list[self.count % BATCH] = index as u8;
        self.count += usize::from(entry & NODE != 0);
    }
}
