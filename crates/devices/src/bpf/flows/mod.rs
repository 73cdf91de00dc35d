//! Flows that a port's program carries to another interface: the kernel's half of a [`FastPath`].
//!
//! | shared with the program | written by |
//! |---|---|
//! | [`entry`]s, by pair of MAC addresses or IP addresses | a worker publishes; the program counts and marks; the thread that manages ports removes |
//! | current validity: number of moves; version of the tables, and version of each port pair's last change | workers; the control thread |
//! | packets and bytes carried, by processor and port pair | the program |
//!
//! # Order
//! A program cannot hold a packet until earlier ones have passed user space. So an entry carries the packets of a
//! queue only once user space holds none of the entry's packets. Each packet that still goes to user space stores
//! its number in the queue as the entry's *mark*. The next packet that finds that the worker has sent or dropped
//! all packets up to the mark opens the entry for its queue. A flow keeps its queue, and a worker has completed its
//! received packets when it receives again, so no packet of the flow is overtaken. A new entry has no mark; packets
//! that went to user space before are ahead of its first packet in the same queue.
//!
//! A flow without a gap never finds its queue completed: after [`PATIENCE`] its packets are dropped as `fence`, for
//! at most [`FENCE`]; then the entry waits anew.
//!
//! # Validity
//! An entry has the version of the tables by which it was decided. It is valid while that version is no older than
//! the version of the last change of its *way*, the pair of ingress and egress port. So a change of one port ends
//! the entries of its ways and no others.
//!
//! Some packets of tunnelled and routed flows always go to user space: SYNs, whose segment size is clamped,
//! congestion marks, received super-packets, packets that are too big. Each of these closes the entry until the
//! worker has completed it, and no packet is fenced.
//!
//! Source: OVS' and netfilter's flow tables have entries by flow and remove them again; neither orders the two
//! paths.

pub(crate) mod decapsulate;
mod encapsulate;
pub(crate) mod entry;
pub(crate) mod hook;
#[cfg(test)]
pub(crate) mod packets;
pub(crate) mod program;
pub(crate) mod route;

pub use entry::Entry;

use super::sys::{Map, MapKind, SharedCounters};
use core::sync::atomic::{AtomicU64, Ordering};
use polder_buffers::PortId;
use polder_datapath::fast_path::{FastPath, FlowKey, Forwarding, Validity};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Table of the flows that one port receives.
#[derive(Debug)]
pub struct FlowTable {
    entries: Map,
    /// Bytes of their keys.
    key_bytes: usize,
    /// Current table version and number of moves, followed by the version at the last change of each port
    /// pair.
    validity: SharedCounters,
    /// Packets and bytes by processor and port pair.
    carried: SharedCounters,
    /// Pairs of ingress and egress port, by the number of their counters.
    ways: Mutex<Vec<(PortId, PortId)>>,
    /// The interface index.
    interface: u32,
    queues: u16,
    processors: u16,
    published: AtomicU64,
    /// Interfaces that the program can send to; `None` for all.
    reached: Option<Mutex<Vec<Reached>>>,
    is_xdp: bool,
}

/// Frames that a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    /// Frames that the device receives.
    Bridged,
    /// Inner frames of tunnels whose packets the device receives.
    Tunnelled,
    /// Frames with IP packets that a router forwards.
    Routed,
}

/// An interface whose driver accepts frames that an XDP program redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Interface index.
    pub interface: u32,
    /// True if the driver accepts frames of several buffers.
    pub takes_parts: bool,
}

/// Packets and bytes carried from one port to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Number of packets; a super-packet counts as one.
    pub packets: u64,
    /// Their bytes, tags included.
    pub bytes: u64,
}

