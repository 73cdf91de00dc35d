//! Next-hop table: hops, groups of hops, and entries that end a packet's path.

use super::{HashPolicy, InterfaceId, NextHopId, Prefix};
use crate::next_hop::NextHop;
use crate::wire::MacAddress;
use std::net::IpAddr;
use std::sync::Arc;

/// Number of hash values.
const HASHES: u64 = 1 << 32;
/// Maximum number of hash ranges per member of a group; beyond, all ranges are assigned anew.
const RANGES_A_MEMBER: usize = 16;

/// Next hop: a neighbour on an interface.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Egress interface.
    pub interface: InterfaceId,
    /// MAC address of the router on the interface.
    pub source: MacAddress,
    /// Maximum IP packet size in bytes.
    pub mtu: u16,
    /// True if the carrier fragments larger packets below IP, as IPv6 requires up to 1280 bytes (RFC 8200,
    /// 5).
    pub cuts: bool,
    /// IP address of the neighbour, used to resolve it.
    pub address: IpAddr,
    /// Link-layer address of the neighbour; updated at any time by the control thread.
    pub neighbour: Arc<NextHop>,
}

impl Hop {
    /// True if both hops have the same fields and share the neighbour entry.
    pub(super) fn is(&self, other: &Self) -> bool {
        let fields = |hop: &Self| (hop.interface, hop.source, hop.mtu, hop.cuts, hop.address);
        fields(self) == fields(other) && Arc::ptr_eq(&self.neighbour, &other.neighbour)
    }
}

/// A route that only the kernel can follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelRoute {
    /// Interfaces of the router among the kernel's possible egress interfaces.
    pub interfaces: Box<[InterfaceId]>,
    /// True if one of the interfaces has a filter that the kernel's path would bypass: packets are dropped.
    pub is_filtered: bool,
}

/// Entry of the next-hop table.
#[derive(Clone, Debug)]
pub enum NextHopEntry {
    /// A neighbour.
    Hop(Hop),
    /// A group of hops that share flows.
    Group(NextHopGroup),
    /// Drop silently.
    Blackhole,
    /// Drop, with an ICMP error.
    Unreachable,
    /// An interface that is gone or down: drop, with an ICMP error.
    Elsewhere,
    /// The kernel forwards the packet: by an interface outside of the router, or by one of several next hops,
    /// one of which is outside.
    Kernel(KernelRoute),
    /// By the packet's source: the entry of the first network in the list that contains it.
    BySource(Arc<[(Prefix, NextHopId)]>),
    /// Drop, with an ICMP error "administratively prohibited".
    Prohibit,
    /// A connected network: the neighbour is the destination itself; [`Router::set_neighbour`] adds a host
    /// route for each resolved neighbour.
    ///
    /// [`Router::set_neighbour`]: super::Router::set_neighbour
    Connected(InterfaceId),
    /// Local delivery.
    Local,
    /// Directed broadcast of a connected network: not forwarded (RFC 2644).
    Broadcast,
}

/// All next hops; built by the control thread, published as a snapshot, replaced whole.
#[derive(Clone, Debug, Default)]
pub struct NextHopTable {
    all: Vec<NextHopEntry>,
    /// Multipath hash policies for IPv4 and IPv6.
    hashes: [HashPolicy; 2],
}

impl NextHopTable {
    /// An empty table.
    pub const fn new() -> Self {
        Self { all: Vec::new(), hashes: [HashPolicy::Addresses; 2] }
    }

    /// Multipath hash policy of a family.
    #[inline]
    pub fn hash_policy(&self, is_v6: bool) -> HashPolicy {
        self.hashes[usize::from(is_v6)]
    }

    /// Sets the multipath hash policies for IPv4 and IPv6; returns true if they changed.
    pub fn set_hash_policies(&mut self, hashes: [HashPolicy; 2]) -> bool {
        core::mem::replace(&mut self.hashes, hashes) != hashes
    }

