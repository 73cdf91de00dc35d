//! One technique on and off, in turn, and the same once more with a planted loss.
//!
//! A round has three runs: with the technique, without, and with it again, of which one part in twenty is taken
//! for lost. What drifts on the machine drifts for all three; every second round has them the other way round.
//! A contrast of which the planted loss cannot be seen says nothing about small effects.
//!
//! Rounds go on while the intervals are wide, to a hundred or for two minutes: how often depends on their width and on
//! the clock, never on what they show.

use super::Run;
use crate::report::Better;
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

/// Part of a run's result that is planted as a loss.
pub(super) const PLANTED: f64 = 0.05;
/// Rows of a technique, by what stands behind its name.
pub(super) const ENDINGS: [&str; 4] = ["on", "off", "gain", "planted"];

/// Rounds of a contrast, at least and at most; of a quick one.
const LEAST: usize = 10;
const MOST: usize = 100;
const QUICK: usize = 6;
/// Time after which no round is begun beyond the least number.
const LONGEST: Duration = Duration::from_secs(120);
/// Half-widths of sufficiently narrow intervals, in percent: of a gain, depending on its size, and of the planted
/// loss.
const NARROW: f64 = 2.0;
const NARROW_PART: f64 = 0.25;
const NARROW_PLANTED: f64 = 4.0;

/// A measurement that can be repeated.
type Measure<'a> = &'a mut dyn FnMut() -> anyhow::Result<f64>;

/// Name of a row of a technique.
pub(super) fn row(technique: &str, ending: &str) -> String {
    format!("tables.{technique}.{ending}")
}

/// True if a row of the technique is wanted.
pub(super) fn is_wanted(run: &Run, technique: &str) -> bool {
    is_any_wanted(run, &format!("tables.{technique}"))
}

/// True if a row of a contrast whose rows begin with `base` is wanted.
pub(super) fn is_any_wanted(run: &Run, base: &str) -> bool {
    ENDINGS.iter().any(|ending| run.wants(&format!("{base}.{ending}")))
}

/// Reports that a technique could not be measured, with the reason.
///
/// # Errors
/// When interrupted.
pub(super) fn skip(run: &mut Run, technique: &str, why: &anyhow::Error) -> anyhow::Result<()> {
    skip_all(run, &format!("tables.{technique}"), why)
}

/// Reports that a contrast, whose rows begin with `base`, could not be measured.
///
/// # Errors
/// When interrupted.
pub(super) fn skip_all(run: &mut Run, base: &str, why: &anyhow::Error) -> anyhow::Result<()> {
    interrupt::check()?;
    let rows = ENDINGS.map(|ending| format!("{base}.{ending}"));
    run.skip(&rows, &format!("{base}: {why:#}"));
    Ok(())
}

/// Measures a technique if one of its rows is wanted, and fills them; remarks say what both sides are.
///
/// # Errors
/// When interrupted; what a measurement refuses is a reason in the rows.
pub(super) fn contrast(
    run: &mut Run,
    technique: &str,
    on: impl FnMut() -> anyhow::Result<f64>,
    off: impl FnMut() -> anyhow::Result<f64>,
    remarks: [&str; 2],
) -> anyhow::Result<()> {
    contrast_all(run, &format!("tables.{technique}"), on, off, remarks)
}

/// Contrasts the two sides of a technique, if both could be set up.
///
/// # Errors
/// As [`contrast`].
pub(super) fn between<T>(
    run: &mut Run,
    technique: &str,
    sides: [anyhow::Result<T>; 2],
    measure: impl Fn(&mut T) -> anyhow::Result<f64>,
    remarks: [&str; 2],
) -> anyhow::Result<()> {
    match sides {
        [Ok(mut on), Ok(mut off)] => {
            contrast(run, technique, || measure(&mut on), || measure(&mut off), remarks)
        }
        [Err(error), _] | [_, Err(error)] => skip(run, technique, &error),
    }
}

/// Contrasts all rows that begin with `base`.
///
/// # Errors
/// When interrupted; what a measurement refuses is a reason in the rows.
pub(super) fn contrast_all(
    run: &mut Run,
    base: &str,
    mut on: impl FnMut() -> anyhow::Result<f64>,
    mut off: impl FnMut() -> anyhow::Result<f64>,
    remarks: [&str; 2],
) -> anyhow::Result<()> {
    if !is_any_wanted(run, base) {
        return Ok(());
    }
    let row = |ending: &str| format!("{base}.{ending}");
    let Some(better) = run.better(&row("on")) else {
        run.leave_out(format!("{base} is not promised"));
        return Ok(());
    };
    let (least, most) = run.quick_or((QUICK, QUICK), (LEAST, MOST));
    let (mut seen, begin) = (Seen::default(), clock::now());
    for round in 1..=most {
        if round > least && (seen.is_narrow(better) || clock::now() - begin > LONGEST) {
            break;
        }
        run.says(&format!("{base} on and off, round {round} of {least} to {most}"));
        interrupt::check()?;
        if let Err(error) = seen.round(round % 2 == 0, better, (&mut on, &mut off)) {
            return skip_all(run, base, &error);
        }
    }
    seen.record(run, base, better);
    for (ending, remark) in ENDINGS.iter().zip(remarks) {
        run.remark(&row(ending), remark);
    }
    Ok(())
}

