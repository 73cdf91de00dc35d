//! Sets of VLANs, and the VLAN modes of ports.

use crate::wire::VlanId;

/// A set of VLANs.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet(pub(super) Box<Bits>);

/// One bit per VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits([u64; 64]);

/// VLAN mode of a bridge port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VlanMode {
    /// VLAN tags are payload, and all frames are in one broadcast domain, as in a Linux bridge with
    /// `vlan_filtering 0`. All ports of a bridge must be transparent or none.
    Transparent,
    /// Access port: untagged frames of one VLAN.
    Access(VlanId),
    /// Trunk port: tagged frames of several VLANs.
    Trunk {
        /// VLANs of the trunk.
        allowed: VlanSet,
        /// Native VLAN, sent and accepted untagged; `None` without one.
        native: Option<VlanId>,
    },
}

impl VlanSet {
    /// An empty set.
    pub fn empty() -> Self {
        Self(Box::new(Bits([0; 64])))
    }

    /// All VLANs, 1 to 4094.
    pub fn all() -> Self {
        (1..4095).filter_map(VlanId::configured).collect()
    }

    /// Adds `vlan`; [`VlanId::PRIORITY`] is ignored.
    pub fn insert(&mut self, vlan: VlanId) {
        if vlan == VlanId::PRIORITY {
            return;
        }
        self.0.0[usize::from(vlan.get() >> 6) & 63] |= 1 << (vlan.get() & 63);
    }

    /// True if the set contains `vlan`; false for 0 and 4095.
    #[inline]
    pub fn contains(&self, vlan: u16) -> bool {
        self.0.contains(vlan)
    }

    /// Iterates over the VLANs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> + '_ {
        (1..4095).filter(|&vlan| self.contains(vlan)).filter_map(VlanId::configured)
    }

    /// True if the set is empty.
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
