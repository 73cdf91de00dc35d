//! Frames as explanations look at them.

use super::packet::{ICMP, ICMPV6, IPV4, IPV6, LINK, sum};
use super::twin::Side;
use super::watch::Seen;

/// An ICMP message that the router itself has made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) is_v6: bool,
    pub(super) kind: u8,
}

/// The IPv4 header's length, where a frame has one that is whole and right.
pub(super) fn header_v4(frame: &[u8]) -> Option<usize> {
    let packet = frame.get(LINK..).filter(|packet| packet.len() >= 20 && packet[0] >> 4 == 4)?;
    let length = usize::from(packet[0] & 15) * 4;
    let is_right = frame[12..14] == IPV4.to_be_bytes() && length >= 20 && packet.len() >= length;
    (is_right && sum(&packet[..length]) == 0xffff).then_some(length)
}

/// True if a frame has a whole IPv6 header.
pub(super) fn is_v6(frame: &[u8]) -> bool {
    frame.len() >= LINK + 40 && frame[12..14] == IPV6.to_be_bytes() && frame[LINK] >> 4 == 6
}

/// The message in a frame, if it is the router's own.
pub(super) fn message(frame: &[u8]) -> Option<Message> {
    if let Some(length) = header_v4(frame) {
        let packet = &frame[LINK..];
        let is_own = Side::ALL.iter().any(|side| packet[12..16] == side.router_v4());
        let icmp = packet.get(length..).filter(|icmp| is_own && packet[9] == ICMP && icmp.len() >= 8)?;
        return Some(Message { is_v6: false, kind: icmp[0] });
    }
    let packet = frame.get(LINK..).filter(|_| is_v6(frame))?;
    let own = |side: &Side| packet[8..24] == side.router_v6() || packet[8..24] == side.router_link_local();
    let icmp = packet.get(40..).filter(|icmp| packet[6] == ICMPV6 && icmp.len() >= 8)?;
    Side::ALL.iter().any(own).then_some(Message { is_v6: true, kind: icmp[0] })
}

impl Message {
    /// True if it is an error: neither an answer nor anything else.
    pub(super) fn is_error(&self) -> bool {
        if self.is_v6 { self.kind < 128 } else { matches!(self.kind, 3 | 4 | 5 | 11 | 12) }
    }

    /// True for a redirect to a nearer router.
    pub(super) fn is_redirect(&self) -> bool {
        self.kind == if self.is_v6 { 137 } else { 5 }
    }

    /// True if it says that a header is wrong.
    pub(super) fn is_problem(&self) -> bool {
        self.kind == if self.is_v6 { 4 } else { 12 }
    }
}

/// The only frame of a list, if it is an error of the router's.
pub(super) fn only_error(list: &[Seen]) -> Option<(&Seen, Message)> {
    let [seen] = list else { return None };
    message(&seen.frame).filter(Message::is_error).map(|message| (seen, message))
}

/// True if nothing in a list is the router's own: everything was sent on.
pub(super) fn is_forwarded(list: &[Seen]) -> bool {
    !list.is_empty() && list.iter().all(|seen| message(&seen.frame).is_none())
}

/// Repairs the checksum of an IPv4 header.
pub(super) fn reseal(frame: &mut [u8], length: usize) {
    frame[LINK + 10..LINK + 12].fill(0);
    let checksum = !sum(&frame[LINK..LINK + length]);
    frame[LINK + 10..LINK + 12].copy_from_slice(&checksum.to_be_bytes());
}
