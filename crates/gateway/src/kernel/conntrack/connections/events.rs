//! Combines the answers of a dump with the events around it.
//!
//! Answers and events come in one queue, in which an answer may stand behind an event that is newer than it. So, of what
//! an event has told since the dump was asked for, the answer is not believed. A connection that the first dump brings and
//! no event has told may be older than the socket: the kernel then may never send its end. An event of it shows that the
//! kernel tells of it. After the dump the kernel is asked for one, by an update that changes nothing: it sends an event of a
//! connection that began while events were on, as after an upgrade or a restart, and none of another one.

use super::dump::{AGAIN_AFTER, Dump, EVERY, Phase};
use super::eligibility::{is_established, is_local, is_special};
use super::{BARRED, Connections, Nanos, Record};

impl Connections {
    /// Takes an answer of a dump.
    pub(super) fn dumped(&mut self, record: &Record, now: Nanos) {
        if self.dump.phase != Phase::Running(record.sequence) || record.zone != 0 {
            return;
        }
        let key = self.key(record);
        self.dump.brought.insert(key);
        if self.dump.told.contains(&key) || self.is_known(record) {
            return;
        }
        if self.dump.is_of_older {
            self.is_blind |= self.older.len() >= BARRED;
            if self.older.insert(key) && self.is_worth_asking(record) {
                self.to_ask.push(record.original);
            }
        } else if !self.dump.is_overfull && !self.older.contains(&key) && self.len() < self.limits.most {
            self.consider(record, now);
        }
    }

    fn is_worth_asking(&self, record: &Record) -> bool {
        let tuples = [record.original, record.reply];
        is_established(record) && !is_special(&tuples) && !is_local(&tuples, &self.local)
    }

    /// True if the kernel is to be asked for an event, once the dump has told all older connections.
    pub(super) fn has_to_ask(&self) -> bool {
        self.dump.is_complete() && !self.to_ask.is_empty()
    }

    /// Takes an event that packets or another socket has caused.
    pub(super) fn noticed(&mut self, record: &Record, now: Nanos) {
        if record.zone != 0 {
            return;
        }
        self.tell(record);
        self.consider(record, now);
    }

    /// Takes the event that a connection is gone.
    pub(super) fn destroyed(&mut self, record: &Record) {
        if record.zone != 0 {
            return;
        }
        self.tell(record);
        if !self.barred.is_empty() {
            let key = self.key(record);
            self.barred.remove(&key);
        }
        if let Some(slot) = self.slot_of(record) {
            self.remove(slot);
        }
    }

    /// An event has told of a connection.
    fn tell(&mut self, record: &Record) {
        if self.dump.is_complete() && self.older.is_empty() {
            return;
        }
        let key = self.key(record);
        self.older.remove(&key);
        if !self.dump.is_complete() {
            self.dump.tell(key);
        }
    }

    /// Takes the event that an update of one's own has caused: only the timer is news, or that the kernel tells of an older
    /// connection.
    pub(super) fn own(&mut self, record: &Record, now: Nanos) {
        if record.zone == 0 && !self.older.is_empty() && self.older.contains(&self.key(record)) {
            self.tell(record);
            // What is left of its timer, as in a dump.
            return self.consider(&Record { is_dumped: true, ..*record }, now);
        }
        if let Some(slot) = self.slot_of(record).filter(|_| record.zone == 0) {
            if let Some(entry) = &mut self.entries[slot as usize] {
                entry.saw_timer(record, now);
            }
            self.schedule(slot);
        }
    }

    /// Takes the end of a dump.
    pub(super) fn dump_ended(&mut self, sequence: u32, is_interrupted: bool, now: Nanos) {
        if self.dump.phase != Phase::Running(sequence) {
            return;
        }
        if self.dump.is_overfull {
            self.dump.restart(now + AGAIN_AFTER);
        } else if is_interrupted {
            self.dump.phase = Phase::Due(now + AGAIN_AFTER);
        } else {
            let Dump { brought, told, .. } = &self.dump;
            self.barred.retain(|key| brought.contains(key) || told.contains(key));
            self.older.retain(|key| brought.contains(key));
            self.dump = Dump { phase: Phase::Complete(now + EVERY), ..Dump::first(false) };
        }
    }

    /// Takes a refusal of a dump. Returns true if it is one.
    pub(super) fn dump_refused(&mut self, sequence: u32, now: Nanos) -> bool {
        let is_running = self.dump.phase == Phase::Running(sequence);
        if is_running {
            self.dump.phase = Phase::Due(now + AGAIN_AFTER);
        }
        is_running
    }
}