impl FlowTable {
    /// Creates an empty table for interface index `interface`, with `queues` queues.
    pub(crate) fn new(interface: u32, queues: u16, frames: Frames) -> Result<Self, Errno> {
        let (of_key, of_value) = sizes(frames, queues)?;
        let maps = (
            Map::new(MapKind::Hash, "polder_flows", of_key, of_value, MOST_ENTRIES)?,
            SharedCounters::new("polder_valid", VALIDITY_WORDS)?,
            SharedCounters::new("polder_carried", usize::from(processors()) * PROCESSOR_WORDS)?,
        );
        Ok(Self::of_maps(maps, interface, queues, of_key as usize))
    }

    /// Adopts the table of the predecessor process for the same interface, with its entries and counts.
    ///
    /// # Errors
    /// `INVAL` for maps of another layout.
    pub(crate) fn adopt(
        [entries, validity, carried]: [OwnedFd; 3],
        interface: u32,
        queues: u16,
        frames: Frames,
    ) -> Result<Self, Errno> {
        let (of_key, of_value) = sizes(frames, queues)?;
        let maps = (
            Map::adopt(entries, MapKind::Hash, of_key, of_value, MOST_ENTRIES)?,
            SharedCounters::adopt(validity, VALIDITY_WORDS)?,
            SharedCounters::adopt(carried, usize::from(processors()) * PROCESSOR_WORDS)?,
        );
        Ok(Self::of_maps(maps, interface, queues, of_key as usize))
    }

    fn of_maps(
        (entries, validity, carried): (Map, SharedCounters, SharedCounters),
        interface: u32,
        queues: u16,
        key_bytes: usize,
    ) -> Self {
        Self {
            entries,
            key_bytes,
            validity,
            carried,
            ways: Mutex::default(),
            interface,
            queues,
            processors: processors(),
            published: AtomicU64::new(0),
            reached: None,
            is_xdp: false,
        }
    }

