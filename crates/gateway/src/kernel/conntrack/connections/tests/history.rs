//! Histories of events, reports, answers and losses in any order, beside an oracle that knows the rules alone.

use super::*;
use proptest::prelude::*;
use proptest::sample::Index;

/// A step of the world.
#[derive(Clone, Debug)]
enum Step {
    /// The kernel tells of a connection.
    Event {
        which: Which,
        change: What,
    },
    /// The kernel answers one of the waiting requests.
    Answer(Index, bool),
    /// The dump that goes on brings a connection, or ends.
    Dumped(Which),
    DumpEnds,
    /// A connection was carried, had a packet for the kernel, or has ended.
    Moved(Index, u64),
    WentUp(Index),
    Ended(Index),
    Lost,
    Seconds(u64),
}

/// Station, identity, and true for TCP.
type Which = (u8, u32, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Established,
    Unassured,
    Helper,
    Synproxy,
    Zone,
    Dying,
    Marked,
    Own,
    Destroyed,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = || (1_u8..3, 1_u32..5, any::<bool>());
    let what = prop_oneof![
        8 => Just(What::Established),
        1 => Just(What::Unassured),
        1 => Just(What::Helper),
        1 => Just(What::Synproxy),
        1 => Just(What::Zone),
        1 => Just(What::Dying),
        1 => Just(What::Marked),
        1 => Just(What::Own),
        2 => Just(What::Destroyed),
    ];
    let step = prop_oneof![
        12 => (which(), what).prop_map(|(which, change)| Step::Event { which, change }),
        6 => (any::<Index>(), prop::bool::weighted(0.9)).prop_map(|(which, done)| Step::Answer(which, done)),
        2 => which().prop_map(Step::Dumped),
        2 => Just(Step::DumpEnds),
        3 => (any::<Index>(), 0_u64..2 << 30).prop_map(|(which, bytes)| Step::Moved(which, bytes)),
        1 => any::<Index>().prop_map(Step::WentUp),
        1 => any::<Index>().prop_map(Step::Ended),
        1 => Just(Step::Lost),
        4 => (0_u64..100).prop_map(Step::Seconds),
    ];
    proptest::collection::vec(step, 0..200)
}

/// Verdict of the rules on a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// Its last event lets it be carried.
    is_established: bool,
    /// It is never carried.
    is_barred: bool,
    /// It may be older than the socket, and no event has told of it.
    is_older: bool,
    /// The kernel has done the update that makes it accept any segment.
    is_loosened: bool,
}

struct World {
    connections: Connections,
    now: Nanos,
    truth: HashMap<(Tuple, u32), Truth>,
    live: HashMap<ConnectionId, (Tuple, u32)>,
    /// Connections that events have told since the start, a loss, or the request of a dump after another one.
    told: HashSet<(Tuple, u32)>,
    /// Connections that the dump has brought.
    brought: HashSet<(Tuple, u32)>,
    dump: Option<u32>,
    is_first: bool,
    /// A dump has ended, and nothing was lost since; the one that goes on is another one after it.
    is_over: bool,
    repeats: bool,
    waiting: Vec<(Request, Option<(Tuple, u32)>)>,
}

impl World {
    fn new() -> Self {
        Self {
            connections: Connections::new(Limits { share: 4, ..Limits::new(6) }, OWN, false),
            now: at(0),
            truth: HashMap::new(),
            live: HashMap::new(),
            told: HashSet::new(),
            brought: HashSet::new(),
            dump: None,
            is_first: true,
            is_over: false,
            repeats: false,
            waiting: Vec::new(),
        }
    }

    fn truth(&mut self, record: &Record) -> &mut Truth {
        self.truth.entry((record.original, record.id)).or_default()
    }

    fn id(&self, index: Index) -> Option<ConnectionId> {
        let mut ids: Vec<_> = self.live.keys().copied().collect();
        ids.sort();
        (!ids.is_empty()).then(|| ids[index.index(ids.len())])
    }

