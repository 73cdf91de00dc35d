//! Checks of an IP header before a route is looked up (RFC 1812, 5.2.2 and 5.3.7; RFC 8200, 3).

use crate::drops::DropReason;
use crate::wire::{Checksum, IpProtocol, Ipv4, Ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Type of a valid packet's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination<A> {
    /// Unicast address to be looked up.
    To(A),
    /// Multicast group or limited broadcast.
    Group,
    /// Link-local address.
    OnLink(A),
}

/// First bytes of addresses that need a closer check; all others are global unicast.
const UNUSUAL: [bool; 256] = {
    let mut unusual = [false; 256];
    (unusual[0], unusual[127], unusual[255]) = (true, true, true);
    let mut first = 224;
    while first < 240 {
        unusual[first] = true;
        first += 1;
    }
    unusual
};

/// First bytes of IPv6 addresses that need a closer check: unspecified, loopback and mapped; link-local and
/// site-local; multicast.
const UNUSUAL_V6: [bool; 256] = {
    let mut unusual = [false; 256];
    (unusual[0], unusual[0xfe], unusual[0xff]) = (true, true, true);
    unusual
};

/// True if an IPv4 header without options needs no closer check, including its TTL; `room` is the number of
/// bytes from the header to the packet's end.
#[inline(always)]
pub(super) fn is_plain_v4(header: &[u8; Ipv4::HEADER_BYTES], room: usize) -> bool {
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let usual = !UNUSUAL[usize::from(header[12])] & !UNUSUAL[usize::from(header[16])];
    let sum = Checksum::of_header(header);
    // Most packets end with their frame; the caller computes `room` for that case.
    let fits = total == room || (Ipv4::HEADER_BYTES..room).contains(&total);
    (header[0] == 0x45) & usual & (header[8] > 1) & sum.is_multiple() && fits && room >= Ipv4::HEADER_BYTES
}

/// True if an IPv6 header needs no closer check.
#[inline(always)]
pub(super) fn is_plain_v6(header: &[u8; Ipv6::HEADER_BYTES], room: usize) -> bool {
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let usual = !UNUSUAL_V6[usize::from(header[8])] & !UNUSUAL_V6[usize::from(header[24])];
    // Hop-by-hop options are for routers to examine (RFC 8200, 4.3).
    let usual = usual & (header[6] != IpProtocol::HOP_BY_HOP.0);
    (header[0] >> 4 == 6) & usual & (header[7] > 1) & (Ipv6::HEADER_BYTES + payload <= room)
}

/// Checks the whole IPv4 header of a packet of `length` bytes.
#[cold]
pub(super) fn check_v4(bytes: &[u8], length: usize) -> Result<Destination<Ipv4Addr>, DropReason> {
    let ip = Ipv4::parse_head(bytes, length)?;
    ip.verify()?;
    let (source, destination) = (ip.source(), ip.destination());
    if is_source_routed(ip.options()) {
        return Err(DropReason::SourceRoute);
    }
    if is_martian_v4(source) || source.is_multicast() || source.is_broadcast() {
        return Err(DropReason::MartianSource);
    }
    if destination.is_multicast() || destination.is_broadcast() {
        return Ok(Destination::Group);
    }
    if is_martian_v4(destination) {
        return Err(DropReason::MartianDestination);
    }
    Ok(Destination::To(destination))
}

/// Checks the fixed IPv6 header of a packet of `length` bytes.
#[cold]
pub(super) fn check_v6(bytes: &[u8], length: usize) -> Result<Destination<Ipv6Addr>, DropReason> {
    let ip = Ipv6::parse_head(bytes, length)?;
    let (source, destination) = (ip.source(), ip.destination());
    let is_martian = |address: Ipv6Addr| address.is_loopback() || address.to_ipv4_mapped().is_some();
    if is_martian(source) || source.is_multicast() {
        return Err(DropReason::MartianSource);
    }
    if destination.is_multicast() {
        return Ok(Destination::Group);
    }
    // A sender without address may only send to groups (RFC 4291, 2.5.2).
    if source.is_unspecified() {
        return Err(DropReason::MartianSource);
    }
    if is_martian(destination) || destination.is_unspecified() {
        return Err(DropReason::MartianDestination);
    }
    let on_link = destination.is_unicast_link_local();
    Ok(if on_link { Destination::OnLink(destination) } else { Destination::To(destination) })
}

/// True for the unspecified address and loopback. As in the kernel, the rest of 0/8, 240/4 and 169.254/16 is
/// forwarded if there is a route (RFC 6890 and RFC 3927, 7 would refuse them).
fn is_martian_v4(address: Ipv4Addr) -> bool {
    address.is_unspecified() || address.is_loopback()
}

