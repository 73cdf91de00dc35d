//! Frames whose fate may differ between the bridges: each rule with its reason.

/// A difference that is known, and why it is.
pub(super) struct Explanation {
    /// A few words.
    pub(super) name: &'static str,
    /// Reason why the bridges differ.
    pub(super) reason: &'static str,
    /// True if a frame that was sent may be lost, or leave as other bytes.
    covers: fn(&[u8], Option<&[u8]>) -> bool,
}

/// All accepted explanations; a difference without one counts as a failure.
pub(super) const EXPLANATIONS: &[Explanation] = &[
    Explanation {
        name: "BPDUs",
        reason: "frames to 01:80:c2:00:00:00 stay on their link (IEEE 802.1Q, 8.6.3) unless `forward_groups` has `stp`; the kernel's bridge forwards them while it has no STP",
        covers: |sent, left| left.is_none() && sent.starts_with(&[1, 0x80, 0xc2, 0, 0, 0]),
    },
    Explanation {
        name: "checksum left to the device",
        reason: "by a veth Polder's senders are on this machine: with AF_XDP it completes a checksum that is the pseudo header's alone (ADR 0044)",
        covers: |sent, left| left.is_some_and(|left| is_completed(sent, left)),
    },
];

/// The explanation of the fate of a frame: it left as other bytes, or not at all.
pub(super) fn explanation(sent: &[u8], left: Option<&[u8]>) -> Option<&'static Explanation> {
    EXPLANATIONS.iter().find(|explanation| (explanation.covers)(sent, left))
}

/// True if the frames differ in the checksum of TCP or UDP alone, which was the pseudo header's and is the right one.
fn is_completed(sent: &[u8], left: &[u8]) -> bool {
    let tags = sent[12..].chunks(4).take_while(|tag| matches!(tag, [0x81, 0, ..] | [0x88, 0xa8, ..])).count();
    let network = 14 + 4 * tags;
    let Some(packet) = sent.get(network..) else { return false };
    let Some(Place { header, addresses, protocol, end }) = place(packet) else { return false };
    let checksum = network + header + if protocol == 17 { 6 } else { 16 };
    let (Some(payload), Some(field)) = (packet.get(header..end), checksum.checked_add(2)) else {
        return false;
    };
    let is_elsewhere_same = sent.len() == left.len()
        && sent.get(..checksum) == left.get(..checksum)
        && sent.get(field..) == left.get(field..);
    let length = u32::try_from(payload.len()).unwrap_or(0);
    let pseudo = sum(addresses) + u64::from(length) + u64::from(protocol);
    let word = |frame: &[u8]| frame.get(checksum..field).map(sum);
    // The right checksum makes the sum over everything all ones.
    let whole = left.get(network + header..network + end).map(|payload| folded(pseudo + sum(payload)));
    is_elsewhere_same && word(sent) == Some(folded(pseudo)) && whole == Some(0xffff)
}

/// Place of TCP or UDP in an IP packet: bytes of the header before it, its addresses, the protocol, and its end.
struct Place<'a> {
    header: usize,
    addresses: &'a [u8],
    protocol: u8,
    end: usize,
}

fn place(packet: &[u8]) -> Option<Place<'_>> {
    let short = |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
    let (header, addresses, protocol, end) = match packet.first()? >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, packet.get(12..20)?, *packet.get(9)?, short(2)?),
        6 => (40, packet.get(8..40)?, *packet.get(6)?, 40 + short(4)?),
        _ => return None,
    };
    matches!(protocol, 6 | 17).then_some(Place { header, addresses, protocol, end })
}

/// Sum of 16-bit words (RFC 1071), the last byte padded.
fn sum(bytes: &[u8]) -> u64 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
    bytes.chunks(2).map(word).sum()
}

/// The sum in 16 bits, with the carries added.
fn folded(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of UDP over IPv4 with that checksum.
    fn udp(checksum: u64) -> Vec<u8> {
        let mut frame =
            [&[2; 12][..], &[8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0], &[10, 0, 0, 1, 10, 0, 0, 2]]
                .concat();
        frame.extend([0, 7, 0, 9, 0, 10, 0, 0, 0xab, 0xcd]);
        frame[40..42].copy_from_slice(&u16::try_from(checksum).unwrap().to_be_bytes());
        frame
    }

    #[test]
    fn a_completed_checksum_is_explained_and_another_change_is_not() {
        let pseudo = folded(sum(&[10, 0, 0, 1, 10, 0, 0, 2]) + 10 + 17);
        let right = 0xffff - folded(pseudo + 7 + 9 + 10 + 0xabcd);
        let name = |sent: u64, left: u64| explanation(&udp(sent), Some(&udp(left))).map(|found| found.name);
        assert_eq!(name(pseudo, right), Some("checksum left to the device"));
        assert_eq!(name(pseudo, right + 1), None, "a wrong checksum");
        assert_eq!(name(pseudo + 1, right), None, "another one before");
        let mut longer = udp(right);
        longer.push(0);
        assert!(explanation(&udp(pseudo), Some(&longer)).is_none());
    }

    #[test]
    fn bridge_protocol_frames_may_stay_on_their_link() {
        let frame = [&[1, 0x80, 0xc2, 0, 0, 0][..], &[2; 40]].concat();
        assert!(explanation(&frame, None).is_some() && explanation(&frame, Some(&frame[..20])).is_none());
    }
}
