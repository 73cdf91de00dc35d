//! Link-local groups 01:80:c2:00:00:00 to :0f, which bridges do not forward unless configured.
//!
//! Source: IEEE 802.1Q-2022, table 8-1; IEEE 802.1X-2020, table 11-1; IEEE 802.1AB-2016, table 7-1.

use super::fdb::FdbKey;

/// Link-local group that a bridge may forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LinkLocalGroup {
    /// Spanning tree: nearest customer bridges, 01:80:c2:00:00:00.
    Stp = 0x0,
    /// Link aggregation and other slow protocols: 01:80:c2:00:00:02.
    Lacp = 0x2,
    /// Port access control: nearest bridges except two-port relays, 01:80:c2:00:00:03.
    Dot1x = 0x3,
    /// LLDP, and PTP's delay measurement: nearest bridges, 01:80:c2:00:00:0e.
    Lldp = 0xe,
}

/// Set of the link-local groups that a bridge forwards. PAUSE, 01:80:c2:00:00:01, is never in the set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardGroups(u16);

impl ForwardGroups {
    /// No group.
    pub const NONE: Self = Self(0);

    /// True if the set contains the group whose address ends with `last`, 0 to 15.
    #[inline(always)]
    pub fn contains(self, last: u8) -> bool {
        self.0 >> (last & 0xf) & 1 != 0
    }

    /// True if a frame to a link-local `destination` is forwarded.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the last byte of an address")]
    pub(super) fn forwards(self, destination: u64) -> bool {
        self.contains((destination >> 40) as u8)
    }
}

impl FromIterator<LinkLocalGroup> for ForwardGroups {
    fn from_iter<I: IntoIterator<Item = LinkLocalGroup>>(groups: I) -> Self {
        Self(groups.into_iter().fold(0, |set, group| set | 1 << group as u8))
    }
}

impl FdbKey {
    /// True for a link-local group address, first byte lowest.
    #[inline(always)]
    pub(super) const fn is_link_local(address: u64) -> bool {
        address & 0xf0ff_ffff_ffff == 0x0000_00c2_8001
    }
}
