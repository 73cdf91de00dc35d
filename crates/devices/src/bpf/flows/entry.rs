//! Layout of a table's keys and values, as programs and this process read them.
//!
//! ```text
//! key    0 destination (6)   6 source (6)   12 VLAN, with bit 12 set if there is a tag (2)   14 nothing (2)
//! value  0 version (8)   8 moves (8)   16 packets (8)   24 bytes (8)
//!       32 interface (4)   36 longest frame (4)   40 change of the tag (4)   44 its VLAN (4)
//!       48 egress, as the offset of its counters (4)   52 open to all queues (4)   56 beginning of the wait (8)
//!       64 port (2)   66 VLAN in the forwarding database (2)   68 nothing (4)   72 marks, one a queue (8 each)
//! ```
//!
//! Numbers are in the byte order of the machine.

use polder_buffers::PortId;
use polder_datapath::fast_path::{Forwarding, StationPair, TagChange, Validity};
use polder_datapath::wire::MacAddress;

/// Bytes of a key.
pub(super) const KEY: usize = 16;
/// Bit of a key's VLAN that says that there is a tag.
pub(super) const TAGGED: u16 = 1 << 12;
/// Offsets in a value.
pub(super) const VERSION: i16 = 0;
pub(super) const MOVES: i16 = 8;
pub(super) const PACKETS: i16 = 16;
pub(super) const BYTES: i16 = 24;
pub(super) const INTERFACE: i16 = 32;
pub(super) const LONGEST: i16 = 36;
pub(super) const CHANGE: i16 = 40;
pub(super) const CHANGE_VLAN: i16 = 44;
pub(super) const EGRESS: i16 = 48;
pub(super) const OPEN: i16 = 52;
pub(super) const SINCE: i16 = 56;
const PORT: i16 = 64;
const VLAN: i16 = 66;
pub(super) const MARKS: i16 = 72;
/// Changes of the tag.
pub(super) const KEEP: i32 = 0;
pub(super) const POP: i32 = 1;
const PUSH: i32 = 2;
/// Mark of a queue whose packets do not come to user space any more; 0 is that of one that has brought none.
pub(super) const OPENED: i32 = -1;

/// Types of 802.1Q tags: a customer's and a provider's.
pub(super) const CUSTOMER_TAG: u16 = 0x8100;
pub(super) const SERVICE_TAG: u16 = 0x88a8;

/// Bytes of a value for `queues` queues.
pub(super) fn value_bytes(queues: u16) -> usize {
    MARKS as usize + 8 * usize::from(queues)
}

/// The key of a pair.
pub(super) fn key(pair: &StationPair) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..6].copy_from_slice(&pair.destination.0);
    key[6..12].copy_from_slice(&pair.source.0);
    key[12..14].copy_from_slice(&pair.tag.map_or(0, |vlan| vlan | TAGGED).to_ne_bytes());
    key
}

/// The key of a frame; `None` for one that programs leave to user space.
pub(super) fn key_of(frame: &[u8]) -> Option<[u8; KEY]> {
    let address = |at: usize| frame.get(at..)?.first_chunk().copied().map(MacAddress);
    let word = |at: usize| frame.get(at..)?.first_chunk().copied().map(u16::from_be_bytes);
    let is_tagged = word(12)? == CUSTOMER_TAG;
    let (tag, inner) = if is_tagged { (Some(word(14)? & 0x0fff), word(16)?) } else { (None, word(12)?) };
    let is_plain = tag != Some(0) && inner != CUSTOMER_TAG && inner != SERVICE_TAG;
    is_plain.then_some(key(&StationPair { destination: address(0)?, source: address(6)?, tag }))
}

/// A new value, whose egress has its counters at `egress`.
pub(super) fn value(forwarding: &Forwarding, validity: Validity, egress: u32, queues: u16) -> Vec<u8> {
    let (change, vlan) = match forwarding.tag {
        TagChange::Keep => (KEEP, 0),
        TagChange::Pop => (POP, 0),
        TagChange::Push(vlan) => (PUSH, vlan),
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
    value
}

/// Validity of a value.
pub(super) fn validity(value: &[u8]) -> Validity {
    Validity {
        version: u64::from_ne_bytes(get(value, VERSION)),
        moves: u64::from_ne_bytes(get(value, MOVES)),
    }
}

/// Entry of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The pair of stations.
    pub pair: StationPair,
    /// The decision about their frames.
    pub forwarding: Forwarding,
    /// Validity under which it was made.
    pub validity: Validity,
    /// Packets carried so far.
    pub packets: u64,
    /// Bytes of those.
    pub bytes: u64,
    /// True if packets are carried, at least those of one queue.
    pub is_open: bool,
}