    /// Adds an entry and returns its id, for use by routes; `None` if all ids are in use.
    pub fn push(&mut self, way: NextHopEntry) -> Option<NextHopId> {
        let id = NextHopId::new(u32::try_from(self.all.len() + 1).ok()?)?;
        self.all.push(way);
        Some(id)
    }

    /// Replaces entry `id`; false if it does not exist.
    pub fn replace(&mut self, id: NextHopId, way: NextHopEntry) -> bool {
        let place = (id.get() as usize).checked_sub(1).and_then(|index| self.all.get_mut(index));
        place.map(|place| *place = way).is_some()
    }

    /// Entry of an id; `None` for [`NextHopId::NONE`] and unknown ids.
    #[inline(always)]
    pub fn get(&self, id: NextHopId) -> Option<&NextHopEntry> {
        (id.get() as usize).checked_sub(1).and_then(|index| self.all.get(index))
    }

    /// Resolves [`NextHopEntry::BySource`]: the entry of the first network that contains `source`. Other
    /// entries are returned unchanged.
    #[inline]
    pub fn for_source(&self, found: NextHopId, source: IpAddr) -> NextHopId {
        let Some(NextHopEntry::BySource(networks)) = self.get(found) else { return found };
        let network = networks.iter().find(|(network, _)| network.contains(source));
        network.map_or(NextHopId::NONE, |(_, entry)| *entry)
    }

    /// Hop of a flow: the entry itself, or the group member that the hash selects; `None` if that is no hop.
    #[inline]
    pub fn hop(&self, id: NextHopId, flow_hash: u32) -> Option<&Hop> {
        match self.get(id)? {
            NextHopEntry::Hop(hop) => Some(hop),
            NextHopEntry::Group(group) => match self.get(group.member(flow_hash))? {
                NextHopEntry::Hop(hop) => Some(hop),
                NextHopEntry::Group(_)
                | NextHopEntry::Connected(_)
                | NextHopEntry::Blackhole
                | NextHopEntry::Unreachable
                | NextHopEntry::Elsewhere
                | NextHopEntry::Kernel(_)
                | NextHopEntry::BySource(_)
                | NextHopEntry::Prohibit
                | NextHopEntry::Local
                | NextHopEntry::Broadcast => None,
            },
            NextHopEntry::Connected(_)
            | NextHopEntry::Blackhole
            | NextHopEntry::Unreachable
            | NextHopEntry::Elsewhere
            | NextHopEntry::Kernel(_)
            | NextHopEntry::BySource(_)
            | NextHopEntry::Prohibit
            | NextHopEntry::Local
            | NextHopEntry::Broadcast => None,
        }
    }
}

/// Next-hop group: hops that share flows by weight, by hash-threshold (RFC 2992) with ranges that stay with
/// their hops.
///
/// Hash values are divided into ranges, each assigned to a hop; a hop's ranges add up exactly to its weight's
/// share of 2³². If a member leaves, only its ranges are reassigned, so no other flow moves. A new member
/// gets ends of ranges from members that exceed their share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHopGroup {
    /// Last hash value of each range and its hop, in ascending order.
    ranges: Box<[(u32, NextHopId)]>,
}

/// Error in a next-hop group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopGroupError {
    /// There is no member with a weight.
    #[error("a next-hop group needs a member whose weight is not 0")]
    Empty,
}

impl NextHopGroup {
    /// Group of these hops and weights.
    ///
    /// # Errors
    /// If no member has a weight.
    pub fn new(members: &[(NextHopId, u16)]) -> Result<Self, NextHopGroupError> {
        let empty = Self { ranges: Box::default() };
        empty.with_members(members)
    }

