//! Combines the answers of a dump with the events around it.
//!
//! Answers and events come in one queue, in which an answer may stand behind an event that is newer than it. So, of what
//! an event has told since the socket is there, the dump's answer is not believed. During the first dump, a connection
//! that no event has told as new may be older than the events: the kernel then may never send its end.

use super::dump::{AGAIN_AFTER, Dump, Phase};
use super::{Connections, Nanos, Record};

impl Connections {
    /// Takes an answer of a dump.
    pub(super) fn dumped(&mut self, record: &Record, now: Nanos) {
        if self.dump.phase != Phase::Running(record.sequence) || record.zone != 0 {
            return;
        }
        let key = self.key(record);
        self.dump.brought.insert(key);
        if self.dump.told.contains_key(&key) || self.is_known(record) {
            return;
        }
        if self.dump.is_of_older {
            self.bar_older(key);
        } else if !self.dump.is_overfull {
            self.consider(record, now);
        }
    }

    /// Takes an event that packets or another socket has caused.
    pub(super) fn noticed(&mut self, record: &Record, now: Nanos) {
        if record.zone != 0 {
            return;
        }
        let key = self.key(record);
        if record.is_new {
            self.barred.remove(&key);
            // The one before it, of which nothing was told, is gone.
            if let Some(slot) = self.slot_of(record) {
                self.remove(slot);
            }
        }
        let is_new = self.dump.tell(key, record.is_new);
        if self.dump.is_of_older && !is_new && !self.is_known(record) {
            self.bar_older(key);
        }
        self.consider(record, now);
    }

    /// Takes the event that a connection is gone.
    pub(super) fn destroyed(&mut self, record: &Record) {
        if record.zone != 0 {
            return;
        }
        let key = self.key(record);
        self.dump.tell(key, false);
        self.barred.remove(&key);
        if let Some(slot) = self.slot_of(record) {
            self.remove(slot);
        }
    }

    /// Takes the event that an update of one's own has caused: only the timer is news.
    pub(super) fn own(&mut self, record: &Record, now: Nanos) {
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
            self.barred.retain(|key| brought.contains(key) || told.contains_key(key));
            self.dump = Dump { phase: Phase::Complete, ..Dump::first(false) };
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

    fn bar_older(&mut self, key: u64) {
        if !self.barred.contains(&key) {
            self.counters.older += 1;
            self.bar(key);
        }
    }
}
