//! Layout of a table's keys and values, as programs and this process read them.
//!
//! ```text
//! key    0 destination (6)   6 source (6)   12 VLAN, with bit 12 set if there is a tag (2)   14 zero (2)
//!       16 outer destination (4)   20 outer source (4)   24 encapsulation (4)   28 key or VNI (4)
//! key    0 ingress MAC (6)   6 VLAN, with bit 12 for a tag and bit 13 for IPv6 (2)   8 destination (16)   24 source (16)
//! value  0 version (8)   8 moves (8)   16 packets (8)   24 bytes (8)
//!       32 interface (4)   36 longest frame (4)   40 change of the tag (4)   44 its VLAN (4)
//!       48 offset of the port pair's counters (4)   52 no fence (4)   56 start of the wait (8)
//!       64 egress port (2)   66 VLAN in the forwarding database (2)   68 ingress port (2)   70 tunnels' UDP port (2)
//!       72 bytes of outer headers (4)   76 sum of the IPv4 header (4)   80 flags of the room for them (8)
//!       88 traffic class: mask of copied bits, other bits   90 TTL: the same   92 has an identification   93 is UDP
//!       96 outer headers (56), or link-layer addresses of routed packets (12)   152 marks, one per queue (8 each)
//! ```
//!
//! Keys of frames that a device receives end before the outer fields. The second key is that of routed packets; IPv4
//! addresses are followed by zeros. Numbers are in host byte order, fields compared with packet bytes in packet order.

use crate::checks::Check;
use polder_buffers::PortId;
use polder_datapath::fast_path::{
    AddressPair, FlowKey, Forwarding, LinkAddresses, StationPair, TagChange, Validity,
};
use polder_datapath::tunnel::{Carrier, OuterKey, OuterTemplate};
use polder_datapath::wire::MacAddress;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of the key of a frame without outer fields, and of one with them.
pub(super) const KEY: usize = 16;
pub(super) const OUTER_KEY: usize = 32;
/// Bytes of the key of a routed packet.
pub(super) const ADDRESS_KEY: usize = 40;
/// Bit of a key's VLAN: the frame has a tag.
pub(crate) const TAGGED: u16 = 1 << 12;
/// Bit of the VLAN in a routed packet's key: IPv6.
pub(super) const OF_IPV6: u16 = 1 << 13;
/// Offsets in a value.
pub(super) const VERSION: i16 = 0;
pub(super) const MOVES: i16 = 8;
pub(super) const PACKETS: i16 = 16;
pub(super) const BYTES: i16 = 24;
pub(crate) const INTERFACE: i16 = 32;
pub(crate) const LONGEST: i16 = 36;
pub(crate) const CHANGE: i16 = 40;
pub(crate) const CHANGE_VLAN: i16 = 44;
pub(super) const EGRESS: i16 = 48;
pub(super) const NO_FENCE: i16 = 52;
pub(super) const SINCE: i16 = 56;
const PORT: i16 = 64;
const VLAN: i16 = 66;
const FROM: i16 = 68;
pub(super) const TUNNEL_PORT: i16 = 70;
pub(crate) const OUTER_BYTES: i16 = 72;
pub(super) const SUM: i16 = 76;
pub(crate) const ROOM: i16 = 80;
pub(super) const CLASS: i16 = 88;
pub(super) const TTL: i16 = 90;
pub(super) const IS_NUMBERED: i16 = 92;
pub(super) const IS_UDP: i16 = 93;
pub(super) const HEADERS: i16 = 96;
pub(super) const MARKS: i16 = 152;
/// Offset of the MAC addresses of routed packets, which have no outer headers.
pub(super) const LINK: i16 = HEADERS;
/// Bytes of the outer headers in a value.
pub(super) const HEADERS_BYTES: i16 = MARKS - HEADERS;
const _: () = assert!(OuterTemplate::MOST_BYTES <= HEADERS_BYTES as usize);
/// Changes of the tag.
pub(crate) const KEEP: i32 = 0;
pub(crate) const POP: i32 = 1;
pub(crate) const PUSH: i32 = 2;
const REPLACE: i32 = 3;
/// Mark of a queue whose packets the program carries; 0 is the mark of a queue without packets so far.
pub(super) const OPENED: i32 = -1;

