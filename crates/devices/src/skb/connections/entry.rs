//! Layout of keys and values of the connection table, a BPF hash map.
//!
//! ```text
//! key    0 source (16)   16 destination (16)   32 source port (2)   34 destination port (2)   36 protocol (1)   37 IP version (1)
//! value  0 generation of the evidence (8)   8 generation in which it is open (8)   16 generation of a contradiction (8)
//!       24 packets (8)   32 bytes (8)   40 input interface (4)   44 output interface (4)
//!       48 link-layer destination and source (12)   60 flags (4)   64 key of the packet as it leaves (40)
//!      104 checksum difference of the addresses (4)   108 of the ports (4)   112 longest frame (4)
//!      116 last acknowledgement (4)   120 highest end of data (4)   124 window in bytes (4)
//!      128 shift of the window (2)   130 check of the key (2)   132 slot of the client (2)   134 slot of the server (2)   136 slot of the next hop (4)
//!      140 number of the connection (4)   144 generation of the next hop when it was noted (8)
//!      152 slot of the pair of interfaces (4)   156 end of data that the other direction has room for (4)
//! ```
//!
//! With the kernel's header an entry has exactly 256 bytes; a longer one would take 512.
//!
//! A key is the tuple of one direction before translation; IPv4 addresses are padded with zeros. Addresses and ports are in network
//! byte order, all other numbers in host byte order.

use super::words::slot_of_end;
use core::net::IpAddr;

/// Bytes of a key and of a value.
pub(super) const KEY_BYTES: u32 = 40;
pub(super) const VALUE_BYTES: u32 = 160;
/// Offsets in a key.
pub(super) const DESTINATION: i16 = 16;
pub(super) const PORTS: i16 = 32;
pub(super) const PROTOCOL: i16 = 36;
pub(super) const VERSION: i16 = 37;
/// Offsets in a value.
pub(super) const EVIDENCE: i16 = 0;
pub(super) const OPEN: i16 = 8;
pub(super) const CONTRADICTED: i16 = 16;
pub(super) const PACKETS: i16 = 24;
pub(super) const BYTES: i16 = 32;
pub(super) const INPUT: i16 = 40;
pub(super) const OUTPUT: i16 = 44;
pub(super) const LINK: i16 = 48;
pub(super) const FLAGS: i16 = 60;
pub(super) const LEAVES: i16 = 64;
pub(super) const ADDRESS_DIFFERENCE: i16 = 104;
pub(super) const PORT_DIFFERENCE: i16 = 108;
pub(super) const LONGEST: i16 = 112;
pub(super) const LAST_ACK: i16 = 116;
pub(super) const HIGHEST_END: i16 = 120;
pub(super) const WINDOW: i16 = 124;
pub(super) const WINDOW_SHIFT: i16 = 128;
pub(super) const KEY_CHECK: i16 = 130;
pub(super) const ENDS: [i16; 2] = [132, 134];
pub(super) const HOP: i16 = 136;
pub(super) const NUMBER: i16 = 140;
pub(super) const HOP_SEEN: i16 = 144;
pub(super) const PAIR: i16 = 152;
pub(super) const LIMIT: i16 = 156;
/// Flags: the connection has ended, so its packets pass to the kernel; addresses or ports are rewritten.
pub(super) const ENDED: i32 = 1;
pub(super) const TRANSLATED: i32 = 2;
/// Flag of the reply direction.
const REPLY: i32 = 4;
/// Flag of a connection that is carried although rules match on each packet (consent).
pub(super) const CONSENTS: i32 = 8;
/// IP protocol numbers.
pub(super) const TCP: i32 = 6;
pub(super) const UDP: i32 = 17;
pub(super) const UDP_LITE: i32 = 136;

/// Transport protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// UDP-Lite (RFC 3828).
    UdpLite,
}

/// Addresses, ports and protocol of packets in one direction.
///
/// Both addresses are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Transport protocol.
    pub transport: Transport,
}

