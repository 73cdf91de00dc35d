//! Verdicts about techniques, from their rows and nothing else.

use crate::report::{LEFT_OUT, Report, Row};

/// Percent below which an effect is none: two sides that do the same differ by that much.
const LITTLE: f64 = 2.0;
/// Half of an interval's width in percent up to which "no effect" can be said.
const NARROW: f64 = 2.0;
/// Fewest rounds that have an interval of 95 %.
const ROUNDS: usize = 6;

/// Verdict about one technique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) enum Verdict {
    /// The technique brings more than a little, by the whole interval.
    Gain,
    /// The technique costs more than a little, by the whole interval.
    Loss,
    /// The interval is narrow, and a planted loss was seen.
    NoEffect,
    /// No verdict: no value, too few rounds, or too much noise.
    Unmeasured,
}

/// Percentages with their interval, and the number of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::scenarios) struct Effect {
    pub(super) median: f64,
    pub(super) interval: (f64, f64),
    pub(super) rounds: usize,
}

impl Effect {
    /// Effect that a row tells; `None` without a value or an interval.
    pub(in crate::scenarios) fn of(row: &Row) -> Option<Self> {
        Some(Self { median: row.value?, interval: row.spread?, rounds: row.samples })
    }

    /// Half of the width of its interval.
    pub(in crate::scenarios) fn half_width(&self) -> f64 {
        (self.interval.1 - self.interval.0) / 2.0
    }

    /// True for a loss by the whole interval.
    pub(in crate::scenarios) fn is_below_zero(&self) -> bool {
        self.interval.1 < 0.0
    }
}

/// The verdict about a technique, by its gain and by what was seen of a planted loss.
pub(in crate::scenarios) fn verdict(gain: Option<Effect>, planted: Option<Effect>) -> Verdict {
    let Some((gain, planted)) = gain.zip(planted) else { return Verdict::Unmeasured };
    let (low, high) = gain.interval;
    let is_seen = planted.is_below_zero();
    if gain.rounds < ROUNDS || planted.rounds < ROUNDS || !low.is_finite() || !high.is_finite() {
        Verdict::Unmeasured
    } else if low > 0.0 && gain.median > LITTLE {
        Verdict::Gain
    } else if high < 0.0 && gain.median < -LITTLE {
        Verdict::Loss
    } else if gain.half_width() <= NARROW && is_seen {
        Verdict::NoEffect
    } else {
        Verdict::Unmeasured
    }
}

/// Rows of verdicts, and what each of them counts.
pub(super) const ROWS: [(&str, Verdict); 4] = [
    ("tables.verdicts.gain", Verdict::Gain),
    ("tables.verdicts.no_effect", Verdict::NoEffect),
    ("tables.verdicts.loss", Verdict::Loss),
    ("tables.verdicts.unmeasured", Verdict::Unmeasured),
];

