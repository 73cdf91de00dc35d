//! Enters connections, lets them leave, and carries out what is due for them.

use super::eligibility::{is_alive, is_established, is_forbidden, is_local, is_special};
use super::entry::{Act, Entry};
use super::{BARRED, Change, ConnectionId, Connections, Nanos, Record, Tuple, message};
use core::num::NonZeroU32;
use std::hash::BuildHasher as _;
use std::net::IpAddr;

impl Connections {
    /// Takes what a message says of a connection.
    pub(super) fn consider(&mut self, record: &Record, now: Nanos) {
        if let Some(slot) = self.slot_at(&record.original) {
            if self.is_at(slot, record) {
                return self.renew(slot, record, now);
            }
            // Another connection with the same tuple has taken its place.
            self.remove(slot);
        }
        if is_forbidden(record) {
            return self.bar(self.key(record));
        }
        let tuples = [record.original, record.reply];
        let is_kernels = is_special(&tuples) || is_local(&tuples, &self.local);
        if is_established(record) && !is_kernels && !self.is_blind && !self.is_barred(record) {
            self.insert(record, now);
        }
    }

    /// Takes what a message says of a connection in the table.
    fn renew(&mut self, slot: u32, record: &Record, now: Nanos) {
        let Some(entry) = &mut self.entries[slot as usize] else { return };
        if is_forbidden(record) {
            return self.bar_and_remove(slot);
        }
        if !is_alive(record) || entry.tuples.both()[1] != record.reply {
            return self.remove(slot);
        }
        entry.saw(record, self.limits.timeouts, now);
        if std::mem::replace(&mut entry.mark, record.mark) != record.mark && entry.is_entered {
            self.close(slot);
        }
        self.schedule(slot);
    }

    fn insert(&mut self, record: &Record, now: Nanos) {
        if record.timeout.is_none_or(|timeout| timeout.is_zero()) || !self.make_room(record, now) {
            return;
        }
        let Some(slot) = self.free.pop().or_else(|| u32::try_from(self.entries.len()).ok()) else { return };
        if slot as usize == self.entries.len() {
            self.entries.push(None);
            self.generations.push(0);
        }
        let id = self.next_id(slot);
        let entry = Entry::new(id, record, (self.limits.timeouts, now));
        self.recency.insert(record.original.source, slot);
        let has_to_wait = entry.has_to_loosen();
        self.entries[slot as usize] = Some(entry);
        let (entries, hasher) = (&self.entries, &self.hasher);
        let hash = |&slot: &u32| {
            entries[slot as usize].as_ref().map_or(0, |entry| hasher.hash_one(entry.original()))
        };
        self.by_tuple.insert_unique(hash(&slot), slot, hash);
        if !has_to_wait {
            self.enter(slot);
        }
        self.schedule(slot);
    }

    fn enter(&mut self, slot: u32) {
        if let Some(entry) = &mut self.entries[slot as usize] {
            entry.is_entered = true;
            self.counters.entered += 1;
            self.changes.push(Change::Enter(entry.connection()));
        }
    }

    /// Lets the connection leave, and enter anew.
    fn close(&mut self, slot: u32) {
        let id = self.next_id(slot);
        if let Some(entry) = &mut self.entries[slot as usize] {
            self.counters.left += 1;
            self.changes.push(Change::Leave(entry.id));
            entry.close(id);
            self.enter(slot);
        }
    }

