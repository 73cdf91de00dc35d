//! A station in this process on the device's wire: frames that are exact to the byte.

use polder_datapath::wire::{Checksum, IpProtocol, Ipv4, Ipv4Header, Pseudo, TrafficClass};
use std::net::Ipv4Addr;

/// Link-layer address of the station.
pub(super) const STATION: [u8; 6] = [2, 0x70, 0x6f, 0, 3, 9];
/// Bytes in front of an echo's payload, and of a UDP payload.
const ETHERNET: usize = 14;
const ICMP: usize = ETHERNET + Ipv4::HEADER_BYTES;
const PAYLOAD: usize = ICMP + 8;
/// Types of an echo request and of its reply (RFC 792).
const REQUEST: u8 = 8;
const REPLY: u8 = 0;
/// Identifier of our requests.
const IDENTIFIER: [u8; 2] = *b"PD";
/// UDP port without a listener: discard.
const DISCARD: u16 = 9;

/// A station's view of another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) mac: [u8; 6],
    pub(super) ours: Ipv4Addr,
    pub(super) theirs: Ipv4Addr,
    /// The VLAN that it is in.
    pub(super) tag: Option<u16>,
}

impl Peer {
    /// An echo request whose frame without tag has `length` bytes, with a payload of its own.
    pub(super) fn request(self, number: u16, length: usize) -> Vec<u8> {
        let mut frame = self.packet(IpProtocol::ICMP, length);
        let message = &mut frame[ICMP..];
        message[..4].copy_from_slice(&[REQUEST, 0, 0, 0]);
        message[4..6].copy_from_slice(&IDENTIFIER);
        message[6..8].copy_from_slice(&number.to_be_bytes());
        let mut random = fastrand::Rng::with_seed(u64::from(number));
        message[8..].fill_with(|| random.u8(..));
        let sum = Checksum::of(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.tagged(frame)
    }

    /// True for the reply to a request of the same number and length, exact to the byte.
    pub(super) fn is_reply(self, frame: &[u8], number: u16, length: usize) -> bool {
        let request = self.request(number, length);
        let head = if self.tag.is_some() { 4 } else { 0 };
        let same = |range: core::ops::Range<usize>| frame.get(range.clone()) == request.get(range);
        let addresses = frame.get(..6) == Some(&STATION) && frame.get(6..12) == Some(&self.mac);
        let kind = frame.get(head + ICMP..head + ICMP + 2) == Some(&[REPLY, 0]);
        frame.len() == request.len()
            && addresses
            && kind
            && same(12..14 + head)
            && same(head + ICMP + 4..request.len())
            && Checksum::of(&frame[head + ICMP..]) == 0
    }

    /// A UDP packet to a port without a listener, with a right or a wrong checksum.
    pub(super) fn datagram(self, length: usize, is_right: bool) -> Vec<u8> {
        let mut frame = self.packet(IpProtocol::UDP, length);
        let message = &mut frame[ICMP..];
        let bytes = u16::try_from(message.len()).unwrap_or(0);
        message[..2].copy_from_slice(&DISCARD.to_be_bytes());
        message[2..4].copy_from_slice(&DISCARD.to_be_bytes());
        message[4..6].copy_from_slice(&bytes.to_be_bytes());
        message[6..8].fill(0);
        let pseudo = Pseudo::V4 { source: self.ours, destination: self.theirs };
        let sum = pseudo.sum_over(IpProtocol::UDP, message).finish_nonzero();
        let sum = if is_right { sum } else { sum.wrapping_add(1).max(1) };
        message[6..8].copy_from_slice(&sum.to_be_bytes());
        self.tagged(frame)
    }

    /// A frame of another protocol to some address.
    pub(super) fn plain(to: [u8; 6], length: usize) -> Vec<u8> {
        let mut frame = vec![0; length];
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&STATION);
        // For experiments (IEEE 802).
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame
    }

    fn packet(self, protocol: IpProtocol, length: usize) -> Vec<u8> {
        let mut frame = vec![0; length.max(PAYLOAD)];
        frame[..6].copy_from_slice(&self.mac);
        frame[6..12].copy_from_slice(&STATION);
        frame[12..14].copy_from_slice(&[8, 0]);
        let header = Ipv4Header {
            source: self.ours,
            destination: self.theirs,
            protocol,
            traffic_class: TrafficClass(0),
            total_length: u16::try_from(frame.len() - ETHERNET).unwrap_or(0),
            identification: 7,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 64,
        };
        header.emit(&mut frame[ETHERNET..]).expect("a frame has room for a header");
        frame
    }

    fn tagged(self, mut frame: Vec<u8>) -> Vec<u8> {
        if let Some(tag) = self.tag {
            let [high, low] = tag.to_be_bytes();
            frame.splice(12..12, [0x81, 0, high, low]);
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_exact() {
        let addresses = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        for tag in [None, Some(7)] {
            let peer = Peer { mac: [2, 0, 0, 0, 0, 5], ours: addresses.0, theirs: addresses.1, tag };
            let mut reply = peer.request(3, 100);
            let at = if tag.is_some() { ICMP + 4 } else { ICMP };
            assert!(!peer.is_reply(&reply, 3, 100), "a request");
            reply[..6].copy_from_slice(&STATION);
            reply[6..12].copy_from_slice(&peer.mac);
            reply[at] = REPLY;
            reply[at + 2..at + 4].fill(0);
            let sum = Checksum::of(&reply[at..]);
            reply[at + 2..at + 4].copy_from_slice(&sum.to_be_bytes());
            assert!(peer.is_reply(&reply, 3, 100));
            assert!(!peer.is_reply(&reply, 4, 100) && !peer.is_reply(&reply, 3, 101));
            let other = Peer { tag: Some(8), ..peer };
            assert!(!other.is_reply(&reply, 3, 100));
            *reply.last_mut().unwrap() ^= 1;
            assert!(!peer.is_reply(&reply, 3, 100));
        }
    }
}
