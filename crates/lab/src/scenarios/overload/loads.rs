//! Columns that take turns at loads from half of the capacity to eleven times that.

use super::{RECEIVING_US, micros, offered};
use crate::report::{Curve, Line, Table};
use crate::scenarios::Run;
use crate::scenarios::testbed::Testbed;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::traffic::raw::Plan;
use std::time::Duration;

/// Offered, as a multiple of the capacity. The last is ten times the most that is answered at any of these loads,
/// which may be a little more than what was measured before.
const FACTORS: [f64; 5] = [0.5, 1.0, 1.5, 2.5, 11.0];
/// Load factors of a quick run.
const FEW: [f64; 3] = [0.5, 1.0, 11.0];
/// Offered loads while the capacity is measured, as multiples of what is expected.
const BEYOND: [f64; 3] = [1.5, 2.5, 5.0];
/// Number of rounds.
pub(super) const ROUNDS: usize = 10;
/// Number of times that a load is tried before the generator is said not to reach it.
const TRIES: u32 = 3;
/// Time in which what waits after too much is answered.
const DRAIN: Duration = Duration::from_millis(80);

/// One service or forwarder with its measurements.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) testbed: Testbed,
    /// Loads that the generator reached, in ascending order.
    loads: Vec<Load>,
    /// Reason why there are no larger loads.
    missed: Option<String>,
}

/// Results at one load, one of each round.
#[derive(Default)]
pub(super) struct Load {
    /// Multiple of the capacity.
    pub(super) factor: f64,
    /// Packets a second.
    pub(super) offered: Samples,
    /// Requests answered a second, or packets carried.
    pub(super) rate: Samples,
    /// Latency in microseconds: median, 99th percentile.
    pub(super) median: Samples,
    pub(super) slow: Samples,
}

/// Loads of a column that its rows are about.
pub(super) struct Seen<'a> {
    pub(super) first: &'a Load,
    pub(super) peak: &'a Load,
    pub(super) last: &'a Load,
}

impl Column {
    /// A column of which nothing is measured yet.
    pub(super) fn new(name: &'static str, testbed: Testbed) -> Self {
        Self { name, testbed, loads: Vec::new(), missed: None }
    }

    /// The most that is carried in a second when that many packets are offered, in turn.
    pub(super) fn capacity(&mut self, run: &Run, offered: &[f64]) -> anyhow::Result<f64> {
        run.says(&format!("capacity of {}", self.name));
        let time = Duration::from_millis(run.quick_or(200, 500));
        let mut rate = 0.0_f64;
        for &offered in offered {
            rate = rate.max(self.testbed.run(&Plan::steady(offered, time))?.rate_in_time());
            interrupt::sleep(DRAIN)?;
        }
        anyhow::ensure!(rate > 0.0, "{} answers nothing", self.name);
        Ok(rate)
    }

    /// Runs one round over all loads that the generator reaches.
    fn round(&mut self, factors: &[f64], capacity: f64, time: Duration) -> anyhow::Result<()> {
        if self.loads.is_empty() && self.missed.is_none() {
            self.loads.extend(factors.iter().map(|&factor| Load { factor, ..Load::default() }));
        }
        for number in 0..self.loads.len() {
            if let Some(missed) = self.load(number, capacity, time)? {
                // What it does not reach now it had only just reached before.
                self.loads.truncate(number);
                self.missed = Some(missed);
                break;
            }
        }
        Ok(())
    }

    /// Measures a load. Returns the reason if the generator does not reach it.
    fn load(&mut self, number: usize, capacity: f64, time: Duration) -> anyhow::Result<Option<String>> {
        let load = &mut self.loads[number];
        let rate = capacity * load.factor;
        let mut missed = None;
        for _ in 0..TRIES {
            let (trial, outcome) = self.testbed.metered(&Plan::steady(rate, time))?;
            if load.factor > 1.0 {
                interrupt::sleep(DRAIN)?;
            }
            let offered = offered(&trial);
            if !trial.reached(rate) {
                // Latency counts from a timetable that was not kept.
                let carried = trial.rate_in_time();
                missed = Some(format!(
                    "the generator reaches {offered:.0} of {rate:.0} a second, of which {carried:.0} came through"
                ));
                continue;
            }
            if outcome.latency.is_empty() {
                return Ok(Some("nothing was answered".to_owned()));
            }
            let at = |part| micros(outcome.latency.value_at_quantile(part));
            load.offered.push(offered);
            load.rate.push(trial.rate_in_time());
            load.median.push(at(0.5));
            load.slow.push(at(0.99));
            return Ok(None);
        }
        Ok(missed)
    }

