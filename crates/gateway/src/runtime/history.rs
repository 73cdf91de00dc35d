//! History of drop totals: the last hour by 10 s, and the last day by 10 min.
//!
//! The control thread samples the totals of `polder show drops`. A sample has only the totals that changed
//! since the sample before, so a gateway without drops stores nothing. Memory is bounded: when there are too
//! many totals, the oldest samples are removed and the history begins later. The history survives reloads and
//! upgrades.

use crate::show::drops::{DropRow, Drops};
use polder_datapath::drops::DropReason;
use polder_datapath::units::Nanos;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Interval of the recent samples.
const INTERVAL: Nanos = Nanos::from_seconds(10);
/// Number of recent samples: one hour.
const FINE: usize = 360;
/// Interval of the older samples.
const COARSE_INTERVAL: Nanos = Nanos::from_seconds(600);
/// Number of older samples: together with the hour, one day.
const COARSE: usize = 138;
/// Maximum number of totals in all samples, of 16 bytes each.
const MOST_TOTALS: usize = 65_536;

/// Totals of drops at past times.
#[derive(Debug, Default)]
pub struct DropHistory {
    /// Start of the history.
    begins: Nanos,
    /// Totals at the start of the history.
    base: BTreeMap<Cell, u64>,
    /// Totals of the last sample.
    last: BTreeMap<Cell, u64>,
    /// Samples older than an hour, oldest first.
    coarse: VecDeque<Sample>,
    fine: VecDeque<Sample>,
    /// Number of totals in all samples.
    totals: usize,
    /// Names of the ports that have dropped packets.
    ports: Vec<String>,
    numbers: HashMap<String, u16>,
    sampled_at: Nanos,
}

/// Totals that have changed since the previous sample.
#[derive(Debug)]
struct Sample {
    at: Nanos,
    changed: Vec<(Cell, u64)>,
}

/// A counted total: a reason, for the whole gateway, a worker or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    reason: u8,
    place: DropPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DropPlace {
    Everywhere,
    Worker(u16),
    /// Index into [`DropHistory::ports`].
    Port(u16),
}

/// The samples for a successor process: time, and the changed totals as reason, port or worker, and packets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HandedDrops {
    begins: u64,
    samples: Vec<(u64, Vec<HandedTotal>)>,
}

type HandedTotal = (String, Option<String>, Option<u16>, u64);

impl DropHistory {
    /// A history that begins at `begins`, without drops.
    pub fn new(begins: Nanos) -> Self {
        Self { begins, sampled_at: begins, ..Self::default() }
    }

