//! Results of decapsulation over IPv6 for any headers before GRE, against a reference written from
//! RFC 8200, RFC 2473, RFC 2784 and RFC 2890.
//!
//! The first byte chooses the tunnel's options. Then come packets: the next header of the IPv6 header, a
//! length that it claims instead of the right one (0 for the right one), the number of words that follow,
//! and those.

use super::ends::{ADDRESSES_V6, End, MACS, Path, bytes_of};
use super::gre::reference;
use super::naive_sum;
use polder_datapath::drops::DropReason;
use polder_datapath::tunnel::{ReassemblyLimits, TcpMss, TunnelOptions};
use std::collections::BTreeMap;

const KEY: u32 = 0x0102_0304;
const PATH: Path = Path { mtu: 1500, vlan: None };
/// Packets of one input.
const MOST: usize = 32;

/// Options of the tunnel, and the last sequence number.
struct Tunnel {
    checksum: bool,
    key: Option<u32>,
    sequence: bool,
    last: Option<u32>,
}

/// Result for a packet; `Err(None)` for a fragment.
type Fate = Result<Vec<u8>, Option<DropReason>>;

/// Any packets of a tunnel over IPv6.
pub(crate) fn outer_v6(bytes: &[u8]) {
    let Some((&choice, mut rest)) = bytes.split_first() else { return };
    let has = |bit: u8| choice >> bit & 1 != 0;
    let mut tunnel = Tunnel { checksum: has(0), key: has(1).then_some(KEY), sequence: has(2), last: None };
    let change = |options: &mut TunnelOptions| {
        options.ends = (ADDRESSES_V6[1], ADDRESSES_V6[0]).into();
        (options.checksum, options.key, options.sequence) = (tunnel.checksum, tunnel.key, tunnel.sequence);
        options.tcp_mss = TcpMss::Off;
    };
    let mut end = End::new(1, PATH, ReassemblyLimits::default(), change);
    let (mut frames, mut fates) = (Vec::new(), Vec::new());
    while let Some((&[next, claimed, words], behind)) = rest.split_first_chunk() {
        let (content, behind) = behind.split_at(behind.len().min(usize::from(words) * 4));
        rest = behind;
        let length = if claimed == 0 { content.len() } else { usize::from(claimed) };
        frames.push(frame(next, length, content));
        fates.push(tunnel.fate(next, length, content));
        if frames.len() == MOST {
            break;
        }
    }
    let packets = frames.iter().map(|frame| end.packet(frame, &[])).collect();
    let out = end.receive(packets);
    let found = out.iter().map(bytes_of).collect::<Vec<_>>();
    end.release(out);
    // Fragments have a model of their own; here they only have to be counted.
    if !fates.iter().any(|fate| matches!(fate, Err(None))) {
        let expected = fates.iter().filter_map(|fate| fate.as_ref().ok()).collect::<Vec<_>>();
        assert!(found.iter().eq(expected), "what went in");
        let mut reasons = BTreeMap::new();
        fates.iter().filter_map(|fate| fate.as_ref().err().copied().flatten()).for_each(|reason| {
            *reasons.entry(reason).or_insert(0) += 1;
        });
        assert_eq!(end.drops.occurred().collect::<BTreeMap<_, _>>(), reasons);
    }
}

fn frame(next: u8, length: usize, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(length).expect("a short packet").to_be_bytes();
    let ends = ADDRESSES_V6.map(|address| address.octets()).concat();
    let head = [0x60, 0, 0, 0, length[0], length[1], next, 64];
    [&MACS[1].0[..], &MACS[0].0, &[0x86, 0xdd], &head, &ends, content].concat()
}

impl Tunnel {
    fn fate(&mut self, next: u8, length: usize, content: &[u8]) -> Fate {
        let refused = |reason| Err(Some(reason));
        let Some(payload) = content.get(..length) else { return refused(DropReason::Ipv6BadPayloadLength) };
        let packet = walk(next, payload)?;
        let gre = match packet.len() {
            0..4 => return refused(DropReason::GreTruncated),
            _ => match reference(packet) {
                Ok(gre) => gre,
                Err(malformed) => return refused(malformed),
            },
        };
        if gre.key != self.key {
            return refused(DropReason::NoTunnel);
        }
        if gre.protocol != 0x6558 {
            return refused(DropReason::TunnelBadProtocol);
        }
        match gre.checksum {
            Some(_) if naive_sum(packet) != 0xffff => return refused(DropReason::GreBadChecksum),
            None if self.checksum => return refused(DropReason::TunnelMissingChecksum),
            Some(_) | None => {}
        }
        if self.sequence {
            let Some(number) = gre.sequence else { return refused(DropReason::TunnelMissingSequence) };
            if self.last.is_some_and(|last| number.wrapping_sub(last).wrapping_sub(1) >= 1 << 31) {
                return refused(DropReason::TunnelOutOfSequence);
            }
        }
        let inside = &packet[gre.header_bytes..];
        if inside.len() < 14 {
            return refused(DropReason::EthernetTruncated);
        }
        self.last = gre.sequence.filter(|_| self.sequence).or(self.last);
        Ok(inside.to_vec())
    }
}

/// The GRE packet behind the extension headers: at most four that are not fragments of anything.
fn walk(mut next: u8, mut bytes: &[u8]) -> Result<&[u8], Option<DropReason>> {
    let bad = Err(Some(DropReason::Ipv6BadExtension));
    for _ in 0..5 {
        if next == 47 {
            return Ok(bytes);
        }
        if ![0, 44, 60].contains(&next) {
            return Err(Some(DropReason::NotForUs));
        }
        let length = match bytes {
            [_, units, ..] if bytes.len() >= 8 => {
                if next == 44 {
                    8
                } else {
                    8 * (usize::from(*units) + 1)
                }
            }
            _ => return bad,
        };
        let Some((header, behind)) = bytes.split_at_checked(length) else { return bad };
        if next == 44 {
            let is_part = header[2] != 0 || header[3] & 0xf9 != 0;
            let is_ours = [47, 60].contains(&header[0]);
            if is_part {
                return Err(Some(DropReason::NotForUs).filter(|_| !is_ours));
            }
        } else if !may_be_skipped(&header[2..]) {
            return bad;
        }
        (next, bytes) = (header[0], behind);
    }
    bad
}

/// True if all options are whole, and none has to be understood (RFC 8200, 4.2).
fn may_be_skipped(mut options: &[u8]) -> bool {
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, rest) => rest,
            (kind, [length, data @ ..]) if *kind < 0x40 && data.len() >= usize::from(*length) => {
                &data[usize::from(*length)..]
            }
            _ => return false,
        };
    }
    true
}
