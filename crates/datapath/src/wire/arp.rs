//! ARP for IPv4 over Ethernet (RFC 826).

use super::field::{bytes_at, put, u8_at, u16_at};
use super::{EtherType, MacAddress, TooShort};
use crate::drops::DropReason;
use std::net::Ipv4Addr;

/// Offsets of the fields, in wire order.
mod field {
    pub(super) const HARDWARE: usize = 0;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const HARDWARE_LENGTH: usize = 4;
    pub(super) const PROTOCOL_LENGTH: usize = 5;
    pub(super) const OPERATION: usize = 6;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
}

/// Hardware type Ethernet.
const ETHERNET: u16 = 1;

/// Operation of an ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArpOperation(pub u16);

impl ArpOperation {
    /// Request for the link-layer address of the target.
    pub const REQUEST: Self = Self(1);
    /// Reply with the link-layer address that the request asked for.
    pub const REPLY: Self = Self(2);
}

/// A received ARP packet.
#[derive(Clone, Copy, Debug)]
pub struct Arp<'a> {
    packet: &'a [u8; Arp::HEADER_BYTES],
}

impl<'a> Arp<'a> {
    /// Length of the packet in bytes; further bytes are padding.
    pub const HEADER_BYTES: usize = 28;

    /// Checks the length and the address types.
    ///
    /// # Errors
    /// [`DropReason::ArpTruncated`], [`DropReason::ArpBadFormat`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let packet = bytes.first_chunk().ok_or(DropReason::ArpTruncated)?;
        let fits = u16_at::<{ field::HARDWARE }, _>(packet) == ETHERNET
            && u16_at::<{ field::PROTOCOL }, _>(packet) == EtherType::IPV4.0
            && u8_at::<{ field::HARDWARE_LENGTH }, _>(packet) == 6
            && u8_at::<{ field::PROTOCOL_LENGTH }, _>(packet) == 4;
        if fits { Ok(Self { packet }) } else { Err(DropReason::ArpBadFormat) }
    }

    /// Operation.
    #[inline]
    pub fn operation(&self) -> ArpOperation {
        ArpOperation(u16_at::<{ field::OPERATION }, _>(self.packet))
    }

    /// The sender's link-layer address.
    #[inline]
    pub fn sender_mac(&self) -> MacAddress {
        MacAddress(bytes_at::<{ field::SENDER_MAC }, _, _>(self.packet))
    }

    /// The sender's address.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(bytes_at::<{ field::SENDER_IP }, 4, _>(self.packet))
    }

    /// The target's link-layer address; meaningless in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddress {
        MacAddress(bytes_at::<{ field::TARGET_MAC }, _, _>(self.packet))
    }

    /// The target's address.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(bytes_at::<{ field::TARGET_IP }, 4, _>(self.packet))
    }
}

/// An ARP packet to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpHeader {
    /// Operation.
    pub operation: ArpOperation,
    /// The sender's link-layer address.
    pub sender_mac: MacAddress,
    /// The sender's address.
    pub sender_ip: Ipv4Addr,
    /// The target's link-layer address; zero in a request.
    pub target_mac: MacAddress,
    /// The target's address.
    pub target_ip: Ipv4Addr,
}

impl ArpHeader {
    /// Writes the packet and returns the bytes after it.
    ///
    /// # Errors
    /// [`TooShort`]; nothing is written then.
    pub fn emit(self, bytes: &mut [u8]) -> Result<&mut [u8], TooShort> {
        let (packet, rest) = bytes.split_first_chunk_mut::<{ Arp::HEADER_BYTES }>().ok_or(TooShort)?;
        put::<{ field::HARDWARE }, _, _>(packet, ETHERNET.to_be_bytes());
        put::<{ field::PROTOCOL }, _, _>(packet, EtherType::IPV4.0.to_be_bytes());
        put::<{ field::HARDWARE_LENGTH }, _, _>(packet, [6]);
        put::<{ field::PROTOCOL_LENGTH }, _, _>(packet, [4]);
        put::<{ field::OPERATION }, _, _>(packet, self.operation.0.to_be_bytes());
        put::<{ field::SENDER_MAC }, _, _>(packet, self.sender_mac.0);
        put::<{ field::SENDER_IP }, _, _>(packet, self.sender_ip.octets());
        put::<{ field::TARGET_MAC }, _, _>(packet, self.target_mac.0);
        put::<{ field::TARGET_IP }, _, _>(packet, self.target_ip.octets());
        Ok(rest)
    }
}
