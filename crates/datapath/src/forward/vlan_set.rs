//! Sets of VLANs, and which of them a port is configured to carry.

use crate::wire::VlanId;

/// A set of VLANs.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(pub(super) Box<Bits>);

/// One bit a VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits([u64; 64]);

/// Treatment of VLANs by a port of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// Not at all: tags are payload, all frames are in one broadcast domain. As a Linux bridge with
    /// `vlan_filtering 0`. Either all ports of a bridge are transparent or none.
    Transparent,
    /// Untagged frames of one VLAN.
    Access(VlanId),
    /// Tagged frames of many VLANs.
    Trunk {
        /// The VLANs that it carries.
        allowed: VlanSet,
        /// The one of them that is sent and taken untagged.
        native: Option<VlanId>,
    },
}

impl VlanSet {
    /// No VLAN.
    pub fn empty() -> Self {
        Self(Box::new(Bits([0; 64])))
    }

    /// All VLANs, 1 to 4094.
    pub fn all() -> Self {
        (1..4095).filter_map(VlanId::configured).collect()
    }

    /// Puts `vlan` in; [`VlanId::PRIORITY`] names no VLAN and is left out.
    pub fn insert(&mut self, vlan: VlanId) {
        if vlan == VlanId::PRIORITY {
            return;
        }
        self.0.0[usize::from(vlan.get() >> 6) & 63] |= 1 << (vlan.get() & 63);
    }

    /// True if VLAN `vlan` is in the set; 0 and 4095 never are.
    #[inline]
    pub fn contains(&self, vlan: u16) -> bool {
        self.0.contains(vlan)
    }

    /// The VLANs in it, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..4095).filter(|&vlan| self.contains(vlan)).filter_map(VlanId::configured)
    }

    /// True if no VLAN is in it.
    pub fn is_empty(&self) -> bool {
        self.0.0.iter().all(|&word| word == 0)
    }
}

impl Bits {
    #[inline(always)]
    pub(super) fn contains(&self, vlan: u16) -> bool {
        vlan < 4096 && self.0[usize::from(vlan >> 6) & 63] >> (vlan & 63) & 1 != 0
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<I: IntoIterator<Item = VlanId>>(vlans: I) -> Self {
        let mut set = Self::empty();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

impl core::fmt::Debug for VlanSet {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_set().entries(self.iter().map(VlanId::get)).finish()
    }
}