impl Entry {
    /// Reads a key and the value behind it.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let (key, value) = bytes.split_at(KEY.min(bytes.len()));
        let tag = u16::from_ne_bytes(get(key, 12));
        let word = |at| u32::from_ne_bytes(get(value, at));
        let change = match word(CHANGE).cast_signed() {
            KEEP => TagChange::Keep,
            POP => TagChange::Pop,
            _ => TagChange::Push(u16::try_from(word(CHANGE_VLAN)).unwrap_or_default()),
        };
        let marks = value.get(MARKS as usize..).unwrap_or_default().chunks_exact(8);
        let is_opened = |mark: &[u8]| mark.iter().all(|&byte| byte == 0xff);
        Self {
            pair: StationPair {
                destination: MacAddress(get(key, 0)),
                source: MacAddress(get(key, 6)),
                tag: (tag & TAGGED != 0).then_some(tag & !TAGGED),
            },
            forwarding: Forwarding {
                port: PortId(u16::from_ne_bytes(get(value, PORT))),
                interface: word(INTERFACE),
                longest: word(LONGEST),
                tag: change,
                vlan: u16::from_ne_bytes(get(value, VLAN)),
            },
            validity: validity(value),
            packets: u64::from_ne_bytes(get(value, PACKETS)),
            bytes: u64::from_ne_bytes(get(value, BYTES)),
            is_open: word(OPEN) != 0 || marks.into_iter().any(is_opened),
        }
    }
}

fn put(value: &mut [u8], at: i16, bytes: &[u8]) {
    let at = at as usize;
    value[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Bytes at an offset; zeros behind the end.
fn get<const N: usize>(value: &[u8], at: i16) -> [u8; N] {
    value.get(at as usize..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_as_they_are_written() {
        let pair = StationPair {
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            tag: Some(7),
        };
        let forwarding = Forwarding {
            port: PortId(300),
            interface: 70_000,
            longest: 1514,
            tag: TagChange::Push(9),
            vlan: 9,
        };
        let validity = Validity { version: 1 << 40, moves: 3 };
        let mut bytes = key(&pair).to_vec();
        bytes.extend(value(&forwarding, validity, 64, 3));
        let entry = Entry::read(&bytes);
        assert_eq!((entry.pair, entry.forwarding, entry.validity), (pair, forwarding, validity));
        assert_eq!((entry.packets, entry.bytes, entry.is_open), (0, 0, false));
        let end = bytes.len();
        bytes[end - 8..].fill(0xff);
        assert!(Entry::read(&bytes).is_open, "the last queue's packets are carried");
    }

    #[test]
    fn keys_are_read_from_frames_with_at_most_one_tag() {
        let frame = |types: &[u16]| {
            let types = types.iter().flat_map(|word| word.to_be_bytes());
            [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1].into_iter().chain(types).collect::<Vec<u8>>()
        };
        let pair = |tag| StationPair {
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            tag,
        };
        assert_eq!(key_of(&frame(&[0x0800])), Some(key(&pair(None))));
        assert_eq!(key_of(&frame(&[0x8100, 0x6007, 0x0800])), Some(key(&pair(Some(7)))));
        for types in
            [&[0x8100, 0x6000, 0x0800][..], &[0x8100, 7, 0x8100, 8], &[0x88a8, 7, 0x0800], &[0x8100, 7]]
        {
            assert_eq!(key_of(&frame(types)), None, "{types:x?}");
        }
    }

    #[test]
    fn a_frame_without_tag_and_one_of_vlan_0_differ() {
        let pair = |tag| StationPair { source: MacAddress([2; 6]), destination: MacAddress([4; 6]), tag };
        assert_ne!(key(&pair(None)), key(&pair(Some(0))));
    }
}
