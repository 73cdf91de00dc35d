//! Outer IPv6 headers: flow label and encapsulation limit.

use super::{Fields, ROOM, Template, put_udp};
use crate::tunnel::IPV6_BYTES;
use crate::wire::{Ipv6, Ipv6Options};
use polder_buffers::{NoRoom, Packet};

/// Fields of IPv6 only: the flow label, and the encapsulation limit if it differs from the tunnel's.
///
/// One word, so that it is stored and loaded in one piece: assembling it from partial stores would stall the
/// load (failed store forwarding), also for packets over IPv4.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tunnel) struct Label(u32);

impl Label {
    const FLOW: u32 = 0x000f_ffff;
    const HAS_LIMIT: u32 = 1 << 20;

    #[inline(always)]
    pub(in crate::tunnel) fn new(flow_label: u32, limit: Option<u8>) -> Self {
        Self(flow_label & Self::FLOW | limit.map_or(0, |limit| Self::HAS_LIMIT | u32::from(limit) << 24))
    }

    fn limit(self) -> Option<u8> {
        let [limit, ..] = self.0.to_be_bytes();
        (self.0 & Self::HAS_LIMIT != 0).then_some(limit)
    }
}

impl Template {
    /// [`write`](Self::write) for outer IPv6 headers.
    #[inline(never)]
    pub(super) fn write_v6(&self, packet: &mut Packet, class: u8, fields: Fields) -> Result<(), NoRoom> {
        let (hop_limit, label, source_port) = (fields.time_to_live(), fields.label, fields.source_port());
        let headers = usize::from(self.length - self.link) - Ipv6::HEADER_BYTES;
        let payload_length = u16::try_from(packet.len() + headers).map_err(|_| NoRoom::Back)?;
        let room = packet.prepend(self.length)?;
        room.copy_from_slice(&self.bytes[ROOM - usize::from(self.length)..]);
        let header = &mut room[usize::from(self.link)..];
        let first = 6 << 28 | u32::from(class) << 20 | label.0 & Label::FLOW;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&payload_length.to_be_bytes());
        header[7] = hop_limit;
        let has_limit = self.transport - self.link > IPV6_BYTES;
        if let Some(limit) = label.limit().filter(|_| has_limit) {
            header[Ipv6::HEADER_BYTES + Ipv6Options::LIMIT_AT] = limit;
        }
        if self.is_udp
            && let Some(udp) = header[Ipv6::HEADER_BYTES..].first_chunk_mut()
        {
            put_udp(udp, source_port, payload_length);
        }
        Ok(())
    }
}