    /// True if the next sample is due.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now.since(self.sampled_at) >= INTERVAL
    }

    /// Takes a sample of the totals of `polder show drops`.
    pub fn note(&mut self, now: Nanos, drops: &Drops) {
        self.sampled_at = now;
        let Some(totals) = self.cells(drops) else {
            *self = Self { base: BTreeMap::new(), ..Self::new(now) };
            return;
        };
        let is_other = |(cell, total): &(&Cell, &u64)| self.last.get(cell) != Some(*total);
        let changed = totals.iter().filter(is_other).map(|(&cell, &total)| (cell, total)).collect::<Vec<_>>();
        self.last = totals;
        self.push(Sample { at: now, changed });
    }

    /// Totals as of `ago` before `now`, from the last sample at least that old, with its time. Returns the
    /// start of the history if it is later.
    pub fn totals(&self, now: Nanos, ago: Nanos) -> (Nanos, Drops) {
        let wanted = Nanos(now.0.saturating_sub(ago.0));
        let (mut at, mut totals) = (self.begins, self.base.clone());
        for sample in self.samples().take_while(|sample| sample.at <= wanted) {
            at = sample.at;
            totals.extend(sample.changed.iter().copied());
        }
        (at, self.rows(&totals))
    }

    /// The samples for a successor process.
    pub(super) fn handed(&self) -> HandedDrops {
        let total = |(cell, total): (&Cell, &u64)| {
            let reason = DropReason::ALL.get(usize::from(cell.reason))?.name().to_owned();
            Some(match cell.place {
                DropPlace::Everywhere => (reason, None, None, *total),
                DropPlace::Worker(worker) => (reason, None, Some(worker), *total),
                DropPlace::Port(port) => (reason, self.ports.get(usize::from(port)).cloned(), None, *total),
            })
        };
        let base = (self.begins.0, self.base.iter().filter_map(total).collect());
        let sample = |sample: &Sample| {
            let totals = sample.changed.iter().map(|(cell, packets)| (cell, packets)).filter_map(total);
            (sample.at.0, totals.collect())
        };
        let samples = [base].into_iter().chain(self.samples().map(sample)).collect();
        HandedDrops { begins: self.begins.0, samples }
    }

    /// Adopts the samples of the predecessor process, which uses the same clock.
    pub(super) fn resume(&mut self, handed: HandedDrops) {
        let mut resumed = Self::new(Nanos(handed.begins));
        for (at, totals) in handed.samples {
            let of = |(reason, port, worker, packets): HandedTotal| {
                let reason = DropReason::ALL.iter().position(|known| known.name() == reason)?;
                let place = match (port, worker) {
                    (Some(port), _) => DropPlace::Port(resumed.number(&port)?),
                    (None, Some(worker)) => DropPlace::Worker(worker),
                    (None, None) => DropPlace::Everywhere,
                };
                Some((Cell { reason: u8::try_from(reason).ok()?, place }, packets))
            };
            let changed = totals.into_iter().filter_map(of).collect::<Vec<_>>();
            resumed.last.extend(changed.iter().copied());
            if at <= handed.begins {
                resumed.base.extend(changed);
            } else {
                resumed.push(Sample { at: Nanos(at), changed });
            }
        }
        *self = resumed;
    }

    /// All samples, oldest first.
    fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.coarse.iter().chain(&self.fine)
    }

    /// Adds a sample, and removes or merges old samples.
    fn push(&mut self, sample: Sample) {
        self.totals += sample.changed.len();
        self.fine.push_back(sample);
        if self.fine.len() > FINE {
            let old = self.fine.pop_front();
            old.into_iter().for_each(|old| self.push_coarse(old));
        }
        while self.coarse.len() > COARSE || self.totals > MOST_TOTALS {
            let Some(oldest) = self.coarse.pop_front().or_else(|| self.fine.pop_front()) else { break };
            self.totals -= oldest.changed.len();
            self.begins = oldest.at;
            self.base.extend(oldest.changed);
            // Ports that were removed have no totals.
            self.base.retain(|cell, _| self.last.contains_key(cell));
        }
    }

    /// Moves a sample into the 10-minute samples; it replaces the previous sample of the same interval.
    fn push_coarse(&mut self, sample: Sample) {
        let slot = |at: Nanos| at.0 / COARSE_INTERVAL.0;
        match self.coarse.back_mut().filter(|last| slot(last.at) == slot(sample.at)) {
            None => self.coarse.push_back(sample),
            Some(last) => {
                let mut joined = last.changed.iter().copied().collect::<BTreeMap<_, _>>();
                let before = joined.len() + sample.changed.len();
                joined.extend(sample.changed);
                self.totals -= before - joined.len();
                *last = Sample { at: sample.at, changed: joined.into_iter().collect() };
            }
        }
    }

    /// The totals of a view; `None` when there were too many port names.
    fn cells(&mut self, drops: &Drops) -> Option<BTreeMap<Cell, u64>> {
        let mut cells = BTreeMap::new();
        for row in &drops.reasons {
            let Some(reason) = DropReason::ALL.iter().position(|reason| reason.name() == row.reason) else {
                continue;
            };
            let reason = u8::try_from(reason).ok()?;
            cells.insert(Cell { reason, place: DropPlace::Everywhere }, row.packets);
            for (worker, &packets) in (0..).zip(&row.workers).filter(|(_, packets)| **packets > 0) {
                cells.insert(Cell { reason, place: DropPlace::Worker(worker) }, packets);
            }
            for (port, &packets) in &row.ports {
                let place = DropPlace::Port(self.number(port)?);
                cells.insert(Cell { reason, place }, packets);
            }
        }
        Some(cells)
    }

    /// Index of a port's name; adds the name if it is new.
    fn number(&mut self, port: &str) -> Option<u16> {
        if let Some(&number) = self.numbers.get(port) {
            return Some(number);
        }
        let number = u16::try_from(self.ports.len()).ok()?;
        self.ports.push(port.to_owned());
        self.numbers.insert(port.to_owned(), number);
        Some(number)
    }

    fn rows(&self, totals: &BTreeMap<Cell, u64>) -> Drops {
        let mut rows = BTreeMap::<u8, DropRow>::new();
        for (&Cell { reason, place }, &packets) in totals {
            let Some(&known) = DropReason::ALL.get(usize::from(reason)) else { continue };
            let row = rows.entry(reason).or_insert_with(|| DropRow::new(known));
            match place {
                DropPlace::Everywhere => row.packets = packets,
                DropPlace::Worker(worker) => {
                    let worker = usize::from(worker);
                    row.workers.resize(row.workers.len().max(worker + 1), 0);
                    row.workers[worker] = packets;
                }
                DropPlace::Port(port) => {
                    let name = self.ports.get(usize::from(port)).cloned().unwrap_or_default();
                    row.ports.insert(name, packets);
                }
            }
        }
        Drops { reasons: rows.into_values().collect(), ..Drops::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::row::Row as _;

    fn drops(reasons: &[(DropReason, u64, &str)]) -> Drops {
        let row = |&(reason, packets, port): &(DropReason, u64, &str)| {
            let ports = BTreeMap::from([(port.to_owned(), packets / 2)]);
            DropRow { packets, ports, workers: vec![0, packets - packets / 2], ..DropRow::new(reason) }
        };
        Drops { reasons: reasons.iter().map(row).collect(), ..Drops::default() }
    }

    fn seconds(seconds: u64) -> Nanos {
        Nanos::from_seconds(seconds)
    }

    /// Takes a sample every 10 s up to `end`, in which `packets` of a second are dropped since the beginning.
    fn run(history: &mut DropHistory, from: u64, end: u64, packets: impl Fn(u64) -> u64) {
        for second in from..=end {
            if history.is_due(seconds(second)) {
                history.note(seconds(second), &drops(&[(DropReason::TxFull, packets(second), "wan")]));
            }
        }
    }

    #[test]
    fn an_hour_is_kept_by_ten_seconds() {
        let mut history = DropHistory::new(Nanos(0));
        run(&mut history, 1, 4000, |second| 2 * second);
        for ago in [10, 600, 3590] {
            let (at, then) = history.totals(seconds(4000), seconds(ago));
            assert_eq!((at, then.reasons[0].packets), (seconds(4000 - ago), 2 * (4000 - ago)));
            assert_eq!((then.reasons[0].ports["wan"], then.reasons[0].workers[1]), (4000 - ago, 4000 - ago));
        }
        // Between two samples the older one counts: the time is said.
        assert_eq!(history.totals(seconds(4007), seconds(600)).0, seconds(3400));
        let mut now = drops(&[(DropReason::TxFull, 8000, "wan")]);
        now.difference(&history.totals(seconds(4000), seconds(600)).1);
        assert_eq!((now.reasons[0].packets, now.reasons[0].ports["wan"]), (1200, 600));
    }

    #[test]
    fn a_day_is_kept_by_ten_minutes_and_no_more() {
        let mut history = DropHistory::new(Nanos(0));
        run(&mut history, 1, 100_000, |second| second);
        let now = seconds(100_000);
        let (at, then) = history.totals(now, seconds(8 * 3600));
        let age = now.since(at).0 / Nanos::SECOND.0;
        assert!((8 * 3600..8 * 3600 + 600).contains(&age), "{age}");
        assert_eq!(then.reasons[0].packets, at.0 / Nanos::SECOND.0);
        let (at, then) = history.totals(now, seconds(200_000));
        let age = now.since(at).0 / Nanos::SECOND.0;
        assert!((23 * 3600..25 * 3600).contains(&age), "{age}");
        assert_eq!(then.reasons[0].packets, at.0 / Nanos::SECOND.0);
        assert!(history.coarse.len() <= COARSE && history.fine.len() <= FINE);
        let kept = history.samples().map(|sample| sample.changed.len()).sum::<usize>();
        assert_eq!(history.totals, kept);
    }

    #[test]
    fn what_does_not_change_takes_no_memory() {
        let mut history = DropHistory::new(Nanos(0));
        run(&mut history, 1, 3600, |_| 5);
        assert_eq!(history.totals, 3);
        assert_eq!(history.totals(seconds(3600), seconds(60)).1.reasons[0].packets, 5);
        assert_eq!(history.totals(seconds(3600), seconds(3595)).1.reasons, []);
    }

    #[test]
    fn memory_is_bounded_and_the_history_begins_later() {
        let mut history = DropHistory::new(Nanos(0));
        for step in 1..=360 {
            let row = |&reason: &DropReason| {
                let ports = (0..10).map(|port| (format!("port{port}"), step)).collect();
                DropRow { packets: step, ports, ..DropRow::new(reason) }
            };
            let reasons = DropReason::ALL.iter().map(row).collect();
            history.note(seconds(10 * step), &Drops { reasons, ..Drops::default() });
            assert!(history.totals <= MOST_TOTALS);
        }
        let (at, then) = history.totals(seconds(3600), seconds(3600));
        assert!(at > seconds(2000), "{at:?}");
        assert_eq!(then.reasons[0].packets, at.0 / seconds(10).0);
    }

    #[test]
    fn another_process_goes_on_with_it() {
        let mut before = DropHistory::new(Nanos(0));
        run(&mut before, 1, 90_000, |second| second);
        let handed = before.handed();
        let text = serde_json::to_string(&handed).expect("it is written");
        let mut after = DropHistory::new(seconds(90_001));
        after.resume(serde_json::from_str(&text).expect("it is read"));
        for ago in [5, 600, 30_000, 200_000] {
            let [one, other] = [&before, &after].map(|history| history.totals(seconds(90_000), seconds(ago)));
            assert_eq!(one, other, "{ago}");
        }
        run(&mut after, 90_001, 91_000, |second| second);
        // It takes its first sample at once, and the next ones 10 s apart.
        let (at, then) = after.totals(seconds(91_000), seconds(900));
        assert_eq!((at, then.reasons[0].packets), (seconds(90_091), 90_091));
    }
}
