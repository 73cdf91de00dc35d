//! The runner of what is compared: contenders take turns, and each turn adds samples to rows.

use super::Run;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use std::collections::BTreeMap;

/// Samples by row.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet(BTreeMap<String, Samples>);

impl Sheet {
    /// Adds a sample to a row.
    pub(super) fn push(&mut self, row: impl Into<String>, value: f64) {
        self.0.entry(row.into()).or_default().push(value);
    }

    /// Samples of a row so far.
    pub(super) fn samples(&self, row: &str) -> Samples {
        self.0.get(row).cloned().unwrap_or_default()
    }

    /// Their median; not a number without any.
    pub(super) fn median(&self, row: &str) -> f64 {
        self.0.get(row).and_then(Samples::median).unwrap_or(f64::NAN)
    }

    /// Fills the rows that the scenario promises; all else on the sheet is for remarks.
    pub(super) fn record(&self, run: &mut Run) {
        for (row, samples) in &self.0 {
            if run.promises().iter().any(|promise| promise.name == row) {
                run.record(row, samples);
            }
        }
    }
}

/// Sets the contenders up whose rows are wanted; one that cannot be is skipped for its reason.
///
/// # Errors
/// When interrupted.
pub(super) fn set_up<'a, C, T>(
    run: &mut Run,
    contenders: &'a [C],
    rows: impl Fn(&C) -> Vec<&'static str>,
    lay: impl Fn(&'a C) -> anyhow::Result<T>,
) -> anyhow::Result<Vec<T>> {
    let mut ready = Vec::new();
    for contender in contenders {
        let rows = rows(contender);
        if run.wants_any(&rows) {
            ready.extend(run.or_skip(&rows, lay(contender))?);
        }
    }
    Ok(ready)
}

/// Runs each contender once in each round, and prints whose turn it is.
///
/// # Errors
/// When interrupted, and those of a turn.
pub(super) fn in_turn<T>(
    run: &Run,
    rounds: usize,
    contenders: impl AsMut<[T]>,
    name: impl Fn(&T) -> String,
    mut turn: impl FnMut(&mut T, &mut Sheet) -> anyhow::Result<()>,
) -> anyhow::Result<Sheet> {
    let (mut contenders, mut sheet) = (contenders, Sheet::default());
    for round in 1..=rounds {
        for contender in contenders.as_mut() {
            interrupt::check()?;
            run.says(&format!("{}, round {round} of {rounds}", name(contender)));
            turn(contender, &mut sheet)?;
        }
    }
    Ok(sheet)
}

/// Runs the rounds of one contender, which is called `what`.
///
/// # Errors
/// As [`in_turn`].
pub(super) fn rounds(
    run: &Run,
    rounds: usize,
    what: &str,
    mut turn: impl FnMut(&mut Sheet) -> anyhow::Result<()>,
) -> anyhow::Result<Sheet> {
    in_turn(run, rounds, [()], |()| what.to_owned(), |(), sheet| turn(sheet))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenarios::rows;
    use polder_testbed::screen::Screen;

    #[test]
    fn each_contender_has_a_turn_in_each_round_and_only_promised_rows_are_filled() {
        let mut run = Run::start(Screen::new(), "t", rows::of("t.a | ns | lower |\n"), (true, &[])).unwrap();
        let mut whose = Vec::new();
        let sheet = in_turn(
            &run,
            2,
            &mut ["t.a", "t.b"],
            |row| (*row).to_owned(),
            |row, sheet| {
                whose.push(*row);
                sheet.push(*row, whose.len() as f64);
                Ok(())
            },
        )
        .unwrap();
        sheet.record(&mut run);
        assert_eq!(whose, ["t.a", "t.b", "t.a", "t.b"]);
        assert_eq!(
            (run.value("t.a"), sheet.median("t.b"), sheet.samples("t.c").count()),
            (Some(2.0), 3.0, 0)
        );
        assert_eq!(run.finish().left_out, [""; 0]);
    }
}
