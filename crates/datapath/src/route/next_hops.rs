//! Results of look-ups: hops, groups of hops, and ends.

use super::{HashPolicy, InterfaceId, NextHopId, Prefix};
use crate::next_hop::NextHop;
use crate::wire::MacAddress;
use std::net::IpAddr;
use std::sync::Arc;

/// All hashes.
const HASHES: u64 = 1 << 32;
/// Ranges of a group for each of its members, at most; with more the group is laid out afresh.
const RANGES_A_MEMBER: usize = 16;

/// A neighbour on an interface.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Interface of the hop.
    pub interface: InterfaceId,
    /// The router's link-layer address there.
    pub source: MacAddress,
    /// The largest IP packet that is sent there, in bytes.
    pub mtu: u16,
    /// True if its carrier fragments, below IP, larger packets that IPv6 requires it to carry (RFC 8200, 5).
    pub cuts: bool,
    /// The neighbour's own address, by which it is asked for.
    pub address: IpAddr,
    /// The neighbour's link-layer address; who resolves it writes it at any time.
    pub neighbour: Arc<NextHop>,
}

impl Hop {
    /// True if another hop is the same in every respect, and has the same neighbour.
    pub(super) fn is(&self, other: &Self) -> bool {
        let fields = |hop: &Self| (hop.interface, hop.source, hop.mtu, hop.cuts, hop.address);
        fields(self) == fields(other) && Arc::ptr_eq(&self.neighbour, &other.neighbour)
    }
}

/// A route that the kernel follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelRoute {
    /// Interfaces of the router among those that the kernel may send by.
    pub interfaces: Box<[InterfaceId]>,
    /// True if one of them has a filter that would not see what the kernel sends: packets are dropped.
    pub is_filtered: bool,
}

/// Result of a look-up.
#[derive(Clone, Debug)]
pub enum NextHopEntry {
    /// To a neighbour.
    Hop(Hop),
    /// To one of several, by flow.
    Group(NextHopGroup),
    /// Nowhere, silently.
    Blackhole,
    /// Nowhere; the sender is told.
    Unreachable,
    /// By an interface that is gone or down: the sender is told.
    Elsewhere,
    /// The kernel forwards the packet: by an interface that is none of the router's, or by one of several next hops
    /// of which one is.
    Kernel(KernelRoute),
    /// By the packet's source: the entry of the first network in the list that contains it.
    BySource(Arc<[(Prefix, NextHopId)]>),
    /// Administratively prohibited; the sender gets a message.
    Prohibit,
    /// To a neighbour with the destination's own address, on a connected network; [`Router::set_neighbour`]
    /// leads to each that is known.
    ///
    /// [`Router::set_neighbour`]: super::Router::set_neighbour
    Connected(InterfaceId),
    /// To this host.
    Local,
    /// To all stations of a connected network: not forwarded (RFC 2644).
    Broadcast,
}

/// All next hops; built by a control thread, shared by a snapshot, replaced whole.
#[derive(Clone, Debug, Default)]
pub struct NextHopTable {
    all: Vec<NextHopEntry>,
    /// Hash policies for IPv4 and IPv6: the fields that choose a member of a group.
    hashes: [HashPolicy; 2],
}

impl NextHopTable {
    /// No way.
    pub const fn new() -> Self {
        Self { all: Vec::new(), hashes: [HashPolicy::Addresses; 2] }
    }

    /// Hash policy: the fields of a packet that choose a member of a group.
    #[inline]
    pub fn hash_policy(&self, is_v6: bool) -> HashPolicy {
        self.hashes[usize::from(is_v6)]
    }

    /// Lets other fields choose members of groups, for IPv4 and IPv6; true if that is a change.
    pub fn set_hash_policies(&mut self, hashes: [HashPolicy; 2]) -> bool {
        core::mem::replace(&mut self.hashes, hashes) != hashes
    }

