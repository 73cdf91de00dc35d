//! Learning: adds or refreshes the entry of a frame's source.
//!
//! # Why no lock is needed
//! * **A slot has one owner while its key changes.** A slot is *free*, *live* or *claimed*. The thread whose
//!   compare-and-swap changes the value from free (or live) to claimed may write the key; all others treat
//!   the slot as empty until the owner stores a live or free value. The generation is incremented by every
//!   claim, so a compare-and-swap that was prepared for an earlier use of the slot fails.
//! * **A reader never returns the port of another address**, because it reads the key again after the value.
//!   The wanted address in a *later* use of the slot would take two reuses of the slot between two adjacent
//!   loads; the frame would then go to one wrong port of its own VLAN.
//! * **Two workers that learn one address at once leave one entry.** Each publishes, fences, and scans the
//!   address's other slots. With a sequentially consistent fence between store and scan on both sides, at
//!   least one sees the other's entry, and both choose the same loser: the dynamic entry against the static,
//!   otherwise the later in look-up order, which look-ups never return. The loser's slot is claimed once and
//!   freed once, by either thread.
//! * **Ageing cannot remove a fresh entry.** Removal claims exactly the value that was judged, so an entry
//!   that is refreshed in between stays.
//! * **A move is one compare-and-swap of port and time together**; workers that see an address on two ports
//!   at once leave it on one of them, and the next frame corrects it.
//! * **A full table evicts.** A new address replaces the least recently seen entry of the port with most
//!   entries, among a sample (`fair.rs`, ADR 0035): a flood on one port costs only that port its entries.

use super::insert::Insert;
use super::value::{State, Value};
use super::{Fdb, FdbKey, FdbTime, Slot};
use polder_buffers::PortId;

/// Result of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The address is known on the port and was seen in this second; nothing changed.
    Known,
    /// The address is known on the port; its age is reset.
    Refreshed,
    /// The address is new.
    Added,
    /// The address was on another port.
    Moved,
    /// The address is bound to another port by configuration; nothing changed.
    Pinned,
    /// The port has reached its limit; not learned.
    Limited,
    /// The table, or both buckets, are full of static entries and of entries of ports with fewer addresses;
    /// not learned.
    Full,
}

impl Fdb {
    /// Learns that a frame with source `key` was received on `port`.
    ///
    /// Writes only if something changed: at most once per second for a station that does not move.
    pub fn learn(&self, key: FdbKey, port: PortId, time: FdbTime) -> Learned {
        self.learn_within(key, port, u32::MAX, time)
    }

    /// Learns for a port with at most `limit` addresses.
    ///
    /// An address that moves to a port at its limit is removed: frames to the address are flooded, and reach
    /// it.
    pub fn learn_within(&self, key: FdbKey, port: PortId, limit: u32, time: FdbTime) -> Learned {
        // A thread that loses every attempt competes with constant changes of this address or its buckets;
        // the next frame tries again.
        (0..ATTEMPTS).find_map(|_| self.try_learn(key, port, limit, time)).unwrap_or(Learned::Known)
    }

    /// One attempt; `None` if another thread interfered.
    fn try_learn(&self, key: FdbKey, port: PortId, limit: u32, time: FdbTime) -> Option<Learned> {
        let fresh = Value::live(port, time.second, State::Live);
        let Some((slot, value)) = self.find(key) else {
            return match self.insert(key, fresh, limit, time) {
                Insert::Done => Some(Learned::Added),
                Insert::Limited => Some(Learned::Limited),
                Insert::Full => Some(Learned::Full),
                Insert::Raced => None,
            };
        };
        if value.was_seen(port, time.second) && !value.is_expired(time) {
            return Some(Learned::Known);
        }
        if value.is_static() {
            return Some(Learned::Pinned);
        }
        // Workers read their clocks at different moments; `seen` must not decrease.
        let seen = value.seen().max(time.second);
        let fresh = Value::live(port, seen, State::Live).in_life_of(value);
        let stays = value.port() == port;
        let learned = match (value.is_expired(time), stays) {
            (true, _) => Learned::Added,
            (false, true) => Learned::Refreshed,
            (false, false) => Learned::Moved,
        };
        if stays {
            return slot.replace(value, fresh).then_some(learned);
        }
        if !self.ports.enter(fresh, limit) {
            return self.free(slot, value).then_some(Learned::Limited);
        }
        let is_moved = slot.replace(value, fresh);
        self.ports.leave(if is_moved { value } else { fresh });
        is_moved.then_some(learned)
    }

    /// The live entry of `key` and its value; `None` if there is none.
    pub(super) fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        let view = self.view();
        view.find(key, view.locate(key))
    }
}

/// Number of retries of learning when other workers change the same buckets at the same time.
const ATTEMPTS: u32 = 8;
