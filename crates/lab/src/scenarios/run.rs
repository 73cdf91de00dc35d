//! One run of a scenario: its declared rows and its results.

use super::progress::{Progress, words};
use crate::report::{ALL_BUT, Better, Curve, LEFT_OUT, Placement, Report, Row, Table};
use anyhow::bail;
use polder_testbed::clock;
use polder_testbed::machine::Machine;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::peers::polder::configurations;
use polder_testbed::screen::{Screen, Step};
use std::cell::Cell;
use std::time::Duration;

/// Goal of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// No goal: the row is informative.
    None,
    /// This value or better.
    Value(f64),
    /// The value of another row or better.
    Row(&'static str),
    /// This multiple of another row's value, or better.
    Times(f64, &'static str),
}

/// A row that a scenario promises to fill.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// Name of the row; stable across versions.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// Direction of improvement.
    pub better: Better,
    /// Goal of the row.
    pub goal: Goal,
    /// Contender and load by which the comparison measures it; empty if its scenario does so itself.
    pub cell: &'static str,
}

/// The most time that a scenario takes when it is to be quick.
const QUICK: Duration = Duration::from_secs(45);
/// Idle percentage of a core below which it is busy with other work before a run.
const IDLE: f64 = 90.0;

/// A run in progress.
#[derive(Debug)]
pub struct Run {
    screen: Screen,
    step: Step,
    promises: &'static [Promise],
    start: Duration,
    /// Parts of the names of wanted rows; all are wanted when empty.
    only: Vec<String>,
    progress: Cell<Progress>,
    report: Report,
}

impl Run {
    /// Looks at the machine and starts.
    ///
    /// # Errors
    /// When interrupted.
    pub fn start(
        screen: Screen,
        scenario: &str,
        promises: &'static [Promise],
        (quick, only): (bool, &[String]),
    ) -> anyhow::Result<Self> {
        let known = |part: &String| promises.iter().any(|promise| promise.name.contains(part.as_str()));
        if let Some(part) = only.iter().find(|part| !known(part)) {
            bail!("no row of {scenario} has `{part}` in its name; see `polder-lab list`");
        }
        // What ran before is of another report.
        drop(configurations());
        let start = clock::now();
        let step = screen.step(&format!("{scenario}: looking at the machine"));
        let report = Report {
            scenario: scenario.to_owned(),
            at: clock::seconds_since_1970(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            machine: Machine::look()?,
            placement: Vec::new(),
            quick,
            configuration: Vec::new(),
            left_out: Vec::new(),
            rows: Vec::new(),
            curves: Vec::new(),
            tables: Vec::new(),
        };
        let busy = report.machine.cores_idle.iter().any(|&idle| idle < IDLE);
        if busy {
            let idle = report.machine.cores_idle.iter().map(|idle| format!("{idle:.0}")).collect::<Vec<_>>();
            let text = format!(
                "the cores were idle to {} % before: the numbers below are noisy",
                idle.join(" and ")
            );
            screen.line(format!("  {} {text}", screen.bad("busy:")));
        }
        Ok(Self { screen, step, promises, start, only: only.to_vec(), progress: Cell::default(), report })
    }

    /// Terminal or pipe to print to.
    pub fn screen(&self) -> Screen {
        self.screen
    }

    /// All rows that the scenario promises.
    pub(super) fn promises(&self) -> &'static [Promise] {
        self.promises
    }