    /// Adds a way; its id, which routes are given. `None` when there are as many as ids.
    pub fn push(&mut self, way: NextHopEntry) -> Option<NextHopId> {
        let id = NextHopId::new(u32::try_from(self.all.len() + 1).ok()?)?;
        self.all.push(way);
        Some(id)
    }

    /// Puts another way in the place of one; whether there was one.
    pub fn replace(&mut self, id: NextHopId, way: NextHopEntry) -> bool {
        let place = (id.get() as usize).checked_sub(1).and_then(|index| self.all.get_mut(index));
        place.map(|place| *place = way).is_some()
    }

    /// The way of an id; `None` for [`NextHopId::NONE`] and what was never added.
    #[inline(always)]
    pub fn get(&self, id: NextHopId) -> Option<&NextHopEntry> {
        (id.get() as usize).checked_sub(1).and_then(|index| self.all.get(index))
    }

    /// The entry for packets from `source`: that of the first network of a [`NextHopEntry::BySource`] that contains it.
    #[inline]
    pub fn for_source(&self, found: NextHopId, source: IpAddr) -> NextHopId {
        let Some(NextHopEntry::BySource(networks)) = self.get(found) else { return found };
        let network = networks.iter().find(|(network, _)| network.contains(source));
        network.map_or(NextHopId::NONE, |(_, entry)| *entry)
    }

    /// The hop of a flow: of the way itself, or of the member of its group that the flow belongs to.
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

/// Hops that share the flows, by weight: hash-threshold (RFC 2992) over ranges that stay with their hops.
///
/// All hashes are cut into ranges, each of which leads to a hop; the sum of a hop's ranges is its weight's share
/// of 2³², exactly. When a member leaves, its ranges go to the others and all other ranges stay, so no flow moves
/// that need not. When a member comes, it takes the ends of ranges from members that have more than their share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHopGroup {
    /// The last hash of each range and its hop, in order.
    ranges: Box<[(u32, NextHopId)]>,
}

/// A group that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopGroupError {
    /// No member, or none with a weight.
    #[error("a group of next hops needs a member with a weight")]
    Empty,
}

impl NextHopGroup {
    /// A group of these hops with their weights.
    ///
    /// # Errors
    /// When there is none with a weight.
    pub fn new(members: &[(NextHopId, u16)]) -> Result<Self, NextHopGroupError> {
        let empty = Self { ranges: Box::default() };
        empty.with_members(members)
    }

    /// The same group with other members: hashes of those that stay, stay as far as their share allows.
    ///
    /// # Errors
    /// When there is none with a weight.
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

    /// Hashes of each range, and the hop that has it.
    fn lengths(&self) -> impl Iterator<Item = (u64, NextHopId)> + '_ {
        let starts = core::iter::once(0).chain(self.ranges.iter().map(|&(last, _)| u64::from(last) + 1));
        self.ranges.iter().zip(starts).map(|(&(last, hop), start)| (u64::from(last) + 1 - start, hop))
    }

    /// The hops of all ranges.
    pub fn hops(&self) -> impl Iterator<Item = NextHopId> + '_ {
        self.ranges.iter().map(|&(_, hop)| hop)
    }

    /// The hop of a flow.
    #[inline(always)]
    pub fn member(&self, flow_hash: u32) -> NextHopId {
        let place = self.ranges.partition_point(|&(last, _)| last < flow_hash);
        self.ranges.get(place).map_or(NextHopId::NONE, |&(_, hop)| hop)
    }
}

/// The hashes that each hop is to have; a hop that is given twice has the sum.
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

/// Gives the parts that no hop has to those that lack some, and joins neighbours of the same hop.
fn fill(parts: &[(u64, Option<NextHopId>)], shares: &mut [(NextHopId, u64)]) -> Vec<(u32, NextHopId)> {
    let (mut ranges, mut end) = (Vec::<(u32, NextHopId)>::new(), 0_u64);
    let mut put = |length: u64, hop: NextHopId| {
        end += length;
        // Beyond the last hash there is nothing, and an empty part ends nowhere.
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
