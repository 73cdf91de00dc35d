//! Out of a VXLAN tunnel, against a reference that looks at one byte after the other.

use super::ends::{ADDRESSES, ADDRESSES_V6, End, MACS, Path, bytes_of};
use super::{naive_pseudo_sum, naive_sum};
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{Encapsulation, ReassemblyLimits, TcpMss, TunnelOptions, VxlanOptions};

/// The network, and the UDP port.
pub(crate) const VNI: u32 = 0x0001_0203;
pub(crate) const PORT: u16 = 4789;
const UDP: u8 = 17;

/// Meaning of the choice in an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) is_v6: bool,
    pub(crate) checksum: bool,
    pub(crate) accepts_zero: bool,
}

impl Choice {
    pub(crate) fn of(bits: u8) -> Self {
        let has = |bit: u8| bits >> bit & 1 != 0;
        Self { is_v6: has(0), checksum: has(1), accepts_zero: has(2) }
    }

    /// The options of the end with this number.
    pub(crate) fn change(self, number: usize) -> impl FnOnce(&mut TunnelOptions) {
        move |options| {
            let vxlan = VxlanOptions { accept_zero_checksum: self.accepts_zero, ..VxlanOptions::new(VNI) };
            options.encapsulation = Encapsulation::Vxlan(vxlan);
            options.checksum = self.checksum;
            options.dont_fragment = true;
            options.encapsulation_limit = None;
            options.tcp_mss = TcpMss::Off;
            if self.is_v6 {
                options.ends = (ADDRESSES_V6[number], ADDRESSES_V6[1 - number]).into();
            }
        }
    }

    pub(crate) fn end(self, number: usize) -> End {
        let path = Path { mtu: 1600, vlan: None };
        End::new(number, path, ReassemblyLimits::default(), self.change(number))
    }
}

/// The first byte chooses, then come steps: the length of a datagram and its bytes, which arrive behind an IP header.
/// Of a step with the upper bit, the bytes are put over the start of a datagram that is right.
pub(crate) fn vxlan(bytes: &[u8]) {
    let Some((&bits, mut rest)) = bytes.split_first() else { return };
    let choice = Choice::of(bits);
    let mut end = choice.end(1);
    while let Some((&length, behind)) = rest.split_first() {
        let (content, behind) = behind.split_at(behind.len().min(usize::from(length & 0x7f)));
        rest = behind;
        let mut datagram = if length & 0x80 == 0 { Vec::new() } else { right(choice, &[0x5a; 60]) };
        let covered = content.len().min(datagram.len());
        datagram[..covered].copy_from_slice(&content[..covered]);
        datagram.extend(&content[covered..]);
        arrives(&mut end, choice, &datagram);
    }
}

/// Gives a datagram to the receiver, which has to treat it as the reference does.
pub(crate) fn arrives(end: &mut End, choice: Choice, datagram: &[u8]) {
    let frame = outer(choice.is_v6, UDP, datagram);
    let before = DropReason::ALL.iter().map(|&reason| end.dropped(reason)).collect::<Vec<_>>();
    let packet = end.packet(&frame, &[]);
    let out = end.receive(vec![packet]);
    let inside = out.first().map(bytes_of);
    end.release(out);
    let after = DropReason::ALL.iter().map(|&reason| end.dropped(reason));
    let dropped = DropReason::ALL.iter().zip(before).zip(after);
    let dropped = dropped.filter(|((_, before), after)| before != after).map(|((&reason, _), _)| reason);
    let dropped = dropped.collect::<Vec<_>>();
    match reference(choice, datagram) {
        Ok(expected) => assert_eq!((inside.as_deref(), dropped), (Some(expected), Vec::new())),
        Err(reason) => assert_eq!((inside, dropped), (None, vec![reason])),
    }
}

/// Frame in a UDP datagram, or the reason why it is dropped (RFC 7348, 4 and 5; RFC 6936, 5).
pub(crate) fn reference(choice: Choice, datagram: &[u8]) -> Result<&[u8], DropReason> {
    let [_, _, port_high, port_low, high, low, first, second, ..] = *datagram else {
        return Err(DropReason::UdpTruncated);
    };
    let length = usize::from(high) * 256 + usize::from(low);
    if length < 8 || length > datagram.len() {
        return Err(DropReason::UdpBadLength);
    }
    if u16::from_be_bytes([port_high, port_low]) != PORT {
        return Err(DropReason::NotForUs);
    }
    if length < 16 {
        return Err(DropReason::VxlanTruncated);
    }
    if datagram[8] & 8 == 0 {
        return Err(DropReason::VxlanNoNetwork);
    }
    if datagram[12..15] != VNI.to_be_bytes()[1..] {
        return Err(DropReason::NoTunnel);
    }
    let is_zero = (first, second) == (0, 0);
    if is_zero && choice.is_v6 && !choice.accepts_zero {
        return Err(DropReason::TunnelMissingChecksum);
    }
    if !is_zero && sum(choice.is_v6, &datagram[..length]) != 0xffff {
        return Err(DropReason::UdpBadChecksum);
    }
    if length < 30 { Err(DropReason::EthernetTruncated) } else { Ok(&datagram[16..length]) }
}

/// The sum over a datagram from the end 0 to the end 1, pseudo-header included.
pub(crate) fn sum(is_v6: bool, datagram: &[u8]) -> u16 {
    if is_v6 {
        naive_pseudo_sum(&ADDRESSES_V6[0].octets(), &ADDRESSES_V6[1].octets(), UDP, datagram)
    } else {
        naive_pseudo_sum(&ADDRESSES[0].octets(), &ADDRESSES[1].octets(), UDP, datagram)
    }
}

/// A datagram that is right, with a checksum, written by hand.
pub(crate) fn right(choice: Choice, frame: &[u8]) -> Vec<u8> {
    let length = u16::try_from(16 + frame.len()).expect("a short frame").to_be_bytes();
    let [_, a, b, c] = VNI.to_be_bytes();
    let [high, low] = PORT.to_be_bytes();
    let header = [0xc1, 0x23, high, low, length[0], length[1], 0, 0, 8, 0, 0, 0, a, b, c, 0];
    let mut datagram = [&header, frame].concat();
    let checksum = match !sum(choice.is_v6, &datagram) {
        0 => 0xffff,
        checksum => checksum,
    };
    datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
    datagram
}

/// A frame with an IP packet from the end 0 to the end 1.
pub(crate) fn outer(is_v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let link = [&MACS[1].0[..], &MACS[0].0].concat();
    if is_v6 {
        let length = u16::try_from(payload.len()).expect("a short payload").to_be_bytes();
        let start = [0x60, 0, 0, 0, length[0], length[1], protocol, 64];
        let addresses = [ADDRESSES_V6[0].octets(), ADDRESSES_V6[1].octets()].concat();
        return [&link[..], &[0x86, 0xdd], &start, &addresses, payload].concat();
    }
    let total = u16::try_from(20 + payload.len()).expect("a short payload").to_be_bytes();
    let start = [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    let mut header = [&start[..], &ADDRESSES[0].octets(), &ADDRESSES[1].octets()].concat();
    let checksum = !naive_sum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&link[..], &[8, 0], &header, payload].concat()
}