    /// Names of the promised rows that begin so.
    pub(super) fn rows(&self, begin: &str) -> Vec<&'static str> {
        let names = self.promises.iter().map(|promise| promise.name);
        names.filter(|name| name.starts_with(begin)).collect()
    }

    /// True if a promised row that begins in one of these ways is wanted.
    pub(super) fn wants_any_of(&self, beginnings: &[&str]) -> bool {
        beginnings.iter().any(|begin| self.wants_any(&self.rows(begin)))
    }

    /// Direction of improvement of a promised row.
    pub(super) fn better(&self, row: &str) -> Option<Better> {
        self.promises.iter().find(|promise| promise.name == row).map(|promise| promise.better)
    }

    /// The machine as it was looked at before.
    pub(super) fn machine(&self) -> &Machine {
        &self.report.machine
    }

    /// True if a row was filled, or has a reason why not.
    pub(super) fn has_rows(&self) -> bool {
        !self.report.rows.is_empty()
    }

    /// True if to be quick.
    pub fn is_quick(&self) -> bool {
        self.report.quick
    }

    /// Returns `quick` for quick runs, and `whole` for full runs.
    pub fn quick_or<T>(&self, quick: T, whole: T) -> T {
        if self.report.quick { quick } else { whole }
    }

    /// True if a row is wanted.
    pub fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| row.contains(part.as_str()))
    }

    /// True if one of these rows is wanted.
    pub fn wants_any<R: AsRef<str>>(&self, rows: &[R]) -> bool {
        rows.iter().any(|row| self.wants(row.as_ref()))
    }

    /// True if one of these rows is wanted and a quick run has time for it; otherwise the first one and its like are
    /// left out.
    pub(super) fn is_due<R: AsRef<str>>(&mut self, rows: &[R]) -> bool {
        if !self.wants_any(rows) {
            return false;
        }
        if self.is_out_of_time() {
            self.leave_out(format!("{} and its like: out of time", rows[0].as_ref()));
        }
        !self.is_out_of_time()
    }

    /// Marks a row as wanted because a wanted row depends on it.
    pub fn want(&mut self, row: &str) {
        if !self.wants(row) {
            self.only.push(row.to_owned());
        }
    }

    /// True if a quick run has used up its time; then what is left is to be left out.
    pub fn is_out_of_time(&self) -> bool {
        self.report.quick && clock::now() - self.start > QUICK * 4 / 5
    }

    /// True if that time is left; always, but in a quick run.
    pub fn has_left(&self, time: Duration) -> bool {
        !self.report.quick || clock::now() - self.start + time <= QUICK
    }

    /// Shows the current work; with the time that is left where it ends in `round N of M`.
    pub fn says(&self, what: &str) {
        let mut progress = self.progress.get();
        let left = progress.look(what, clock::now()).map(|left| format!(", {}", words(left)));
        self.progress.set(progress);
        self.step.says(&format!("{}: {what}{}", self.report.scenario, left.unwrap_or_default()));
    }

    /// Records the cores of the parts of the test; once is enough.
    pub fn place(&mut self, what: &str, core: impl ToString, how: &str) {
        let place = Placement { what: what.to_owned(), core: core.to_string(), how: how.to_owned() };
        if !self.report.placement.contains(&place) {
            self.report.placement.push(place);
        }
    }

    /// Records rows that were left out, and says so loudly.
    pub fn leave_out(&mut self, what: impl Into<String>) {
        let what = what.into();
        self.screen.line(format!("  {} {what}", self.screen.accent("left out:")));
        self.report.left_out.push(what);
    }

    /// Fills a row with the results of several measurements.
    pub fn record(&mut self, name: &str, samples: &Samples) {
        self.fill(name, samples.median(), samples.spread(), samples.count(), None);
    }

    /// Fills a row with the results of several measurements; its spread is the interval in which the median lies
    /// with 95 % confidence, and there is none below six of them.
    pub fn record_interval(&mut self, name: &str, samples: &Samples) {
        self.fill(name, samples.median(), samples.interval(), samples.count(), None);
    }

    /// Fills a row with one measurement.
    pub fn record_one(&mut self, name: &str, value: f64) {
        self.fill(name, Some(value), None, 1, None);
    }

    /// Fills a row with a number of packets or of other things.
    #[expect(clippy::cast_precision_loss, reason = "a count is far below 2^52")]
    pub fn record_count(&mut self, name: &str, count: u64) {
        self.record_one(name, count as f64);
    }

    /// Fills a row with the number of these things, which its remark names.
    pub(super) fn record_all(&mut self, name: &str, things: &[String]) {
        self.record_count(name, things.len() as u64);
        if !things.is_empty() {
            self.remark(name, things.join("; "));
        }
    }

    /// Records the reason why a row has no value.
    pub fn missing(&mut self, name: &str, reason: impl Into<String>) {
        self.fill(name, None, None, 0, Some(reason.into()));
    }

    /// Reports that several rows have no value, with the reason.
    pub fn skip<R: AsRef<str>>(&mut self, names: &[R], why: &str) {
        self.screen.line(format!("  {} {why}", self.screen.accent("skipped:")));
        names.iter().for_each(|name| self.missing(name.as_ref(), why));
    }

    /// The value of a result; without one, rows are skipped for that reason.
    ///
    /// # Errors
    /// When interrupted.
    pub(super) fn or_skip<T, R: AsRef<str>>(
        &mut self,
        rows: &[R],
        result: anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(reason) => {
                polder_testbed::interrupt::check()?;
                self.skip(rows, &format!("{reason:#}"));
                Ok(None)
            }
        }
    }

    /// True if one of these rows is wanted and what they need is there; otherwise they are skipped for its reason.
    ///
    /// # Errors
    /// When interrupted.
    pub(super) fn is_possible<T, R: AsRef<str>>(
        &mut self,
        rows: &[R],
        available: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<bool> {
        Ok(self.wants_any(rows) && self.or_skip(rows, available())?.is_some())
    }

    /// Adds a remark to a row that has been filled.
    pub fn remark(&mut self, name: &str, remark: impl Into<String>) {
        if let Some(row) = self.report.rows.iter_mut().find(|row| row.name == name) {
            row.reason = Some(remark.into());
        }
    }

    /// The value of a row that has been filled.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.report.row(name)?.value
    }

    /// A row that has been filled.
    pub(super) fn row(&self, name: &str) -> Option<&Row> {
        self.report.row(name)
    }

    /// Adds a curve for the page.
    pub fn curve(&mut self, curve: Curve) {
        self.report.curves.push(curve);
    }

    /// Adds a table for the page.
    pub fn table(&mut self, table: Table) {
        self.report.tables.push(table);
    }

    fn fill(
        &mut self,
        name: &str,
        value: Option<f64>,
        spread: Option<(f64, f64)>,
        samples: usize,
        reason: Option<String>,
    ) {
        let promise = self.promises.iter().find(|promise| promise.name == name);
        let Some(promise) = promise else {
            // A name that nobody can look up is worse than no row.
            self.report.left_out.push(format!("{name} was measured but is not promised"));
            return;
        };
        self.report.rows.retain(|row| row.name != name);
        let row = Row {
            name: name.to_owned(),
            value,
            unit: promise.unit.to_owned(),
            better: promise.better,
            goal: None,
            met: None,
            reason,
            spread,
            samples,
        };
        self.report.rows.push(row.clipped());
    }

    /// Ends the run: promises in their order, goals judged.
    pub fn finish(mut self) -> Report {
        let measured = |promise: &Promise| self.report.rows.iter().any(|row| row.name == promise.name);
        if !self.only.is_empty() && !self.promises.iter().all(measured) {
            self.report.left_out.push(format!("{ALL_BUT}{}", self.only.join(", ")));
        }
        self.report.configuration = configurations();
        let filled = std::mem::take(&mut self.report.rows);
        for promise in self.promises {
            let row = filled.iter().find(|row| row.name == promise.name).cloned();
            self.report.rows.push(row.unwrap_or_else(|| promise.unfilled()));
        }
        judge(self.promises, &mut self.report);
        self.report
    }
}

