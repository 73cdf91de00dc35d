//! Look-ups.
//!
//! Many at a time: each level of all addresses is looked up before the next, so that the memory of all is
//! on its way at once.

use super::WayId;
use super::arena::{NODE, Place};
use super::fib::{Leave, Shared};
use crate::sync::Ordering;
use polder_buffers::BATCH;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A table, for one batch.
#[derive(Debug)]
pub struct View<'a> {
    shared: &'a Shared,
    _leave: Leave<'a>,
}

impl<'a> View<'a> {
    #[inline]
    pub(super) fn new(shared: &'a Shared, leave: Leave<'a>) -> Self {
        Self { shared, _leave: leave }
    }

    /// The way of one IPv4 address, in a table for IPv4.
    pub fn lookup_v4(&self, address: Ipv4Addr) -> WayId {
        let mut ways = [WayId::NONE];
        self.lookup_all(&[address.octets()], &mut ways);
        ways[0]
    }

    /// The way of one IPv6 address, in a table for IPv6.
    pub fn lookup_v6(&self, address: Ipv6Addr) -> WayId {
        let mut ways = [WayId::NONE];
        self.lookup_all(&[address.octets()], &mut ways);
        ways[0]
    }

    /// The ways of several addresses of the table's family: as many as both slices and a batch hold.
    ///
    /// Cost: three lines of memory for most IPv4 addresses in a large table, six or seven for IPv6; those
    /// of all addresses are fetched side by side. No branch depends on where a route ends.
    #[inline]
    pub fn lookup_all<const N: usize>(&self, addresses: &[[u8; N]], ways: &mut [WayId]) {
        const { assert!(N >= 4, "four bytes or sixteen") };
        let count = addresses.len().min(ways.len()).min(BATCH);
        let (addresses, ways) = (&addresses[..count], &mut ways[..count]);
        let mut inner = Inner::new();
        // Acquire pairs with the Releases in `Fib`: who sees an entry sees its node.
        let start = if let Some(direct) = self.shared.direct.get() {
            for (index, (address, way)) in addresses.iter().zip(ways.iter_mut()).enumerate() {
                let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
                let entry = direct.get(first).map_or(0, |entry| entry.load(Ordering::Acquire));
                inner.put(index, entry);
                self.shared.arena.prefetch(entry & !NODE);
                *way = WayId(entry);
            }
            2
        } else {
            let top = self.shared.top.load(Ordering::Acquire);
            for (index, way) in ways.iter_mut().enumerate() {
                inner.put(index, top);
                *way = WayId(top);
            }
            0
        };
        for depth in start..N {
            if inner.count == 0 {
                break;
            }
            self.descend(addresses, ways, &mut inner, depth);
        }
        // What still names a node after the last byte was read while it changed, or is broken.
        ways.iter_mut().for_each(|way| way.0 &= !NODE);
    }

    /// Goes one level down for all that have been led to a node.
    #[inline(always)]
    fn descend<const N: usize>(
        &self,
        addresses: &[[u8; N]],
        ways: &mut [WayId],
        inner: &mut Inner,
        depth: usize,
    ) {
        let left = core::mem::take(&mut inner.count);
        let mut places = [Place::NOWHERE; BATCH];
        for (place, &index) in places.iter_mut().zip(&inner.list[..left]) {
            let index = usize::from(index);
            let (Some(way), Some(address)) = (ways.get(index), addresses.get(index)) else { continue };
            *place = self.shared.arena.place(way.0 & !NODE, address[depth]);
            place.prefetch();
        }
        for (at, place) in places.iter().enumerate().take(left) {
            let index = usize::from(inner.list[at]);
            let entry = place.load();
            // Never further than what was read: no more are led on than were left.
            inner.put(index, entry);
            self.shared.arena.prefetch(entry & !NODE);
            if let Some(way) = ways.get_mut(index) {
                *way = WayId(entry);
            }
        }
    }
}

/// Which addresses have been led to a node.
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
    fn put(&mut self, index: usize, entry: u32) {
        self.list[self.count % BATCH] = index as u8;
        self.count += usize::from(entry & NODE != 0);
    }
}
