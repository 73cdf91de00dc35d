//! Flows that a port's program carries to another interface by itself: the kernel's half of a
//! [`FastPath`].
//!
//! | shared with the program | who writes |
//! |---|---|
//! | [`entry`]s, by pair of stations or addresses | a worker publishes; the program counts and marks; the thread that looks after ports removes |
//! | present validity: number of moves; version of the tables, and that by which each way was changed last | workers; the control thread |
//! | packets and bytes carried, by processor and egress | the program |
//!
//! # Order
//! A program cannot hold a packet until those before it have gone through user space. So an entry carries the packets
//! of a queue from the moment on when none of the entry's packets is above: each packet that still goes up leaves its
//! number in the queue as the entry's *mark*, and the next one that finds that the worker has sent or dropped
//! everything up to the mark opens the entry for its queue. A flow keeps its queue, and a worker is through with what
//! it has received when it receives again, so nothing of the flow is left behind. An entry begins without a
//! mark, and the packets that went up before it was there are before its first packet in the same queue.
//!
//! A flow without a gap never finds its queue sent: after [`PATIENCE`] its packets are dropped as `fence`, for at most
//! [`FENCE`], and then it waits anew.
//!
//! # Validity
//! An entry has the version of the tables by which it was decided. It holds while that is no older than the version by which
//! its *way* was changed last: the pair of ports that its packets come in and leave by. So a change of one port ends the
//! entries of its ways and no others.
//!
//! Of flows in tunnels and of routed ones some packets always go up: SYNs, whose segment size is clamped, congestion marks,
//! super-packets that come in, what is too big. Each closes the entry again until the worker is through with it, and nothing is fenced.
//!
//! Source: OVS' and netfilter's flow tables have entries by flow and take them back; neither orders the two ways.

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

/// Table of the flows that come in by one port.
#[derive(Debug)]
pub struct FlowTable {
    entries: Map,
    /// Bytes of their keys.
    key_bytes: usize,
    /// Present version and moves, and behind them the version by which each way was changed last.
    validity: SharedCounters,
    /// By processor and way: packets and bytes.
    carried: SharedCounters,
    /// Ports that packets come in and leave by, by the number of their counters.
    ways: Mutex<Vec<(PortId, PortId)>>,
    /// The interface's number.
    interface: u32,
    queues: u16,
    processors: u16,
    published: AtomicU64,
    /// Interfaces that the program can send by; `None` for all.
    reached: Option<Mutex<Vec<Reached>>>,
    is_xdp: bool,
}

/// Frames that a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frames {
    /// Frames that come in by the device.
    Bridged,
    /// Frames in tunnels whose packets the device carries.
    Tunnelled,
    /// Frames with IP packets that a router forwards.
    Routed,
}

/// An interface whose driver takes frames that an XDP program redirects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// Number of the interface.
    pub interface: u32,
    /// True if it takes frames of several buffers.
    pub takes_parts: bool,
}

/// Packets and bytes carried from one port to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets; a super-packet is one.
    pub packets: u64,
    /// Their bytes, tags included.
    pub bytes: u64,
}

impl FlowTable {
    /// An empty table for an interface of that number, with `queues` queues.
    pub(crate) fn new(interface: u32, queues: u16, frames: Frames) -> Result<Self, Errno> {
        let (of_key, of_value) = sizes(frames, queues)?;
        let maps = (
            Map::new(MapKind::Hash, "polder_flows", of_key, of_value, MOST_ENTRIES)?,
            SharedCounters::new("polder_valid", VALIDITY_WORDS)?,
            SharedCounters::new("polder_carried", usize::from(processors()) * PROCESSOR_WORDS)?,
        );
        Ok(Self::of_maps(maps, interface, queues, of_key as usize))
    }

    /// The table that another process has made of the same interface, with its entries and what was carried.
    ///
    /// # Errors
    /// `INVAL` for maps of another form.
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

