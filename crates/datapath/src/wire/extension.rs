//! IPv6 extension headers and the options in them (RFC 8200, 4).

use super::IpProtocol;
use super::field::{put, u8_at, u16_at, u32_at};
use crate::drops::DropReason;

/// Offsets of the fields of extension headers, in wire order.
mod field {
    pub(super) const NEXT_HEADER: usize = 0;
    pub(super) const LENGTH: usize = 1;
    pub(super) const FRAGMENT: usize = 2;
    pub(super) const IDENTIFICATION: usize = 4;
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Extension<'a> {
    /// Protocol number of this extension header.
    pub kind: IpProtocol,
    /// Protocol number of the next header.
    pub next_header: IpProtocol,
    /// Bytes from the start of the IPv6 header to this extension header.
    pub offset: usize,
    /// The whole extension header.
    pub bytes: &'a [u8],
}

impl<'a> Ipv6Extension<'a> {
    /// Length of the shortest extension header, and of every fragment header, in bytes.
    pub const LEAST_BYTES: usize = 8;

    /// Parses the extension header of protocol `kind` at the start of `bytes`; `offset` bytes precede it in
    /// the packet.
    ///
    /// # Errors
    /// [`DropReason::Ipv6BadExtension`] if the header does not end within `bytes`.
    #[inline]
    pub fn parse(kind: IpProtocol, bytes: &'a [u8], offset: usize) -> Result<Self, DropReason> {
        let header: &[u8; Ipv6Extension::LEAST_BYTES] =
            bytes.first_chunk().ok_or(DropReason::Ipv6BadExtension)?;
        let units = usize::from(u8_at::<{ field::LENGTH }, _>(header));
        let length = match kind {
            IpProtocol::FRAGMENT => Self::LEAST_BYTES,
            // RFC 4302, 2.2: the length counts four-byte units minus two; a header has at least twelve bytes.
            IpProtocol::AUTHENTICATION if units == 0 => return Err(DropReason::Ipv6BadExtension),
            IpProtocol::AUTHENTICATION => (units + 2) * 4,
            _ => (units + 1) * 8,
        };
        let next_header = IpProtocol(u8_at::<{ field::NEXT_HEADER }, _>(header));
        let bytes = bytes.get(..length).ok_or(DropReason::Ipv6BadExtension)?;
        Ok(Self { kind, next_header, offset, bytes })
    }

    /// Bytes from the start of the IPv6 header to the next header.
    #[inline]
    pub fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }

    /// Fields of a fragment header; `None` for another extension header.
    #[inline]
    pub fn fragment(&self) -> Option<Ipv6Fragment> {
        let header: &[u8; Ipv6Extension::LEAST_BYTES] = self.bytes.first_chunk()?;
        let word = u16_at::<{ field::FRAGMENT }, _>(header);
        let identification = u32_at::<{ field::IDENTIFICATION }, _>(header);
        let fragment = Ipv6Fragment { offset: word & !7, more: word & 1 != 0, identification };
        (self.kind == IpProtocol::FRAGMENT).then_some(fragment)
    }

    /// Options of a hop-by-hop or destination options header; empty for another extension header.
    #[inline]
    pub fn options(&self) -> Ipv6Options<'a> {
        let has_options = matches!(self.kind, IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS);
        Ipv6Options { rest: self.bytes.get(2..).filter(|_| has_options).unwrap_or_default() }
    }
}

/// A fragment header (RFC 8200, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Fragment {
    /// Bytes of the fragmentable part in earlier fragments: at most 65 528.
    pub offset: u16,
    /// True if further fragments of the same packet follow.
    pub more: bool,
    /// Identification, the same in all fragments of a packet.
    pub identification: u32,
}

impl Ipv6Fragment {
    /// Returns the header's bytes; the header `next_header` follows.
    pub fn emit(self, next_header: IpProtocol) -> [u8; Ipv6Extension::LEAST_BYTES] {
        let mut header = [0; Ipv6Extension::LEAST_BYTES];
        put::<{ field::NEXT_HEADER }, _, _>(&mut header, [next_header.0]);
        let word = self.offset & !7 | u16::from(self.more);
        put::<{ field::FRAGMENT }, _, _>(&mut header, word.to_be_bytes());
        put::<{ field::IDENTIFICATION }, _, _>(&mut header, self.identification.to_be_bytes());
        header
    }
}

/// One option; padding is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Option<'a> {
    /// Option type; the upper two bits tell a host that does not know the option how to treat the packet.
    pub kind: u8,
    /// Data of the option.
    pub data: &'a [u8],
}

impl Ipv6Option<'_> {
    /// True if a host that does not know the option skips it and processes the packet (RFC 8200, 4.2).
    #[inline]
    pub fn may_be_skipped(&self) -> bool {
        self.kind >> 6 == 0
    }
}

/// The options of one header.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Options<'a> {
    rest: &'a [u8],
}