    /// The same group with other members; remaining members keep their ranges as far as their share allows.
    ///
    /// # Errors
    /// If no member has a weight.
    pub fn with_members(&self, members: &[(NextHopId, u16)]) -> Result<Self, NextHopGroupError> {
        let mut shares = shares(members)?;
        let mut kept = Vec::with_capacity(self.ranges.len() + members.len());
        for (length, hop) in self.lengths() {
            let missing = shares.iter_mut().find(|share| share.0 == hop).map(|share| &mut share.1);
            let stays = missing.map_or(0, |missing| {
                let stays = length.min(*missing);
                *missing -= stays;
                stays
            });
            kept.extend([(stays, Some(hop)), (length - stays, None)]);
        }
        if self.ranges.is_empty() {
            kept.push((HASHES, None));
        }
        let ranges = fill(&kept, &mut shares);
        if ranges.len() > RANGES_A_MEMBER * members.len() && !self.ranges.is_empty() {
            return Self::new(members);
        }
        Ok(Self { ranges: ranges.into() })
    }

    /// Length of each range, and its hop.
    fn lengths(&self) -> impl Iterator<Item = (u64, NextHopId)> + '_ {
        let starts = core::iter::once(0).chain(self.ranges.iter().map(|&(last, _)| u64::from(last) + 1));
        self.ranges.iter().zip(starts).map(|(&(last, hop), start)| (u64::from(last) + 1 - start, hop))
    }

    /// Hops of all ranges.
    pub fn hops(&self) -> impl Iterator<Item = NextHopId> + '_ {
        self.ranges.iter().map(|&(_, hop)| hop)
    }

    /// Hop of a flow with this hash.
    #[inline(always)]
    pub fn member(&self, flow_hash: u32) -> NextHopId {
        let place = self.ranges.partition_point(|&(last, _)| last < flow_hash);
        self.ranges.get(place).map_or(NextHopId::NONE, |&(_, hop)| hop)
    }
}

/// Number of hash values per hop; weights of duplicate hops are added.
fn shares(members: &[(NextHopId, u16)]) -> Result<Vec<(NextHopId, u64)>, NextHopGroupError> {
    let total: u64 = members.iter().map(|member| u64::from(member.1)).sum();
    if total == 0 {
        return Err(NextHopGroupError::Empty);
    }
    let (mut shares, mut weight) = (Vec::<(NextHopId, u64)>::with_capacity(members.len()), 0);
    let bound = |weight: u64| (HASHES * weight + total / 2) / total;
    for &(hop, own) in members {
        let share = bound(weight + u64::from(own)) - bound(weight);
        weight += u64::from(own);
        match shares.iter_mut().find(|share| share.0 == hop) {
            Some(known) => known.1 += share,
            None => shares.push((hop, share)),
        }
    }
    Ok(shares)
}

