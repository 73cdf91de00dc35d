//! Ring of a gateway's latest events.

use super::{Event, EventKind, Level};
use crate::clock::unix_nanos;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Capacity of the ring; older events are lost to readers that have not read them.
const KEPT: usize = 1024;
/// Maximum number of events in an answer.
pub const MOST: usize = 256;

/// Events of a gateway, shared by the threads that create and read them.
#[derive(Clone, Debug)]
pub struct Events(Arc<Mutex<Ring>>);

#[derive(Debug)]
struct Ring {
    kept: VecDeque<Event>,
    /// Number of the next event.
    next: u64,
    /// Unix time of the ring's creation, which distinguishes a gateway from the next one.
    began: u64,
}

/// Events for a successor process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HandedEvents {
    began: u64,
    next: u64,
    kept: Vec<serde_json::Value>,
}

/// Answer to a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// Unix time of the gateway's start, in nanoseconds.
    pub began: u64,
    /// Number to ask for next.
    pub next: u64,
    /// Number of events that were overwritten before they were read.
    pub lost: u64,
    /// The events.
    pub events: Vec<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Ring { kept: VecDeque::new(), next: 0, began: unix_nanos() })))
    }
}

impl Events {
    /// Adds an event, and logs it at its level.
    pub fn note(&self, kind: EventKind) {
        let (level, text) = (kind.level(), kind.text());
        match level {
            Level::Debug => tracing::debug!("{text}"),
            Level::Info => tracing::info!("{text}"),
            Level::Warn => tracing::warn!("{text}"),
            Level::Error => tracing::error!("{text}"),
        }
        self.keep(kind, text, unix_nanos());
    }

    /// Adds an event that is logged elsewhere.
    pub fn note_silently(&self, kind: EventKind) {
        let text = kind.text();
        self.keep(kind, text, unix_nanos());
    }

    fn keep(&self, kind: EventKind, text: String, unix_nanos: u64) {
        let mut ring = self.ring();
        if ring.kept.len() == KEPT {
            ring.kept.pop_front();
        }
        let (number, level) = (ring.next, kind.level());
        ring.kept.push_back(Event { number, unix_nanos, level, text, kind });
        ring.next += 1;
    }

    /// Events for a successor process.
    pub fn handed(&self) -> HandedEvents {
        let ring = self.ring();
        let kept = ring.kept.iter().filter_map(|event| serde_json::to_value(event).ok()).collect();
        HandedEvents { began: ring.began, next: ring.next, kept }
    }

    /// Adopts the events of a predecessor process; own events follow them. Unknown kinds are left out.
    pub fn resume(&self, handed: HandedEvents) {
        let mut ring = self.ring();
        let own = std::mem::take(&mut ring.kept);
        ring.kept = handed.kept.into_iter().filter_map(|event| serde_json::from_value(event).ok()).collect();
        (ring.began, ring.next) = (handed.began, handed.next);
        for event in own {
            let number = ring.next;
            ring.kept.push_back(Event { number, ..event });
            ring.next += 1;
        }
        let surplus = ring.kept.len().saturating_sub(KEPT);
        ring.kept.drain(..surplus);
    }

    /// Events from number `from` on, at most [`MOST`]; without a number, only future events.
    pub fn read(&self, from: Option<u64>) -> Read {
        let ring = self.ring();
        // Numbers may be missing after a hand-over.
        let first = ring.kept.front().map_or(ring.next, |event| event.number);
        let from = from.unwrap_or(ring.next).min(ring.next);
        let begin = from.max(first);
        let events = ring.kept.iter().skip_while(|event| event.number < begin).take(MOST).cloned();
        let events = events.collect::<Vec<_>>();
        let next = events.last().map_or(begin, |event| event.number + 1);
        Read { began: ring.began, next, lost: begin - from, events }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(count: u64) -> Events {
        let events = Events::default();
        for worker in 0..count {
            let mode = "polling".to_owned();
            events.note(EventKind::WorkerMode { worker: usize::try_from(worker).unwrap(), mode });
        }
        events
    }

    fn numbers(read: &Read) -> Vec<u64> {
        read.events.iter().map(|event| event.number).collect()
    }

    #[test]
    fn a_reader_gets_each_event_once() {
        let events = events(3);
        let first = events.read(Some(0));
        assert_eq!((numbers(&first), first.next, first.lost), (vec![0, 1, 2], 3, 0));
        assert_eq!(numbers(&events.read(Some(first.next))), Vec::<u64>::new());
        assert_eq!(events.read(None).next, 3, "from here on");
        assert_eq!(events.read(Some(99)).next, 3, "a number of another gateway");
    }

    #[test]
    fn an_answer_is_bounded_and_lost_events_are_counted() {
        let kept = KEPT as u64;
        let events = events(kept + 17);
        let read = events.read(Some(0));
        assert_eq!((read.lost, read.events.len()), (17, MOST));
        let (mut next, mut count) = (0, 0);
        loop {
            let read = events.read(Some(next));
            if read.events.is_empty() {
                break;
            }
            (next, count) = (read.next, count + read.events.len() as u64);
        }
        assert_eq!((next, count), (kept + 17, kept));
    }

    /// A reader that follows the gateway sees no difference.
    #[test]
    fn another_process_goes_on_with_the_events() {
        let (before, after) = (events(5), events(2));
        let mut handed = before.handed();
        handed.kept[1] = serde_json::json!({ "number": 1, "event": "unheard-of" });
        let text = serde_json::to_string(&handed).unwrap();
        after.resume(serde_json::from_str(&text).unwrap());
        let read = after.read(Some(0));
        assert_eq!((read.began, read.next, read.lost), (before.read(None).began, 7, 0));
        assert_eq!(numbers(&read), [0, 2, 3, 4, 5, 6]);
        assert_eq!(numbers(&after.read(Some(5))), [5, 6]);
        let full = events(KEPT as u64);
        full.resume(before.handed());
        assert_eq!(full.read(Some(0)).lost, 5);
    }

    #[test]
    fn events_are_json_and_come_back() {
        let events = events(0);
        events.note(EventKind::StationMoved {
            bridge: "br0".to_owned(),
            from: "lan".to_owned(),
            to: "gre1".to_owned(),
            vlan: Some(7),
            address: "02:00:00:00:00:01".to_owned(),
        });
        let read = events.read(Some(0));
        let text = serde_json::to_string(&read).unwrap();
        assert!(text.contains(r#""event":"station-moved""#) && text.contains(r#""level":"info""#), "{text}");
        assert_eq!(serde_json::from_str::<Read>(&text).unwrap(), read);
        assert_eq!(
            read.events[0].text,
            "bridge br0: station 02:00:00:00:00:01 (VLAN 7) moved from lan to gre1"
        );
    }
}