impl Ipv6Options<'_> {
    /// Option type: maximum number of further encapsulations (RFC 2473, 5.1).
    pub const ENCAPSULATION_LIMIT: u8 = 4;
    /// Offset in bytes of the limit in the header that [`with_limit`](Self::with_limit) returns.
    pub const LIMIT_AT: usize = 4;
    const PAD_1: u8 = 0;
    const PAD_N: u8 = 1;

    /// Returns a destination options header with only an encapsulation limit; the header `next_header`
    /// follows.
    pub const fn with_limit(next_header: IpProtocol, limit: u8) -> [u8; Ipv6Extension::LEAST_BYTES] {
        [next_header.0, 0, Self::ENCAPSULATION_LIMIT, 1, limit, Self::PAD_N, 1, 0]
    }
}

impl<'a> Iterator for Ipv6Options<'a> {
    type Item = Result<Ipv6Option<'a>, DropReason>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, behind) = self.rest.split_first()?;
            if kind == Self::PAD_1 {
                self.rest = behind;
                continue;
            }
            let option = behind.split_first().and_then(|(&length, behind)| {
                let (data, behind) = behind.split_at_checked(usize::from(length))?;
                Some((Ipv6Option { kind, data }, behind))
            });
            let Some((option, behind)) = option else {
                self.rest = &[];
                return Some(Err(DropReason::Ipv6BadExtension));
            };
            self.rest = behind;
            if kind != Self::PAD_N {
                return Some(Ok(option));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Ipv6;
    use std::net::Ipv6Addr;

    fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 40];
        let header = crate::wire::Ipv6Header {
            traffic_class: crate::wire::TrafficClass(0),
            flow_label: 0,
            payload_length: u16::try_from(payload.len()).unwrap(),
            next_header: IpProtocol(next_header),
            hop_limit: 64,
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::LOCALHOST,
        };
        header.emit(&mut bytes).unwrap();
        bytes.extend(payload);
        bytes
    }

    /// RFC 2473, 5.1, and the padding that Linux puts behind it (`init_tel_txopt`).
    #[test]
    fn a_limit_as_linux_writes_it() {
        let header = Ipv6Options::with_limit(IpProtocol::GRE, 4);
        assert_eq!(header, [47, 0, 4, 1, 4, 1, 1, 0]);
        assert_eq!(header[Ipv6Options::LIMIT_AT], 4);
        let bytes = packet(60, &header);
        let ip = Ipv6::parse(&bytes).unwrap();
        assert_eq!(ip.encapsulation_limit(), Some(4));
        let all = ip.extensions().map(|extension| (extension.offset, extension.end(), extension.next_header));
        assert_eq!(all.collect::<Vec<_>>(), [(40, 48, IpProtocol::GRE)]);
    }

    #[test]
    fn options_and_padding() {
        type Read = Option<(u8, usize)>;
        let cases: [(&[u8], &[Read]); 5] = [
            (&[60, 0, 0, 0, 0, 0, 0, 0], &[]),
            (&[60, 0, 1, 4, 0, 0, 0, 0], &[]),
            (&[60, 0, 0, 4, 1, 9, 0xc2, 0], &[Some((4, 1)), Some((0xc2, 0))]),
            (&[60, 0, 4, 1, 9, 1, 0, 5], &[Some((4, 1)), None]),
            (&[60, 0, 4, 5, 9, 1, 0, 5], &[None]),
        ];
        for (bytes, expected) in cases {
            let header = Ipv6Extension::parse(IpProtocol::DESTINATION_OPTIONS, bytes, 40).unwrap();
            let options =
                header.options().map(|option| option.ok().map(|option| (option.kind, option.data.len())));
            assert_eq!(options.collect::<Vec<_>>(), expected, "{bytes:x?}");
        }
    }

    #[test]
    fn fragments_are_written_as_they_are_read() {
        for (offset, more) in [(0, true), (8, false), (65_528, true), (1232, false)] {
            let fragment = Ipv6Fragment { offset, more, identification: 0xfedc_ba98 };
            let bytes = fragment.emit(IpProtocol::GRE);
            let read = Ipv6Extension::parse(IpProtocol::FRAGMENT, &bytes, 40).unwrap();
            assert_eq!((read.fragment(), read.next_header), (Some(fragment), IpProtocol::GRE));
            let whole = packet(44, &bytes);
            let ip = Ipv6::parse(&whole).unwrap();
            assert_eq!(ip.upper().unwrap().fragment, Some(fragment), "the other parser agrees");
        }
    }

    #[test]
    fn limits_behind_a_later_fragment_or_nowhere() {
        let limit = Ipv6Options::with_limit(IpProtocol::GRE, 0);
        for (offset, seen) in [(0, Some(0)), (8, None)] {
            let fragment = Ipv6Fragment { offset, more: true, identification: 1 };
            let payload = [&fragment.emit(IpProtocol::DESTINATION_OPTIONS)[..], &limit].concat();
            assert_eq!(Ipv6::parse(&packet(44, &payload)).unwrap().encapsulation_limit(), seen);
        }
        assert_eq!(Ipv6::parse(&packet(60, &limit[..7])).unwrap().encapsulation_limit(), None);
        assert_eq!(Ipv6::parse(&packet(47, &limit)).unwrap().encapsulation_limit(), None);
    }
}
