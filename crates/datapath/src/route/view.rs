//! Look-ups.
//!
//! Many at a time: each level of all addresses is looked up before the next, so that the memory of all is
//! on its way at once.

use super::WayId;
use super::arena::{Arena, NODE, Place, Words};
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
        let (words, mut inner) = (self.arena.words(), Inner::new());
        let start = if let Some(direct) = self.arena.direct() {
            for (index, (address, way)) in addresses.iter().zip(ways.iter_mut()).enumerate() {
                let first = usize::from(u16::from_be_bytes([address[0], address[1]]));
                // Acquire pairs with the Releases in `Arena`: who sees an entry sees its node.
                let entry = direct[first].load(Ordering::Acquire);
                words.prefetch_head(entry, address[2]);
                inner = inner.with(index, entry);
                *way = WayId(entry);
            }
            2
        } else {
            let top = self.arena.top();
            for (index, way) in ways.iter_mut().enumerate() {
                inner = inner.with(index, top);
                *way = WayId(top);
            }
            0
        };
        for depth in start..N {
            if inner.count == 0 {
                break;
            }
            inner = descend(words, addresses, ways, inner, depth);
        }
        // What still names a node after the last byte was read while it changed, or is broken.
        ways.iter_mut().for_each(|way| way.0 &= !NODE);
    }
}

/// Goes one level down for all that have been led to a node; returns those that are led on.
#[inline(always)]
fn descend<const N: usize>(
    words: Words<'_>,
    addresses: &[[u8; N]],
    ways: &mut [WayId],
    inner: Inner,
    depth: usize,
) -> Inner {
    let mut places = [Place::default(); BATCH];
    let (places, list) = (&mut places[..inner.count.min(BATCH)], &inner.list);
    for (place, &index) in places.iter_mut().zip(list) {
        let index = usize::from(index);
        let (Some(way), Some(address)) = (ways.get(index), addresses.get(index)) else { continue };
        *place = words.place(way.0, address[depth]);
        words.prefetch(*place);
    }
    let (mut led, next) = (Inner::new(), (depth + 1).min(N - 1));
    for (&place, &index) in places.iter().zip(list) {
        let index = usize::from(index);
        let (Some(way), Some(address)) = (ways.get_mut(index), addresses.get(index)) else { continue };
        *way = WayId(words.load(place));
        words.prefetch_head(way.0, address[next]);
        led = led.with(index, way.0);
    }
    led
}

/// Which addresses have been led to a node.
#[derive(Clone, Copy)]
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
    fn with(mut self, index: usize, entry: u32) -> Self {
        self.list[self.count % BATCH] = index as u8;
        self.count += usize::from(entry & NODE != 0);
        self
    }
}
