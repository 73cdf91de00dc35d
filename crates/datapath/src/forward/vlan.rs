//! VLANs of a port, and VLAN tags of frames.
//!
//! A port of a VLAN-aware bridge has a set of VLANs and at most one of them untagged:
//!
//! | port | accepts | sends |
//! |---|---|---|
//! | access *v* | untagged and priority-tagged frames, as *v* | *v* untagged |
//! | trunk *set* | tagged frames of the set | the set tagged |
//! | trunk *set*, native *n* | as before, and untagged and priority-tagged frames as *n* | the set tagged, *n* untagged |
//!
//! An access port drops tagged frames, also of its own VLAN ("admit only untagged and priority-tagged
//! frames", IEEE 802.1Q-2022, 6.9). A frame of the native VLAN whose payload begins with a tag is not sent on
//! a trunk, because the receiver would take that tag for the frame's VLAN. Together this prevents VLAN
//! hopping by double tags from an access port.
//!
//! Only tags of type 0x8100 are processed; a service tag (0x88a8) is payload. Priority and drop eligibility
//! stay unchanged while a frame has a tag, and are 0 in a new tag.

mod prepare;

use super::vlan_set::Bits;
use crate::drops::DropReason;
use polder_buffers::{ChecksumState, Packet};

/// Tag of a received frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tag {
    /// No tag.
    #[default]
    None,
    /// Tag control information: priority, drop eligible indicator and VLAN.
    Control(u16),
}

/// VLANs of a port of a VLAN-aware bridge: [`VlanMode`](super::VlanMode) compiled for look-ups.
#[derive(Clone, Debug)]
pub(super) struct PortVlans {
    /// VLANs that the port sends.
    members: Bits,
    /// VLANs that the port accepts with a tag.
    tagged: Bits,
    /// VLAN of untagged frames in both directions; 0 for none.
    untagged: u16,
    is_trunk: bool,
}

impl PortVlans {
    /// VLAN of a frame that was received with `tag`.
    #[inline(always)]
    pub(super) fn classify(&self, tag: Tag) -> Result<u16, DropReason> {
        let id = match tag {
            Tag::None => 0,
            Tag::Control(control) => control & VLAN_MASK,
        };
        match id {
            0 if self.untagged != 0 => Ok(self.untagged),
            id if self.tagged.contains(id) => Ok(id),
            _ => Err(DropReason::VlanNotAllowed),
        }
    }

    /// True if the port sends frames of `vlan`.
    #[inline(always)]
    pub(super) fn carries(&self, vlan: u16) -> bool {
        self.members.contains(vlan)
    }

    /// VLAN of untagged frames; `None` if the port has none.
    pub(super) fn untagged(&self) -> Option<u16> {
        (self.untagged != 0).then_some(self.untagged)
    }

    /// Changes the tag `tag` of a frame to the one with which the port sends `vlan`.
    #[inline(always)]
    pub(super) fn dress(&self, packet: &mut Packet, tag: Tag, vlan: u16) -> Result<(), DropReason> {
        match (tag, vlan == self.untagged) {
            (Tag::None, true) => self.check_bare(packet),
            (Tag::None, false) => push_tag(packet, vlan),
            (Tag::Control(_), true) => {
                pop_tag(packet)?;
                self.check_bare(packet)
            }
            (Tag::Control(control), false) if control & VLAN_MASK == vlan => Ok(()),
            (Tag::Control(control), false) => set_control(packet, control & !VLAN_MASK | vlan),
        }
    }

    /// Refuses an untagged frame on a trunk that a receiver would read as tagged.
    fn check_bare(&self, packet: &Packet) -> Result<(), DropReason> {
        // The EtherType is sufficient: in a chain, the head frame may end after it.
        let ether_type = packet.bytes().get(ADDRESSES..ADDRESSES + 2);
        if self.is_trunk && ether_type == Some(&[0x81, 0x00]) {
            return Err(DropReason::VlanNotAllowed);
        }
        Ok(())
    }
}

impl Tag {
    /// Tag in bytes 12 to 15 of a frame, first byte lowest in `word`.
    #[inline(always)]
    pub(super) const fn from_wire(word: u32) -> Self {
        let [a, b, high, low] = word.to_le_bytes();
        match u16::from_be_bytes([a, b]) {
            0x8100 => Self::Control(u16::from_be_bytes([high, low])),
            _ => Self::None,
        }
    }
}

/// Inserts a tag after the MAC addresses.
fn push_tag(packet: &mut Packet, vlan: u16) -> Result<(), DropReason> {
    packet.prepend(TAG_LENGTH).map_err(|_| DropReason::NoHeadroom)?;
    let bytes = packet.bytes_mut();
    bytes.copy_within(TAG..TAG + ADDRESSES, 0);
    let [high, low] = vlan.to_be_bytes();
    bytes[ADDRESSES..ADDRESSES + TAG].copy_from_slice(&[0x81, 0x00, high, low]);
    shift_offsets(packet, |offset| offset.saturating_add(TAG_LENGTH));
    Ok(())
}

/// Removes the tag.
fn pop_tag(packet: &mut Packet) -> Result<(), DropReason> {
    packet.bytes_mut().copy_within(..ADDRESSES, TAG);
    packet.trim_front(TAG_LENGTH).map_err(|_| DropReason::VlanTruncated)?;
    shift_offsets(packet, |offset| if offset < TAGGED { offset } else { offset - TAG_LENGTH });
    Ok(())
}

fn set_control(packet: &mut Packet, control: u16) -> Result<(), DropReason> {
    let field = packet.bytes_mut().get_mut(ADDRESSES + 2..ADDRESSES + TAG);
    field.ok_or(DropReason::VlanTruncated)?.copy_from_slice(&control.to_be_bytes());
    Ok(())
}

/// Adjusts the packet's header offsets; 0 means unknown and stays.
fn shift_offsets(packet: &mut Packet, shift: impl Fn(u16) -> u16) {
    let shifted = |offset: u16| if offset == 0 { 0 } else { shift(offset) };
    packet.network_offset = shifted(packet.network_offset);
    packet.transport_offset = shifted(packet.transport_offset);
    if packet.checksum == ChecksumState::Partial {
        packet.checksum_start = shift(packet.checksum_start);
    }
}

/// Length of the two MAC addresses in bytes.
pub(super) const ADDRESSES: usize = 12;
/// Length of a tag in bytes.
const TAG: usize = 4;
const TAG_LENGTH: u16 = 4;
/// Minimum offset of a tagged frame's network header.
const TAGGED: u16 = 18;
/// Mask of the VLAN in the tag control information.
const VLAN_MASK: u16 = 0x0fff;