/// Results of all rounds.
#[derive(Debug, Default)]
struct Seen {
    on: Samples,
    off: Samples,
    planted: Samples,
}

impl Seen {
    fn round(
        &mut self,
        is_reversed: bool,
        better: Better,
        (on, off): (Measure<'_>, Measure<'_>),
    ) -> anyhow::Result<()> {
        let mut order = [0, 1, 2];
        if is_reversed {
            order.reverse();
        }
        for side in order {
            match side {
                0 => self.on.push(on()?),
                1 => self.off.push(off()?),
                _ => self.planted.push(worse(on()?, better)),
            }
        }
        Ok(())
    }

    /// Gains by the technique, and by the planted loss.
    fn gains(&self, better: Better) -> [Samples; 2] {
        [gains(&self.on, &self.off, better), gains(&self.planted, &self.on, better)]
    }

    /// True if more rounds would tell nothing more.
    fn is_narrow(&self, better: Better) -> bool {
        let [gain, planted] = self.gains(better);
        let half_width = |samples: &Samples| samples.interval().map(|(low, high)| (high - low) / 2.0);
        let Some(median) = gain.median() else { return false };
        let limit = NARROW.max(NARROW_PART * median.abs());
        let is_large = NARROW_PART * median.abs() > NARROW_PLANTED;
        half_width(&gain).is_some_and(|width| width <= limit)
            && (is_large || half_width(&planted).is_some_and(|width| width <= NARROW_PLANTED))
    }

    fn record(&self, run: &mut Run, base: &str, better: Better) {
        let [gain, planted] = self.gains(better);
        for (ending, samples) in ENDINGS.iter().zip([&self.on, &self.off, &gain, &planted]) {
            run.record_interval(&format!("{base}.{ending}"), samples);
        }
    }
}

/// A result with the planted loss.
fn worse(value: f64, better: Better) -> f64 {
    match better {
        Better::Higher => value * (1.0 - PLANTED),
        Better::Lower => value / (1.0 - PLANTED),
    }
}

/// Percentage by which each of `ones` is better than the other value of its round.
pub(super) fn gains(ones: &Samples, others: &Samples, better: Better) -> Samples {
    ones.over(others).into_iter().map(|ratio| 100.0 * (as_gain(ratio, better) - 1.0)).collect()
}

fn as_gain(ratio: f64, better: Better) -> f64 {
    match better {
        Better::Higher => ratio,
        Better::Lower => 1.0 / ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_go_on_while_intervals_are_wide_whatever_they_show() {
        let seen = |on: f64, spread: f64| {
            let around = |middle: f64| {
                (0..10)
                    .map(|number| middle * (1.0 + spread * (f64::from(number) - 4.5) / 4.5))
                    .collect::<Samples>()
            };
            let alternating = |middle: f64| {
                (0..10).map(|number| middle * (1.0 + spread * f64::from(number % 2))).collect::<Samples>()
            };
            Seen { on: around(on), off: alternating(100.0), planted: around(on * 0.95) }
        };
        assert!(seen(100.0, 0.01).is_narrow(Better::Higher), "no effect");
        assert!(!seen(100.0, 0.2).is_narrow(Better::Higher));
        assert!(seen(300.0, 0.1).is_narrow(Better::Higher), "large, and known well enough");
        assert!(seen(95.0, 0.01).is_narrow(Better::Higher), "a small loss");
        assert!(!seen(95.0, 0.2).is_narrow(Better::Higher));
        assert!(!Seen::default().is_narrow(Better::Higher));
    }

    #[test]
    fn gains_are_of_pairs_and_in_the_right_direction() {
        let samples = |values: &[f64]| values.iter().copied().collect::<Samples>();
        let (on, off) = (samples(&[10.0, 20.0]), samples(&[20.0, 40.0]));
        assert_eq!(gains(&on, &off, Better::Lower).median(), Some(100.0));
        assert_eq!(gains(&on, &off, Better::Higher).median(), Some(-50.0));
    }

    /// Ten rounds in which on and off are equal, and the number of times that on was measured.
    fn ten_rounds(better: Better) -> (Seen, u32) {
        let (mut seen, mut calls) = (Seen::default(), 0);
        for round in 0..10 {
            let value = 100.0 + 50.0 * f64::from(round);
            let mut on = || {
                calls += 1;
                Ok(value)
            };
            seen.round(round % 2 == 0, better, (&mut on, &mut || Ok(value))).unwrap();
        }
        (seen, calls)
    }

    /// A drift from round to round by half hides nothing: the planted loss is 5 % in every round.
    #[test]
    fn a_planted_loss_is_a_loss_in_either_direction() {
        for better in [Better::Higher, Better::Lower] {
            let (seen, calls) = ten_rounds(better);
            let planted = gains(&seen.planted, &seen.on, better);
            let (low, high) = planted.interval().unwrap();
            assert!((low + 5.0).abs() < 1e-9 && (high + 5.0).abs() < 1e-9, "{better:?}: {low} … {high}");
            let gain = gains(&seen.on, &seen.off, better).median().unwrap();
            assert!((gain.abs(), calls) < (1e-9, 21), "{gain}, {calls}");
        }
    }
}
