//! IPv6 (RFC 8200) and its extension headers.

use super::checksum::Pseudo;
use super::field::{bytes_at, put, u8_at, u16_at, u32_at};
use super::{IpProtocol, Ipv6Extension, Ipv6Fragment, Ipv6Options, TooShort, TrafficClass};
use crate::drops::DropReason;
use std::net::Ipv6Addr;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const VERSION_CLASS_FLOW: usize = 0;
    pub(super) const PAYLOAD_LENGTH: usize = 4;
    pub(super) const NEXT_HEADER: usize = 6;
    pub(super) const HOP_LIMIT: usize = 7;
    pub(super) const SOURCE: usize = 8;
    pub(super) const DESTINATION: usize = 24;
}

/// Maximum number of extension headers in a packet that is accepted. No host's stack sends as many; RFC 8504,
/// 5.3 allows the limit.
const MAX_EXTENSIONS: usize = 8;

/// A received IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    header: &'a [u8; Ipv6::HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Ipv6<'a> {
    /// Bytes of the header without extension headers.
    pub const HEADER_BYTES: usize = 40;

    /// Checks version and payload length.
    ///
    /// # Errors
    /// [`DropReason::Ipv6Truncated`], [`DropReason::Ipv6BadVersion`],
    /// [`DropReason::Ipv6BadPayloadLength`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        Self::parse_head(bytes, bytes.len())
    }

    /// [`Ipv6::parse`] for the start of a packet that is `length` bytes long, link-layer padding included.
    /// The payload ends at the end of `bytes`.
    ///
    /// # Errors
    /// As [`Ipv6::parse`].
    #[inline]
    pub fn parse_head(bytes: &'a [u8], length: usize) -> Result<Self, DropReason> {
        let (header, rest) = bytes.split_first_chunk().ok_or(DropReason::Ipv6Truncated)?;
        if u8_at::<{ field::VERSION_CLASS_FLOW }, _>(header) >> 4 != 6 {
            return Err(DropReason::Ipv6BadVersion);
        }
        let payload_bytes = usize::from(u16_at::<{ field::PAYLOAD_LENGTH }, _>(header));
        if Self::HEADER_BYTES + payload_bytes > length {
            return Err(DropReason::Ipv6BadPayloadLength);
        }
        let payload = rest.get(..payload_bytes).unwrap_or(rest);
        Ok(Self { header, payload })
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> TrafficClass {
        let [_, _, _, class] = (u32_at::<{ field::VERSION_CLASS_FLOW }, _>(self.header) >> 20).to_be_bytes();
        TrafficClass(class)
    }

    /// The flow label: 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32_at::<{ field::VERSION_CLASS_FLOW }, _>(self.header) & 0x000f_ffff
    }

    /// Length of everything after the header, extension headers included, as stated in the header.
    #[inline]
    pub fn payload_length(&self) -> u16 {
        u16_at::<{ field::PAYLOAD_LENGTH }, _>(self.header)
    }

    /// Protocol of the next header, perhaps an extension header.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(u8_at::<{ field::NEXT_HEADER }, _>(self.header))
    }

    /// Number of routers that the packet may still pass.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        u8_at::<{ field::HOP_LIMIT }, _>(self.header)
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from(bytes_at::<{ field::SOURCE }, 16, _>(self.header))
    }

    /// Destination address; with a routing header, the next address of the route.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        Ipv6Addr::from(bytes_at::<{ field::DESTINATION }, 16, _>(self.header))
    }

    /// Pseudo-header for the payload's checksum.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V6 { source: self.source(), destination: self.destination() }
    }

    /// The bytes after the header, extension headers included, up to the packet's payload length.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Skips the extension headers and returns the payload after them.
    ///
    /// # Errors
    /// [`DropReason::Ipv6BadExtension`] if an extension header does not end within the payload, if hop-by-hop
    /// options are not first (RFC 8200, 4.1), or if there are more than eight.
    #[inline]
    pub fn upper(&self) -> Result<Upper<'a>, DropReason> {
        let protocol = self.next_header();
        let upper = Upper { protocol, offset: Self::HEADER_BYTES, fragment: None, payload: self.payload };
        if protocol.is_extension() { skip_extensions(upper) } else { Ok(upper) }
    }
}

impl<'a> Ipv6<'a> {
    /// Iterates over the extension headers; ends at a malformed one and after the fragment header of a later
    /// fragment.
    pub fn extensions(&self) -> impl Iterator<Item = Ipv6Extension<'a>> + use<'a> {
        let mut next = Some((self.next_header(), Self::HEADER_BYTES, self.payload()));
        core::iter::from_fn(move || {
            let (kind, offset, bytes) = next.take()?;
            if !kind.is_extension() {
                return None;
            }
            let extension = Ipv6Extension::parse(kind, bytes, offset).ok()?;
            if extension.fragment().is_none_or(|fragment| fragment.offset == 0) {
                next = Some((extension.next_header, extension.end(), &bytes[extension.bytes.len()..]));
            }
            Some(extension)
        })
        .take(MAX_EXTENSIONS)
    }

