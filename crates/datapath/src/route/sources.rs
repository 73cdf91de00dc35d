//! Sources of IPv4 packets, checked as the kernel checks them before it forwards (`fib_validate_source`).
//!
//! In: a packet whose way is known. Exits: `OwnSource`, `ReversePath`, `MartianSource`. IPv6 is not checked: the
//! kernel does not do it either.
//! Cost: one bit of a filter for each packet; where `rp_filter` is set, one more look-up of a route, batched like
//! the first. Source: RFC 3704; Documentation/networking/ip-sysctl.rst.

use super::{Interface, InterfaceId, NextHopEntry, NextHopId, NextHopTable, Routers};
use crate::drops::DropReason;
use std::net::{IpAddr, Ipv4Addr};

/// The kernel's `rp_filter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReversePath {
    /// Sources may be anywhere.
    #[default]
    Off,
    /// A route leads to the source by the interface that the packet came in by (RFC 3704, 2.2).
    Strict,
    /// Some route leads to the source (RFC 3704, 2.4).
    Loose,
}

/// Check of the sources of IPv4 packets that come in by an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCheck {
    /// `rp_filter`, the higher one of `all` and the interface.
    pub reverse_path: ReversePath,
    /// True if packets may have a source of this machine: `accept_local`.
    pub accept_local: bool,
    /// True if a packet that leaves by the interface it came in by has its source looked up: `send_redirects`.
    pub redirects: bool,
    /// True if each source is looked up although `rp_filter` is off: the kernel has rules or local routes beyond
    /// those of its addresses.
    pub always: bool,
    /// True if the machine itself is a station behind the interface, and sends with its own addresses.
    pub machine: bool,
}

impl SourceCheck {
    /// True if the route to each source is looked up.
    #[inline]
    pub(super) fn looks_up(self) -> bool {
        self.always || self.reverse_path != ReversePath::Off
    }
}

/// An address that is special as a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Of a router's interface that only Polder has.
    Polder,
    /// Of the machine.
    Machine,
    /// For all stations of a network.
    Broadcast,
}

/// Addresses that are special as sources; a filter of bits is asked first.
#[derive(Clone, Debug)]
pub(super) struct Specials {
    filter: Box<[u64]>,
    shift: u32,
    /// By address.
    all: Box<[(u32, Special)]>,
}

/// Bits of the filter for each address, and at least: one foreign source in 64 has a second look.
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

    /// False for an address that is none of them.
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

/// The word of the filter, and the bit in it, that an address has.
#[inline(always)]
fn place(address: u32, shift: u32) -> (usize, u64) {
    // Multiplicative hashing: the upper bits of the product depend on all of the address.
    let bit = address.wrapping_mul(0x9e37_79b1) >> shift;
    ((bit / 64) as usize, 1 << (bit % 64))
}

/// Source of a packet and its properties.
pub(super) struct Origin<'a> {
    pub(super) source: Ipv4Addr,
    pub(super) special: Option<Special>,
    /// The route to it, where it was looked up.
    pub(super) found: Option<NextHopId>,
    /// The interface that the packet came in by.
    pub(super) arrival: &'a Interface,
}

impl<'a> Origin<'a> {
    /// The source of a packet that came in by `arrival`; `None` for IPv6.
    pub(super) fn of(
        source: IpAddr,
        found: Option<NextHopId>,
        arrival: &'a Interface,
        routers: &Routers,
    ) -> Option<Self> {
        let IpAddr::V4(source) = source else { return None };
        Some(Self { source, special: routers.specials().get(source), found, arrival })
    }

    /// The reason to drop the packet, which leaves by `egress` or is for this machine.
    #[cold]
    pub(super) fn refusal(
        &self,
        egress: Option<InterfaceId>,
        next_hops: &NextHopTable,
    ) -> Option<DropReason> {
        let check = self.arrival.sources;
        let is_own = match self.special {
            Some(Special::Polder) => true,
            Some(Special::Machine) => !check.machine,
            Some(Special::Broadcast) | None => false,
        };
        let turns_back = check.redirects && egress == Some(self.arrival.id);
        if is_own && !check.accept_local {
            return Some(DropReason::OwnSource);
        }
        if !check.looks_up() && !turns_back {
            return None;
        }
        if self.special == Some(Special::Broadcast) {
            return Some(DropReason::MartianSource);
        }
        let found = self.found.map(|found| (found, next_hops.get(found)));
        match found {
            Some((_, Some(NextHopEntry::Local))) if !check.accept_local && !is_own => {
                Some(DropReason::OwnSource)
            }
            Some((_, Some(NextHopEntry::Broadcast))) => Some(DropReason::MartianSource),
            Some((found, _)) if !passes(found, self.arrival, next_hops, Some(self.source)) => {
                Some(DropReason::ReversePath)
            }
            Some(_) | None => None,
        }
    }
}

/// True if `rp_filter` lets a packet pass to whose source a route leads. A route to this machine wants its `source`.
#[inline]
pub(super) fn passes(
    found: NextHopId,
    arrival: &Interface,
    next_hops: &NextHopTable,
    source: Option<Ipv4Addr>,
) -> bool {
    let reverse_path = arrival.sources.reverse_path;
    let is_back = |way: &NextHopEntry| match way {
        NextHopEntry::Hop(hop) => hop.interface == arrival.id,
        NextHopEntry::Connected(interface) => *interface == arrival.id,
        NextHopEntry::Kernel(route) => route.interfaces.contains(&arrival.id),
        NextHopEntry::Group(_)
        // Routes of IPv6 alone have sources, which are not checked.
        | NextHopEntry::BySource(_)
        | NextHopEntry::Blackhole
        | NextHopEntry::Unreachable
        | NextHopEntry::Elsewhere
        | NextHopEntry::Prohibit
        | NextHopEntry::Local
        | NextHopEntry::Broadcast => false,
    };
    let leads_back = match next_hops.get(found) {
        None | Some(NextHopEntry::Blackhole | NextHopEntry::Unreachable | NextHopEntry::Prohibit) => {
            return reverse_path == ReversePath::Off;
        }
        Some(NextHopEntry::Broadcast) => return false,
        Some(NextHopEntry::Local) if source.is_none() => return false,
        Some(NextHopEntry::Group(group)) => group.hops().any(|hop| next_hops.get(hop).is_some_and(is_back)),
        Some(NextHopEntry::Local) => source.is_some_and(|source| arrival.has(source.into())),
        Some(
            way @ (NextHopEntry::Hop(_)
            | NextHopEntry::Connected(_)
            | NextHopEntry::Elsewhere
            | NextHopEntry::Kernel(_)
            | NextHopEntry::BySource(_)),
        ) => is_back(way),
    };
    match reverse_path {
        ReversePath::Off => true,
        ReversePath::Strict => leads_back,
        // An interface without addresses has nobody behind it.
        ReversePath::Loose => {
            leads_back || arrival.addresses.iter().any(|own| matches!(own.address, IpAddr::V4(_)))
        }
    }
}