/// Encapsulations in a key: GRE without and with a key; UDP encapsulation is recognised by its port. No other
/// protocol carries frames.
pub(super) const GRE: i32 = 1 << 16;
pub(super) const GRE_KEYED: i32 = 3 << 16;
/// Flags of the room for outer headers (`enum bpf_adj_room_flags`): segments keep their size; over IPv4; GRE
/// or UDP; the frame's own Ethernet header is inside.
const FIXED_GSO: u64 = 1;
const OVER_V4: u64 = 1 << 1;
const OF_GRE: u64 = 1 << 3;
const OF_UDP: u64 = 1 << 4;
const ETHERNET_INSIDE: u64 = 1 << 6 | 14 << 56;

/// EtherTypes of VLAN tags: customer tag and service tag.
pub(crate) const CUSTOMER_TAG: u16 = 0x8100;
pub(crate) const SERVICE_TAG: u16 = 0x88a8;

/// Returns the bytes of a value for `queues` queues.
pub(super) fn value_bytes(queues: u16) -> usize {
    MARKS as usize + 8 * usize::from(queues)
}

/// Returns the key of a flow.
pub(super) fn key(flow: &FlowKey) -> Vec<u8> {
    match flow {
        FlowKey::Stations(pair) => station_key(pair),
        FlowKey::Addresses(pair) => address_key(pair),
    }
}

