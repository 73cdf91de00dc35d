//! Detects partial checksums of packets whose device does not report them.
//!
//! A local sender stores the folded pseudo-header sum in the checksum field of TCP or UDP, and marks the
//! packet. If the mark is lost, the field itself shows it. A correct checksum that has this value by chance
//! is unchanged by completion; an incorrect one (1 in 65 535) would be corrected. So this is only for ports
//! whose senders are on this machine, where no link can corrupt packets.
//!
//! The innermost headers after those of Polder's tunnels (GRE, IP in IP, VXLAN on its default port) are
//! examined. SCTP stores zero in the field of its CRC.
//!
//! Cost: the headers of each packet; for a partial checksum in a tunnel, also the payload.

use super::complete_checksum;
use crate::wire::{EtherType, Inside, IpProtocol, Ipv4, Ipv6, Link, Tcp, Udp, Vxlan};
use polder_buffers::{ChecksumState, Packet};

/// State of a packet's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recognised {
    /// Complete, or unknown protocol.
    Complete,
    /// Partial and marked as such; or it was partial, and has been completed inside a tunnel.
    Partial,
    /// A CRC of SCTP that was not computed.
    MissingCrc,
}

/// Detects a checksum that a local sender left to the device, and marks it as partial.
#[inline(never)]
pub fn recognise(packet: &mut Packet) -> Recognised {
    if packet.checksum != ChecksumState::Unknown {
        return Recognised::Complete;
    }
    match find(packet.bytes()) {
        None => Recognised::Complete,
        Some(MissingChecksum::MissingCrc) => Recognised::MissingCrc,
        Some(MissingChecksum::Partial { start, offset, depth }) => {
            packet.checksum = ChecksumState::Partial;
            packet.checksum_start = start;
            packet.checksum_offset = offset;
            if depth > 0 && complete_checksum(packet).is_err() {
                packet.checksum = ChecksumState::Unknown;
            }
            Recognised::Partial
        }
    }
}

/// Detected checksum; `depth` is the number of tunnels around it.
enum MissingChecksum {
    Partial { start: u16, offset: u16, depth: usize },
    MissingCrc,
}

/// Next part of the packet to be parsed.
enum Next<'a> {
    Frame(&'a [u8]),
    Network(EtherType, &'a [u8]),
    MissingChecksum(MissingChecksum),
}

fn find(frame: &[u8]) -> Option<MissingChecksum> {
    let mut next = Next::Frame(frame);
    // A tunnel takes two steps.
    for step in 0..2 * MOST_TUNNELS + 2 {
        next = match next {
            Next::Frame(bytes) => {
                let link = Link::parse(bytes).ok()?;
                Next::Network(link.ether_type(), link.payload())
            }
            Next::Network(kind, bytes) => {
                let at = bytes.as_ptr().addr() - frame.as_ptr().addr();
                network(kind, bytes, (at, step / 2))?
            }
            Next::MissingChecksum(found) => return Some(found),
        };
    }
    match next {
        Next::MissingChecksum(found) => Some(found),
        Next::Frame(_) | Next::Network(..) => None,
    }
}

/// Parses an IP packet at offset `at` of the frame; `None` if it has no checksum left to a device.
fn network(kind: EtherType, bytes: &[u8], (at, depth): (usize, usize)) -> Option<Next<'_>> {
    let (protocol, pseudo, message) = match kind {
        EtherType::IPV4 => {
            let packet = Ipv4::parse(bytes).ok()?;
            if packet.is_fragment() {
                return None;
            }
            (packet.protocol(), packet.pseudo(), packet.payload())
        }
        EtherType::IPV6 => {
            let packet = Ipv6::parse(bytes).ok()?;
            let upper = packet.upper().ok().filter(|upper| upper.fragment.is_none())?;
            (upper.protocol, packet.pseudo(), upper.payload)
        }
        _ => return None,
    };
    // Link-layer padding follows the message.
    let start = at + (message.as_ptr().addr() - bytes.as_ptr().addr());
    let partial = |offset: u16| {
        let field = message.get(usize::from(offset)..)?.first_chunk()?;
        let length = u32::try_from(message.len()).ok()?;
        let is_partial = u16::from_be_bytes(*field) == pseudo.sum(protocol, length).partial();
        let start = u16::try_from(start).ok()?;
        is_partial.then_some(Next::MissingChecksum(MissingChecksum::Partial { start, offset, depth }))
    };
    match protocol {
        IpProtocol::TCP => partial(Tcp::CHECKSUM_OFFSET),
        IpProtocol::UDP => partial(Udp::CHECKSUM_OFFSET).or_else(|| vxlan(message)),
        SCTP => {
            let crc = message.get(SCTP_CRC..)?.first_chunk::<4>()?;
            (*crc == [0; 4]).then_some(Next::MissingChecksum(MissingChecksum::MissingCrc))
        }
        other => {
            let inside = Inside::of(other, message)?;
            Some(match inside.protocol {
                EtherType::TRANSPARENT_ETHERNET => Next::Frame(inside.payload),
                inner => Next::Network(inner, inside.payload),
            })
        }
    }
}

fn vxlan(message: &[u8]) -> Option<Next<'_>> {
    let port: [u8; 2] = *message.get(2..)?.first_chunk()?;
    if u16::from_be_bytes(port) != Vxlan::PORT {
        return None;
    }
    let header = Vxlan::parse(message.get(Udp::HEADER_BYTES..)?).ok()?;
    Some(Next::Frame(header.payload()))
}

