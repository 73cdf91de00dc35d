//! Packets as they came: the interface, and the padding of the link.

use super::{Interface, Routers};
use crate::drops::DropReason;
use crate::wire::{Link, VlanId};
use polder_buffers::{Packet, Pool};

/// The interface by which a packet came.
pub(super) fn find<'a>(packet: &Packet, routers: &'a Routers) -> Result<&'a Interface, DropReason> {
    let link = Link::parse(packet.bytes())?;
    let vlan = match (link.tag, link.inner_tag) {
        (None, _) => VlanId::PRIORITY,
        (Some(tag), None) => tag.id().ok_or(DropReason::NoInterface)?,
        (Some(_), Some(_)) => return Err(DropReason::NoInterface),
    };
    let station = link.ethernet.destination();
    routers.arrival(packet.ingress, vlan, station).ok_or(DropReason::NoInterface)
}

/// The same for a packet that was found before.
pub(super) fn arrival<'a>(packet: &Packet, routers: &'a Routers) -> Option<&'a Interface> {
    find(packet, routers).ok()
}

/// Cuts off padding of the link behind the IP packet.
#[inline(never)]
pub(super) fn trim(packet: &mut Packet, pool: &mut Pool) {
    let link = usize::from(packet.network_offset);
    let Some(ip) = packet.bytes().get(link..) else { return };
    let length = match ip {
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return,
    };
    // A packet that is shorter was refused before.
    let _ = packet.truncate(link + length, pool);
}