    /// Returns the descriptors to hand the table over to the successor process.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.entries.as_fd(), self.validity.as_fd(), self.carried.as_fd()]
    }

    /// Takes over the predecessor's port pairs in their order, by which the counters are numbered.
    pub fn set_ways(&self, ways: impl IntoIterator<Item = (PortId, PortId)>) {
        *self.ways.lock().unwrap_or_else(PoisonError::into_inner) = ways.into_iter().collect();
    }

    /// Makes the table one of an XDP program; a native program sends only to interfaces whose drivers accept
    /// redirected frames. None is known yet.
    pub(crate) fn at_xdp(self, is_in_driver: bool) -> Self {
        Self { reached: is_in_driver.then(Mutex::default), is_xdp: true, ..self }
    }

    /// True for an XDP program: packet sockets do not see the frames that it sends.
    pub fn is_xdp(&self) -> bool {
        self.is_xdp
    }

    /// True if the program sends only to interfaces of [`set_reached`](Self::set_reached).
    pub fn needs_drivers(&self) -> bool {
        self.reached.is_some()
    }

    /// Sets the interfaces that the program can send to. If one is missing from the new list, all entries
    /// end.
    pub fn set_reached(&self, interfaces: Vec<Reached>) {
        let Some(reached) = &self.reached else { return };
        let mut reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        let has_lost = reached.iter().any(|interface| !interfaces.contains(interface));
        *reached = interfaces;
        drop(reached);
        if has_lost {
            self.count_move();
        }
    }

    /// Returns the maximum length in bytes of a frame that the program can send to an interface; `None` if
    /// none.
    fn longest_by(&self, interface: u32) -> Option<u32> {
        let Some(reached) = &self.reached else { return Some(u32::MAX) };
        let reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = reached.iter().find(|reached| reached.interface == interface)?;
        Some(if reached.takes_parts { u32::MAX } else { ONE_BUFFER })
    }

    /// Returns the interface index.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Returns the number of decisions published so far.
    pub fn published(&self) -> u64 {
        // Relaxed: the number orders nothing.
        self.published.load(Ordering::Relaxed)
    }

    /// Sets the table version to `version`, and makes older entries invalid whose port pair `is_changed`
    /// selects. A version below the current one changes nothing: another process that shares the table has
    /// newer tables.
    pub fn set_version(&self, version: u64, is_changed: impl Fn((PortId, PortId)) -> bool) {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        // Release: a publisher that sees this version sees the tables too.
        self.validity.get(0).fetch_max(version, Ordering::Release);
        for (number, _) in ways.iter().enumerate().filter(|(_, way)| is_changed(**way)) {
            self.validity.get(WAYS + number).fetch_max(version, Ordering::Release);
        }
    }

    /// Returns the current version of the tables.
    pub fn version(&self) -> u64 {
        // Relaxed: the number orders nothing.
        self.validity.get(0).load(Ordering::Relaxed)
    }

    /// True if the program uses entries with that validity whose port pair has its counters at `egress`.
    fn is_valid(&self, validity: Validity, egress: u32) -> bool {
        // Relaxed: as above.
        let way = self.validity.get(WAYS + egress as usize / EGRESS_BYTES).load(Ordering::Relaxed);
        validity.moves == self.moves() && validity.version >= way
    }

    /// Returns all entries, including invalid ones, in no order.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn entries(&self) -> Result<Vec<Entry>, Errno> {
        let (bytes, key_bytes) = (self.entries.entries()?, self.key_bytes);
        let entries = bytes.chunks_exact(key_bytes + entry::value_bytes(self.queues));
        let is_valid = |validity, egress| self.is_valid(validity, egress);
        Ok(entries.map(|bytes| Entry::read(bytes, key_bytes, is_valid)).collect())
    }

    /// True if the program carries a frame, provided that user space holds no packets of its flow.
    pub fn carries(&self, frame: &[u8]) -> bool {
        let mut value = vec![0; entry::value_bytes(self.queues)];
        let key = match self.key_bytes {
            entry::KEY => entry::key_of(frame),
            entry::ADDRESS_KEY => entry::key_of_routed(frame),
            _ => entry::key_of_outer(frame),
        };
        key.is_some_and(|key| self.entries.get(&key, &mut value).is_ok())
            && self.is_valid(entry::validity(&value), entry::egress(&value))
    }

    /// Number of entries that a check of the table leaves in it at most, so that new ones find room until the
    /// next check.
    pub const LEFT_BY_A_LOOK: usize = MOST_ENTRIES as usize / 8 * 7;

    /// Removes an entry; its packets go to user space from then on.
    pub fn remove(&self, flow: &FlowKey) {
        // The entry may be gone already.
        let _ = self.entries.remove(&entry::key(flow));
    }

    /// Returns the packets carried so far, by pair of ingress and egress port.
    pub fn carried(&self) -> Vec<((PortId, PortId), Carried)> {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Relaxed: the numbers order nothing.
        let word = |at| self.carried.get(at).load(Ordering::Relaxed);
        let carried = |number: usize| {
            let places =
                (0..usize::from(self.processors)).map(|processor| processor * PROCESSOR_WORDS + 2 * number);
            places.fold(Carried::default(), |sum, at| Carried {
                packets: sum.packets.wrapping_add(word(at)),
                bytes: sum.bytes.wrapping_add(word(at + 1)),
            })
        };
        ways.into_iter().enumerate().map(|(number, way)| (way, carried(number))).collect()
    }

    /// Returns the offset of the counters of a port pair; `None` if there are too many pairs.
    fn counters_of(&self, way: (PortId, PortId)) -> Option<u32> {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ways.iter().position(|&known| known == way);
        let number = known.or_else(|| {
            let has_room = ways.len() < MOST_EGRESSES;
            has_room.then(|| {
                ways.push(way);
                // The port pair may have changed since older tables.
                self.validity.get(WAYS + ways.len() - 1).fetch_max(self.version(), Ordering::Relaxed);
                ways.len() - 1
            })
        })?;
        u32::try_from(number * EGRESS_BYTES).ok()
    }

    /// Returns the descriptors for the program.
    pub(crate) fn maps(&self) -> FlowMaps<'_> {
        FlowMaps {
            entries: self.entries.as_fd(),
            validity: self.validity.as_fd(),
            carried: self.carried.as_fd(),
            processors: self.processors,
        }
    }
}

