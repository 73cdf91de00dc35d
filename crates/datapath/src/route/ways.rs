//! Where routes lead: hops, groups of hops, and ends.

use super::{InterfaceId, WayId};
use crate::tunnel::NextHop;
use crate::wire::MacAddress;
use std::net::IpAddr;
use std::sync::Arc;

/// Buckets of a group for each of its members, at least.
const BUCKETS_A_MEMBER: usize = 16;
/// Buckets of the largest group.
const MOST_BUCKETS: usize = 1 << 12;

/// A neighbour on an interface.
#[derive(Clone, Debug)]
pub struct Hop {
    /// Where it is.
    pub interface: InterfaceId,
    /// The router's link-layer address there.
    pub source: MacAddress,
    /// The largest IP packet that is sent there, in bytes.
    pub mtu: u16,
    /// Whether what carries it cuts, below IP, packets that IPv6 asks it to carry and that are larger (RFC 8200,
    /// 5).
    pub cuts: bool,
    /// The neighbour's own address, by which it is asked for.
    pub address: IpAddr,
    /// The neighbour's link-layer address; who resolves it writes it at any time.
    pub neighbour: Arc<NextHop>,
}

/// What is at the end of a look-up.
#[derive(Clone, Debug)]
pub enum Way {
    /// To a neighbour.
    Hop(Hop),
    /// To one of several, by flow.
    Group(Group),
    /// Nowhere, silently.
    Blackhole,
    /// Nowhere; the sender is told.
    Unreachable,
    /// Nowhere, because somebody does not want it; the sender is told.
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

/// All ways; built by a control thread, shared by a snapshot, replaced whole.
#[derive(Clone, Debug, Default)]
pub struct Ways(Vec<Way>);

impl Ways {
    /// No way.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a way; its id, which routes are given. `None` when there are as many as ids.
    pub fn push(&mut self, way: Way) -> Option<WayId> {
        let id = WayId::new(u32::try_from(self.0.len() + 1).ok()?)?;
        self.0.push(way);
        Some(id)
    }

    /// Puts another way in the place of one; whether there was one.
    pub fn replace(&mut self, id: WayId, way: Way) -> bool {
        let place = (id.get() as usize).checked_sub(1).and_then(|index| self.0.get_mut(index));
        place.map(|place| *place = way).is_some()
    }

    /// The way of an id; `None` for [`WayId::NONE`] and what was never added.
    #[inline(always)]
    pub fn get(&self, id: WayId) -> Option<&Way> {
        (id.get() as usize).checked_sub(1).and_then(|index| self.0.get(index))
    }

    /// The hop of a flow: of the way itself, or of the member of its group that the flow belongs to.
    #[inline]
    pub fn hop(&self, id: WayId, flow_hash: u32) -> Option<&Hop> {
        match self.get(id)? {
            Way::Hop(hop) => Some(hop),
            Way::Group(group) => match self.get(group.member(flow_hash))? {
                Way::Hop(hop) => Some(hop),
                Way::Group(_)
                | Way::Connected(_)
                | Way::Blackhole
                | Way::Unreachable
                | Way::Prohibit
                | Way::Local
                | Way::Broadcast => None,
            },
            Way::Connected(_)
            | Way::Blackhole
            | Way::Unreachable
            | Way::Prohibit
            | Way::Local
            | Way::Broadcast => None,
        }
    }
}

/// Hops that share the flows, by weight.
///
/// A flow's hash finds a bucket, the bucket a hop. When a member leaves, its buckets go to the others and
/// all other buckets stay, so no flow moves that need not. When a member comes, it takes buckets from those
/// that have more than their share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// A power of two.
    buckets: Box<[WayId]>,
}

/// A group that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// No member, or none with a weight.
    #[error("a group of next hops needs a member with a weight")]
    Empty,
    /// More members than buckets.
    #[error("{0} next hops in a group; at most {MOST_BUCKETS}")]
    TooMany(usize),
}

impl Group {
    /// A group of these hops with their weights.
    ///
    /// # Errors
    /// When there is none with a weight, or too many.
    pub fn new(members: &[(WayId, u16)]) -> Result<Self, GroupError> {
        let empty = Self { buckets: Box::default() };
        empty.with_members(members)
    }

    /// The same group with other members: buckets of those who stay, stay as far as their share allows.
    ///
    /// # Errors
    /// When there is none with a weight, or too many.
    pub fn with_members(&self, members: &[(WayId, u16)]) -> Result<Self, GroupError> {
        let total: usize = members.iter().map(|member| usize::from(member.1)).sum();
        if total == 0 {
            return Err(GroupError::Empty);
        }
        if members.len() > MOST_BUCKETS {
            return Err(GroupError::TooMany(members.len()));
        }
        let wanted = (members.len() * BUCKETS_A_MEMBER).next_power_of_two().min(MOST_BUCKETS);
        // A group never shrinks and doubles by repetition, so that buckets keep their flows.
        let count = wanted.max(self.buckets.len());
        let old = (0..count).map(|index| match self.buckets.len() {
            0 => WayId::NONE,
            before => self.buckets[index % before],
        });
        let mut shares: Vec<Share> = members.iter().map(|&member| Share::new(member, total, count)).collect();
        let mut buckets: Vec<WayId> = old.map(|hop| keep(hop, &mut shares)).collect();
        for bucket in buckets.iter_mut().filter(|bucket| **bucket == WayId::NONE) {
            if let Some(share) = shares.iter_mut().max_by_key(|share| share.missing(total)) {
                share.has += 1;
                *bucket = share.hop;
            }
        }
        Ok(Self { buckets: buckets.into() })
    }