    /// Removes the connection, if the slot has one.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(entry) = self.entries[slot as usize].take() else { return };
        let original = entry.original();
        if let Ok(found) = self.by_tuple.find_entry(self.hasher.hash_one(original), |&other| other == slot) {
            found.remove();
        }
        self.recency.remove(original.source, slot);
        if let Some(at) = entry.alarm {
            self.alarms.remove(&(at, slot));
        }
        if entry.is_entered {
            self.counters.left += 1;
            self.changes.push(Change::Leave(entry.id));
        }
        self.free.push(slot);
    }

    /// Removes the connection, and never enters it again.
    pub(super) fn bar_and_remove(&mut self, slot: u32) {
        let Some(entry) = &self.entries[slot as usize] else { return };
        let key = self.hasher.hash_one((entry.original(), entry.kernel_id));
        self.bar(key);
        self.remove(slot);
    }

    /// Never enters the connection.
    pub(super) fn bar(&mut self, key: u64) {
        if self.barred.len() < BARRED {
            self.barred.insert(key);
        } else {
            self.is_blind |= !self.barred.contains(&key);
        }
    }

    /// True if the table has room for the connection, after another one may have left.
    fn make_room(&mut self, record: &Record, now: Nanos) -> bool {
        let source = record.original.source;
        if self.recency.count(source) >= self.limits.share && !self.evict(Some(source), now) {
            self.counters.refused_share += 1;
            return false;
        }
        if self.by_tuple.len() >= self.limits.most && !self.evict(None, now) {
            self.counters.refused_full += 1;
            return false;
        }
        true
    }

    /// Removes the connection that was idle for about the longest time, of all or of a source address. Returns false if none
    /// was idle for long enough, or none was found soon.
    fn evict(&mut self, source: Option<IpAddr>, now: Nanos) -> bool {
        for _ in 0..EVICT_STEPS {
            let Some(slot) = self.recency.first(source) else { return false };
            let Some(entry) = &mut self.entries[slot as usize] else { return false };
            let active_at = entry.active_at();
            if entry.listed_at < active_at {
                entry.listed_at = active_at;
                let source = entry.original().source;
                self.recency.remove(source, slot);
                self.recency.insert(source, slot);
            } else if now.since(active_at) < self.limits.idle {
                return false;
            } else {
                self.counters.evicted += 1;
                self.remove(slot);
                return true;
            }
        }
        false
    }

    /// Carries out what is due for the connection. Returns true if a request was appended.
    pub(super) fn ring(&mut self, slot: u32, now: Nanos, datagram: &mut Vec<u8>) -> bool {
        let sequence = self.next_sequence();
        let Some(entry) = &mut self.entries[slot as usize] else { return false };
        entry.alarm = None;
        let act = entry.due().filter(|(at, _)| *at <= now).map(|(_, act)| act);
        if let Some(act @ (Act::Loosen | Act::Refresh | Act::Probe)) = act {
            let update = entry.begin(act, sequence, now);
            self.unanswered.insert(sequence.get(), slot);
            self.counters.updates += 1;
            datagram.extend(message::update(sequence.get(), &entry.original(), update));
            return true;
        }
        if act == Some(Act::Close) {
            self.close(slot);
        }
        self.schedule(slot);
        false
    }

    /// Takes the kernel's answer to a request.
    pub(super) fn answered(&mut self, sequence: u32, code: i32, now: Nanos) {
        if code != 0 && self.dump_refused(sequence, now) {
            return;
        }
        let Some(slot) = self.unanswered.remove(&sequence) else { return };
        let entry = self.entries[slot as usize].as_mut();
        let Some(entry) = entry.filter(|entry| entry.unanswered.map(NonZeroU32::get) == Some(sequence))
        else {
            return;
        };
        if code != 0 {
            // Gone, or about to go: another one may have the same tuple, and even the same identity.
            if matches!(code, libc::ENOENT | libc::ETIME) {
                return self.remove(slot);
            }
            self.counters.refused_by_kernel += 1;
            return self.bar_and_remove(slot);
        }
        entry.acknowledged(now);
        if !entry.is_entered {
            self.enter(slot);
        }
        self.schedule(slot);
    }

    /// Takes a report about an entered connection.
    pub(super) fn report(&mut self, id: ConnectionId, report: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entry(id) {
            report(entry);
            self.schedule(id.slot);
        }
    }

    /// Lists the connection by the time of its next duty, unless it is listed by an earlier one.
    pub(super) fn schedule(&mut self, slot: u32) {
        let Some(entry) = &mut self.entries[slot as usize] else { return };
        let Some((at, _)) = entry.due() else { return };
        if entry.alarm.is_none_or(|alarm| at < alarm) {
            if let Some(alarm) = entry.alarm.replace(at) {
                self.alarms.remove(&(alarm, slot));
            }
            self.alarms.insert((at, slot));
        }
    }

    /// The entered connection of that name.
    pub(super) fn entry(&mut self, id: ConnectionId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(id.slot as usize)?.as_mut()?;
        (entry.id == id && entry.is_entered).then_some(entry)
    }

    /// Slot of the connection that a message describes.
    pub(super) fn slot_of(&self, record: &Record) -> Option<u32> {
        self.slot_at(&record.original).filter(|&slot| self.is_at(slot, record))
    }

    /// True if the connection at the slot, which has its tuple, is that of the message.
    fn is_at(&self, slot: u32, record: &Record) -> bool {
        self.entries[slot as usize].as_ref().is_some_and(|entry| entry.kernel_id == record.id)
    }

    fn is_barred(&self, record: &Record) -> bool {
        !self.barred.is_empty() && self.barred.contains(&self.key(record))
    }

    /// Slot of the connection with that original tuple.
    pub(super) fn slot_at(&self, original: &Tuple) -> Option<u32> {
        let is_it = |&slot: &u32| {
            self.entries[slot as usize].as_ref().is_some_and(|entry| entry.original() == *original)
        };
        self.by_tuple.find(self.hasher.hash_one(original), is_it).copied()
    }

    pub(super) fn is_known(&self, record: &Record) -> bool {
        self.slot_of(record).is_some()
    }

    /// Hash of the original tuple and the kernel's identity.
    pub(super) fn key(&self, record: &Record) -> u64 {
        self.hasher.hash_one((record.original, record.id))
    }

    pub(super) fn next_sequence(&mut self) -> NonZeroU32 {
        self.sequence = NonZeroU32::MIN.saturating_add(self.sequence.get() % u32::MAX);
        self.sequence
    }

    fn next_id(&mut self, slot: u32) -> ConnectionId {
        let generation = &mut self.generations[slot as usize];
        *generation = generation.wrapping_add(1);
        ConnectionId { slot, generation: *generation }
    }
}

/// Maximum number of connections that are looked at to find an idle one.
const EVICT_STEPS: usize = 64;
