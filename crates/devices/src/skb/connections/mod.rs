//! Connection table: BPF programs forward packets of connections that the kernel has admitted.
//!
//! ```text
//!            ingress of a port                                          egress of a port
//! interface ─▶ in the table, open? ─ yes ─▶ rewrite, redirect ─────────────▶ mark? ─ yes ─▶ interface
//!                 │ no: stamp with the number of changes                       │ no: forwarded, nothing changed since?
//!                 └─▶ the kernel: netfilter, NAT, routing, neighbours ─────────┘ yes: evidence ─▶ the entry opens
//! ```
//!
//! | shared | writer |
//! |---|---|
//! | entries, closed; their removal | the thread that follows the kernel's conntrack |
//! | evidence, and with it whether an entry is open | the egress program |
//! | counters, last acknowledgement, end of data, end of the connection | the ingress program |
//! | generations, heartbeat | the thread that hears the kernel's notices of changes |
//!
//! # Permission
//! The control thread enters a connection *closed*. The egress program opens a direction when it sees the kernel itself forward a
//! packet of it, with what the kernel did: interfaces, link-layer addresses. The packet must have come in under the present
//! generation (the ingress program's stamp in `tc_index`), and the evidence of both directions must be each other's mirror image; a
//! contradiction closes both for the rest of the generation. A change of the kernel's rules or links raises the generation of all
//! connections, which closes every entry at once; one of a route or neighbour that of the connections that it touches.
//!
//! # Heartbeat
//! The ingress program carries only while the heartbeat is younger than [`HEARTBEAT`]: if the thread that hears of changes stands
//! still or is gone, the kernel has every packet.
//!
//! # TCP
//! A SYN closes both directions. A RST whose sequence number is the last acknowledgement of the other direction or the highest end
//! of data of its own, and a FIN within the window, end the connection; the kernel has them and all that follows. Other RST and FIN
//! segments are carried as data is: the receiver drops them (RFC 5961).
//!
//! Cost: a look-up, a rewrite and a redirect a packet that is carried; a look-up and a store for any other.
//!
//! Source: Linux, net/netfilter/nf_flow_table_ip.c (which of a connection's packets may pass the stack by).

mod carry;
mod entry;
mod evidence;
mod generation;
mod packet;
#[cfg(test)]
mod tests;
mod words;

pub use entry::{Connection, Direction, Transport, Tuple};

pub(super) use carry::{carry, stamp_returned};
pub(super) use evidence::evidence;
pub(super) use words::ConnectionMaps;

use crate::bpf::sys::{Map, MapKind, SharedCounters};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use entry::{KEY_BYTES, VALUE_BYTES};
use generation::{CHANGES, Ends, WORDS};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};
use words::{BEAT, CARRIED_ENDS, CONTRADICTIONS, ENDED_WORD, LATE, NONCE, SEEN, TOLD, UP};

/// Age of the heartbeat up to which connections are carried.
pub const HEARTBEAT: Duration = Duration::from_millis(50);

/// Connection table of all ports of a gateway.
#[derive(Debug)]
pub struct ConnectionTable {
    entries: Map,
    words: SharedCounters,
    most: u32,
    entered: AtomicU32,
    ends: RwLock<Ends>,
    /// Eventfd, readable after an event: a connection ended, or carried another 512 MiB.
    wake: OwnedFd,
    /// Eventfd, readable after a connection was entered into an empty table.
    begins: OwnedFd,
    /// Number of events at the last heartbeat.
    told: AtomicU64,
}

/// Counters of the programs, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounters {
    /// Packets forwarded by the kernel that were evidence.
    pub evidence: u64,
    /// Packets forwarded by the kernel that contradicted earlier evidence.
    pub contradictions: u64,
    /// RST and FIN segments that ended a connection.
    pub ends: u64,
    /// RST and FIN segments carried as data, because they are not exact or not in the window.
    pub carried_ends: u64,
    /// Packets passed to the kernel because the heartbeat was older than [`HEARTBEAT`].
    pub late_heartbeats: u64,
    /// IP packets passed to the kernel that may belong to a connection in the table.
    pub passed_up: u64,
}

