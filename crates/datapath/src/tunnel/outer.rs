//! What an underlay's packet says before the GRE header.

use super::{Underlay, refusal};
use crate::drops::DropReason;
use crate::wire::{EtherType, Ethernet, IpProtocol, Ipv4, Malformed, Vlan, VlanId};
use polder_buffers::Packet;

/// Why a packet on an underlay cannot be opened as it is.
pub(super) enum Refused {
    /// It is a part of what may be a tunnel packet.
    Fragment,
    /// Its journey ends.
    Drop(DropReason),
    /// Its journey ends, and the tunnel counts it.
    OfTunnel(DropReason),
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Self {
        Self::Drop(refusal(malformed))
    }
}

/// The IPv4 header of a GRE packet that is addressed to the underlay, and the bytes before it.
#[inline(always)]
pub(super) fn outer<'p>(packet: &'p Packet, underlay: &Underlay) -> Result<(usize, Ipv4<'p>), Refused> {
    const NOT_FOR_US: Refused = Refused::Drop(DropReason::NotForUs);
    let ethernet = Ethernet::parse(packet.bytes())?;
    if ethernet.destination() != underlay.mac {
        return Err(NOT_FOR_US);
    }
    let (link, bytes) = if ethernet.ether_type() == EtherType::IPV4 && underlay.vlan.is_none() {
        (Ethernet::HEADER_BYTES, ethernet.payload())
    } else {
        (Ethernet::HEADER_BYTES + Vlan::HEADER_BYTES, untag(&ethernet, underlay)?)
    };
    let ip = Ipv4::parse_head(bytes, packet.len() - link)?;
    ip.verify()?;
    if ip.protocol() == IpProtocol::GRE { Ok((link, ip)) } else { Err(NOT_FOR_US) }
}

/// The IPv4 packet behind the tag that the underlay asks for; a priority tag counts as none.
#[cold]
fn untag<'p>(ethernet: &Ethernet<'p>, underlay: &Underlay) -> Result<&'p [u8], Refused> {
    if ethernet.ether_type() == EtherType::VLAN {
        let tag = Vlan::parse(ethernet.payload())?;
        let vlan = tag.id().filter(|&id| id != VlanId::PRIORITY);
        if tag.id().is_some() && vlan == underlay.vlan && tag.ether_type() == EtherType::IPV4 {
            return Ok(tag.payload());
        }
    }
    Err(Refused::Drop(DropReason::NotForUs))
}
