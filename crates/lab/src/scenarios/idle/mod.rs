//! `idle`: what a forwarder costs when little or nothing comes, and how fast it wakes.
//!
//! The kernel and Polder receive in the NAPI thread of the input, on the device's core; testpmd polls on
//! that core whether or not anything comes.

mod alone;
mod load;

use super::testbed::{Contender, Setup};
use super::{Run, Scenario};
use crate::report::Curve;
use polder_testbed::interrupt;
use polder_testbed::peers::Task;
use polder_testbed::peers::kernel::Napi;
use std::collections::BTreeMap;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "idle",
    about: "CPU time with nothing or little to do, wake-up latency, and the first burst after silence",
    needs_root: true,
    rows: include_str!("../rows/idle.rows"),
    measure,
};

const FIRST_BURST_LOST: &str = "idle.first_burst_lost";
const UNACCOUNTED: &str = "idle.unaccounted_packets";

const TESTPMD_IDLE: &str = "idle.cpu_percent.testpmd";

/// A device, and how it is moderated.
#[derive(Clone, Copy)]
struct Column {
    /// Name of the peer in rows.
    peer: &'static str,
    /// Name in pictures, and in rows about load.
    name: &'static str,
    contender: Contender,
    moderation_us: u16,
}

const fn column(peer: &'static str, name: &'static str, contender: Contender, moderation_us: u16) -> Column {
    Column { peer, name, contender, moderation_us }
}

/// The most important first: a quick run leaves out what is at the end.
const COLUMNS: [Column; 5] = [
    column("polder", "moderation_0us", Contender::Polder, 0),
    column("kernel", "kernel", Contender::Kernel(Napi::Threaded), 0),
    column("polder", "moderation_200us", Contender::Polder, 200),
    column("testpmd", "testpmd", Contender::Testpmd, 0),
    column("polder", "moderation_50us", Contender::Polder, 50),
];

const FRAME_BYTES: usize = 64;

/// Points for the pictures.
#[derive(Default)]
struct Points {
    /// CPU time against load, by column.
    load: BTreeMap<String, Vec<(f64, f64)>>,
    /// Latency against moderation, by quantile.
    latency: BTreeMap<String, Vec<(f64, f64)>>,
    /// CPU time against moderation, by load.
    moderated: BTreeMap<String, Vec<(f64, f64)>>,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let (mut unaccounted, mut points) = (0, Points::default());
    unaccounted += load::measure(run, &mut points)?;
    unaccounted += alone::measure(run, &mut points)?;
    draw(run, points);
    run.record_count(UNACCOUNTED, unaccounted);
    Ok(())
}

impl Column {
    fn setup(&self) -> Setup {
        let Self { contender, moderation_us, .. } = *self;
        Setup { moderation_us: Some(moderation_us), ..Setup::new(contender, Task::Bridge, FRAME_BYTES, 1) }
    }

    /// Name in rows about single packets, once per second.
    fn each_second(&self) -> String {
        if self.moderation_us > 0 { format!("{}_{}", self.peer, self.name) } else { self.peer.to_owned() }
    }

    /// True if a row is about this column.
    fn owns(&self, row: &str) -> bool {
        let kind = row.split('.').nth(1).unwrap_or_default();
        let ends_in = |name: &str| row.strip_suffix(name).is_some_and(|front| front.ends_with('.'));
        match kind {
            "wake_1ms" => ends_in(&format!("{}.moderation_{}us", self.peer, self.moderation_us)),
            "wake_1s" => ends_in(&self.each_second()),
            "cpu_at_10_percent" | "cpu_at_50_percent" => ends_in(self.name),
            // One row has no name of a device; it is Polder's.
            "first_burst_lost" => self.peer == "polder" && self.moderation_us == 0,
            _ => self.moderation_us == 0 && ends_in(self.peer),
        }
    }

    /// Rows whose kinds begin with one of these texts.
    fn rows(&self, kinds: &[&str]) -> Vec<&'static str> {
        let is_kind = |row: &str| {
            let kind = row.split('.').nth(1).unwrap_or_default();
            kinds.iter().any(|begin| kind.starts_with(begin))
        };
        let rows = SCENARIO.promises().iter().map(|promise| promise.name);
        rows.filter(|row| self.owns(row) && is_kind(row)).collect()
    }

    /// True if one of these rows is wanted.
    fn is_wanted(&self, run: &Run, kinds: &[&str]) -> bool {
        run.wants_any(&self.rows(kinds))
    }

    /// Result of a measurement. If it failed, its rows that are wanted and have no value say why.
    ///
    /// # Errors
    /// When interrupted.
    fn or_skip<T>(
        &self,
        run: &mut Run,
        kinds: &[&str],
        result: anyhow::Result<T>,
    ) -> anyhow::Result<Option<T>> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        interrupt::check()?;
        let mut rows = self.rows(kinds);
        rows.retain(|row| run.wants(row) && run.value(row).is_none());
        run.skip(&rows, &format!("{}: {error:#}", self.name));
        Ok(None)
    }
}

fn draw(run: &mut Run, points: Points) {
    for (title, x, y, lines) in [
        ("CPU time of the device against load", "percent of the capacity", "percent of a core", points.load),
        (
            "latency of packets that come alone, a thousand a second, against moderation",
            "moderation, µs",
            "latency, µs",
            points.latency,
        ),
        ("CPU time of Polder against moderation", "moderation, µs", "percent of a core", points.moderated),
    ] {
        let (title, x, y) = (title.to_owned(), x.to_owned(), y.to_owned());
        let sorted = |mut line: Vec<(f64, f64)>| {
            line.sort_by(|one, other| one.0.total_cmp(&other.0));
            line
        };
        let lines = lines.into_iter().map(|(name, line)| (name, sorted(line))).collect();
        run.curve(Curve { title, x, y, lines });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use polder_testbed::screen::Screen;

    #[test]
    fn each_row_but_that_of_the_books_is_of_one_column() {
        for promise in SCENARIO.promises() {
            let owners = COLUMNS.iter().filter(|column| column.owns(promise.name)).count();
            assert_eq!(owners, usize::from(promise.name != UNACCOUNTED), "{}", promise.name);
        }
    }

    #[test]
    fn rows_of_a_column_that_failed_say_why_and_others_stay() {
        let mut run = Run::start(Screen::new(), "idle", SCENARIO.promises(), (true, &[])).unwrap();
        run.record_one("idle.cpu_percent.polder", 0.25);
        let kinds = ["wake_1s", "cpu_percent"];
        let failed = COLUMNS[0].or_skip(&mut run, &kinds, Err::<(), _>(anyhow!("it has ended"))).unwrap();
        assert!(failed.is_none());
        let report = run.finish();
        let why = |row: &str| report.row(row).and_then(|row| row.reason.clone()).unwrap_or_default();
        assert!(why("idle.wake_1s.p50_us.polder").contains("it has ended"));
        assert!(!why("idle.wake_1s.p50_us.kernel").contains("it has ended"));
        assert!(!why("idle.wake_1ms.p50_us.polder.moderation_0us").contains("it has ended"));
        assert_eq!(report.row("idle.cpu_percent.polder").and_then(|row| row.value), Some(0.25));
    }
}
