//! Packet store of a queue: all waiting packets in one array, chained by slot number.
//!
//! Memory: 80 bytes per packet of the capacity, allocated once. Cost: a move of a packet in and one out.

use crate::units::Nanos;
use polder_buffers::Packet;

/// Slot number that ends a chain.
const NONE: u32 = u32::MAX;

/// Packets in order of arrival; their slots belong to a [`PacketStore`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    first: u32,
    last: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

/// Properties of a stored packet, beside the packet itself.
#[derive(Clone, Copy, Debug)]
struct Record {
    came: Nanos,
    charge: u32,
    next: u32,
}

/// A packet with its properties.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) packet: Packet,
    /// Time of arrival.
    pub(super) came: Nanos,
    /// Bytes that the packet occupies on the link.
    pub(super) charge: u32,
}

/// All packets of a queue.
#[derive(Debug)]
pub(super) struct PacketStore {
    packets: Box<[Option<Packet>]>,
    records: Box<[Record]>,
    free: u32,
    len: usize,
    bytes: u64,
    limit_bytes: u64,
}

impl PacketStore {
    /// Creates an empty store for `limit_packets` packets and `limit_bytes` bytes.
    pub(super) fn new(limit_packets: usize, limit_bytes: u64) -> Self {
        let slots = u32::try_from(limit_packets).unwrap_or(NONE).clamp(1, NONE - 1);
        let record = |slot| Record {
            came: Nanos::default(),
            charge: 0,
            next: if slot + 1 < slots { slot + 1 } else { NONE },
        };
        Self {
            packets: (0..slots).map(|_| None).collect(),
            records: (0..slots).map(record).collect(),
            free: 0,
            len: 0,
            bytes: 0,
            limit_bytes: limit_bytes.min(u64::from(u32::MAX / 2)),
        }
    }

    /// Number of packets.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all packets, Ethernet headers included, FCS excluded.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if a packet of `bytes` bytes may be added. An empty store accepts any packet.
    #[inline]
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.len == 0 || self.free != NONE && self.bytes + bytes <= self.limit_bytes
    }

    /// True if a packet of `bytes` bytes fits into a store with nothing else.
    pub(super) fn could_hold(&self, bytes: u64) -> bool {
        bytes <= self.limit_bytes
    }

    /// Appends a packet to `chain`.
    ///
    /// # Errors
    /// The packet itself if no slot is free.
    #[inline]
    pub(super) fn append(&mut self, chain: &mut Chain, stored: Stored) -> Result<(), Packet> {
        let Stored { packet, came, charge } = stored;
        let slot = self.free;
        let Some(record) = self.records.get_mut(slot as usize) else { return Err(packet) };
        self.free = record.next;
        *record = Record { came, charge, next: NONE };
        self.len += 1;
        self.bytes += packet.len() as u64;
        self.packets[slot as usize] = Some(packet);
        match self.records.get_mut(chain.last as usize) {
            Some(last) => last.next = slot,
            None => chain.first = slot,
        }
        chain.last = slot;
        Ok(())
    }

    /// First packet of `chain` with its time of arrival.
    pub(super) fn first(&self, chain: Chain) -> Option<(&Packet, Nanos)> {
        let packet = self.packets.get(chain.first as usize)?.as_ref()?;
        Some((packet, self.records.get(chain.first as usize)?.came))
    }

    /// Removes the first packet of `chain`.
    #[inline]
    pub(super) fn pop(&mut self, chain: &mut Chain) -> Option<Stored> {
        let slot = chain.first;
        let record = self.records.get_mut(slot as usize)?;
        let Record { came, charge, next } = *record;
        record.next = self.free;
        self.free = slot;
        chain.first = next;
        if next == NONE {
            chain.last = NONE;
        }
        let packet = self.packets[slot as usize].take()?;
        self.len -= 1;
        self.bytes -= packet.len() as u64;
        Some(Stored { packet, came, charge })
    }
}

const _: () = assert!(size_of::<Option<Packet>>() == 64 && size_of::<Record>() == 16);