/// A table is equal to itself alone.
impl PartialEq for ConnectionTable {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self, other)
    }
}

impl Eq for ConnectionTable {}

impl ConnectionTable {
    /// Creates an empty table for at most `most` connections. Programs carry nothing before the first [`beat`](Self::beat).
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn new(most: u32) -> Result<Self, Errno> {
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let table = Self {
            entries: Map::new(MapKind::Hash, "polder_conns", KEY_BYTES, VALUE_BYTES, 2 * most)?,
            words: SharedCounters::new("polder_conn", WORDS)?,
            most,
            entered: AtomicU32::new(0),
            ends: RwLock::default(),
            wake: event()?,
            begins: event()?,
            told: AtomicU64::new(0),
        };
        // Relaxed: no program has the table yet. An entry of zeros is closed.
        table.words.get(generation::EVERYTHING).store(1, Ordering::Relaxed);
        table.words.get(NONCE).store(RandomState::new().build_hasher().finish(), Ordering::Relaxed);
        Ok(table)
    }

    /// Maximum number of connections.
    pub fn most(&self) -> u32 {
        self.most
    }

    /// Enters a connection, closed in both directions. Evidence and counters of an earlier one with the same tuples are lost.
    ///
    /// # Errors
    /// `2BIG` or `NOMEM` if the table is full; the connection stays the kernel's.
    pub fn enter(&self, connection: &Connection) -> Result<(), Errno> {
        let [(original, there), (reply, back)] = connection.entries();
        // Before the entry: a change of a route from here on closes it.
        let mut ends = self.ends();
        connection.ends().into_iter().for_each(|end| ends.enter(end));
        drop(ends);
        let entered = self.set([(&original, &there), (&reply, &back)]);
        match entered {
            // Relaxed: a number that orders nothing, as below.
            Ok(()) if self.entered.fetch_add(1, Ordering::Relaxed) == 0 => tell(&self.begins),
            Ok(()) => {}
            Err(_) => self.forget_ends(connection),
        }
        entered
    }

    fn set(&self, [(original, there), (reply, back)]: [(&[u8], &[u8]); 2]) -> Result<(), Errno> {
        self.entries.set(original, there)?;
        self.entries.set(reply, back).inspect_err(|_| {
            // A single direction never opens.
            let _ = self.entries.remove(original);
        })
    }

    fn ends(&self) -> RwLockWriteGuard<'_, Ends> {
        self.ends.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_ends(&self, connection: &Connection) {
        let mut ends = self.ends();
        connection.ends().into_iter().for_each(|end| ends.leave(end));
    }

    /// Removes a connection, whose packets then pass to the kernel. Returns the last state of both directions.
    pub fn leave(&self, connection: &Connection) -> [Direction; 2] {
        let state = self.state(connection);
        // An entry may be missing already.
        if self.entries.remove(&connection.original.key()).is_ok() {
            self.entered.fetch_sub(1, Ordering::Relaxed);
            self.forget_ends(connection);
        }
        let _ = self.entries.remove(&connection.reply.key());
        state
    }

    /// True if a connection is entered.
    pub fn has_entries(&self) -> bool {
        self.entered.load(Ordering::Relaxed) > 0
    }

    /// State of the original and the reply direction; closed and zero for a connection that is not in the table.
    pub fn state(&self, connection: &Connection) -> [Direction; 2] {
        [connection.original, connection.reply].map(|tuple| {
            let mut value = [0; VALUE_BYTES as usize];
            match self.entries.get(&tuple.key(), &mut value) {
                Ok(()) => self.direction(&value),
                Err(_) => Direction::default(),
            }
        })
    }