    /// The bucket of a flow, how many there are, and the hop that has it.
    pub fn bucket(&self, flow_hash: u32) -> ((usize, usize), WayId) {
        let bucket = flow_hash as usize & self.buckets.len().wrapping_sub(1);
        ((bucket, self.buckets.len()), self.member(flow_hash))
    }

    /// The hop of a flow.
    #[inline(always)]
    pub fn member(&self, flow_hash: u32) -> WayId {
        let index = flow_hash as usize & self.buckets.len().wrapping_sub(1);
        self.buckets.get(index).copied().unwrap_or(WayId::NONE)
    }
}

/// What one member has of the buckets, and what it ought to have.
struct Share {
    hop: WayId,
    has: usize,
    /// Its share of the buckets, rounded up.
    most: usize,
    /// Its share of the buckets, times the sum of all weights.
    fair: usize,
}

impl Share {
    fn new((hop, weight): (WayId, u16), total: usize, count: usize) -> Self {
        let fair = count * usize::from(weight);
        Self { hop, has: 0, most: fair.div_ceil(total), fair }
    }

    /// How much it lacks, times the sum of all weights.
    fn missing(&self, total: usize) -> isize {
        self.fair.cast_signed() - (self.has * total).cast_signed()
    }
}

/// The hop, if it may have another bucket.
fn keep(hop: WayId, shares: &mut [Share]) -> WayId {
    match shares.iter_mut().find(|share| share.hop == hop && share.has < share.most) {
        Some(share) => {
            share.has += 1;
            hop
        }
        None => WayId::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_buffers::PortId;
    use proptest::prelude::*;

    fn id(number: u32) -> WayId {
        WayId::new(number).expect("a small number")
    }

    proptest! {
        /// Who leaves takes no flow of the others along; everybody has about his share.
        #[test]
        fn a_member_that_leaves_moves_no_flow_of_others(count in 2_u32..40, leaver in 0_u32..40) {
            let leaver = id(leaver % count + 1);
            let members: Vec<_> = (1..=count).map(|number| (id(number), 1)).collect();
            let before = Group::new(&members).unwrap();
            let left: Vec<_> = members.iter().copied().filter(|member| member.0 != leaver).collect();
            let after = before.with_members(&left).unwrap();
            for flow in (0..).take(before.buckets.len()) {
                let (was, is) = (before.member(flow), after.member(flow));
                prop_assert!(is != leaver);
                prop_assert!(was == leaver || was == is, "{flow}: {was:?} {is:?}");
            }
            for &(member, _) in &left {
                let share = after.buckets.iter().filter(|&&bucket| bucket == member).count();
                let fair = after.buckets.len() as f64 / left.len() as f64;
                prop_assert!((share as f64 - fair).abs() <= 1.0 + fair * 0.1, "{share} of {fair}");
            }
        }
    }

    #[test]
    fn weights_and_nobody() {
        let group = Group::new(&[(id(1), 3), (id(2), 1), (id(3), 0)]).unwrap();
        let of = |member| group.buckets.iter().filter(|&&bucket| bucket == id(member)).count();
        assert_eq!((of(1), of(2), of(3)), (48, 16, 0));
        assert_eq!(Group::new(&[]), Err(GroupError::Empty));
        assert_eq!(Group::new(&[(id(1), 0)]), Err(GroupError::Empty));
    }

    #[test]
    fn the_hop_of_a_group_is_that_of_the_flow() {
        let hop = |port| {
            Way::Hop(Hop {
                interface: InterfaceId::untagged(PortId(port)),
                source: MacAddress::ZERO,
                mtu: 1500,
                cuts: false,
                address: IpAddr::from([10, 0, 0, 1]),
                neighbour: Arc::default(),
            })
        };
        let mut ways = Ways::new();
        let members = [ways.push(hop(1)).unwrap(), ways.push(hop(2)).unwrap()];
        let group = ways.push(Way::Group(Group::new(&members.map(|member| (member, 1))).unwrap())).unwrap();
        let end = ways.push(Way::Blackhole).unwrap();
        let ports: std::collections::HashSet<_> =
            (0..64).map(|flow| ways.hop(group, flow).unwrap().interface.port).collect();
        assert_eq!(ports.len(), 2);
        assert!(ways.hop(end, 0).is_none() && ways.hop(WayId::NONE, 0).is_none());
    }
}