    /// Maximum number of further encapsulations; `None` if the packet lacks the option (RFC 2473, 4.1.1).
    pub fn encapsulation_limit(&self) -> Option<u8> {
        let destination =
            self.extensions().filter(|extension| extension.kind == IpProtocol::DESTINATION_OPTIONS);
        let mut options = destination.flat_map(|extension| extension.options().map_while(Result::ok));
        options.find(|option| option.kind == Ipv6Options::ENCAPSULATION_LIMIT)?.data.first().copied()
    }
}

/// Payload of an IPv6 packet after its extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'a> {
    /// Protocol of the payload; [`IpProtocol::NO_NEXT_HEADER`] if there is none. ESP and unknown headers
    /// count as protocols. In a later fragment it may be an extension header.
    pub protocol: IpProtocol,
    /// Bytes from the start of the IPv6 header to the payload.
    pub offset: usize,
    /// The last fragment header, if any; if its offset is not 0, `payload` does not start with a header.
    pub fragment: Option<Ipv6Fragment>,
    /// Bytes of the payload.
    pub payload: &'a [u8],
}

impl Upper<'_> {
    /// True if `payload` starts with the protocol's header: no fragment, or a first fragment.
    #[inline]
    pub fn has_header(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }
}

#[cold]
fn skip_extensions(mut upper: Upper<'_>) -> Result<Upper<'_>, DropReason> {
    let mut first = true;
    for _ in 0..MAX_EXTENSIONS {
        if upper.protocol == IpProtocol::HOP_BY_HOP && !first {
            return Err(DropReason::Ipv6BadExtension);
        }
        first = false;
        skip_extension(&mut upper)?;
        if !upper.has_header() || !upper.protocol.is_extension() {
            return Ok(upper);
        }
    }
    Err(DropReason::Ipv6BadExtension)
}

fn skip_extension(upper: &mut Upper<'_>) -> Result<(), DropReason> {
    let extension = Ipv6Extension::parse(upper.protocol, upper.payload, upper.offset)?;
    if let Some(fragment) = extension.fragment() {
        upper.fragment = Some(fragment);
    }
    upper.payload = &upper.payload[extension.bytes.len()..];
    upper.protocol = extension.next_header;
    upper.offset = extension.end();
    Ok(())
}

/// An IPv6 header to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// DSCP and ECN.
    pub traffic_class: TrafficClass,
    /// The flow label; only the lower 20 bits are used.
    pub flow_label: u32,
    /// Length of everything after the header in bytes.
    pub payload_length: u16,
    /// Protocol of the payload.
    pub next_header: IpProtocol,
    /// Number of routers that the packet may pass.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// Writes the header and returns the bytes after it.
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    #[inline]
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        let (header, rest) = bytes.split_first_chunk_mut::<{ Ipv6::HEADER_BYTES }>().ok_or(TooShort)?;
        let first = 6 << 28 | u32::from(self.traffic_class.0) << 20 | self.flow_label & 0x000f_ffff;
        put::<{ field::VERSION_CLASS_FLOW }, _, _>(header, first.to_be_bytes());
        put::<{ field::PAYLOAD_LENGTH }, _, _>(header, self.payload_length.to_be_bytes());
        put::<{ field::NEXT_HEADER }, _, _>(header, [self.next_header.0]);
        put::<{ field::HOP_LIMIT }, _, _>(header, [self.hop_limit]);
        put::<{ field::SOURCE }, _, _>(header, self.source.octets());
        put::<{ field::DESTINATION }, _, _>(header, self.destination.octets());
        Ok(rest)
    }
}

/// An IPv6 header to be modified in place.
#[derive(Debug)]
pub struct Ipv6Mut<'a> {
    header: &'a mut [u8; Ipv6::HEADER_BYTES],
}

impl<'a> Ipv6Mut<'a> {
    /// Checks as [`Ipv6::parse_head`] does.
    ///
    /// # Errors
    /// As [`Ipv6::parse_head`].
    #[inline]
    pub fn parse_head(bytes: &'a mut [u8], length: usize) -> Result<Self, DropReason> {
        Ipv6::parse_head(bytes, length)?;
        Ok(Self { header: bytes.first_chunk_mut().ok_or(DropReason::Ipv6Truncated)? })
    }

    /// Checks as [`Ipv6::parse`] does.
    ///
    /// # Errors
    /// As [`Ipv6::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, DropReason> {
        let length = bytes.len();
        Self::parse_head(bytes, length)
    }

    /// Sets DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, traffic_class: TrafficClass) {
        let first = u32_at::<{ field::VERSION_CLASS_FLOW }, _>(self.header);
        let first = first & 0xf00f_ffff | u32::from(traffic_class.0) << 20;
        put::<{ field::VERSION_CLASS_FLOW }, _, _>(self.header, first.to_be_bytes());
    }

    /// Sets the length of everything after the header, extension headers included.
    #[inline]
    pub fn set_payload_length(&mut self, payload_length: u16) {
        put::<{ field::PAYLOAD_LENGTH }, _, _>(self.header, payload_length.to_be_bytes());
    }

    /// Sets the number of routers that the packet may still pass.
    #[inline]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        put::<{ field::HOP_LIMIT }, _, _>(self.header, [hop_limit]);
    }
}
