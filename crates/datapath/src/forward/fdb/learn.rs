//! Learning: the source of a frame gets an entry, or a newer one.
//!
//! # Why no lock is needed
//! * **A slot has one owner while its key changes.** A slot is *free*, *live* or *claimed*. The thread that moves
//!   its value from free (or live) to claimed by compare-and-swap may write the key; all others
//!   treat the slot as empty until the owner stores a live or free value. The generation, one more
//!   with every claim, makes a compare-and-swap fail that was prepared for an earlier life of the slot.
//! * **A reader never takes the port of another address**, because it reads the key again behind the value. That it
//!   is the wanted address again in a *later* life of the slot would take two reuses of the slot between two adjacent
//!   loads; the frame would then go to one wrong port of its own VLAN.
//! * **Two workers that learn one address at once leave one entry.** Each publishes, fences, and looks
//!   for the address in its other slots. With a sequentially consistent fence between store and look
//!   on both sides at least one sees the other's entry, and both choose the same loser: the dynamic
//!   entry against the static, else the later in the order of lookups, which nobody can see anyway.
//!   The loser's slot is claimed once and freed once, by either thread.
//! * **Ageing cannot take a fresh entry.** Removal claims exactly the value that was judged, so an
//!   entry that is refreshed in between stays.
//! * **A move is one compare-and-swap of port and time together**; workers that see an address on two
//!   ports at once leave it on one of them, and the next frame corrects it.
//! * **A full table makes room.** A new address ends the entry that has waited longest of the port that has most,
//!   among a sample (`fair.rs`, ADR 0035): one port's flood costs that port its entries, and no other.

use super::insert::Insert;
use super::value::{State, Value};
use super::{Fdb, FdbKey, FdbTime, Slot};
use polder_buffers::PortId;

/// Result of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Nothing: the address is known there, and was seen in this second.
    Known,
    /// The address is known there; its age starts again.
    Refreshed,
    /// The address is new.
    Added,
    /// The address was on another port.
    Moved,
    /// Nothing: it is bound to another port by configuration.
    Pinned,
    /// Nothing: the port has as many addresses as it may.
    Limited,
    /// Nothing: the table or both buckets are full of static entries and those of ports with fewer addresses.
    Full,
}

impl Fdb {
    /// Notes that a frame with source `key` came in by `port`.
    ///
    /// Writes only when something changed: at most once a second for an address that stays.
    pub fn learn(&self, key: FdbKey, port: PortId, time: FdbTime) -> Learned {
        self.learn_within(key, port, u32::MAX, time)
    }

    /// The same for a port that is to have at most `limit` addresses.
    ///
    /// An address that comes to a port at its limit is forgotten: frames to it are flooded, and reach it.
    pub fn learn_within(&self, key: FdbKey, port: PortId, limit: u32, time: FdbTime) -> Learned {
        // A thread that loses every time meets others that change this address or its buckets without pause;
        // the next frame tries again.
        (0..ATTEMPTS).find_map(|_| self.try_learn(key, port, limit, time)).unwrap_or(Learned::Known)
    }

    /// `None` when another thread came in between.
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
        // Workers read their clocks at different moments; time does not run backwards.
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

    /// The live entry of `key`, and its value at that moment.
    pub(super) fn find(&self, key: FdbKey) -> Option<(Slot<'_>, Value)> {
        let view = self.view();
        view.find(key, view.locate(key))
    }
}

/// Number of retries of learning when other workers change the same buckets at the same time.
const ATTEMPTS: u32 = 8;
