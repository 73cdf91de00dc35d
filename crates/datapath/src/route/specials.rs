//! Special source addresses.

use std::net::Ipv4Addr;

/// Kind of a special source address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Address of an interface that Polder owns.
    Polder,
    /// Address of this machine.
    Machine,
    /// Broadcast address of a network.
    Broadcast,
}

/// Set of special source addresses, with a bit filter that excludes most others.
#[derive(Clone, Debug)]
pub(super) struct Specials {
    filter: Box<[u64]>,
    shift: u32,
    /// Sorted by address.
    all: Box<[(u32, Special)]>,
}

/// Filter size: bits per address, and minimum. About one foreign source in 64 passes the filter.
const BITS_AN_ADDRESS: usize = 64;

const LEAST_BITS: usize = 1 << 12;

impl Default for Specials {
    fn default() -> Self {
        Self::new(core::iter::empty())
    }
}

impl Specials {
    pub(super) fn new(all: impl Iterator<Item = (Ipv4Addr, Special)>) -> Self {
        let mut all = all.map(|(address, special)| (address.to_bits(), special)).collect::<Vec<_>>();
        all.sort_by_key(|entry| entry.0);
        all.dedup_by_key(|entry| entry.0);
        let bits = (all.len() * BITS_AN_ADDRESS).next_power_of_two().clamp(LEAST_BITS, 1 << 31);
        let mut specials =
            Self { filter: vec![0; bits / 64].into(), shift: 32 - bits.trailing_zeros(), all: all.into() };
        for &(address, _) in &specials.all {
            let (word, bit) = place(address, specials.shift);
            specials.filter[word] |= bit;
        }
        specials
    }

    /// False if the address is certainly not in the set.
    #[inline(always)]
    pub(super) fn may_have(&self, address: [u8; 4]) -> bool {
        let (word, bit) = place(u32::from_be_bytes(address), self.shift);
        self.filter.get(word).is_some_and(|word| word & bit != 0)
    }

    pub(super) fn get(&self, address: Ipv4Addr) -> Option<Special> {
        let place = self.all.binary_search_by_key(&address.to_bits(), |entry| entry.0).ok()?;
        Some(self.all[place].1)
    }
}

/// Word and bit of an address in the filter.
#[inline(always)]
fn place(address: u32, shift: u32) -> (usize, u64) {
    // Multiplicative hashing: the upper bits of the product depend on the whole address.
    let bit = address.wrapping_mul(0x9e37_79b1) >> shift;
    ((bit / 64) as usize, 1 << (bit % 64))
}