/// True if the packet has a source route option (RFC 791, 3.1: kinds 131 and 137).
fn is_source_routed(mut options: &[u8]) -> bool {
    while let Some((&kind, rest)) = options.split_first() {
        match (kind, rest.first()) {
            (131 | 137, _) => return true,
            (0, _) => return false,
            (1, _) => options = rest,
            (_, Some(&length)) if length >= 2 => {
                options = options.get(usize::from(length)..).unwrap_or_default();
            }
            // A malformed option is not followed.
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Dscp, Ecn, IpProtocol, Ipv4Header, Ipv6Header, TrafficClass};
    use proptest::prelude::*;

    fn v4(source: Ipv4Addr, destination: Ipv4Addr) -> [u8; 20] {
        let mut bytes = [0; 20];
        let header = Ipv4Header {
            traffic_class: TrafficClass::new(Dscp::DEFAULT, Ecn::NotCapable),
            total_length: 20,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            time_to_live: 9,
            protocol: IpProtocol::UDP,
            source,
            destination,
        };
        header.emit(&mut bytes).expect("20 bytes");
        bytes
    }

    fn v6(source: &str, destination: &str) -> Result<Destination<Ipv6Addr>, DropReason> {
        let mut bytes = [0; 40];
        let header = Ipv6Header {
            traffic_class: TrafficClass(0),
            flow_label: 0,
            payload_length: 0,
            next_header: IpProtocol::NO_NEXT_HEADER,
            hop_limit: 9,
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
        };
        header.emit(&mut bytes).expect("40 bytes");
        let seen = check_v6(&bytes, 40);
        assert!(!is_plain_v6(&bytes, 40) || matches!(seen, Ok(Destination::To(_))));
        assert!(!is_plain_v6(&bytes, 39));
        seen
    }

    proptest! {
        /// A header that passes the quick check passes the full check.
        #[test]
        fn plain_is_right(mut bytes in any::<[u8; 20]>(), right in any::<bool>(), room in 0_usize..2000) {
            if right {
                bytes[0] = 0x45;
                bytes[10..12].fill(0);
                let sum = Checksum::of(&bytes);
                bytes[10..12].copy_from_slice(&sum.to_be_bytes());
            }
            let seen = check_v4(&bytes, room);
            if is_plain_v4(&bytes, room) {
                let destination = Ipv4Addr::from([bytes[16], bytes[17], bytes[18], bytes[19]]);
                prop_assert_eq!(seen, Ok(Destination::To(destination)));
            } else if right && bytes[8] > 1 && let Ok(Destination::To(destination)) = seen {
                let unusual = [destination.octets()[0], bytes[12]];
                prop_assert!(unusual.iter().any(|first| [0, 255].contains(first)), "{}", destination);
            }
        }
    }

    #[test]
    fn addresses_of_nobody() {
        let check =
            |source: [u8; 4], destination: [u8; 4]| check_v4(&v4(source.into(), destination.into()), 20);
        let (good, other) = ([10, 0, 0, 1], [192, 0, 2, 1]);
        assert_eq!(check(good, other), Ok(Destination::To(other.into())));
        for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
            assert_eq!(check(source, other), Err(DropReason::MartianSource), "{source:?}");
        }
        for destination in [[0, 0, 0, 0], [127, 0, 0, 1]] {
            assert_eq!(check(good, destination), Err(DropReason::MartianDestination), "{destination:?}");
        }
        assert_eq!(
            (check(good, [224, 0, 0, 5]), check(good, [255; 4])),
            (Ok(Destination::Group), Ok(Destination::Group))
        );
        for odd in [[169, 254, 7, 7], [0, 1, 2, 3], [240, 0, 0, 1], [255, 255, 255, 254]] {
            let both = (check(good, odd), check(odd, good));
            assert_eq!(both, (Ok(Destination::To(odd.into())), Ok(Destination::To(good.into()))), "{odd:?}");
        }
    }

    #[test]
    fn addresses_of_nobody_in_version_6() {
        for source in ["::1", "ff02::1", "::ffff:10.0.0.1", "::"] {
            assert_eq!(v6(source, "2001:db8::1"), Err(DropReason::MartianSource), "{source}");
        }
        for destination in ["::1", "::", "::ffff:10.0.0.1"] {
            assert_eq!(v6("2001:db8::1", destination), Err(DropReason::MartianDestination), "{destination}");
        }
        assert_eq!(
            (v6("::", "ff02::1"), v6("fe80::1", "ff02::1")),
            (Ok(Destination::Group), Ok(Destination::Group))
        );
        assert!(matches!(v6("fe80::1", "fe80::2"), Ok(Destination::OnLink(_))));
        assert!(matches!(v6("2001:db8::1", "2001:db8::2"), Ok(Destination::To(_))));
    }

    #[test]
    fn source_routes_among_options() {
        assert!(is_source_routed(&[1, 1, 131, 7, 4, 10, 0, 0, 1]) && is_source_routed(&[148, 4, 0, 0, 137]));
        assert!(!is_source_routed(&[148, 4, 0, 0]) && !is_source_routed(&[0, 131]));
        assert!(!is_source_routed(&[7, 1, 131]) && !is_source_routed(&[7]));
    }
}
