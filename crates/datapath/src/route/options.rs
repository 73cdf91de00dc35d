//! Hop-by-hop options (RFC 8200, 4.3), checked like in the kernel before the route look-up.
//!
//! Options have no effect: the packet passes or is dropped. On Ethernet no packet is long enough for a jumbo
//! payload (RFC 2675), so all of these are dropped.

use super::error::Problem;
use crate::wire::{IpProtocol, Ipv6};

/// Error in the options: the packet is dropped, with an ICMP error if there is a [`Problem`].
pub(super) struct Refused(pub(super) Option<Problem>);

/// The packet is dropped without an ICMP error.
const SILENT: Refused = Refused(None);

const PAD_1: u8 = 0;
const PAD_N: u8 = 1;
const ROUTER_ALERT: u8 = 5;
const JUMBO_PAYLOAD: u8 = 0xc2;
/// Maximum number of options in a header, and of consecutive padding bytes (`net.ipv6.max_hbh_opts_number`;
/// RFC 4942, 2.1.9.5).
const MOST_OPTIONS: usize = 8;
const MOST_PADDING: usize = 7;
/// Offset of the payload length in an IPv6 header, in bytes.
const PAYLOAD_LENGTH: u32 = 4;
/// Codes of the ICMPv6 error "parameter problem" (RFC 4443, 3.4).
const ERRONEOUS_FIELD: u8 = 0;
const UNKNOWN_OPTION: u8 = 2;

/// Checks the hop-by-hop options, if any, of a packet of `length` bytes.
#[cold]
pub(super) fn check(bytes: &[u8], length: usize) -> Result<(), Refused> {
    let Ok(ip) = Ipv6::parse_head(bytes, length) else { return Ok(()) };
    if ip.next_header() != IpProtocol::HOP_BY_HOP {
        return Ok(());
    }
    // With a payload length of zero, only a jumbo payload option could give the length.
    let has_length = ip.payload_length() > 0;
    let behind = bytes.get(Ipv6::HEADER_BYTES..).ok_or(SILENT)?;
    let bytes_of_header = behind.get(1).map(|&words| 8 * (usize::from(words) + 1)).ok_or(SILENT)?;
    if has_length && bytes_of_header > usize::from(ip.payload_length()) {
        return Err(SILENT);
    }
    let options = behind.get(2..bytes_of_header).ok_or(SILENT)?;
    let packet =
        Packet { payload: has_length.then_some(ip.payload_length()), room: length - Ipv6::HEADER_BYTES };
    packet.check(options)?;
    // RFC 2675, 3: a payload length of zero before such a header is an error.
    if has_length { Ok(()) } else { Err(problem(ERRONEOUS_FIELD, PAYLOAD_LENGTH)) }
}

/// Lengths of the packet, which options are checked against: payload length field, and bytes after the
/// header.
struct Packet {
    payload: Option<u16>,
    room: usize,
}

impl Packet {
    fn check(&self, options: &[u8]) -> Result<(), Refused> {
        let (mut rest, mut padding, mut count) = (options, 0, 0);
        while let Some(&kind) = rest.first() {
            let length = match (kind, rest.get(1)) {
                (PAD_1, _) => 1,
                (_, Some(&length)) => 2 + usize::from(length),
                (_, None) => return Err(SILENT),
            };
            let (option, next) = rest.split_at_checked(length).ok_or(SILENT)?;
            if matches!(kind, PAD_1 | PAD_N) {
                padding += length;
            } else {
                (padding, count) = (0, count + 1);
                let offset = Ipv6::HEADER_BYTES + 2 + (options.len() - rest.len());
                self.option(option, u32::try_from(offset).unwrap_or(u32::MAX))?;
            }
            let is_clean = kind != PAD_N || option.iter().skip(2).all(|&byte| byte == 0);
            if !is_clean || padding > MOST_PADDING || count > MOST_OPTIONS {
                return Err(SILENT);
            }
            rest = next;
        }
        Ok(())
    }

    fn option(&self, option: &[u8], offset: u32) -> Result<(), Refused> {
        match (option[0], option[0] >> 6) {
            (ROUTER_ALERT, _) if option.len() == 4 => Ok(()),
            (ROUTER_ALERT, _) => Err(SILENT),
            (JUMBO_PAYLOAD, _) => Err(self.jumbo(option, offset)),
            (_, 0) => Ok(()),
            (_, 1) => Err(SILENT),
            _ => Err(problem(UNKNOWN_OPTION, offset)),
        }
    }

