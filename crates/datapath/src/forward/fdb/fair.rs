//! Fairness between ports: the number of addresses of each port in the database.
//!
//! A thread that moves a value to another port, or ends it, updates the counts: one thread wins each
//! compare-and-swap, so each change is counted once. A count is raised before the change and lowered after
//! it, so it is never below the number of entries.

use super::value::Value;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use polder_buffers::PortId;

/// Counts of one port, shared by all workers. Relaxed: no other memory access depends on them.
#[derive(Debug, Default)]
struct Port {
    learned: AtomicU32,
    evicted: AtomicU64,
    limited: AtomicU64,
}

/// Counts by port, modulo [`PORTS`].
#[derive(Debug)]
pub(super) struct Ports(Box<[Port]>);

/// Number of addresses of one port, and of addresses that it lost or could not add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortLearning {
    /// Addresses in the database that were learned on the port, expired ones that are not swept included.
    pub learned: u32,
    /// Addresses of the port that were evicted for others.
    pub evicted: u64,
    /// Frames whose source was not learned because the port's limit was reached.
    pub limited: u64,
}

impl Ports {
    pub(super) fn new() -> Self {
        Self((0..PORTS).map(|_| Port::default()).collect())
    }

    fn of(&self, port: PortId) -> &Port {
        &self.0[usize::from(port.0) % PORTS]
    }

    pub(super) fn get(&self, port: PortId) -> PortLearning {
        let Port { learned, evicted, limited } = self.of(port);
        PortLearning {
            learned: learned.load(Ordering::Relaxed),
            evicted: evicted.load(Ordering::Relaxed),
            limited: limited.load(Ordering::Relaxed),
        }
    }

    /// Counts one more address for the port of `value`; false if the port has `limit` of them. Static entries
    /// are not counted.
    pub(super) fn enter(&self, value: Value, limit: u32) -> bool {
        if value.is_static() {
            return true;
        }
        let port = self.of(value.port());
        let has_room = port.learned.fetch_add(1, Ordering::Relaxed) < limit;
        if !has_room {
            port.learned.fetch_sub(1, Ordering::Relaxed);
            port.limited.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Uncounts the address of `value`, which was removed or not inserted.
    pub(super) fn leave(&self, value: Value) {
        if !value.is_static() {
            self.of(value.port()).learned.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_evicted(&self, value: Value) {
        self.of(value.port()).evicted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn learned(&self, value: Value) -> u32 {
        self.of(value.port()).learned.load(Ordering::Relaxed)
    }
}

/// Number of ports with counts of their own: the maximum number of ports of a gateway.
#[cfg(not(loom))]
const PORTS: usize = 1 << 14;
#[cfg(loom)]
const PORTS: usize = 4;