impl Tuple {
    /// Returns the tuple with source and destination exchanged.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            transport: self.transport,
        }
    }

    /// Returns the key of this tuple.
    pub(super) fn key(&self) -> [u8; KEY_BYTES as usize] {
        let mut key = [0; KEY_BYTES as usize];
        for (at, address) in [(0, self.source), (usize::from(DESTINATION.unsigned_abs()), self.destination)] {
            match address {
                IpAddr::V4(address) => key[at..at + 4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => key[at..at + 16].copy_from_slice(&address.octets()),
            }
        }
        key[32..34].copy_from_slice(&self.source_port.to_be_bytes());
        key[34..36].copy_from_slice(&self.destination_port.to_be_bytes());
        key[36] = match self.transport {
            Transport::Tcp => 6,
            Transport::Udp => 17,
            Transport::UdpLite => 136,
        };
        key[37] = if self.source.is_ipv4() { 4 } else { 6 };
        key
    }
}

/// Connection in the kernel's conntrack table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Tuple of the original direction, before translation.
    pub original: Tuple,
    /// Tuple of the reply direction, before translation. Without NAT it is the original tuple reversed.
    pub reply: Tuple,
    /// Window scale of TCP of the original and of the reply direction, in bits (RFC 7323; 0 to 14).
    pub window_shifts: [u8; 2],
    /// Number that identifies the connection in events.
    pub number: u32,
    /// True if the connection is carried although rules match on each packet.
    pub consents: bool,
}

impl Connection {
    /// True if the kernel translates addresses or ports.
    pub fn is_translated(&self) -> bool {
        self.reply != self.original.reversed()
    }

    /// Endpoints by which the kernel routes: the client's address before, the server's after translation.
    pub(super) fn ends(&self) -> [IpAddr; 2] {
        [self.original.source, self.reply.source]
    }

    /// Returns keys and initial values of both directions.
    pub(super) fn entries(&self) -> [([u8; KEY_BYTES as usize], [u8; VALUE_BYTES as usize]); 2] {
        let [original, reply] = [self.original.key(), self.reply.key()];
        let leaves = [self.reply.reversed().key(), self.original.reversed().key()];
        let [of_original, of_reply] = self.window_shifts;
        let of = (self.ends().map(slot_of_end), self.number);
        let consents = if self.consents { CONSENTS } else { 0 };
        [
            (original, value((&original, &leaves[0]), of, of_original, consents)),
            (reply, value((&reply, &leaves[1]), of, of_reply, REPLY | consents)),
        ]
    }
}

/// Returns the initial value of the direction that translates `key` to `leaves`: closed, without evidence.
fn value(
    (key, leaves): (&[u8; KEY_BYTES as usize], &[u8; KEY_BYTES as usize]),
    (ends, number): ([u16; 2], u32),
    window_shift: u8,
    flags: i32,
) -> [u8; VALUE_BYTES as usize] {
    let mut value = [0; VALUE_BYTES as usize];
    let mut put = |at: i16, bytes: &[u8]| {
        let at = usize::from(at.unsigned_abs());
        value[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(LEAVES, leaves);
    put(ADDRESS_DIFFERENCE, &difference(&key[..32], &leaves[..32]).to_ne_bytes());
    put(PORT_DIFFERENCE, &difference(&key[32..36], &leaves[32..36]).to_ne_bytes());
    put(WINDOW_SHIFT, &u16::from(window_shift.min(14)).to_ne_bytes());
    put(KEY_CHECK, &check(key).to_ne_bytes());
    for (at, slot) in ENDS.into_iter().zip(ends) {
        put(at, &slot.to_ne_bytes());
    }
    put(NUMBER, &number.to_ne_bytes());
    let translated = if key == leaves { 0 } else { TRANSLATED };
    put(FLAGS, &(flags | translated).to_ne_bytes());
    value
}

/// Exclusive or of the 16-bit words of a key. An entry whose memory the kernel has reused for another key is told by it.
fn check(key: &[u8; KEY_BYTES as usize]) -> u16 {
    key.chunks_exact(2).fold(0, |check, pair| check ^ u16::from_ne_bytes([pair[0], pair[1]]))
}

/// One's complement difference of the sums of two byte strings, as `bpf_csum_diff` returns it (RFC 1624).
fn difference(from: &[u8], to: &[u8]) -> u32 {
    let words = |bytes: &[u8]| -> Vec<u16> {
        bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]])).collect()
    };
    let removed = words(from).into_iter().map(|word| u32::from(!word)).sum::<u32>();
    let added = words(to).into_iter().map(u32::from).sum::<u32>();
    if from == to { 0 } else { removed + added }
}