/// Assigns unassigned ranges to hops below their share, and merges adjacent ranges of the same hop.
fn fill(parts: &[(u64, Option<NextHopId>)], shares: &mut [(NextHopId, u64)]) -> Vec<(u32, NextHopId)> {
    let (mut ranges, mut end) = (Vec::<(u32, NextHopId)>::new(), 0_u64);
    let mut put = |length: u64, hop: NextHopId| {
        end += length;
        // An empty range has no last value, and no range exceeds the last hash.
        let Some(last) = end.checked_sub(1).and_then(|last| u32::try_from(last).ok()) else { return };
        match ranges.last_mut() {
            _ if length == 0 => {}
            Some(range) if range.1 == hop => range.0 = last,
            Some(_) | None => ranges.push((last, hop)),
        }
    };
    let mut lacking = shares.iter_mut();
    let mut current = lacking.next();
    for &(length, hop) in parts {
        if let Some(hop) = hop {
            put(length, hop);
            continue;
        }
        let mut left = length;
        while let Some(share) = current.as_mut().filter(|_| left > 0) {
            let taken = left.min(share.1);
            put(taken, share.0);
            share.1 -= taken;
            left -= taken;
            if share.1 == 0 {
                current = lacking.next();
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::PortId;
    use proptest::prelude::*;

    fn id(number: u32) -> NextHopId {
        NextHopId::new(number).expect("a small number")
    }

    proptest! {
        /// A member that leaves moves no flow of the others; the shares are about equal.
        #[test]
        fn a_member_that_leaves_moves_no_flow_of_others(count in 2_u32..40, leaver in 0_u32..40) {
            let leaver = id(leaver % count + 1);
            let members: Vec<_> = (1..=count).map(|number| (id(number), 1)).collect();
            let before = NextHopGroup::new(&members).unwrap();
            let left: Vec<_> = members.iter().copied().filter(|member| member.0 != leaver).collect();
            let after = before.with_members(&left).unwrap();
            for flow in (0..=u32::MAX).step_by(0x0010_0007) {
                let (was, is) = (before.member(flow), after.member(flow));
                prop_assert!(is != leaver);
                prop_assert!(was == leaver || was == is, "{flow}: {was:?} {is:?}");
            }
            for &(member, _) in &left {
                prop_assert!(of(&after, member).abs_diff(HASHES / left.len() as u64) <= 1);
            }
        }

        /// With any history, each hop has its weight's share exactly, and a hop keeps as many flows
        /// as it may.
        #[test]
        fn shares_are_exact_and_stay(steps in prop::collection::vec(prop::collection::vec((1_u32..9, 0_u16..300), 1..9), 1..12)) {
            let mut group: Option<NextHopGroup> = None;
            for members in steps {
                let members: Vec<_> = members.into_iter().map(|(number, weight)| (id(number), weight)).collect();
                let next = group.as_ref().map_or_else(|| NextHopGroup::new(&members), |group| group.with_members(&members));
                let Ok(next) = next else { continue };
                for &(hop, share) in &shares(&members).unwrap() {
                    prop_assert_eq!(of(&next, hop), share);
                }
                prop_assert_eq!(next.lengths().map(|(length, _)| length).sum::<u64>(), HASHES);
                prop_assert!(next.ranges.len() <= RANGES_A_MEMBER * members.len());
                group = Some(next);
            }
        }
    }

    /// Hashes that lead to a hop.
    fn of(group: &NextHopGroup, hop: NextHopId) -> u64 {
        group.lengths().filter(|&(_, other)| other == hop).map(|(length, _)| length).sum()
    }

    #[test]
    fn weights_and_nobody() {
        let group = NextHopGroup::new(&[(id(1), 11), (id(2), 45), (id(3), 0)]).unwrap();
        let share = of(&group, id(1));
        assert_eq!(share, (HASHES * 11 + 28) / 56, "to the last hash");
        assert_eq!((of(&group, id(2)), of(&group, id(3))), (HASHES - share, 0));
        assert_eq!((group.member(0), group.member(u32::MAX)), (id(1), id(2)));
        assert_eq!(NextHopGroup::new(&[]), Err(NextHopGroupError::Empty));
        assert_eq!(NextHopGroup::new(&[(id(1), 0)]), Err(NextHopGroupError::Empty));
    }

    #[test]
    fn the_hop_of_a_group_is_that_of_the_flow() {
        let hop = |port| {
            NextHopEntry::Hop(Hop {
                interface: InterfaceId::untagged(PortId(port)),
                source: MacAddress::ZERO,
                mtu: 1500,
                cuts: false,
                address: IpAddr::from([10, 0, 0, 1]),
                neighbour: Arc::default(),
            })
        };
        let mut next_hops = NextHopTable::new();
        let members = [next_hops.push(hop(1)).unwrap(), next_hops.push(hop(2)).unwrap()];
        let group = next_hops
            .push(NextHopEntry::Group(NextHopGroup::new(&members.map(|member| (member, 1))).unwrap()))
            .unwrap();
        let end = next_hops.push(NextHopEntry::Blackhole).unwrap();
        let ports: std::collections::HashSet<_> =
            (0..64).map(|flow| next_hops.hop(group, flow << 26).unwrap().interface.port).collect();
        assert_eq!(ports.len(), 2);
        assert!(next_hops.hop(end, 0).is_none() && next_hops.hop(NextHopId::NONE, 0).is_none());
    }
}