    fn direction(&self, value: &[u8]) -> Direction {
        let generation = |slots| generation::generation(&self.words, slots);
        Direction::read(value, generation, |slot| generation::hop_generation(&self.words, slot))
    }

    /// Calls `take` with each direction in the table, in no order.
    ///
    /// # Errors
    /// Errors of the kernel.
    ///
    /// Cost: a quarter of a microsecond an entry.
    pub fn for_each(&self, mut take: impl FnMut(&Direction)) -> Result<(), Errno> {
        self.entries.for_each(&mut |_, value| take(&self.direction(value)))
    }

    /// Calls `take` with the number of each connection that ended, or carried another 512 MiB in one direction, since event `read`,
    /// and advances `read`. Returns false if events are missing; then all entries have to be read.
    pub fn told(&self, read: &mut u64, take: impl FnMut(u32)) -> bool {
        generation::told(&self.words, read, take)
    }

    /// Closes all entries, after a change of rules, policies, settings or links.
    pub fn raise_generation(&self) {
        generation::raise_everything(&self.words);
    }

    /// Closes connections with an endpoint in the prefix, after a change of a route to it.
    pub fn route_changed(&self, network: (IpAddr, u8)) {
        // The thread that enters connections may be descheduled while it holds the lock, so this one does not wait.
        match self.ends.try_read() {
            Ok(ends) => generation::raise_network(&self.words, &ends, network),
            Err(_) => self.raise_generation(),
        }
    }

    /// Closes directions whose next hop has that link-layer address, after a neighbour gave it up.
    pub fn neighbour_changed(&self, address: [u8; 6]) {
        generation::raise_hop(&self.words, address);
    }

    /// Sets the pairs of interfaces between which rules match on each packet: only connections with consent are carried there.
    pub fn set_looked_at(&self, pairs: &[[u32; 2]]) {
        generation::set_pairs(&self.words, pairs);
    }

    /// Number of changes of all kinds.
    pub fn changes(&self) -> u64 {
        // Relaxed: orders nothing.
        self.words.get(CHANGES).load(Ordering::Relaxed)
    }

    /// Heartbeat: all notices received by `now` (CLOCK_MONOTONIC, in nanoseconds) have been processed.
    pub fn beat(&self, now: u64) {
        let _: Result<usize, Errno> = rustix::io::read(&self.begins, &mut [0; 8]);
        // Release: generations raised for these notices are visible before.
        self.words.get(BEAT).store(now, Ordering::Release);
        // Relaxed: only this thread reads and writes `told`.
        let events = self.words.get(TOLD).load(Ordering::Relaxed);
        if self.told.swap(events, Ordering::Relaxed) != events {
            tell(&self.wake);
        }
    }

    /// Eventfd that is readable from the first connection in an empty table until the next heartbeat.
    pub fn begins(&self) -> &OwnedFd {
        &self.begins
    }

    /// Eventfd that is readable after a heartbeat found new [events](Self::told).
    pub fn events(&self) -> &OwnedFd {
        &self.wake
    }

    /// Counters of the programs.
    pub fn counters(&self) -> ConnectionCounters {
        // Relaxed: numbers that order nothing.
        let word = |at: usize| self.words.get(at).load(Ordering::Relaxed);
        ConnectionCounters {
            evidence: word(SEEN),
            contradictions: word(CONTRADICTIONS),
            ends: word(ENDED_WORD),
            carried_ends: word(CARRIED_ENDS),
            late_heartbeats: word(LATE),
            passed_up: word(UP),
        }
    }

    /// File descriptors for assembling programs.
    pub(super) fn maps(&self) -> ConnectionMaps<'_> {
        ConnectionMaps { entries: self.entries.as_fd(), words: self.words.as_fd() }
    }
}

fn tell(event: &OwnedFd) {
    // An eventfd at its maximum stays readable.
    let _: Result<usize, Errno> = rustix::io::write(event, &1_u64.to_ne_bytes());
}