    /// Error in a jumbo payload option.
    fn jumbo(&self, option: &[u8], offset: u32) -> Refused {
        let length =
            option.get(2..).and_then(|length| <[u8; 4]>::try_from(length).ok()).map(u32::from_be_bytes);
        match length.filter(|_| offset % 4 == 2) {
            None => SILENT,
            Some(length) if length <= u32::from(u16::MAX) => problem(ERRONEOUS_FIELD, offset + 2),
            Some(_) if self.payload.is_some() => problem(ERRONEOUS_FIELD, offset),
            // Longer than any packet on the supported links.
            Some(length) => {
                debug_assert!(length as usize > self.room, "no frame is that long");
                SILENT
            }
        }
    }
}

const fn problem(code: u8, pointer: u32) -> Refused {
    Refused(Some(Problem::Parameter { code, pointer }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ipv6Header, TrafficClass};

    /// Verdict on a packet with these options: none, a silent refusal, or code and pointer of a message.
    fn fate(options: &[u8], has_length: bool) -> Result<(), Option<(u8, u32)>> {
        let header = Ipv6Header {
            traffic_class: TrafficClass(0),
            flow_label: 0,
            payload_length: if has_length { u16::try_from(2 + options.len() + 10).unwrap() } else { 0 },
            next_header: IpProtocol::HOP_BY_HOP,
            hop_limit: 9,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        let mut bytes = vec![0; 40 + 2 + options.len() + 10];
        header.emit(&mut bytes).unwrap();
        assert_eq!((2 + options.len()) % 8, 0);
        (bytes[40], bytes[41]) = (17, u8::try_from((2 + options.len()) / 8 - 1).unwrap());
        bytes[42..42 + options.len()].copy_from_slice(options);
        check(&bytes, bytes.len()).map_err(|Refused(problem)| {
            let header = problem?.icmpv6();
            assert_eq!(header.kind, crate::wire::Icmpv6::PARAMETER_PROBLEM);
            Some((header.code, header.rest))
        })
    }

    /// The fates are those that Linux 6.18 gives the same packets as a router.
    #[test]
    fn as_the_kernel_does() {
        let pad = |option: &[u8]| {
            let mut options = option.to_vec();
            match (6 - options.len() % 8) % 8 {
                0 => {}
                1 => options.push(0),
                rest => {
                    options.extend([1, u8::try_from(rest - 2).unwrap()].iter().chain(&[0; 6][..rest - 2]))
                }
            }
            options
        };
        let refused = |code, pointer| Err(Some((code, pointer)));
        for (name, options, expected) in [
            ("router alert", pad(&[5, 2, 0, 0]), Ok(())),
            ("router alert of 4", pad(&[5, 4, 0, 0, 0, 0]), Err(None)),
            ("to be skipped", pad(&[0x1e, 2, 0, 0]), Ok(())),
            ("to be dropped", pad(&[0x5e, 2, 0, 0]), Err(None)),
            ("to be told", pad(&[0x9e, 2, 0, 0]), refused(2, 42)),
            ("to be told unless a group", pad(&[0xde, 2, 0, 0]), refused(2, 42)),
            ("padding that is not zero", pad(&[1, 2, 1, 0]), Err(None)),
            ("eight options", pad(&[0x1e, 0].repeat(8)), Ok(())),
            ("nine options", pad(&[0x1e, 0].repeat(9)), Err(None)),
            ("padding of 8", vec![1, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0x1e, 0, 0, 0], Err(None)),
            ("padding of 7", vec![1, 5, 0, 0, 0, 0, 0, 0x1e, 0, 1, 3, 0, 0, 0], Ok(())),
            ("an option that is cut off", vec![0x1e, 0x20, 0, 0, 0, 0], Err(None)),
            ("jumbo and a length", pad(&[0xc2, 4, 0, 1, 0x11, 0x70]), refused(0, 42)),
            ("a small jumbo and a length", pad(&[0xc2, 4, 0, 0, 0, 16]), refused(0, 44)),
        ] {
            assert_eq!(fate(&options, true), expected, "{name}");
        }
        assert_eq!(fate(&pad(&[0xc2, 4, 0, 0, 0, 16]), false), refused(0, 44));
        assert_eq!(fate(&pad(&[0xc2, 4, 0, 1, 0x11, 0x70]), false), Err(None), "more than there is");
        assert_eq!(
            fate(&pad(&[0, 0, 0xc2, 4, 0, 1, 0x11, 0x70]), false),
            Err(None),
            "not where it may stand"
        );
        assert_eq!(fate(&pad(&[5, 2, 0, 0]), false), refused(0, 4), "RFC 2675; the kernel lets it pass");
    }
}