/// Prints each promised row with its goal, and whether that is reached.
pub(super) fn judge(promises: &[Promise], report: &mut Report) {
    let goals = promises.iter().map(|promise| promise.goal_in(report)).collect::<Vec<_>>();
    for (promise, goal) in promises.iter().zip(goals) {
        let Some(row) = report.rows.iter_mut().find(|row| row.name == promise.name) else { continue };
        row.goal = goal;
        row.met = goal.zip(row.value).map(|(goal, value)| match row.better {
            Better::Higher => value >= goal,
            Better::Lower => value <= goal,
        });
    }
}

impl Promise {
    fn unfilled(&self) -> Row {
        Row {
            name: self.name.to_owned(),
            value: None,
            unit: self.unit.to_owned(),
            better: self.better,
            goal: None,
            met: None,
            reason: Some(LEFT_OUT.to_owned()),
            spread: None,
            samples: 0,
        }
    }

    fn goal_in(&self, report: &Report) -> Option<f64> {
        match self.goal {
            Goal::None => None,
            Goal::Value(value) => Some(value),
            Goal::Row(name) => report.row(name)?.value,
            Goal::Times(factor, name) => Some(report.row(name)?.value? * factor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::join::join;

    const TABLE: &str =
        "t.a | ns | lower | = .b\nt.b | ns | lower |\nt.c | Mpps | higher | 2\nt.d | ns | lower | 1\n";

    fn promises() -> &'static [Promise] {
        crate::scenarios::rows::of(TABLE)
    }

    #[test]
    fn promises_are_kept_in_order_and_judged() {
        let mut run = Run::start(Screen::new(), "t", promises(), (true, &[])).unwrap();
        run.record_one("t.c", 1.9);
        run.record_one("t.b", 10.0);
        run.record("t.a", &[9.0, 9.5, 10.5].into_iter().collect());
        run.record_one("t.unknown", 1.0);
        let report = run.finish();
        let judged =
            report.rows.iter().map(|row| (row.name.as_str(), row.value, row.met)).collect::<Vec<_>>();
        let expected = [
            ("t.a", Some(9.5), Some(true)),
            ("t.b", Some(10.0), None),
            ("t.c", Some(1.9), Some(false)),
            ("t.d", None, None),
        ];
        assert_eq!(judged, expected);
        assert_eq!(report.rows[3].reason.as_deref(), Some("was left out"));
        assert!(report.left_out[0].contains("t.unknown"));
        assert_eq!(report.rows[0].goal, Some(10.0));
    }

    #[test]
    fn only_wanted_rows_are_wanted_and_an_unknown_one_is_told() {
        let only = |part: &str| Run::start(Screen::new(), "t", promises(), (true, &[part.to_owned()]));
        let mut run = only("t.a").unwrap();
        assert!(run.wants("t.a") && !run.wants("t.b") && run.wants_any(&["t.b", "t.a"]));
        run.want("t.b");
        assert!(run.wants("t.b") && !run.wants("t.c"));
        assert_eq!(run.finish().left_out, ["all rows but those with t.a, t.b"]);
        let error = only("t.x").unwrap_err().to_string();
        assert!(error.contains("`t.x`") && error.contains("list"), "{error}");
    }

    /// A goal that is made of another row is judged where that row comes from another run.
    #[test]
    fn parts_are_judged_as_a_whole() {
        let part = |row: &str, value| {
            let mut run = Run::start(Screen::new(), "t", promises(), (true, &[row.to_owned()])).unwrap();
            run.record_one(row, value);
            run.finish()
        };
        let parts = [part("t.a", 9.0), part("t.b", 10.0), part("t.a", 11.0)];
        assert_eq!((parts[0].rows[0].met, parts[2].rows[0].met), (None, None));
        for (count, met) in [(2, true), (3, false)] {
            let mut whole = join(parts[..count].to_vec(), &[]).unwrap();
            judge(promises(), &mut whole);
            assert_eq!((whole.rows[0].goal, whole.rows[0].met), (Some(10.0), Some(met)));
        }
    }
}