fn address_key(&AddressPair { source, destination, tag, station }: &AddressPair) -> Vec<u8> {
    let family = if destination.is_ipv6() { OF_IPV6 } else { 0 };
    let vlan = tag.map_or(0, |vlan| vlan | TAGGED) | family;
    let octets = |address| match address {
        IpAddr::V4(address) => [&address.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    [&station.0[..], &vlan.to_ne_bytes(), &octets(destination), &octets(source)].concat()
}

/// Returns the address pair of a key.
fn addresses(key: &[u8]) -> AddressPair {
    let vlan = u16::from_ne_bytes(get(key, 6));
    let address = |at| match vlan & OF_IPV6 {
        0 => IpAddr::V4(Ipv4Addr::from(get::<4>(key, at))),
        _ => IpAddr::V6(Ipv6Addr::from(get::<16>(key, at))),
    };
    AddressPair {
        station: MacAddress(get(key, 0)),
        tag: (vlan & TAGGED != 0).then_some(vlan & !(TAGGED | OF_IPV6)),
        destination: address(8),
        source: address(24),
    }
}

fn station_key(pair: &StationPair) -> Vec<u8> {
    let tag = pair.tag.map_or(0, |vlan| vlan | TAGGED).to_ne_bytes();
    let mut stations = [&pair.destination.0[..], &pair.source.0, &tag, &[0; 2]].concat();
    if pair.outer.is_none() && !Check::BridgeVlan.is_made() {
        stations[12..14].fill(0);
    }
    if pair.outer.is_none() && !Check::BridgeSource.is_made() {
        stations[6..12].fill(0);
    }
    let Some(OuterKey { local, remote, carrier, number }) = pair.outer else { return stations };
    let (encapsulation, number) = match carrier {
        Carrier::Ip(_) => number.map_or((GRE, 0), |key| (GRE_KEYED, key)),
        // In packet byte order.
        Carrier::Udp(port) => (i32::from(port.to_be()), number.unwrap_or(0) << 8),
    };
    let ends = [local.octets(), remote.octets()].concat();
    [&stations[..], &ends, &encapsulation.to_ne_bytes(), &number.to_be_bytes()].concat()
}

/// Returns the MAC address pair of a key.
fn stations(key: &[u8]) -> StationPair {
    let tag = u16::from_ne_bytes(get(key, 12));
    StationPair {
        destination: MacAddress(get(key, 0)),
        source: MacAddress(get(key, 6)),
        tag: (tag & TAGGED != 0).then_some(tag & !TAGGED),
        outer: outer(key),
    }
}

/// Returns the outer fields of a key.
fn outer(key: &[u8]) -> Option<OuterKey> {
    let fields = key.get(KEY..OUTER_KEY)?;
    let [local, remote] = [0, 4].map(|at| Ipv4Addr::from(get::<4>(fields, at)));
    let number = u32::from_be_bytes(get(fields, 12));
    let (carrier, number) = match i32::from_ne_bytes(get(fields, 8)) {
        GRE => (Carrier::GRE, None),
        GRE_KEYED => (Carrier::GRE, Some(number)),
        port => {
            let port = u16::from_be(u16::try_from(port).unwrap_or_default());
            (Carrier::Udp(port), Some(number >> 8))
        }
    };
    Some(OuterKey { local, remote, carrier, number })
}

/// Returns the key of a frame that a device receives; `None` for a frame that programs leave to user space.
pub(super) fn key_of(frame: &[u8]) -> Option<Vec<u8>> {
    let address = |at: usize| frame.get(at..)?.first_chunk().copied().map(MacAddress);
    let word = |at: usize| frame.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let is_tagged = word(12)? == CUSTOMER_TAG;
    let (tag, inner) = if is_tagged { (Some(word(14)? & 0x0fff), word(16)?) } else { (None, word(12)?) };
    let is_plain = tag != Some(0) && inner != CUSTOMER_TAG && inner != SERVICE_TAG;
    is_plain.then_some(station_key(&StationPair {
        destination: address(0)?,
        source: address(6)?,
        tag,
        outer: None,
    }))
}

/// Returns the key of an IP packet that a router's program looks up, and carries unless a check fails.
pub(super) fn key_of_routed(frame: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| frame.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let (tag, at) = if word(12)? == CUSTOMER_TAG { (Some(word(14)? & 0x0fff), 16) } else { (None, 12) };
    let ip = frame.get(at + 2..)?;
    let (destination, source): (IpAddr, IpAddr) = match (word(at)?, ip) {
        (0x0800, [0x45, _, _, _, _, _, _, _, hops, ..]) if *hops > 1 => (
            ip.get(16..)?.first_chunk::<4>().copied()?.into(),
            ip.get(12..)?.first_chunk::<4>().copied()?.into(),
        ),
        (0x86dd, [0x60..0x70, _, _, _, _, _, next, hops, ..]) if *next > 0 && *hops > 1 => (
            ip.get(24..)?.first_chunk::<16>().copied()?.into(),
            ip.get(8..)?.first_chunk::<16>().copied()?.into(),
        ),
        _ => return None,
    };
    let station = MacAddress(*frame.first_chunk()?);
    (tag != Some(0)).then(|| address_key(&AddressPair { source, destination, tag, station }))
}

/// Returns the key of a packet of a tunnel over IPv4 without options and fragments; `None` for all others.
pub(super) fn key_of_outer(frame: &[u8]) -> Option<Vec<u8>> {
    let ip = frame.get(14..)?.first_chunk::<20>()?;
    let is_plain = frame.get(12..14)? == [8, 0] && ip[0] == 0x45 && (ip[6] & 0x3f, ip[7]) == (0, 0);
    let rest = frame.get(34..).filter(|_| is_plain)?;
    let (encapsulation, number, inner) = match (ip[9], rest) {
        (47, [0, 0, 0x65, 0x58, inner @ ..]) => (GRE, [0; 4], inner),
        (47, [0x20, 0, 0x65, 0x58, a, b, c, d, inner @ ..]) => (GRE_KEYED, [*a, *b, *c, *d], inner),
        (17, [_, _, high, low, _, _, 0, 0, 8, 0, 0, 0, a, b, c, 0, inner @ ..]) => {
            (i32::from(u16::from_ne_bytes([*high, *low])), [*a, *b, *c, 0], inner)
        }
        _ => return None,
    };
    let stations = [inner.get(..12)?, &[0; 4]].concat();
    Some([&stations[..], &ip[16..], &ip[12..16], &encapsulation.to_ne_bytes(), &number].concat())
}

/// Returns a new value; `egress` is the offset of its counters.
pub(super) fn value(forwarding: &Forwarding, validity: Validity, egress: u32, queues: u16) -> Vec<u8> {
    let (change, vlan) = match forwarding.tag {
        TagChange::Keep => (KEEP, 0),
        TagChange::Pop => (POP, 0),
        TagChange::Push(vlan) => (PUSH, vlan),
        TagChange::Replace(vlan) => (REPLACE, vlan),
    };
    let mut value = vec![0; value_bytes(queues)];
    put(&mut value, VERSION, &validity.version.to_ne_bytes());
    put(&mut value, MOVES, &validity.moves.to_ne_bytes());
    put(&mut value, INTERFACE, &forwarding.interface.to_ne_bytes());
    put(&mut value, LONGEST, &forwarding.longest.to_ne_bytes());
    put(&mut value, CHANGE, &change.to_ne_bytes());
    put(&mut value, CHANGE_VLAN, &u32::from(vlan).to_ne_bytes());
    put(&mut value, EGRESS, &egress.to_ne_bytes());
    put(&mut value, PORT, &forwarding.port.0.to_ne_bytes());
    put(&mut value, VLAN, &forwarding.vlan.to_ne_bytes());
    put(&mut value, FROM, &forwarding.from.0.to_ne_bytes());
    if let Some(outer) = &forwarding.outer {
        put_outer(&mut value, outer);
    }
    if let Some(LinkAddresses { destination, source }) = &forwarding.link {
        put(&mut value, LINK, &[destination.0, source.0].concat());
    }
    value
}

/// Fills in outer headers.
fn put_outer(value: &mut [u8], outer: &OuterTemplate) {
    let is_udp = outer.carrier.port().is_some();
    let encapsulation = if is_udp { OF_UDP } else { OF_GRE };
    let room = FIXED_GSO | OVER_V4 | ETHERNET_INSIDE | encapsulation;
    let headers = outer.headers();
    put(value, TUNNEL_PORT, &outer.tunnel_port.to_be_bytes());
    put(value, OUTER_BYTES, &u32::try_from(headers.len()).unwrap_or_default().to_ne_bytes());
    put(value, SUM, &outer.sum.to_ne_bytes());
    put(value, ROOM, &room.to_ne_bytes());
    put(value, CLASS, &[outer.class.0, outer.class.1]);
    put(value, TTL, &[outer.ttl.0, outer.ttl.1]);
    put(value, IS_NUMBERED, &[outer.is_numbered.into(), is_udp.into()]);
    put(value, HEADERS, headers);
}

/// Returns the offset of the counters of a value's port pair.
pub(super) fn egress(value: &[u8]) -> u32 {
    u32::from_ne_bytes(get(value, EGRESS))
}

/// Returns the validity of a value.
pub(super) fn validity(value: &[u8]) -> Validity {
    Validity {
        version: u64::from_ne_bytes(get(value, VERSION)),
        moves: u64::from_ne_bytes(get(value, MOVES)),
    }
}

/// Entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The flow of the entry.
    pub flow: FlowKey,
    /// Ingress port of the frames: the device's port, or a tunnel.
    pub from: PortId,
    /// Egress port.
    pub to: PortId,
    /// Change of the VLAN tag.
    pub tag: TagChange,
    /// VLAN in the forwarding database.
    pub vlan: u16,
    /// MAC addresses of routed packets on egress.
    pub link: Option<LinkAddresses>,
    /// Maximum length in bytes of a frame that leaves unsegmented.
    pub longest: u32,
    /// True if the program uses the entry.
    pub is_valid: bool,
    /// Number of packets carried so far.
    pub packets: u64,
    /// Number of bytes of those packets.
    pub bytes: u64,
    /// True if packets are carried, of one queue at least.
    pub is_open: bool,
}

impl Entry {
    /// Reads a key of `key_bytes` bytes and the value after it; `is_valid` gets the validity and the offset
    /// of the counters.
    pub(super) fn read(bytes: &[u8], key_bytes: usize, is_valid: impl Fn(Validity, u32) -> bool) -> Self {
        let (key, value) = bytes.split_at(key_bytes.min(bytes.len()));
        let is_routed = key.len() == ADDRESS_KEY;
        let link = LinkAddresses {
            destination: MacAddress(get(value, LINK)),
            source: MacAddress(get(value, LINK + 6)),
        };
        let word = |at| u32::from_ne_bytes(get(value, at));
        let half = |at| u16::from_ne_bytes(get(value, at));
        let change = match word(CHANGE).cast_signed() {
            KEEP => TagChange::Keep,
            POP => TagChange::Pop,
            PUSH => TagChange::Push(u16::try_from(word(CHANGE_VLAN)).unwrap_or_default()),
            _ => TagChange::Replace(u16::try_from(word(CHANGE_VLAN)).unwrap_or_default()),
        };
        let marks = value.get(MARKS as usize..).unwrap_or_default().chunks_exact(8);
        let is_opened = |mark: &[u8]| mark.iter().all(|&byte| byte == 0xff);
        Self {
            flow: if is_routed {
                FlowKey::Addresses(addresses(key))
            } else {
                FlowKey::Stations(stations(key))
            },
            from: PortId(half(FROM)),
            to: PortId(half(PORT)),
            tag: change,
            vlan: half(VLAN),
            link: is_routed.then_some(link),
            longest: word(LONGEST),
            is_valid: is_valid(validity(value), egress(value)),
            packets: u64::from_ne_bytes(get(value, PACKETS)),
            bytes: u64::from_ne_bytes(get(value, BYTES)),
            is_open: marks.into_iter().any(is_opened),
        }
    }
}

fn put(value: &mut [u8], at: i16, bytes: &[u8]) {
    let at = at as usize;
    value[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Returns the bytes at an offset; zeros after the end.
fn get<const N: usize>(value: &[u8], at: i16) -> [u8; N] {
    value.get(at as usize..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(tag: Option<u16>) -> StationPair {
        let [source, destination] = [1, 2].map(|last| MacAddress([2, 0, 0, 0, 0, last]));
        StationPair { source, destination, tag, outer: None }
    }

    #[test]
    fn entries_are_read_as_they_are_written() {
        let (local, remote) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1));
        let outer = |carrier, number| Some(OuterKey { local, remote, carrier, number });
        let vxlan = outer(Carrier::Udp(4789), Some(0x00ff_fffe));
        let gre = [None, Some(0), Some(u32::MAX)].map(|key| outer(Carrier::GRE, key));
        let plain = [pair(Some(7)), pair(None)];
        let inner = gre.into_iter().chain([vxlan]).map(|outer| StationPair { outer, ..pair(None) });
        let addresses = |source: &str, destination: &str, tag| {
            let [source, destination] = [source, destination].map(|text| text.parse().expect("an address"));
            FlowKey::Addresses(AddressPair { source, destination, tag, station: MacAddress([2; 6]) })
        };
        let routed = [
            addresses("10.0.0.1", "10.0.1.1", None),
            addresses("10.0.0.1", "10.0.1.1", Some(4094)),
            addresses("a00:1::", "a00:101::", None),
            addresses("2001:db8::1", "2001:db8::2", Some(7)),
        ];
        let link = LinkAddresses { destination: MacAddress([3; 6]), source: MacAddress([4; 6]) };
        let mut keys = Vec::new();
        for flow in plain.into_iter().chain(inner).map(FlowKey::Stations).chain(routed) {
            let link = matches!(flow, FlowKey::Addresses(_)).then_some(link);
            let forwarding = Forwarding {
                from: PortId(299),
                port: PortId(300),
                interface: 70_000,
                longest: 1514,
                tag: TagChange::Push(9),
                vlan: 9,
                outer: None,
                link,
            };
            let validity = Validity { version: 1 << 40, moves: 3 };
            let key = key(&flow);
            let mut bytes = key.clone();
            bytes.extend(value(&forwarding, validity, 64, 3));
            let entry = Entry::read(&bytes, key.len(), |read, egress| (read, egress) == (validity, 64));
            assert_eq!((entry.flow, entry.is_valid, entry.link), (flow, true, link));
            assert_eq!((entry.from, entry.to, entry.vlan), (forwarding.from, forwarding.port, 9));
            assert_eq!((entry.tag, entry.packets, entry.bytes), (forwarding.tag, 0, 0));
            assert!(!entry.is_open);
            let end = bytes.len();
            bytes[end - 8..].fill(0xff);
            assert!(
                Entry::read(&bytes, key.len(), |_, _| true).is_open,
                "the last queue's packets are carried"
            );
            assert!(!keys.contains(&key));
            keys.push(key);
        }
    }

    #[test]
    fn keys_are_read_from_packets_of_tunnels() {
        let (local, remote) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1));
        let packet = |protocol: u8, header: &[u8]| {
            let ethernet = [&[2; 12][..], &[8, 0]].concat();
            let ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            let inside = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
            [&ethernet, &ip[..], &remote.octets(), &local.octets(), header, &inside].concat()
        };
        let vxlan = [0xc0, 1, 0x12, 0xb5, 0, 30, 0, 0, 8, 0, 0, 0, 0, 0, 42, 0];
        for (protocol, header, carrier, number) in [
            (47, &[0, 0, 0x65, 0x58][..], Carrier::GRE, None),
            (47, &[0x20, 0, 0x65, 0x58, 0, 0, 1, 0], Carrier::GRE, Some(256)),
            (17, &vxlan, Carrier::Udp(4789), Some(42)),
        ] {
            let outer = Some(OuterKey { local, remote, carrier, number });
            let frame = packet(protocol, header);
            assert_eq!(
                key_of_outer(&frame),
                Some(station_key(&StationPair { outer, ..pair(None) })),
                "{carrier:?}"
            );
            assert_eq!(key_of_outer(&frame[..frame.len() - 3]), None, "{carrier:?}");
            let mut fragment = frame;
            fragment[21] = 1;
            assert_eq!(key_of_outer(&fragment), None, "{carrier:?}");
        }
        assert_eq!(key_of_outer(&packet(47, &[0x10, 0, 0x65, 0x58])), None);
    }

    #[test]
    fn keys_are_read_from_frames_with_at_most_one_tag() {
        let frame = |types: &[u16]| {
            let types = types.iter().flat_map(|word| word.to_be_bytes());
            [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].into_iter().chain(types).collect::<Vec<u8>>()
        };
        assert_eq!(key_of(&frame(&[0x0800])), Some(station_key(&pair(None))));
        assert_eq!(key_of(&frame(&[0x8100, 0x6007, 0x0800])), Some(station_key(&pair(Some(7)))));
        for types in
            [&[0x8100, 0x6000, 0x0800][..], &[0x8100, 7, 0x8100, 8], &[0x88a8, 7, 0x0800], &[0x8100, 7]]
        {
            assert_eq!(key_of(&frame(types)), None, "{types:x?}");
        }
    }

    #[test]
    fn keys_are_read_from_packets_that_are_routed() {
        let [station, stranger] = [[2; 6], [4; 6]];
        let v4 = [[0x45, 0, 0, 20, 0, 0, 0, 0, 2, 17, 0, 0], [10, 0, 0, 1, 10, 0, 1, 1, 0, 0, 0, 0]].concat();
        let v6 = [&[0x6f, 0, 0, 0, 0, 0, 17, 2][..], &[1; 16], &[2; 16]].concat();
        let pair = |source: IpAddr, destination: IpAddr, tag| {
            address_key(&AddressPair { source, destination, tag, station: MacAddress(station) })
        };
        let of_v4 = |tag| pair([10, 0, 0, 1].into(), [10, 0, 1, 1].into(), tag);
        let of_v6 = |tag| pair([1; 16].into(), [2; 16].into(), tag);
        let frame = |types: &[u8], ip: &[u8]| [&station[..], &stranger, types, ip].concat();
        assert_eq!(key_of_routed(&frame(&[8, 0], &v4)), Some(of_v4(None)));
        assert_eq!(key_of_routed(&frame(&[0x81, 0, 0x60, 7, 8, 0], &v4)), Some(of_v4(Some(7))));
        assert_eq!(key_of_routed(&frame(&[0x86, 0xdd], &v6)), Some(of_v6(None)));
        assert_eq!(key_of_routed(&frame(&[0x81, 0, 0, 0, 8, 0], &v4)), None);
        assert_eq!(key_of_routed(&frame(&[8, 6], &v4)), None);
        for (at, value, ip) in [(0, 0x46, &v4), (8, 1, &v4), (0, 0x50, &v6), (7, 1, &v6), (6, 0, &v6)] {
            let mut odd = ip.clone();
            odd[at] = value;
            let types = if ip.len() == v4.len() { [8, 0] } else { [0x86, 0xdd] };
            assert_eq!(key_of_routed(&frame(&types, &odd)), None, "{at} {value}");
        }
    }

    #[test]
    fn a_frame_without_tag_and_one_of_vlan_0_differ() {
        assert_ne!(station_key(&pair(None)), station_key(&pair(Some(0))));
    }
}
