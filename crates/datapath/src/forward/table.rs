//! Table of all bridges: built once from the configuration, replaced whole.

mod build;

use super::fdb::{Fdb, FdbKey};
use super::groups::ForwardGroups;
use super::options::{FloodLimits, StaticEntry};
use super::own::OwnAddresses;
use super::vlan::{PortVlans, Tag};
use crate::drops::{Context, is_dropped};
use crate::wire::MacAddress;
use core::ops::Range;
use polder_buffers::{Packet, PortId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Link state of all ports. Shared by all tables and workers, and written by the thread that learns a link's
/// state.
#[derive(Debug)]
pub struct Links(Box<[AtomicBool]>);

/// All bridges and their members.
#[derive(Debug)]
pub struct Bridges {
    /// By port: the index in `members`, or `NOT_A_MEMBER`.
    by_port: Box<[u16]>,
    /// Members of all bridges, grouped by bridge.
    members: Box<[Member]>,
    bridges: Box<[Bridge]>,
    links: Arc<Links>,
}

#[derive(Clone, Debug)]
pub(super) struct Bridge {
    pub(super) fdb: Arc<Fdb>,
    pub(super) ageing: u32,
    members: Range<usize>,
    static_entries: Vec<StaticEntry>,
    pub(super) forward_groups: ForwardGroups,
    pub(super) own: OwnAddresses,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) port: PortId,
    pub(super) bridge: u16,
    pub(super) learning: bool,
    pub(super) flood: bool,
    pub(super) isolated: bool,
    /// [`MemberOptions::split_horizon`](super::MemberOptions::split_horizon); the member's own port without
    /// group.
    pub(super) split_horizon: PortId,
    pub(super) flood_limits: FloodLimits,
    pub(super) fdb_max_learned: u32,
    /// [`MemberOptions::hairpin`](super::MemberOptions::hairpin).
    pub(super) hairpin: Option<u32>,
    /// VLANs of the port; `None` for a transparent member.
    pub(super) vlans: Option<Box<PortVlans>>,
}

impl Links {
    /// True if the link of `port` is up; false for unknown ports.
    #[inline(always)]
    pub fn is_up(&self, port: PortId) -> bool {
        self.0.get(usize::from(port.0)).is_some_and(|link| link.load(Ordering::Relaxed))
    }
}

impl Bridges {
    /// Forwarding database of a member's bridge, and its ageing time in seconds; `None` if the port is no
    /// member.
    pub fn learned_by(&self, port: PortId) -> Option<(&Fdb, u32)> {
        let bridge = self.bridge(self.member(port)?.bridge);
        Some((&bridge.fdb, bridge.ageing))
    }

    /// Link state of all ports.
    pub fn links(&self) -> &Arc<Links> {
        &self.links
    }

    /// Member of the bridge of `port` whose own address is `station`; `None` if there is none.
    pub fn owner(&self, port: PortId, station: MacAddress) -> Option<PortId> {
        let bridge = self.bridge(self.member(port)?.bridge);
        bridge.own.members(FdbKey::new(station, 0)).next()
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    #[inline(always)]
    pub(super) fn member(&self, port: PortId) -> Option<&Member> {
        let place = self.by_port.get(usize::from(port.0))?;
        self.members.get(usize::from(*place))
    }

    /// Bridge of a member, by [`Member::bridge`].
    #[inline(always)]
    pub(super) fn bridge(&self, number: u16) -> &Bridge {
        &self.bridges[usize::from(number)]
    }

    /// Members of a bridge in the order of the configuration.
    #[inline(always)]
    pub(super) fn members_of(&self, bridge: &Bridge) -> &[Member] {
        &self.members[bridge.members.clone()]
    }
}

impl Member {
    /// True if the member carries `vlan` (0 on a bridge without VLANs).
    #[inline(always)]
    pub(super) fn carries(&self, vlan: u16) -> bool {
        self.vlans.as_ref().map_or(vlan == 0, |vlans| vlans.carries(vlan))
    }

    /// VLAN of untagged frames, 0 on a bridge without VLANs; `None` if the member has no untagged frames.
    pub(super) fn untagged(&self) -> Option<u16> {
        self.vlans.as_ref().map_or(Some(0), |vlans| vlans.untagged())
    }

    /// True if split horizon and hairpin allow frames from this member to leave by `to`.
    #[inline(always)]
    pub(super) fn is_apart_from(&self, to: &Self) -> bool {
        to.split_horizon != self.split_horizon || self.hairpin.is_some() && to.port == self.port
    }
}

/// Forwards the packet, whose tag is `tag`, to `member`.
#[inline(always)]
pub(super) fn send(packet: &mut Packet, member: &Member, tag: Tag, context: &Context<'_>) {
    debug_assert!(!is_dropped(packet), "a dropped packet goes nowhere");
    if let Some(vlans) = &member.vlans
        && let Err(reason) = vlans.dress(packet, tag, packet.vlan)
    {
        context.discard(packet, reason);
        return;
    }
    packet.egress = member.port;
}
