//! ICMP messages to senders of packets: permitted receivers, headers, length, rate limit.

use crate::parse::{HeaderSummary, Network};
use crate::units::Nanos;
use crate::wire::{
    Ethernet, EthernetHeader, Icmp, IcmpHeader, Icmpv6, IpProtocol, Ipv4, Ipv4Header, Ipv6, Ipv6Header,
    MacAddress, Pseudo, TrafficClass,
};
use polder_buffers::{HEADROOM, Packet, Pool};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum length of an ICMP error in bytes, IP header included (RFC 1812, 4.3.2.3).
const LONGEST_V4: usize = 576;
/// Maximum length of an ICMPv6 error in bytes, IP header included: IPv6's minimum MTU (RFC 4443, 2.4 (c)).
const LONGEST_V6: usize = 1280;
/// TTL of the message.
const TIME_TO_LIVE: u8 = 64;

/// ICMP error about a packet.
#[derive(Debug)]
pub(crate) struct IcmpError {
    /// Source MAC address.
    pub(crate) station: MacAddress,
    /// Source and destination IP address.
    pub(crate) addresses: Pseudo,
    /// DSCP and ECN.
    pub(crate) traffic_class: TrafficClass,
    /// ICMP header; an ICMPv6 header with IPv6 addresses.
    pub(crate) header: IcmpHeader,
    /// Maximum length in bytes, IP header included, in addition to the family's own limit.
    pub(crate) most: usize,
}

impl IcmpError {
    /// Builds the message in a new frame, with the link header of `packet`, whose IP header is at offset
    /// `link`. `None` if the pool is empty.
    pub(crate) fn message(&self, packet: &Packet, link: usize, pool: &mut Pool) -> Option<Packet> {
        let bytes = u32::try_from(usize::from(HEADROOM) + link + longest(self.addresses)).ok()?;
        let frame = pool.take_control_for(bytes.min(pool.region().slot_bytes()))?;
        let mut reply = Packet::new(frame);
        if self.write(&mut reply, packet, link).is_none() {
            pool.release_packet(reply);
            return None;
        }
        reply.network_offset = u16::try_from(link).unwrap_or_default();
        Some(reply)
    }

    /// Writes the message into `reply`, with as much of the packet from its IP header on as fits.
    pub(crate) fn write(&self, reply: &mut Packet, packet: &Packet, link: usize) -> Option<()> {
        let headers = ip_bytes(self.addresses) + Icmp::HEADER_BYTES;
        let quote = (longest(self.addresses).min(self.most).checked_sub(headers)?)
            .min(packet.len().checked_sub(link)?)
            .min(reply.tailroom().checked_sub(link + headers)?);
        let bytes = reply.append(u16::try_from(link + headers + quote).ok()?).ok()?;
        let (front, ip) = bytes.split_at_mut_checked(link)?;
        write_link(packet, self.station, front)?;
        let quoted = packet.copy_out(link, ip.get_mut(headers..)?);
        debug_assert_eq!(quoted, quote, "the packet has the bytes that its length says");
        let is_v4 = matches!(self.addresses, Pseudo::V4 { .. });
        let protocol = if is_v4 { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let message = write_ip(ip, self.addresses, self.traffic_class, protocol)?;
        let written = match is_v4 {
            true => self.header.emit(message),
            false => self.header.emit_v6(message, self.addresses),
        };
        written.ok().map(|_| ())
    }
}

/// Writes the link header of a reply with the packet's tags, from `station` to the packet's sender; it fills
/// `bytes`.
pub(crate) fn write_link(packet: &Packet, station: MacAddress, bytes: &mut [u8]) -> Option<()> {
    let frame = packet.bytes();
    bytes.copy_from_slice(frame.get(..bytes.len())?);
    let asked = Ethernet::parse(frame).ok()?;
    let (destination, ether_type) = (asked.source(), asked.ether_type());
    EthernetHeader { destination, source: station, ether_type }.emit(bytes).ok().map(|_| ())
}

/// Writes the IP header of a packet that fills `bytes`, and returns the bytes after it.
pub(crate) fn write_ip(
    bytes: &mut [u8],
    addresses: Pseudo,
    traffic_class: TrafficClass,
    protocol: IpProtocol,
) -> Option<&mut [u8]> {
    let payload = bytes.len().checked_sub(ip_bytes(addresses))?;
    let rest = match addresses {
        Pseudo::V4 { source, destination } => Ipv4Header {
            traffic_class,
            total_length: u16::try_from(bytes.len()).ok()?,
            identification: 0,
            dont_fragment: true,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: TIME_TO_LIVE,
            protocol,
            source,
            destination,
        }
        .emit(bytes),
        Pseudo::V6 { source, destination } => Ipv6Header {
            traffic_class,
            flow_label: 0,
            payload_length: u16::try_from(payload).ok()?,
            next_header: protocol,
            hop_limit: TIME_TO_LIVE,
            source,
            destination,
        }
        .emit(bytes),
    };
    rest.ok()
}

/// Length of an IP header of this family without options, in bytes.
pub(crate) const fn ip_bytes(addresses: Pseudo) -> usize {
    match addresses {
        Pseudo::V4 { .. } => Ipv4::HEADER_BYTES,
        Pseudo::V6 { .. } => Ipv6::HEADER_BYTES,
    }
}

const fn longest(addresses: Pseudo) -> usize {
    match addresses {
        Pseudo::V4 { .. } => LONGEST_V4,
        Pseudo::V6 { .. } => LONGEST_V6,
    }
}

/// True if the packet is an ICMP error or malformed ICMP: no message may be sent about it (RFC 1122, 3.2.2;
/// RFC 4443, 2.4 (e)).
pub(crate) fn is_error(headers: HeaderSummary, frame: &[u8]) -> bool {
    let payload = headers.payload(frame);
    match (headers.network(), headers.protocol()) {
        _ if !headers.has_transport() => false,
        (Network::Ipv4, IpProtocol::ICMP) => Icmp::parse(payload).map_or(true, |icmp| icmp.is_error()),
        (Network::Ipv6, IpProtocol::ICMPV6) => Icmpv6::parse(payload).map_or(true, |icmp| icmp.is_error()),
        _ => false,
    }
}

/// True if both addresses may belong to single hosts.
pub(crate) fn are_stations(addresses: Pseudo) -> bool {
    match addresses {
        Pseudo::V4 { source, destination } => is_station_v4(source) && is_station_v4(destination),
        Pseudo::V6 { source, destination } => is_station_v6(source) && is_station_v6(destination),
    }
}

/// True if a single host may have the address: not multicast, 255.255.255.255, 0.0.0.0 or loopback. The rest
/// of 0/8 and 240/4 counts as unicast, as in Linux (RFC 1812, 4.3.2.7 forbids errors about 240/4).
pub(crate) fn is_station_v4(address: Ipv4Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast() && !address.is_loopback()
}

/// True if a single host may have the address: not multicast, unspecified or loopback.
pub(crate) fn is_station_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
}

