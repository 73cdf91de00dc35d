//! Frames of the flows: as long as Ethernet carries them, numbered, with checksums that are right for any number.

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Bytes of an IPv4 header.
const IPV4: usize = 20;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Bytes of a TCP header with time stamps.
const TCP: usize = 32;
/// Longest network packet.
const MTU: usize = 1500;
/// Bytes of the number and its complement, at the end of the frame.
const NUMBER: usize = 8;

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) enum Protocol {
    /// Datagrams, sent as fast as the link carries them.
    Udp,
    /// Segments, and an acknowledgement for every second one.
    Tcp,
}

impl Protocol {
    const fn header(self) -> usize {
        match self {
            Self::Udp => UDP,
            Self::Tcp => TCP,
        }
    }

    /// Bytes of the flow's own in a full frame.
    pub(super) const fn payload(self) -> usize {
        MTU - IPV4 - self.header()
    }

    /// A full frame.
    pub(super) fn data(self) -> Vec<u8> {
        self.frame(self.payload())
    }

    /// The shortest frame that has a number.
    pub(super) fn acknowledgement(self) -> Vec<u8> {
        self.frame(NUMBER)
    }

    fn frame(self, payload: usize) -> Vec<u8> {
        let (number, field) = match self {
            Self::Udp => (17, 6),
            Self::Tcp => (6, 16),
        };
        let transport = self.header() + payload;
        let total = u16::try_from(IPV4 + transport).unwrap_or(u16::MAX);
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        let [high, low] = total.to_be_bytes();
        frame.extend([0x45, 0, high, low, 0, 1, 0x40, 0, 64, number, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let sum = !ones_sum(&frame[ETHERNET..], 0);
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
        frame.extend([0x1b, 0x5f, 0x1b, 0x60]);
        let length = u16::try_from(transport).unwrap_or(u16::MAX);
        match self {
            Self::Udp => frame.extend([length.to_be_bytes(), [0, 0]].as_flattened()),
            // Data offset 8, ACK and PSH; then time stamps.
            Self::Tcp => {
                frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x80, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
                frame.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1]);
            }
        }
        frame.resize(ETHERNET + IPV4 + transport - NUMBER, 0x5a);
        // A number and its complement add up to nothing, so that one sum fits all.
        frame.extend([0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        let pseudo = u32::from(number) + u32::from(length);
        let addresses = ones_sum(&frame[ETHERNET + 12..ETHERNET + 20], pseudo);
        let sum = !ones_sum(&frame[ETHERNET + IPV4..], u32::from(addresses));
        let at = ETHERNET + IPV4 + field;
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }
}

/// Writes the number of a frame.
pub(super) fn set_number(frame: &mut [u8], number: u32) {
    let at = frame.len() - NUMBER;
    frame[at..at + 4].copy_from_slice(&number.to_be_bytes());
    frame[at + 4..].copy_from_slice(&(!number).to_be_bytes());
}

/// The number of a frame; `None` when its bytes are not what was sent.
pub(super) fn number(frame: &[u8]) -> Option<u32> {
    let (number, complement) = frame.last_chunk::<NUMBER>()?.split_at(4);
    let word = |bytes: &[u8]| bytes.first_chunk().map(|word: &[u8; 4]| u32::from_be_bytes(*word));
    let (number, complement) = (word(number)?, word(complement)?);
    (number == !complement).then_some(number)
}

fn ones_sum(bytes: &[u8], start: u32) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |&byte| u32::from(byte) << 8);
    let mut sum = words.iter().fold(start + last, |sum, word| sum + u32::from(u16::from_be_bytes(*word)));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_sums(mut frame: Vec<u8>, n: u32) {
        set_number(&mut frame, n);
        assert_eq!(number(&frame), Some(n));
        assert_eq!(ones_sum(&frame[14..34], 0), 0xffff);
        let length = u32::try_from(frame.len() - 34).unwrap();
        let pseudo = u32::from(ones_sum(&frame[26..34], u32::from(frame[23]) + length));
        assert_eq!(ones_sum(&frame[34..], pseudo), 0xffff, "{n}");
    }

    /// Whatever the number, the sum over everything with its checksum is all ones.
    #[test]
    fn checksums_are_right_whatever_the_number() {
        for protocol in [Protocol::Udp, Protocol::Tcp] {
            for n in [0, 1, 0xffff, 0x1234_5678, u32::MAX] {
                assert_sums(protocol.data(), n);
                assert_sums(protocol.acknowledgement(), n);
            }
            assert_eq!(protocol.data().len(), 1514);
        }
        assert_eq!((Protocol::Tcp.payload(), Protocol::Udp.payload()), (1448, 1472));
    }

    #[test]
    fn damage_is_seen() {
        let mut frame = Protocol::Udp.data();
        set_number(&mut frame, 7);
        let last = frame.len() - 1;
        frame[last] ^= 1;
        assert_eq!(number(&frame), None);
    }
}