    /// Descriptors with which another process can go on with the table.
    pub(crate) fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.entries.as_fd(), self.validity.as_fd(), self.carried.as_fd()]
    }

    /// Takes over the ways of the process that had the table before, in their order: counters go by it.
    pub fn set_ways(&self, ways: impl IntoIterator<Item = (PortId, PortId)>) {
        *self.ways.lock().unwrap_or_else(PoisonError::into_inner) = ways.into_iter().collect();
    }

    /// The same for an XDP program; one in a driver sends by interfaces alone whose drivers take frames from others. None is
    /// known yet.
    pub(crate) fn at_xdp(self, is_in_driver: bool) -> Self {
        Self { reached: is_in_driver.then(Mutex::default), is_xdp: true, ..self }
    }

    /// True for an XDP program: packet sockets do not see what it sends.
    pub fn is_xdp(&self) -> bool {
        self.is_xdp
    }

    /// True if the program sends by such interfaces alone as [`set_reached`](Self::set_reached) has named.
    pub fn needs_drivers(&self) -> bool {
        self.reached.is_some()
    }

    /// Takes over the interfaces that the program can send by. Entries end if one is not among them any more.
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

    /// Longest frame that the program can send by an interface, in bytes; `None` if none.
    fn longest_by(&self, interface: u32) -> Option<u32> {
        let Some(reached) = &self.reached else { return Some(u32::MAX) };
        let reached = reached.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = reached.iter().find(|reached| reached.interface == interface)?;
        Some(if reached.takes_parts { u32::MAX } else { ONE_BUFFER })
    }

    /// Number of the interface.
    pub fn interface(&self) -> u32 {
        self.interface
    }

    /// Number of decisions published so far.
    pub fn published(&self) -> u64 {
        // Relaxed: a number that orders nothing.
        self.published.load(Ordering::Relaxed)
    }

    /// Goes on to tables of that version, and makes entries of older ones invalid whose ways `is_changed` names. A version
    /// below the present one changes nothing: another process that has the table, too, has newer tables.
    pub fn set_version(&self, version: u64, is_changed: impl Fn((PortId, PortId)) -> bool) {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        // Release: whoever publishes under this version has seen the tables.
        self.validity.get(0).fetch_max(version, Ordering::Release);
        for (number, _) in ways.iter().enumerate().filter(|(_, way)| is_changed(**way)) {
            self.validity.get(WAYS + number).fetch_max(version, Ordering::Release);
        }
    }

    /// Version of the tables that are in use.
    pub fn version(&self) -> u64 {
        // Relaxed: a number that orders nothing.
        self.validity.get(0).load(Ordering::Relaxed)
    }

    /// True if the program carries out entries of that validity whose way has its counters at `egress`.
    fn is_valid(&self, validity: Validity, egress: u32) -> bool {
        // Relaxed: as above.
        let way = self.validity.get(WAYS + egress as usize / EGRESS_BYTES).load(Ordering::Relaxed);
        validity.moves == self.moves() && validity.version >= way
    }

    /// All entries, those included that are not valid any more, in no order.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn entries(&self) -> Result<Vec<Entry>, Errno> {
        let (bytes, key_bytes) = (self.entries.entries()?, self.key_bytes);
        let entries = bytes.chunks_exact(key_bytes + entry::value_bytes(self.queues));
        let is_valid = |validity, egress| self.is_valid(validity, egress);
        Ok(entries.map(|bytes| Entry::read(bytes, key_bytes, is_valid)).collect())
    }

    /// True if the program carries a frame, unless packets of its flow are in user space.
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

    /// Entries that a look at the table leaves in it at most, so that new ones find room until the next.
    pub const LEFT_BY_A_LOOK: usize = MOST_ENTRIES as usize / 8 * 7;

    /// Removes an entry; its packets come to user space from then on.
    pub fn remove(&self, flow: &FlowKey) {
        // One that the table has given up already is as good.
        let _ = self.entries.remove(&entry::key(flow));
    }

    /// Packets carried so far, by the ports that they came in and left by.
    pub fn carried(&self) -> Vec<((PortId, PortId), Carried)> {
        let ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // Relaxed: numbers that order nothing.
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

    /// Offset of the counters of a way; `None` when there are too many ways.
    fn counters_of(&self, way: (PortId, PortId)) -> Option<u32> {
        let mut ways = self.ways.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ways.iter().position(|&known| known == way);
        let number = known.or_else(|| {
            let has_room = ways.len() < MOST_EGRESSES;
            has_room.then(|| {
                ways.push(way);
                // What older tables say of the way may have changed since.
                self.validity.get(WAYS + ways.len() - 1).fetch_max(self.version(), Ordering::Relaxed);
                ways.len() - 1
            })
        })?;
        u32::try_from(number * EGRESS_BYTES).ok()
    }

    /// Descriptors for the program.
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
        // Acquire: what the worker looks up from here on is no older than this number.
        self.validity.get(1).load(Ordering::Acquire)
    }

    fn count_move(&self) {
        // Release: who reads this number sees the move.
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
        // What cannot be entered goes on through user space: refusals of the kernel change nothing else.
        if self.entries.add(&key, &value) == Err(Errno::EXIST)
            && self.entries.get(&key, &mut present).is_ok()
            && !self.is_valid(entry::validity(&present), entry::egress(&present))
        {
            let _ = self.entries.set(&key, &value);
        }
    }
}