/// Rate limit of messages: 1000 per second with a burst of 50 (as Linux, `icmp_msgs_per_sec`).
///
/// Generic cell rate algorithm: one number, the time at which the bucket will be full again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TokenBucket {
    full_at: Nanos,
}

/// Time that refills one token.
const INTERVAL: Nanos = Nanos::from_millis(1);
/// Capacity of the bucket.
const BURST: u64 = 50;

impl TokenBucket {
    /// Takes a token; false if none is left.
    pub(crate) fn take(&mut self, now: Nanos) -> bool {
        let full_at = self.full_at.max(now) + INTERVAL;
        let has_token = full_at.since(now) <= Nanos(INTERVAL.0 * BURST);
        if has_token {
            self.full_at = full_at;
        }
        has_token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_fifty_and_earns_one_a_millisecond() {
        let mut bucket = TokenBucket::default();
        let mut taken = |millis: u64, wanted: usize| {
            (0..wanted).filter(|_| bucket.take(Nanos::from_millis(millis))).count()
        };
        assert_eq!([taken(0, 60), taken(0, 1), taken(1, 5), taken(4, 5)], [50, 0, 1, 3]);
        assert_eq!([taken(24, 60), taken(10_000, 60)], [20, 50]);
        assert_eq!(taken(9_000, 1), 0, "time that goes back gives nothing");
    }

    #[test]
    fn stations() {
        let four = |a, b, c, d| is_station_v4(Ipv4Addr::new(a, b, c, d));
        assert!(four(10, 0, 0, 1) && four(223, 255, 255, 254) && four(169, 254, 0, 1));
        assert!(four(240, 0, 0, 1) && four(255, 255, 255, 254) && four(0, 0, 0, 1));
        assert!(
            !four(0, 0, 0, 0)
                && !four(239, 0, 0, 1)
                && !four(224, 0, 0, 1)
                && !four(255, 255, 255, 255)
                && !four(127, 0, 0, 1)
        );
        let six = |text: &str| is_station_v6(text.parse().expect("an address"));
        assert!(six("2001:db8::1") && six("fe80::1"));
        assert!(!six("::") && !six("::1") && !six("ff02::1"));
    }
}