    /// Loads for the rows, or the reason why there are none.
    pub(super) fn seen(&self) -> Result<Seen<'_>, String> {
        Seen::of(&self.loads).ok_or_else(|| self.missed.clone().unwrap_or_else(|| "not measured".to_owned()))
    }

    /// Reason why the largest loads have no numbers.
    pub(super) fn missed(&self) -> Option<String> {
        self.missed.clone()
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        self.loads.iter().map(|load| {
            let measured = [&load.offered, &load.rate, &load.median, &load.slow].map(Samples::median);
            let values = [Some(load.factor)].into_iter().chain(measured).collect();
            Line { name: self.name.to_owned(), values, reason: None }
        })
    }
}

impl<'a> Seen<'a> {
    /// The least and the largest of these loads, and that of the highest median rate; `None` without any.
    ///
    /// The best load of a single round is the luckiest one.
    fn of(loads: &'a [Load]) -> Option<Self> {
        let by_rate = |one: &&Load, other: &&Load| middle(&one.rate).total_cmp(&middle(&other.rate));
        let peak = loads.iter().max_by(by_rate)?;
        Some(Self { first: loads.first()?, peak, last: loads.last()? })
    }

    /// Rate at the far load, as a part of that at the peak, round by round.
    pub(super) fn goodput(&self) -> Samples {
        self.last.rate.over(&self.peak.rate).into_iter().collect()
    }

    /// Offered at the far load, as a multiple of the peak.
    pub(super) fn excess(&self) -> Samples {
        self.last.offered.over(&self.peak.rate).into_iter().collect()
    }

    /// Figures behind the goodput.
    pub(super) fn remark(&self, capacity: f64) -> String {
        let Self { peak, last, .. } = self;
        format!(
            "at {} times the capacity of {capacity:.0} a second: {:.0} of {:.0} carried; {:.0} at the peak, which is at {} times",
            last.factor,
            middle(&last.rate),
            middle(&last.offered),
            middle(&peak.rate),
            peak.factor
        )
    }
}

/// The median, or nothing that compares.
pub(super) fn middle(samples: &Samples) -> f64 {
    samples.median().unwrap_or(f64::NAN)
}

/// Rates that are offered to measure the capacity of a service whose requests cost so much.
pub(super) fn beyond(cost_us: u32) -> [f64; 3] {
    BEYOND.map(|times| times * 1e6 / (f64::from(cost_us) + RECEIVING_US))
}

/// Measures all columns in turn, in rounds of which every second one has them the other way round; adds a table and a
/// curve to the report.
pub(super) fn compare(
    run: &mut Run,
    title: &str,
    columns: &mut [Column],
    capacity: f64,
) -> anyhow::Result<()> {
    let (time, rounds) = (Duration::from_millis(run.quick_or(300, 400)), run.quick_or(1, ROUNDS));
    let factors = run.quick_or(FEW.as_slice(), &FACTORS);
    for round in 1..=rounds {
        run.says(&format!("{title}, round {round} of {rounds}"));
        let mut order = columns.iter_mut().collect::<Vec<_>>();
        if round % 2 == 0 {
            order.reverse();
        }
        for column in order {
            column.round(factors, capacity, time)?;
        }
    }
    let heads = ["load", "offered/s", "completed/s", "median, µs", "99th percentile, µs"];
    run.table(Table {
        title: title.to_owned(),
        columns: heads.map(str::to_owned).to_vec(),
        lines: columns.iter().flat_map(Column::lines).collect(),
    });
    let points = |column: &Column| {
        let points = column.loads.iter().map(|load| (middle(&load.offered) / 1e3, middle(&load.rate) / 1e3));
        (column.name.to_owned(), points.collect())
    };
    run.curve(Curve {
        title: title.to_owned(),
        x: "offered, thousands a second".to_owned(),
        y: "completed, thousands a second".to_owned(),
        lines: columns.iter().map(points).collect(),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peak of a load that is lucky once is not taken for the peak of all rounds.
    #[test]
    fn goodput_is_of_the_load_that_is_best_in_the_median() {
        let load = |factor, rates: [f64; 3]| Load {
            factor,
            offered: [factor * 100.0; 3].into_iter().collect(),
            rate: rates.into_iter().collect(),
            ..Load::default()
        };
        let loads = [
            load(0.5, [50.0, 50.0, 50.0]),
            load(1.0, [100.0, 80.0, 100.0]),
            load(2.5, [90.0, 130.0, 90.0]),
            load(11.0, [95.0, 76.0, 95.0]),
        ];
        let seen = Seen::of(&loads).unwrap();
        assert_eq!(seen.goodput(), [0.95, 0.95, 0.95].into_iter().collect());
        assert_eq!(seen.excess(), [11.0, 13.75, 11.0].into_iter().collect());
        assert!((seen.peak.factor - 1.0).abs() < 1e-9, "not the luckiest");
        assert!(Seen::of(&[]).is_none());
    }
}
