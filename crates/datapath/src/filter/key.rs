//! Key of a packet: the fields that rules can test, in six words.
//!
//! | word | bits |
//! |---|---|
//! | 0, 1 | source address; IPv4 in the upper half of word 0 |
//! | 2, 3 | destination address |
//! | 4 | port, VLAN, EtherType (16 each), protocol, TCP flags (8 each) |
//! | 5 | source port, destination port (16 each), "known" bits (32) |
//!
//! Fields that a packet lacks are zero; a condition on a field also tests its "known" bit.

use crate::parse::{Addresses, HeaderSummary, Part};
use crate::wire::IpProtocol;
use polder_buffers::{Packet, PortId};

/// Number of words of a key.
pub(super) const WORDS: usize = 6;

/// Packet fields that rules can test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key(pub(super) [u64; WORDS]);

/// Bit of word 5: the packet is IPv4 or IPv6.
pub(super) const IS_IP: u64 = 1;
/// Bit of word 5: ports are known (no later fragment, a protocol with ports).
pub(super) const HAS_PORTS: u64 = 2;
/// Bit of word 5: TCP flags are known.
pub(super) const HAS_FLAGS: u64 = 4;

/// Bit offsets of fields in word 4.
pub(super) const PORT_AT: u32 = 48;
pub(super) const VLAN_AT: u32 = 32;
pub(super) const ETHER_TYPE_AT: u32 = 16;
pub(super) const PROTOCOL_AT: u32 = 8;
/// Bit offsets of fields in word 5.
pub(super) const SOURCE_PORT_AT: u32 = 48;
pub(super) const DESTINATION_PORT_AT: u32 = 32;

/// The IP headers are malformed, or fragmented so that rules could be evaded (RFC 1858, RFC 3128).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unreadable;

const ETHERNET: usize = 14;
const TAGGED: usize = 18;
const TAG: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Length in bytes of a TCP header up to its flags.
const TO_FLAGS: usize = 14;
/// Length in bytes of both ports.
const PORTS: usize = 4;

impl Key {
    /// Reads the key of a frame that `port` received or will send; frames without tag or with a priority tag
    /// are in VLAN `untagged`.
    #[inline]
    pub(super) fn read(packet: &mut Packet, port: PortId, untagged: u16) -> Result<Self, Unreadable> {
        let (headers, bytes) = HeaderSummary::with_bytes(packet);
        let port = u64::from(port.0) << PORT_AT;
        let Some(plain) = headers.plain_v4(bytes) else {
            return Self::read_closely(port, untagged, headers, bytes);
        };
        let link = port | u64::from(untagged) << VLAN_AT | u64::from(IPV4) << ETHER_TYPE_AT;
        let (fourth, fifth) = upper(plain.protocol, plain.payload)?;
        let [source, destination] = plain.addresses.map(|address| u64::from(address) << 32);
        Ok(Self([source, 0, destination, 0, link | fourth, fifth]))
    }

    #[inline(never)]
    fn read_closely(
        port: u64,
        untagged: u16,
        headers: HeaderSummary,
        bytes: &[u8],
    ) -> Result<Self, Unreadable> {
        let Some(&[.., a, b]) = bytes.first_chunk::<ETHERNET>() else {
            return Ok(Self([0, 0, 0, 0, port, 0]));
        };
        let (mut ether_type, mut vlan) = (u16::from_be_bytes([a, b]), untagged);
        if ether_type == TAG
            && let Some(&[.., c, d, e, f]) = bytes.first_chunk::<TAGGED>()
        {
            let tagged = u16::from_be_bytes([c, d]) & 0x0fff;
            vlan = if tagged == 0 { untagged } else { tagged };
            ether_type = u16::from_be_bytes([e, f]);
        }
        let link = port | u64::from(vlan) << VLAN_AT | u64::from(ether_type) << ETHER_TYPE_AT;
        match ether_type {
            IPV4 | IPV6 => Self::read_ip(link, headers, bytes),
            _ => Ok(Self([0, 0, 0, 0, link, 0])),
        }
    }

    fn read_ip(link: u64, headers: HeaderSummary, bytes: &[u8]) -> Result<Self, Unreadable> {
        let addresses = headers.addresses(bytes).filter(|_| headers.is_readable()).ok_or(Unreadable)?;
        let [a, b, c, d] = match addresses {
            Addresses::V4([source, destination]) => {
                [u64::from(source) << 32, 0, u64::from(destination) << 32, 0]
            }
            Addresses::V6([source, destination]) => {
                let ([a, b], [c, d]) = (halves(source), halves(destination));
                [a, b, c, d]
            }
        };
        let protocol = headers.protocol();
        let (fourth, fifth) = match headers.part() {
            Part::Whole | Part::First => upper(protocol, headers.payload(bytes))?,
            // RFC 3128: a fragment that overwrites the TCP flags of the first fragment.
            Part::Second if protocol == IpProtocol::TCP => return Err(Unreadable),
            Part::Second | Part::Later => (u64::from(protocol.0) << PROTOCOL_AT, IS_IP),
        };
        Ok(Self([a, b, c, d, link | fourth, fifth]))
    }

    /// The EtherType.
    #[inline]
    pub(super) fn ether_type(&self) -> u16 {
        (self.0[4] >> ETHER_TYPE_AT & 0xffff) as u16
    }

    /// The IP protocol.
    #[inline]
    pub(super) fn protocol(&self) -> u8 {
        (self.0[4] >> PROTOCOL_AT & 0xff) as u8
    }

    /// Ingress or egress port.
    #[inline]
    pub(super) fn port(&self) -> u16 {
        (self.0[4] >> PORT_AT & 0xffff) as u16
    }

    #[inline]
    pub(super) fn source_port(&self) -> u16 {
        (self.0[5] >> SOURCE_PORT_AT & 0xffff) as u16
    }

    #[inline]
    pub(super) fn destination_port(&self) -> u16 {
        (self.0[5] >> DESTINATION_PORT_AT & 0xffff) as u16
    }

    /// 0 for packets other than IP, 1 for IPv4, 2 for IPv6.
    #[inline]
    pub(super) fn family(&self) -> usize {
        match self.ether_type() {
            IPV4 => 1,
            IPV6 => 2,
            _ => 0,
        }
    }
}

/// Upper and lower half of an address.
#[inline]
pub(super) fn halves(bits: u128) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = bits.to_be_bytes();
    [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(rest)]
}

/// Words 4 and 5: protocol, ports and flags from the IP payload.
#[inline(always)]
fn upper(protocol: IpProtocol, payload: &[u8]) -> Result<(u64, u64), Unreadable> {
    let fourth = u64::from(protocol.0) << PROTOCOL_AT;
    if !protocol.has_ports() {
        return Ok((fourth, IS_IP));
    }
    let &[a, b, c, d] = payload.first_chunk::<PORTS>().ok_or(Unreadable)?;
    let ports = u64::from(u32::from_be_bytes([a, b, c, d])) << DESTINATION_PORT_AT;
    if protocol != IpProtocol::TCP {
        return Ok((fourth, ports | IS_IP | HAS_PORTS));
    }
    let &[.., flags] = payload.first_chunk::<TO_FLAGS>().ok_or(Unreadable)?;
    Ok((fourth | u64::from(flags), ports | IS_IP | HAS_PORTS | HAS_FLAGS))
}
