//! Compiles a port's VLAN mode, and computes the tag changes of fast paths.

use super::{PortVlans, Tag, VLAN_MASK};
use crate::fast_path::TagChange;
use crate::forward::vlan_set::{VlanMode, VlanSet};
use crate::wire::VlanId;

impl PortVlans {
    /// Compiles a VLAN mode; `None` for a transparent port.
    pub(in crate::forward) fn new(mode: &VlanMode) -> Option<Self> {
        match mode {
            VlanMode::Transparent => None,
            VlanMode::Access(vlan) => Some(Self {
                members: *VlanSet::from_iter([*vlan]).0,
                tagged: *VlanSet::empty().0,
                untagged: vlan.get(),
                is_trunk: false,
            }),
            VlanMode::Trunk { allowed, native } => {
                let members = *allowed.iter().chain(*native).collect::<VlanSet>().0;
                Some(Self {
                    tagged: members.clone(),
                    members,
                    untagged: native.map_or(0, VlanId::get),
                    is_trunk: true,
                })
            }
        }
    }

    /// Tag change from a frame with tag `tag` to the one with which the port sends `vlan`; `None` if the tag
    /// names another VLAN.
    pub(in crate::forward) fn change(&self, tag: Tag, vlan: u16) -> Option<TagChange> {
        match (tag, vlan == self.untagged) {
            (Tag::None, true) => Some(TagChange::Keep),
            (Tag::None, false) => Some(TagChange::Push(vlan)),
            (Tag::Control(_), true) => Some(TagChange::Pop),
            (Tag::Control(control), false) => (control & VLAN_MASK == vlan).then_some(TagChange::Keep),
        }
    }
}

impl Tag {
    /// VLAN of the tag, 0 for a priority tag; `None` without tag.
    pub(in crate::forward) fn vlan(self) -> Option<u16> {
        match self {
            Self::None => None,
            Self::Control(control) => Some(control & VLAN_MASK),
        }
    }
}