    fn answer(&mut self, index: Index, is_done: bool) {
        if self.waiting.is_empty() {
            return;
        }
        let (request, of) = self.waiting.swap_remove(index.index(self.waiting.len()));
        if let Some(truth) = of.filter(|_| is_done).and_then(|of| self.truth.get_mut(&of)) {
            truth.is_loosened |= request.loosens;
        }
        answer(&mut self.connections, request, if is_done { 0 } else { libc::ENOENT }, self.now);
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Event { which, change } => self.event(which, change),
            Step::Dumped(which) => self.dumped(which),
            Step::DumpEnds => self.dump_ends(),
            Step::Answer(index, is_done) => self.answer(index, is_done),
            Step::Moved(index, bytes) => {
                if let Some(id) = self.id(index) {
                    self.connections.moved(id, bytes, self.now);
                }
            }
            Step::WentUp(index) => {
                if let Some(id) = self.id(index) {
                    self.connections.went_up(id, (self.now, self.now));
                }
            }
            Step::Ended(index) => self.end(index),
            Step::Lost => {
                self.connections.lost(self.now);
                (self.dump, self.waiting, self.is_over) = (None, Vec::new(), false);
                self.told.clear();
                self.truth.values_mut().for_each(|truth| truth.is_loosened = false);
            }
            Step::Seconds(seconds) => self.now = self.now + Nanos::from_seconds(seconds),
        }
    }

    fn dumped(&mut self, (station, id, is_tcp): Which) {
        let Some(sequence) = self.dump else { return };
        let record = record(if is_tcp { 6 } else { 17 }, station, id);
        let (is_first, is_told) = (self.is_first, self.told.contains(&(record.original, record.id)));
        self.brought.insert((record.original, record.id));
        let truth = self.truth(&record);
        truth.is_established |= !is_first && !is_told;
        truth.is_older |= is_first && !is_told;
        let answer = Record { sequence, is_dumped: true, port_id: OWN, ..record };
        self.connections.take(Event::Changed(answer), self.now);
    }

    /// Connections that nothing has told of are gone.
    fn dump_ends(&mut self) {
        let Some(sequence) = self.dump.take() else { return };
        (self.is_first, self.is_over) = (false, true);
        let gone = |of: &(Tuple, u32)| !self.told.contains(of) && !self.brought.contains(of);
        for (_, truth) in self.truth.iter_mut().filter(|(of, _)| gone(of)) {
            // One that was entered before is there: no event has told its end.
            let before = truth.is_established && self.repeats;
            *truth = Truth {
                is_established: before,
                is_loosened: before && truth.is_loosened,
                ..Truth::default()
            };
        }
        self.connections.take(Event::Done { sequence, is_interrupted: false }, self.now);
    }

    fn end(&mut self, index: Index) {
        if let Some(id) = self.id(index) {
            let of = self.live[&id];
            self.truth.entry(of).or_default().is_barred = true;
            self.connections.ended(id);
        }
    }

    fn event(&mut self, (station, id, is_tcp): Which, change: What) {
        let mut record = record(if is_tcp { 6 } else { 17 }, station, id);
        if change == What::Zone {
            record.zone = 3;
        } else if change == What::Own {
            record.port_id = OWN;
            self.asked(&record);
        } else {
            self.tell(&mut record, change);
        }
        let event = if change == What::Destroyed { Event::Destroyed(record) } else { Event::Changed(record) };
        self.connections.take(event, self.now);
    }

    /// The event that an update has caused shows that the kernel tells of the connection.
    fn asked(&mut self, record: &Record) {
        let truth = self.truth(record);
        if std::mem::take(&mut truth.is_older) {
            truth.is_established = true;
            self.told.insert((record.original, record.id));
        }
    }

    fn tell(&mut self, record: &mut Record, change: What) {
        self.told.insert((record.original, record.id));
        let truth = self.truth(record);
        truth.is_older = false;
        match change {
            What::Unassured | What::Dying => {
                record.status = Status(if change == What::Dying { ASSURED | Status::DYING.0 } else { 2 });
                (truth.is_established, truth.is_loosened) = (false, false);
            }
            What::Helper | What::Synproxy => {
                record.has_helper = change == What::Helper;
                record.is_synproxy = change == What::Synproxy;
                truth.is_barred = true;
            }
            What::Destroyed => *truth = Truth::default(),
            What::Established | What::Marked | What::Zone | What::Own => {
                record.mark = if change == What::Marked { 7 } else { 0 };
                truth.is_established = true;
            }
        }
    }

    fn begin_dump(&mut self, sequence: u32) {
        self.dump = Some(sequence);
        self.repeats = std::mem::take(&mut self.is_over);
        if self.repeats {
            self.told.clear();
        }
    }

    /// Takes requests and changes, and compares.
    fn check(&mut self) {
        for request in requests(&mut self.connections, self.now) {
            if request.is_dump {
                assert_eq!(self.dump, None, "one dump at a time");
                self.begin_dump(request.sequence);
                self.brought.clear();
            } else if let Some(&slot) = self.connections.unanswered.get(&request.sequence) {
                let entry = self.connections.entries[slot as usize].as_ref();
                self.waiting.push((request, entry.map(|entry| (entry.original(), entry.kernel_id))));
            }
        }
        for change in self.connections.changes() {
            match change {
                Change::Enter(connection) => {
                    let slot = self.connections.slot_at(&connection.original);
                    let entry = slot.and_then(|slot| self.connections.entries[slot as usize].as_ref());
                    let of = entry
                        .map_or((connection.original, u32::MAX), |entry| (entry.original(), entry.kernel_id));
                    assert_eq!(self.live.insert(connection.id, of), None, "a name is used once");
                }
                Change::Leave(id) => assert!(self.live.remove(&id).is_some(), "it was entered: {id:?}"),
            }
        }
        let mut slots: Vec<u32> = self.live.keys().map(|id| id.slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), self.live.len(), "one connection a slot");
        for of in self.live.values() {
            let truth = self.truth[of];
            assert!(truth.is_established && !truth.is_barred && !truth.is_older, "{of:?} {truth:?}");
            assert!(truth.is_loosened || of.0.protocol != 6, "{of:?}");
        }
        let of = |station: u8| {
            self.live.values().filter(move |of| of.0.source == IpAddr::from([10, 0, 0, station]))
        };
        assert!(self.live.len() <= 6 && [1, 2].iter().all(|station| of(*station).count() <= 4));
        assert!(self.connections.next_deadline().is_none_or(|at| at > self.now), "nothing is left due");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_carried_that_a_rule_forbids(steps in steps()) {
        let mut world = World::new();
        world.check();
        for step in steps {
            world.take(step);
            world.check();
        }
        world.connections.lost(world.now);
        world.dump = None;
        world.check();
        prop_assert!(world.live.is_empty(), "each that was entered has left");
        prop_assert_eq!(world.connections.counters().entered, world.connections.counters().left);
    }
}
