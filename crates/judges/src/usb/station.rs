//! Frames of a station on the gadget's network: echo requests, and what their answers must be.

use polder_datapath::wire::Checksum;

/// Addresses of the gadget's interface, of the station, of a station behind it, and of one that the guest has to
/// ask for.
pub(super) const GUEST: [u8; 4] = [10, 77, 0, 1];
pub(super) const STATION: [u8; 4] = [10, 77, 0, 2];
pub(super) const OTHER: [u8; 4] = [10, 77, 0, 9];
pub(super) const UNKNOWN: [u8; 4] = [10, 77, 0, 77];
pub(super) const GUEST_MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 1];
pub(super) const STATION_MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 2];
pub(super) const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 9];
pub(super) const UNKNOWN_MAC: [u8; 6] = [2, 0, 0, 0, 0x77, 0x77];
/// Bytes in front of the payload of an echo.
pub(super) const ECHO_HEADERS: usize = 14 + 20 + 8;
/// Largest payload of an echo.
pub(super) const LARGEST: usize = 1500 - 28;

/// An echo request of the station, number `number`, with `payload` bytes.
pub(super) fn request(number: u32, payload: usize) -> Vec<u8> {
    echo(8, number, payload, (STATION_MAC, STATION), (GUEST_MAC, GUEST))
}

/// The answer of the guest.
pub(super) fn reply(number: u32, payload: usize) -> Vec<u8> {
    echo(0, number, payload, (GUEST_MAC, GUEST), (STATION_MAC, STATION))
}

/// True for an echo among other frames.
pub(super) fn is_echo(frame: &[u8]) -> bool {
    frame.len() >= ECHO_HEADERS && frame[12..14] == [8, 0] && frame[23] == 1
}

/// An echo between two stations.
pub(super) fn echo(
    kind: u8,
    number: u32,
    payload: usize,
    from: ([u8; 6], [u8; 4]),
    to: ([u8; 6], [u8; 4]),
) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(number.to_be_bytes());
    let [.., salt] = number.to_be_bytes();
    message.extend((0..payload).map(|at| {
        let [low, high, ..] = at.to_le_bytes();
        low ^ high.wrapping_mul(31) ^ salt
    }));
    let sum = Checksum::of(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    let total = u16::try_from(20 + message.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut header = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 1, 0, 0];
    header.extend(from.1);
    header.extend(to.1);
    let sum = Checksum::of(&header).to_be_bytes();
    header[10..12].copy_from_slice(&sum);
    [&to.0[..], &from.0, &[8, 0], &header, &message].concat()
}

/// Compares a frame with an answer; the guest chooses identification and flags of its IP header.
pub(super) fn is_same(found: &[u8], wanted: &[u8]) -> bool {
    if found.len() != wanted.len() || found.len() < ECHO_HEADERS {
        return false;
    }
    let is_valid = Checksum::of(&found[14..34]) == 0;
    is_valid && found[..18] == wanted[..18] && found[22..24] == wanted[22..24] && found[26..] == wanted[26..]
}

/// A question for the guest's address, to all.
pub(super) fn arp_request() -> Vec<u8> {
    let head = [0, 1, 8, 0, 6, 4, 0, 1];
    let frame = [&[0xff; 6][..], &STATION_MAC, &[8, 6], &head, &STATION_MAC, &STATION, &[0; 6], &GUEST];
    frame.concat()
}

/// True for the guest's answer to it.
pub(super) fn is_arp_reply(frame: &[u8]) -> bool {
    frame.len() >= 42
        && frame[12..14] == [8, 6]
        && frame[20..22] == [0, 2]
        && frame[22..28] == GUEST_MAC
        && frame[28..32] == GUEST
}

/// True for the guest's question for an address, to all.
pub(super) fn is_arp_question(frame: &[u8], address: [u8; 4]) -> bool {
    frame.len() >= 42
        && frame[..14] == [&[0xff; 6][..], &GUEST_MAC, &[8, 6]].concat()
        && frame[20..22] == [0, 1]
        && frame[38..42] == address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_compared_but_for_what_the_guest_chooses() {
        let wanted = reply(7, 100);
        assert!(is_same(&wanted, &wanted));
        let mut other = wanted.clone();
        other[18..20].copy_from_slice(&[0x12, 0x34]);
        other[24..26].fill(0);
        let sum = Checksum::of(&other[14..34]).to_be_bytes();
        other[24..26].copy_from_slice(&sum);
        assert!(is_same(&other, &wanted));
        other[90] ^= 1;
        assert!(!is_same(&other, &wanted));
        assert!(!is_same(&reply(8, 100), &wanted) && !is_same(&request(7, 100), &wanted));
    }
}