impl FastPath for FlowTable {
    fn moves(&self) -> u64 {
        // Acquire: later look-ups of the worker are no older than this number.
        self.validity.get(1).load(Ordering::Acquire)
    }

    fn count_move(&self) {
        // Release: a reader of this number sees the move.
        self.validity.get(1).fetch_add(1, Ordering::Release);
    }

    fn publish(&self, flow: &FlowKey, forwarding: &Forwarding, validity: Validity) {
        let Some(longest) = self.longest_by(forwarding.interface) else { return };
        let forwarding = &Forwarding { longest: forwarding.longest.min(longest), ..*forwarding };
        let Some(egress) = self.counters_of((forwarding.from, forwarding.port)) else { return };
        if !self.is_valid(validity, egress) {
            return;
        }
        self.published.fetch_add(1, Ordering::Relaxed);
        let key = entry::key(flow);
        let value = entry::value(forwarding, validity, egress, self.queues);
        let mut present = vec![0; value.len()];
        // A flow that cannot be entered stays in user space; refusals of the kernel change nothing else.
        if self.entries.add(&key, &value) == Err(Errno::EXIST)
            && self.entries.get(&key, &mut present).is_ok()
            && !self.is_valid(entry::validity(&present), entry::egress(&present))
        {
            let _ = self.entries.set(&key, &value);
        }
    }
}

/// The tables of one port, for its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMaps<'f> {
    entries: BorrowedFd<'f>,
    validity: BorrowedFd<'f>,
    carried: BorrowedFd<'f>,
    processors: u16,
}

/// Returns the bytes of a key and of a value.
fn sizes(frames: Frames, queues: u16) -> Result<(u32, u32), Errno> {
    let key_bytes = match frames {
        Frames::Bridged => entry::KEY,
        Frames::Tunnelled => entry::OUTER_KEY,
        Frames::Routed => entry::ADDRESS_KEY,
    };
    let [of_key, of_value] = [key_bytes, entry::value_bytes(queues)].map(u32::try_from);
    Ok((of_key.map_err(|_| Errno::INVAL)?, of_value.map_err(|_| Errno::INVAL)?))
}

/// Returns the number of processors that a program may run on.
pub(crate) fn processors() -> u16 {
    // "0-7" or "0,2-5": the last number.
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u16>().ok());
    last.map_or(MOST_PROCESSORS, |last| last.saturating_add(1)).min(MOST_PROCESSORS)
}

/// Maximum length in bytes of a frame that every driver has in one buffer: with an MTU of 1500.
const ONE_BUFFER: u32 = 1514;
/// Maximum number of entries of a port's table, about 200 bytes each; an empty table takes 64 KiB.
const MOST_ENTRIES: u32 = 4096;
/// Maximum number of port pairs of one port's flows.
const MOST_EGRESSES: usize = 64;
/// Number of validity words: version, moves, and the versions of the port pairs, from an even word on.
const VALIDITY_WORDS: usize = WAYS + MOST_EGRESSES;
const WAYS: usize = 2;
/// Bytes of the counters of one port pair: packets and bytes.
const EGRESS_BYTES: usize = 16;
/// Words of one processor, with a spare pair so that every offset is inside.
const PROCESSOR_WORDS: usize = MOST_EGRESSES * EGRESS_BYTES / 8;
/// Binary logarithm of their bytes.
const PROCESSOR_SHIFT: i32 = 10;
const _: () = assert!(PROCESSOR_WORDS * 8 == 1 << PROCESSOR_SHIFT);
/// Maximum number of processors; on others packets are not carried.
const MOST_PROCESSORS: u16 = 1024;
/// Maximum time for which an entry waits for a gap in its flow.
const PATIENCE: core::time::Duration = core::time::Duration::from_millis(20);
/// Maximum time for which packets are dropped to make a gap.
const FENCE: core::time::Duration = core::time::Duration::from_millis(5);
