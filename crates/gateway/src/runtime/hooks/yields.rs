//! Ports that can yield (leave their packets to the kernel), shared by the control thread and the two threads that watch
//! the kernel.
//!
//! ```text
//! kernel-notices: a notice ──▶ generation + 1 ──▶ sets the yield words of all ports ──▶ wakes kernel-hooks
//! kernel-hooks:   reads the generation, then all hooks; no hook at a port ──▶ clears cause "hook" up to that generation
//! control thread: reads the generation, then all routes; all known ──▶ clears cause "route" up to that generation
//! ```
//!
//! A notice that arrives while a thread reads has a later generation, so the thread does not clear that notice's cause.

use super::hold::Turn;
use crate::kernel::hooks::Noticed;
use polder_datapath::fast_path::FastPath as _;
use polder_devices::af_xdp::{Families, YieldCause, YieldWord};
use polder_devices::checks::Check;
use polder_devices::skb::FlowTable;
use polder_devices::skb::connections::ConnectionTable;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An open router port.
#[derive(Clone, Debug)]
pub(in crate::runtime) struct YieldingPort {
    /// Name of the port.
    pub(in crate::runtime) name: String,
    /// Yield word that the port's program reads.
    pub(in crate::runtime) word: Arc<YieldWord>,
    /// Flows that the port's program carries.
    pub(in crate::runtime) flows: Option<Arc<FlowTable>>,
    /// Address families that the kernel would forward: bit 0 is IPv4, bit 1 IPv6.
    families: Arc<AtomicU8>,
}

/// Ports that can yield, and the interfaces whose routes the router uses.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) ports: Vec<YieldingPort>,
    pub(super) interfaces: Vec<u32>,
    /// Connections that ports carry.
    pub(super) connections: Option<Arc<ConnectionTable>>,
}

/// The yield words, shared by the threads.
#[derive(Debug, Default)]
pub(super) struct Yields {
    words: Mutex<Arc<Words>>,
    generation: AtomicU64,
    /// Number of hook notices.
    hooks: AtomicU64,
    /// Number of hook notices plus 1 at the last check without an obstacle to connections; 0 after a check
    /// with one.
    clear: AtomicU64,
}

impl YieldingPort {
    /// A port for which the kernel forwards nothing yet.
    pub(in crate::runtime) fn new(name: String, word: Arc<YieldWord>, flows: Option<Arc<FlowTable>>) -> Self {
        Self { name, word, flows, families: Arc::default() }
    }

    /// Families that the kernel would forward in the port's place.
    fn families(&self) -> Families {
        // Relaxed: nothing depends on the order; a new notice follows each change.
        let bits = self.families.load(Ordering::Relaxed);
        Families { v4: bits & 1 != 0, v6: bits & 2 != 0 }
    }

    /// Sets the families that the kernel forwards.
    pub(super) fn set_families(&self, families: Families) {
        // Relaxed: see `families`.
        self.families.store(u8::from(families.v4) | u8::from(families.v6) << 1, Ordering::Relaxed);
    }

    /// Makes the port yield.
    pub(super) fn leave(&self, cause: YieldCause, generation: u64) {
        self.word.leave(cause, self.families(), generation);
    }

    /// Ends the yield for hooks; returns false if a notice after `generation` prevents that. At the end of a
    /// yield, flows that were carried before are decided again.
    pub(super) fn take_back(&self, turn: Turn, generation: u64) -> bool {
        match (turn, &self.flows) {
            (Turn::Ends(_), Some(flows)) => flows.count_move(),
            (Turn::Ends(_) | Turn::Begins | Turn::Stays, _) => {}
        }
        self.word.end(YieldCause::Hook, generation)
    }
}

impl Words {
    /// True if the router uses routes by this interface.
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
    /// Number of hook notices; read it before reading hooks.
    pub(super) fn hooks(&self) -> u64 {
        // Acquire: as for `generation`.
        self.hooks.load(Ordering::Acquire)
    }

    /// Records that hooks up to notice `hooks` were read, and whether they permit carrying connections.
    pub(super) fn set_clear(&self, hooks: u64, is_clear: bool) {
        // Release: pairs with the load in `is_clear`.
        self.clear.store(if is_clear { hooks + 1 } else { 0 }, Ordering::Release);
    }

    /// True if all announced hooks were read and permit carrying connections.
    pub(super) fn is_clear(&self) -> bool {
        self.clear.load(Ordering::Acquire) == self.hooks() + 1
    }

    /// Generation of the last notice.
    pub(super) fn generation(&self) -> u64 {
        // Acquire: kernel state that is read afterwards is no older than this notice.
        self.generation.load(Ordering::Acquire)
    }

    /// The ports.
    pub(super) fn words(&self) -> Arc<Words> {
        Arc::clone(&self.lock())
    }

    /// Updates the caller's copy of the ports, unless the lock is held.
    pub(super) fn refresh(&self, known: &mut Arc<Words>) {
        if let Ok(words) = self.words.try_lock() {
            known.clone_from(&words);
        }
    }

    /// Makes all ports yield, as far as the kernel forwards their packets. `known` is the caller's copy of
    /// the ports; the call never waits.
    pub(super) fn notice(&self, noticed: Noticed, known: &mut Arc<Words>) {
        if noticed.hook {
            // AcqRel: as below.
            self.hooks.fetch_add(1, Ordering::AcqRel);
        }
        // AcqRel: pairs with `generation`, and with the second read in `replace`.
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        self.refresh(known);
        known.set(noticed, generation);
    }

    /// Replaces the ports. Ports for which `is_held` returns true keep yielding; all yield if a notice
    /// arrives meanwhile.
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