/// The tables of one port for its program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMaps<'f> {
    entries: BorrowedFd<'f>,
    validity: BorrowedFd<'f>,
    carried: BorrowedFd<'f>,
    processors: u16,
}

/// Bytes of a key and of a value.
fn sizes(frames: Frames, queues: u16) -> Result<(u32, u32), Errno> {
    let key_bytes = match frames {
        Frames::Bridged => entry::KEY,
        Frames::Tunnelled => entry::OUTER_KEY,
        Frames::Routed => entry::ADDRESS_KEY,
    };
    let [of_key, of_value] = [key_bytes, entry::value_bytes(queues)].map(u32::try_from);
    Ok((of_key.map_err(|_| Errno::INVAL)?, of_value.map_err(|_| Errno::INVAL)?))
}

/// Processors that a program may run on.
pub(crate) fn processors() -> u16 {
    // "0-7" or "0,2-5": the last number.
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<u16>().ok());
    last.map_or(MOST_PROCESSORS, |last| last.saturating_add(1)).min(MOST_PROCESSORS)
}

/// Longest frame that every driver has in one buffer: that of an MTU of 1500 bytes.
const ONE_BUFFER: u32 = 1514;
/// Pairs of stations or addresses that a port's table has at most, of some 200 bytes each; without any it takes 64 KiB.
const MOST_ENTRIES: u32 = 4096;
/// Ways that the flows of one port can take: pairs of ports that they come in and leave by.
const MOST_EGRESSES: usize = 64;
/// Words of the validity: version, moves, and the ways' versions, which begin at a word that is a multiple of two.
const VALIDITY_WORDS: usize = WAYS + MOST_EGRESSES;
const WAYS: usize = 2;
/// Bytes of the counters of one egress: packets and bytes.
const EGRESS_BYTES: usize = 16;
/// Words of one processor, with an egress in reserve so that any of their offsets is inside.
const PROCESSOR_WORDS: usize = MOST_EGRESSES * EGRESS_BYTES / 8;
/// The logarithm of their bytes.
const PROCESSOR_SHIFT: i32 = 10;
const _: () = assert!(PROCESSOR_WORDS * 8 == 1 << PROCESSOR_SHIFT);
/// Processors at most; on others packets are not carried.
const MOST_PROCESSORS: u16 = 1024;
/// Time for which an entry waits for a gap of its flow.
const PATIENCE: core::time::Duration = core::time::Duration::from_millis(20);
/// Time for which packets are dropped at most to make one.
const FENCE: core::time::Duration = core::time::Duration::from_millis(5);