/// Maximum number of nested tunnels that are parsed.
const MOST_TUNNELS: usize = 3;
const SCTP: IpProtocol = IpProtocol(132);
/// Offset of the CRC in an SCTP header (RFC 9260, 3.1).
const SCTP_CRC: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Checksum;
    use polder_buffers::{Region, RegionOptions};

    /// TCP over IPv4, with a partial checksum, in an Ethernet frame.
    fn tcp() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x08, 0x00]);
        frame.extend([0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = Checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame.extend([
            0x12, 0x34, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0, 0, 0, 0, 2, 4, 5, 0xb4,
        ]);
        let pseudo = Ipv4::parse(&frame[14..]).expect("IPv4").pseudo();
        let partial = pseudo.sum(IpProtocol::TCP, 24).partial();
        frame[50..52].copy_from_slice(&partial.to_be_bytes());
        frame
    }

    fn with<T>(frame: &[u8], work: impl FnOnce(&mut Packet) -> T) -> T {
        let region = Region::new(RegionOptions { slots: 4, slot_bytes: 2048 }).expect("memory for a test");
        let mut pool = region.pool();
        let mut packet = Packet::copy_from(frame, &mut pool).expect("a slot");
        let result = work(&mut packet);
        pool.release_packet(packet);
        result
    }

    fn is_valid(frame: &[u8]) -> bool {
        let packet = Ipv4::parse(&frame[14..]).expect("IPv4");
        packet.pseudo().sum(IpProtocol::TCP, 24).with(packet.payload()).is_valid()
    }

    #[test]
    fn a_partial_checksum_is_marked_and_can_be_completed() {
        let mut padded = tcp();
        padded.extend([0; 2]);
        for frame in [tcp(), padded] {
            with(&frame, |packet| {
                assert_eq!(recognise(packet), Recognised::Partial);
                assert_eq!((packet.checksum_start, packet.checksum_offset), (34, 16));
                complete_checksum(packet).expect("it is in the packet");
                assert!(is_valid(&packet.bytes()[..58]));
                assert_eq!(recognise(packet), Recognised::Complete, "once is enough");
            });
        }
    }

    #[test]
    fn a_valid_checksum_of_that_value_stays_as_it_is() {
        let mut frame = tcp();
        // The payload makes the message sum up to nothing, so the partial checksum is the right one.
        let rest = Checksum::new().with(&frame[34..50]).with(&frame[52..56]);
        let pseudo = Ipv4::parse(&frame[14..]).expect("IPv4").pseudo().sum(IpProtocol::TCP, 24).partial();
        let needed = rest.with(&pseudo.to_be_bytes()).with(&pseudo.to_be_bytes()).finish();
        frame[56..58].copy_from_slice(&needed.to_be_bytes());
        assert!(is_valid(&frame));
        with(&frame, |packet| {
            assert_eq!(recognise(packet), Recognised::Partial);
            complete_checksum(packet).expect("it is in the packet");
            assert_eq!(packet.bytes(), frame);
        });
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut frame = tcp();
        frame[51] ^= 1;
        with(&frame, |packet| {
            assert_eq!(recognise(packet), Recognised::Complete);
            assert_eq!(packet.bytes(), frame);
        });
    }

    #[test]
    fn fragments_have_no_checksum_to_look_at() {
        let mut frame = tcp();
        frame[20] |= 0x20;
        assert_eq!(with(&frame, recognise), Recognised::Complete);
    }

    #[test]
    fn checksums_in_tunnels_are_completed_at_once() {
        let outer = |protocol: u8, header: &[u8]| {
            let inner = tcp();
            let length = u8::try_from(20 + header.len() + inner.len()).expect("a short packet");
            let mut frame = vec![4; 12];
            frame.extend([0x08, 0x00]);
            frame.extend([0x45, 0, 0, length, 0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 1, 0, 1, 10, 1, 0, 2]);
            let sum = Checksum::of(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            frame.extend(header);
            frame.extend(inner);
            frame
        };
        let vxlan = [0xc0, 0, 0x12, 0xb5, 0, 74, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0];
        for frame in [outer(47, &[0, 0, 0x65, 0x58]), outer(17, &vxlan)] {
            with(&frame, |packet| {
                assert_eq!(recognise(packet), Recognised::Partial);
                assert_eq!(packet.checksum, ChecksumState::Unknown);
                let inner = packet.len() - tcp().len();
                assert!(is_valid(&packet.bytes()[inner..]));
                assert_eq!(packet.bytes()[..inner], frame[..inner]);
            });
        }
    }

    #[test]
    fn sctp_without_its_crc_is_recognised() {
        let mut frame = tcp();
        frame[23] = 132;
        frame[42..46].fill(0);
        assert_eq!(with(&frame, recognise), Recognised::MissingCrc);
        frame[42] = 1;
        assert_eq!(with(&frame, recognise), Recognised::Complete);
    }

    #[test]
    fn whatever_comes_is_looked_at_without_a_panic() {
        let frame = tcp();
        for end in 0..frame.len() {
            with(&frame[..end], recognise);
        }
        for at in 12..frame.len() {
            for value in [0, 0x2f, 0x45, 0x81, 0xff] {
                let mut frame = frame.clone();
                frame[at] = value;
                with(&frame, recognise);
            }
        }
    }
}
