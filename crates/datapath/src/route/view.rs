//! Look-ups.
//!
//! Many at a time: each level of all addresses is looked up before the next, so that the memory of all is
//! on its way at once.

use super::WayId;
use super::arena::NODE;
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
    /// of all addresses are fetched side by side.
    #[inline]
    pub fn lookup_all<const N: usize>(&self, addresses: &[[u8; N]], ways: &mut [WayId]) {
        const { assert!(N >= 4, "four bytes or sixteen") };
        let mut entries = [0_u32; BATCH];
        let count = addresses.len().min(ways.len()).min(BATCH);
        let (addresses, entries) = (&addresses[..count], &mut entries[..count]);
        let mut left = 0_u32;
        // Acquire pairs with the Releases in `Fib`: who sees an entry sees its node.
        let start = if let Some(direct) = self.shared.direct.get() {
            for (address, entry) in addresses.iter().zip(entries.iter_mut()) {
                let index = u16::from_be_bytes([address[0], address[1]]);
                *entry = direct.get(usize::from(index)).map_or(0, |entry| entry.load(Ordering::Acquire));
                left |= self.follow(*entry);
            }
            2
        } else {
            let top = self.shared.top.load(Ordering::Acquire);
            entries.fill(top);
            left |= top;
            0
        };
        for depth in start..N {
            if left & NODE == 0 {
                break;
            }
            left = 0;
            let inner = addresses.iter().zip(entries.iter_mut()).filter(|(_, entry)| **entry & NODE != 0);
            inner.for_each(|(address, entry)| {
                *entry = self.shared.arena.entry(*entry & !NODE, address[depth]);
                left |= self.follow(*entry);
            });
        }
        ways.iter_mut().zip(entries.iter()).for_each(|(way, &entry)| *way = WayId(entry & !NODE));
    }

    /// Fetches the node that an entry leads to, if it leads to one.
    #[inline(always)]
    fn follow(&self, entry: u32) -> u32 {
        if entry & NODE != 0 {
            self.shared.arena.prefetch(entry & !NODE);
        }
        entry
    }
}