/// State of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// Packets carried so far; segments of a GSO packet count each.
    pub packets: u64,
    /// Bytes of these packets, Ethernet headers included.
    pub bytes: u64,
    /// Index of the ingress interface; 0 without evidence.
    pub input: u32,
    /// Index of the egress interface; 0 without evidence.
    pub output: u32,
    /// True if the direction is in the table.
    pub is_entered: bool,
    /// True for the reply direction.
    pub is_reply: bool,
    /// Number of the connection.
    pub number: u32,
    /// Value that changes each time that the direction opens.
    pub opened: u64,
    /// True if there is evidence of the present generation.
    pub has_evidence: bool,
    /// True if the program carries packets of this direction.
    pub is_open: bool,
    /// True if packets of the present generation left by different interfaces or next hops, for example mirrored ones.
    pub is_contradicted: bool,
    /// True if a FIN, a RST or the kernel has ended the connection.
    pub has_ended: bool,
}

impl Direction {
    /// Decodes a value. `generation` and `hop` return the generations of the endpoints' slots and of the next hop's slot.
    pub(super) fn read(value: &[u8], generation: impl Fn([u16; 2]) -> u64, hop: impl Fn(u32) -> u64) -> Self {
        let bytes = |at: i16| value.get(usize::from(at.unsigned_abs())..).unwrap_or_default();
        let double = |at| bytes(at).first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        let word = |at| bytes(at).first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let half = |at| bytes(at).first_chunk().map_or(0, |bytes| u16::from_ne_bytes(*bytes));
        let generation = generation(ENDS.map(half));
        let (hop_seen, hop) = (double(HOP_SEEN), hop(word(HOP)));
        Self {
            packets: double(PACKETS),
            bytes: double(BYTES),
            input: word(INPUT),
            output: word(OUTPUT),
            is_entered: true,
            is_reply: word(FLAGS) & REPLY.cast_unsigned() != 0,
            number: word(NUMBER),
            opened: double(OPEN).wrapping_add(hop_seen),
            has_evidence: double(EVIDENCE) == generation && hop_seen == hop,
            is_open: double(OPEN) == generation && hop_seen == hop,
            is_contradicted: double(CONTRADICTED) == generation,
            has_ended: word(FLAGS) & ENDED.cast_unsigned() != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(source: &str, destination: &str, ports: [u16; 2], transport: Transport) -> Tuple {
        let [source, destination] = [source, destination].map(|text| text.parse().expect("an address"));
        Tuple { source, destination, source_port: ports[0], destination_port: ports[1], transport }
    }

    #[test]
    fn keys_tell_directions_apart() {
        for tuple in [
            tuple("192.0.2.1", "198.51.100.7", [40_000, 443], Transport::Tcp),
            tuple("2001:db8::1", "2001:db8:1::2", [5353, 53], Transport::Udp),
        ] {
            assert_ne!(tuple.key(), tuple.reversed().key());
            assert_eq!(tuple.reversed().reversed(), tuple);
        }
    }

    /// The difference turns the sum of what comes in into the sum of what leaves (RFC 1624).
    #[test]
    fn differences_turn_one_sum_into_the_other() {
        let fold = |mut sum: u64| {
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            sum
        };
        let sum = |key: &[u8]| {
            fold(key.chunks_exact(2).map(|pair| u64::from(u16::from_ne_bytes([pair[0], pair[1]]))).sum())
        };
        let inside = tuple("192.168.0.9", "198.51.100.7", [40_000, 443], Transport::Tcp);
        let outside = tuple("203.0.113.1", "198.51.100.7", [61_007, 443], Transport::Tcp);
        let connection = Connection {
            original: inside,
            reply: outside.reversed(),
            window_shifts: [7, 9],
            number: 5,
            consents: false,
        };
        for (key, value) in connection.entries() {
            let leaves = &value[64..104];
            let addresses = u32::from_ne_bytes(value[104..108].try_into().expect("four bytes"));
            let ports = u32::from_ne_bytes(value[108..112].try_into().expect("four bytes"));
            assert_eq!(fold(sum(&key[..32]) + u64::from(addresses)), sum(&leaves[..32]));
            assert_eq!(fold(sum(&key[32..36]) + u64::from(ports)), sum(&leaves[32..36]));
        }
        assert!(connection.is_translated());
        let plain = Connection { reply: inside.reversed(), ..connection };
        assert!(!plain.is_translated());
        for (key, value) in plain.entries() {
            assert_eq!((&value[64..104], &value[104..112]), (&key[..], &[0; 8][..]));
        }
    }
}