/// Fills the rows of verdicts about `techniques`. A report of which parts were left out has none.
pub(super) fn conclude(report: &mut Report, techniques: &[&str]) {
    let row = |technique: &str, ending: &str| report.row(&format!("tables.{technique}.{ending}"));
    let is_left_out = |technique: &&str| {
        row(technique, "gain")
            .is_none_or(|row| row.value.is_none() && row.reason.as_deref() == Some(LEFT_OUT))
    };
    let left_out = techniques.iter().any(is_left_out);
    let judged = techniques.iter().map(|technique| {
        let effect = |ending| row(technique, ending).and_then(Effect::of);
        (*technique, verdict(effect("gain"), effect("planted")))
    });
    let judged = judged.collect::<Vec<_>>();
    for (name, verdict) in ROWS {
        let Some(row) = report.rows.iter_mut().find(|row| row.name == name) else { continue };
        let those = judged.iter().filter(|(_, found)| *found == verdict).map(|(technique, _)| *technique);
        let those = those.collect::<Vec<_>>();
        (row.value, row.reason, row.samples) = if left_out {
            (None, Some(LEFT_OUT.to_owned()), 0)
        } else {
            (Some(count(those.len())), Some(those.join(", ")), 1)
        };
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few dozen")]
fn count(techniques: usize) -> f64 {
    techniques as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Better;
    use polder_testbed::machine::Machine;

    fn effect(median: f64, low: f64, high: f64) -> Option<Effect> {
        Some(Effect { median, interval: (low, high), rounds: 10 })
    }

    const SEEN: Option<Effect> = Some(Effect { median: -5.0, interval: (-6.0, -4.0), rounds: 10 });
    const HIDDEN: Option<Effect> = Some(Effect { median: -5.0, interval: (-12.0, 1.0), rounds: 10 });

    #[test]
    fn an_interval_above_nothing_is_a_gain_and_one_below_a_loss() {
        assert_eq!(verdict(effect(30.0, 25.0, 40.0), SEEN), Verdict::Gain);
        assert_eq!(verdict(effect(30.0, 0.1, 90.0), HIDDEN), Verdict::Gain);
        assert_eq!(verdict(effect(-9.0, -12.0, -7.0), SEEN), Verdict::Loss);
        assert_eq!(verdict(effect(30.0, -0.1, 90.0), SEEN), Verdict::Unmeasured);
    }

    #[test]
    fn no_effect_takes_a_narrow_interval_and_a_planted_loss_that_is_seen() {
        assert_eq!(verdict(effect(0.5, -1.0, 2.0), SEEN), Verdict::NoEffect);
        assert_eq!(verdict(effect(1.5, 0.5, 1.9), SEEN), Verdict::NoEffect, "a little is none");
        assert_eq!(verdict(effect(-1.5, -1.9, -0.5), SEEN), Verdict::NoEffect);
        assert_eq!(verdict(effect(0.5, -1.0, 2.0), HIDDEN), Verdict::Unmeasured);
        assert_eq!(verdict(effect(0.5, -2.0, 3.0), SEEN), Verdict::Unmeasured);
        assert_eq!(verdict(effect(0.5, -1.0, 2.0), None), Verdict::Unmeasured);
        assert_eq!(verdict(None, SEEN), Verdict::Unmeasured);
    }

    #[test]
    fn few_rounds_prove_nothing() {
        let few = Some(Effect { median: 50.0, interval: (40.0, 60.0), rounds: 5 });
        assert_eq!(verdict(few, SEEN), Verdict::Unmeasured);
        assert_eq!(verdict(effect(50.0, 40.0, f64::INFINITY), SEEN), Verdict::Unmeasured);
    }

    fn report(gains: &[(&str, Option<f64>)]) -> Report {
        let row = |name: String, value: Option<f64>, reason: Option<&str>| Row {
            name,
            value,
            unit: String::new(),
            better: Better::Higher,
            goal: None,
            met: None,
            reason: reason.map(str::to_owned),
            spread: value.map(|value| (value - 1.0, value + 1.0)),
            samples: 10,
        };
        let mut rows = Vec::new();
        for (technique, gain) in gains {
            let reason = gain.is_none().then_some("iperf3 is not installed");
            rows.push(row(format!("tables.{technique}.gain"), *gain, reason));
            rows.push(row(format!("tables.{technique}.planted"), gain.map(|_| -5.0), reason));
        }
        rows.extend(ROWS.map(|(name, _)| row(name.to_owned(), None, None)));
        Report {
            scenario: "tables".to_owned(),
            at: 0,
            command: String::new(),
            machine: Machine::default(),
            placement: Vec::new(),
            quick: false,
            configuration: Vec::new(),
            left_out: Vec::new(),
            rows,
            curves: Vec::new(),
            tables: Vec::new(),
        }
    }

    #[test]
    fn counts_are_those_of_the_rows() {
        let techniques = ["A.A1", "A.A2", "A.A3", "B.B1", "B.B2"];
        let gains = [Some(30.0), Some(0.5), Some(40.0), None, Some(-20.0)];
        let mut report = report(&techniques.into_iter().zip(gains).collect::<Vec<_>>());
        conclude(&mut report, &techniques);
        let values = ROWS.map(|(name, _)| report.row(name).unwrap().value);
        assert_eq!(values, [2.0, 1.0, 1.0, 1.0].map(Some));
        let reason = report.row("tables.verdicts.gain").unwrap().reason.clone();
        assert_eq!(reason.as_deref(), Some("A.A1, A.A3"));
    }

    #[test]
    fn a_part_has_no_verdicts() {
        let mut report = report(&[("A.A1", Some(30.0)), ("A.A2", None)]);
        report.rows[2].reason = Some(LEFT_OUT.to_owned());
        report.rows[4].value = Some(17.0);
        conclude(&mut report, &["A.A1", "A.A2"]);
        assert!(ROWS.iter().all(|(name, _)| report.row(name).unwrap().value.is_none()));
    }
}
