//! Ports whose packets can be left to the kernel, as the control thread and the two threads that watch the kernel share
//! them.
//!
//! ```text
//! kernel-notices: a notice ──▶ generation + 1 ──▶ the words of all ports are set ──▶ kernel-hooks is woken
//! kernel-hooks:   reads the generation, then all hooks; no hook at a port ──▶ ends the cause "hook", of that generation
//! control thread: reads the generation, then all routes; all known ──▶ ends the cause "route", of that generation
//! ```
//!
//! A notice that comes while others read has a later generation, so what they end is not what it has set.

use super::hold::Turn;
use crate::kernel::hooks::Noticed;
use polder_datapath::fast_path::FastPath as _;
use polder_devices::af_xdp::{Families, YieldCause, YieldWord};
use polder_devices::checks::Check;
use polder_devices::skb::FlowTable;
use polder_devices::skb::connections::ConnectionTable;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A router's port that is open.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct YieldingPort {
    /// Its name.
    pub(in crate::runtime) name: String,
    /// Word that its program reads.
    pub(in crate::runtime) word: Arc<YieldWord>,
    /// Flows that its program carries.
    pub(in crate::runtime) flows: Option<Arc<FlowTable>>,
    /// Families that the kernel would forward in its place: bits of IPv4 and IPv6.
    families: Arc<AtomicU8>,
}

/// Ports, and the interfaces by which routes are the router's business.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) ports: Vec<YieldingPort>,
    pub(super) interfaces: Vec<u32>,
    /// Connections that ports carry.
    pub(super) connections: Option<Arc<ConnectionTable>>,
}

/// The same, shared.
#[derive(Debug, Default)]
pub(super) struct Yields {
    words: Mutex<Arc<Words>>,
    generation: AtomicU64,
    /// Notices of hooks so far.
    hooks: AtomicU64,
    /// One more than the number of notices of hooks at the last look that found no obstacle to connections; 0 if it found some.
    clear: AtomicU64,
}

impl YieldingPort {
    /// A port that the kernel forwards nothing for, as far as is known.
    pub(in crate::runtime) fn new(name: String, word: Arc<YieldWord>, flows: Option<Arc<FlowTable>>) -> Self {
        Self { name, word, flows, families: Arc::default() }
    }

    /// Families that the kernel would forward in its place.
    fn families(&self) -> Families {
        // Relaxed: a look that orders nothing; a change is followed by another one.
        let bits = self.families.load(Ordering::Relaxed);
        Families { v4: bits & 1 != 0, v6: bits & 2 != 0 }
    }

    /// Takes over the families that the kernel forwards.
    pub(super) fn set_families(&self, families: Families) {
        // Relaxed: see `families`.
        self.families.store(u8::from(families.v4) | u8::from(families.v6) << 1, Ordering::Relaxed);
    }

    /// Leaves its packets to the kernel.
    pub(super) fn leave(&self, cause: YieldCause, generation: u64) {
        self.word.leave(cause, self.families(), generation);
    }

    /// Takes its packets again, unless a notice behind `generation` has come: then answers false. At the end of a yield, flows
    /// that were carried before it are decided anew.
    pub(super) fn take_back(&self, turn: Turn, generation: u64) -> bool {
        match (turn, &self.flows) {
            (Turn::Ends(_), Some(flows)) => flows.count_move(),
            (Turn::Ends(_) | Turn::Begins | Turn::Stays, _) => {}
        }
        self.word.end(YieldCause::Hook, generation)
    }
}

impl Words {
    /// True if routes by the interface of that number are the router's business.
    pub(super) fn is_port(&self, interface: u32) -> bool {
        self.interfaces.contains(&interface)
    }

    fn set(&self, noticed: Noticed, generation: u64) {
        let closes = noticed.changes_evidence() && Check::ConnectionNotice.is_made();
        if let Some(connections) = self.connections.as_ref().filter(|_| closes) {
            connections.raise_generation();
        }
        for port in &self.ports {
            if noticed.hook {
                port.leave(YieldCause::Hook, generation);
            }
            if noticed.route {
                port.leave(YieldCause::Route, generation);
            }
        }
    }
}

impl Yields {
    /// Number of notices of hooks, to be asked for before hooks are read.
    pub(super) fn hooks(&self) -> u64 {
        // Acquire: as for `generation`.
        self.hooks.load(Ordering::Acquire)
    }

    /// Hooks were read behind notice `hooks`: connections may be carried, unless there is an obstacle.
    pub(super) fn set_clear(&self, hooks: u64, is_clear: bool) {
        // Release: pairs with the load below.
        self.clear.store(if is_clear { hooks + 1 } else { 0 }, Ordering::Release);
    }

    /// True if all hooks that the kernel has told of are read, and are no obstacle to connections.
    pub(super) fn is_clear(&self) -> bool {
        self.clear.load(Ordering::Acquire) == self.hooks() + 1
    }

    /// Generation of the last notice.
    pub(super) fn generation(&self) -> u64 {
        // Acquire: what is read of the kernel from here on is no older than this notice.
        self.generation.load(Ordering::Acquire)
    }

    /// The ports.
    pub(super) fn words(&self) -> Arc<Words> {
        Arc::clone(&self.lock())
    }

    /// Brings the ports that a caller knows up to date, unless that takes a wait.
    pub(super) fn refresh(&self, known: &mut Arc<Words>) {
        if let Ok(words) = self.words.try_lock() {
            known.clone_from(&words);
        }
    }

    /// Leaves the packets of all ports to the kernel, as far as it forwards them. `known` are the ports as the caller has seen
    /// them last; nothing is waited for.
    pub(super) fn notice(&self, noticed: Noticed, known: &mut Arc<Words>) {
        if noticed.hook {
            // AcqRel: as below.
            self.hooks.fetch_add(1, Ordering::AcqRel);
        }
        // AcqRel: pairs with `generation`, and with the look of `replace` behind its change.
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        self.refresh(known);
        known.set(noticed, generation);
    }

    /// Replaces the ports. Those for which `is_held` stay left to the kernel, and so do all if a notice comes meanwhile.
    pub(super) fn replace(&self, new: Words, is_held: impl Fn(&str) -> bool) {
        let before = self.generation();
        let mut words = self.lock();
        let waits = words.ports.iter().any(|port| port.word.has(YieldCause::Route));
        let new = Arc::new(new);
        for port in &new.ports {
            if is_held(&port.name) {
                port.leave(YieldCause::Hook, before);
            }
            if waits {
                port.leave(YieldCause::Route, before);
            }
        }
        words.clone_from(&new);
        drop(words);
        let now = self.generation();
        if now != before {
            new.set(Noticed { any: true, hook: true, route: true, evidence: true }, now);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Words>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
