//! Rules as configured, and their division into boxes.

use super::key::{
    DESTINATION_PORT_AT, ETHER_TYPE_AT, HAS_FLAGS, HAS_PORTS, IS_IP, PORT_AT, PROTOCOL_AT, SOURCE_PORT_AT,
    VLAN_AT, WORDS, halves,
};
use core::net::IpAddr;
use core::ops::RangeInclusive;
use polder_buffers::PortId;

/// Direction of the packets that a rule tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that a port received, before the bridge learns from them.
    #[default]
    In,
    /// Packets that a port will send, before encapsulation.
    Out,
}

/// Action on a matching packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Action {
    /// The packet is accepted.
    #[default]
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped, and its sender gets a reply.
    Reject,
}

/// Address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// Address; bits after the prefix are ignored.
    pub address: IpAddr,
    /// Prefix length: at most 32 or 128.
    pub bits: u8,
}

/// Test of TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlagTest {
    /// Flags that are tested.
    pub mask: u8,
    /// Tested flags that must be set; the others must be clear.
    pub set: u8,
}

/// One rule. An empty list matches every packet; otherwise one element must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Direction of the tested packets.
    pub direction: Direction,
    /// Ingress or egress ports and tunnels, by direction.
    pub ports: Vec<PortId>,
    /// VLAN ranges; an untagged frame is in its port's VLAN, or in 0 if the port has none.
    pub vlans: Vec<RangeInclusive<u16>>,
    /// EtherTypes.
    pub ether_types: Vec<u16>,
    /// Prefixes of the source address.
    pub sources: Vec<Prefix>,
    /// Prefixes of the destination address.
    pub destinations: Vec<Prefix>,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// Ranges of TCP, UDP or SCTP source ports.
    pub source_ports: Vec<RangeInclusive<u16>>,
    /// Ranges of TCP, UDP or SCTP destination ports.
    pub destination_ports: Vec<RangeInclusive<u16>>,
    /// Test of TCP flags; `None` for no test.
    pub flags: Option<FlagTest>,
    /// Action on matching packets.
    pub action: Action,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Box: one combination of elements of a rule's lists, as masked bits and ranges.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Entry {
    pub(super) value: [u64; WORDS],
    pub(super) mask: [u64; WORDS],
    /// First and last source port, first and last destination port, first and last VLAN.
    pub(super) ranges: [u16; 6],
    /// Number of the rule; the lowest matching number decides.
    pub(super) rule: u32,
}

impl Rule {
    /// Number of boxes of the rule; saturates.
    pub fn boxes(&self) -> usize {
        let mut count = 1_usize;
        for length in [
            self.ports.len(),
            self.vlans.len(),
            self.ether_types.len(),
            self.addresses().count(),
            self.protocols.len(),
            self.source_ports.len(),
            self.destination_ports.len(),
        ] {
            count = count.saturating_mul(length.max(1));
        }
        count
    }

    /// Pairs of source and destination prefix of the same family.
    fn addresses(&self) -> impl Iterator<Item = (Option<Prefix>, Option<Prefix>)> {
        let alike = |pair: &(Option<Prefix>, Option<Prefix>)| match pair {
            (Some(source), Some(destination)) => source.address.is_ipv4() == destination.address.is_ipv4(),
            (_, _) => true,
        };
        let pairs = each(&self.sources).flat_map(|source| {
            each(&self.destinations).map(move |destination| (source.copied(), destination.copied()))
        });
        pairs.filter(alike)
    }

    /// Appends the rule's boxes to `entries`, as rule number `rule`.
    pub(super) fn cut(&self, rule: u32, entries: &mut Vec<Entry>) {
        let everything = Entry {
            value: [0; WORDS],
            mask: [0; WORDS],
            ranges: [0, u16::MAX, 0, u16::MAX, 0, u16::MAX],
            rule,
        };
        let mut boxes = vec![everything];
        boxes = product(&boxes, &self.ports, |entry, port| entry.ask(4, PORT_AT, port.0, u16::MAX));
        boxes = product(&boxes, &self.vlans, |entry, range| entry.ask_range(4, VLAN_AT, 4, range));
        boxes =
            product(&boxes, &self.ether_types, |entry, &kind| entry.ask(4, ETHER_TYPE_AT, kind, u16::MAX));
        boxes = product(&boxes, &self.protocols, |entry, &protocol| {
            entry.ask(4, PROTOCOL_AT, u16::from(protocol), 0xff);
            entry.know(IS_IP);
        });
        boxes = product(&boxes, &self.source_ports, |entry, range| {
            entry.ask_range(5, SOURCE_PORT_AT, 0, range);
            entry.know(HAS_PORTS);
        });
        boxes = product(&boxes, &self.destination_ports, |entry, range| {
            entry.ask_range(5, DESTINATION_PORT_AT, 2, range);
            entry.know(HAS_PORTS);
        });
        if let Some(FlagTest { mask, set }) = self.flags {
            boxes.iter_mut().for_each(|entry| {
                entry.ask(4, 0, u16::from(set), u16::from(mask));
                entry.know(HAS_FLAGS);
            });
        }
        let pairs = self.addresses().collect::<Vec<_>>();
        for entry in boxes {
            for &(source, destination) in &pairs {
                entries.extend(entry.with_addresses(source, destination));
            }
        }
    }
}

/// Elements of a list, or `None` once if it is empty.
fn each<T>(list: &[T]) -> impl Iterator<Item = Option<&T>> {
    list.iter().map(Some).chain(list.is_empty().then_some(None))
}

/// Combines each entry with each element of a list; an empty list changes nothing.
fn product<T>(entries: &[Entry], list: &[T], ask: impl Fn(&mut Entry, &T)) -> Vec<Entry> {
    if list.is_empty() {
        return entries.to_vec();
    }
    let with = |entry: &Entry, element: &T| {
        let mut entry = *entry;
        ask(&mut entry, element);
        entry
    };
    entries.iter().flat_map(|entry| list.iter().map(move |element| with(entry, element))).collect()
}

impl Entry {
    fn ask(&mut self, word: usize, at: u32, value: u16, mask: u16) {
        self.value[word] |= u64::from(value & mask) << at;
        self.mask[word] |= u64::from(mask) << at;
    }

    fn know(&mut self, bits: u64) {
        self.value[5] |= bits;
        self.mask[5] |= bits;
    }

    /// Tests a range: the leading bits that all its numbers share, and the range itself.
    fn ask_range(&mut self, word: usize, at: u32, place: usize, range: &RangeInclusive<u16>) {
        let (first, last) = (*range.start(), *range.end());
        let differ = (first ^ last).leading_zeros();
        let mask = u16::MAX.checked_shl(16 - differ).unwrap_or(0);
        self.ask(word, at, first, mask);
        self.ranges[place] = first;
        self.ranges[place + 1] = last;
    }

    /// Adds address tests; `None` if their family contradicts the rule's EtherType.
    fn with_addresses(mut self, source: Option<Prefix>, destination: Option<Prefix>) -> Option<Self> {
        let Some(either) = source.or(destination) else { return Some(self) };
        let family = if either.address.is_ipv4() { IPV4 } else { IPV6 };
        let asked = self.mask[4] >> ETHER_TYPE_AT & 0xffff != 0;
        if asked && self.value[4] >> ETHER_TYPE_AT & 0xffff != u64::from(family) {
            return None;
        }
        self.ask(4, ETHER_TYPE_AT, family, u16::MAX);
        self.know(IS_IP);
        for (word, prefix) in [(0, source), (2, destination)] {
            let Some(prefix) = prefix else { continue };
            let (address, mask) = prefix.words();
            for half in 0..2 {
                self.mask[word + half] = mask[half];
                self.value[word + half] = address[half] & mask[half];
            }
        }
        Some(self)
    }

    /// True if the packet matches.
    #[inline]
    pub(super) fn fits(&self, key: &super::key::Key) -> bool {
        let mut differ = 0;
        for word in 0..WORDS {
            differ |= (key.0[word] ^ self.value[word]) & self.mask[word];
        }
        let [a, b, c, d, e, f] = self.ranges;
        let vlan = (key.0[4] >> VLAN_AT & 0xffff) as u16;
        differ == 0
            && (a..=b).contains(&key.source_port())
            && (c..=d).contains(&key.destination_port())
            && (e..=f).contains(&vlan)
    }
}

impl Prefix {
    /// Address and mask as words of a key.
    fn words(&self) -> ([u64; 2], [u64; 2]) {
        let ones = |bits: u32| u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0);
        match self.address {
            IpAddr::V4(address) => {
                let address = u128::from(address.to_bits()) << 96;
                (halves(address), halves(ones(u32::from(self.bits.min(32)))))
            }
            IpAddr::V6(address) => (halves(address.to_bits()), halves(ones(u32::from(self.bits)))),
        }
    }
}
