//! `tunnels`: frames into gretap and VXLAN tunnels and out of them, beside the kernel's and Open vSwitch's.

mod chain;

use super::comparison::{self, Books};
use super::testbed::{Contender, Detail, Setup, Testbed};
use super::{Run, Scenario};
use crate::report::Curve;
use hdrhistogram::Histogram;
use polder_testbed::meters::absence::told;
use polder_testbed::meters::stream::Outcome;
use polder_testbed::peers::Task;
use polder_testbed::traffic::mlrsearch::{Goal as SearchGoal, GoalResult, Search, Trial};
use polder_testbed::traffic::raw::Plan;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "tunnels",
    about: "into gretap and VXLAN tunnels and out of them: CPU time of a packet, TCP, latency, no loss at half the rate",
    needs_root: true,
    rows: include_str!("../rows/tunnels.rows"),
    measure,
};

const LOST: &str = "gre.lost_at_half_rate";
const REORDERED: &str = "gre.reordered_at_half_rate";
const DUPLICATED: &str = "gre.duplicated_at_half_rate";
const UNACCOUNTED: &str = "gre.unaccounted_packets";
const RATE: &str = "gre.encap_64.mpps.polder";
const THROUGHPUT: &str = "gre.encap_64.throughput_mpps.polder";
const PARTIAL: &str = "gre.encap_64.throughput_mpps.polder.loss_0_5_percent";
const LOST_OF_COSTED: &str = "gre.lost_at_half_of_highest_rate";

/// Rows that need the found rate.
const HALF_RATE: [&str; 6] = [THROUGHPUT, PARTIAL, LOST, REORDERED, DUPLICATED, LOST_OF_COSTED];

const FLOWS: u32 = 100;
/// Lowest rate of a search for a rate without loss, in packets a second.
const SLOWEST: f64 = 10_000.0;
/// Highest rate of a search, as a multiple of the rate with half a percent loss in short trials.
const HIGHEST: f64 = 1.3;

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let mut books = Books::default();
    if run.wants_any(&HALF_RATE) {
        // What they start from.
        run.want(RATE);
    }
    for (index, part) in comparison::parts(run.promises())?.iter().enumerate() {
        if run.is_out_of_time() {
            run.leave_out(format!("{:?} with frames of {} bytes", part.task, part.frame_bytes));
            continue;
        }
        books.unaccounted += comparison::hold(run, part)?.unaccounted;
        // What a quick run has time for comes first.
        if index == 0 {
            if run.wants_any(&HALF_RATE) {
                half_rate(run, &mut books)?;
            }
            chain::measure(run)?;
        }
    }
    run.record_count(UNACCOUNTED, books.unaccounted);
    Ok(())
}

/// The throughputs of RFC 9971, without loss and with a little, and half of the first for a long time; beside it,
/// half of the rate at which the costs were taken.
fn half_rate(run: &mut Run, books: &mut Books) -> anyhow::Result<()> {
    let Some(found) = run.value(RATE) else {
        HALF_RATE.iter().for_each(|row| run.missing(row, "no rate was found"));
        return Ok(());
    };
    let setup = Setup::new(Contender::Polder, Task::Encapsulate, 64, FLOWS);
    let mut testbed = Testbed::lay(setup)?;
    let Some(lossless) = throughputs(run, &mut testbed, found * 1e6)? else {
        HALF_RATE.iter().for_each(|row| run.missing(row, "no load is forwarded without loss"));
        return Ok(());
    };
    let time = Duration::from_secs(run.quick_or(2, 10));
    run.says(&format!("half of the throughput, {} s", time.as_secs()));
    let latency = at_rate(run, &mut testbed, lossless / 2.0, time, [LOST, REORDERED, DUPLICATED])?;
    run.says(&format!("half of the highest rate, {} s", time.as_secs()));
    let faster = at_rate(run, &mut testbed, found * 1e6 / 2.0, time, [LOST_OF_COSTED, "", ""])?;
    books.unaccounted += testbed.unaccounted()?.map_or(0, i64::unsigned_abs);
    let lines = [("half of the throughput", latency), ("half of the highest rate", faster)];
    run.curve(Curve {
        title: "Latency of encapsulation, 64 bytes".to_owned(),
        x: "percentile".to_owned(),
        y: "µs".to_owned(),
        lines: lines.map(|(name, latency)| (name.to_owned(), quantiles(&latency))).into(),
    });
    Ok(())
}

/// Searches the throughputs of both goals (RFC 9971). Their samples are what the trials of the lower bound
/// forwarded. Returns the one without loss, in packets a second.
fn throughputs(run: &mut Run, testbed: &mut Testbed, known: f64) -> anyhow::Result<Option<f64>> {
    let (trial, sum) = run.quick_or((250, 1), (1000, 21));
    let goal = |loss_ratio| SearchGoal {
        loss_ratio,
        exceed_ratio: 0.5,
        width: 0.02,
        trial: Duration::from_millis(trial),
        sum: Duration::from_secs(sum),
    };
    let goals = [(goal(0.0), THROUGHPUT), (goal(comparison::LOSS), PARTIAL)];
    let mut search = Search::new(goals.map(|(goal, _)| goal), (SLOWEST, known * HIGHEST));
    while let Some((load, time)) = search.next() {
        run.says(&format!("throughput, trial {} at {:.3} Mpps", search.trials().len() + 1, load / 1e6));
        let trial = testbed.run(&Plan::steady(load, time))?;
        // Packets that the generator could not send are not forwarded.
        let loss_ratio = if trial.reached(load) { trial.loss() } else { 1.0 - trial.rate() / load };
        search.tell(Trial { load, time, loss_ratio: loss_ratio.clamp(0.0, 1.0) });
    }
    for (goal, row) in &goals {
        let Some(GoalResult { throughput, lower, upper }) = search.result(goal) else {
            run.missing(row, "no load reaches the goal");
            continue;
        };
        let trials = search.full_length(goal, lower);
        run.record(row, &trials.map(|trial| trial.load * (1.0 - trial.loss_ratio) / 1e6).collect());
        let upper = upper.map_or_else(|| "no".to_owned(), |upper| format!("{:.3}", upper / 1e6));
        run.remark(
            row,
            format!(
                "conditional throughput {:.3}; lower bound {:.3}, {upper} upper bound; {} trials of {trial} ms and less; \
                 loss ratio {} %, exceed ratio 50 %, duration sum {sum} s, width 2 %",
                throughput / 1e6,
                lower / 1e6,
                search.trials().len(),
                goal.loss_ratio * 100.0,
            ),
        );
    }
    Ok(search.result(&goals[0].0).map(|result| result.throughput))
}

/// Sends for a long time, fills the rows of loss, order and duplicates (none for an empty name), and says
/// where packets were lost. Returns the latencies.
fn at_rate(
    run: &mut Run,
    testbed: &mut Testbed,
    rate: f64,
    time: Duration,
    rows: [&'static str; 3],
) -> anyhow::Result<Histogram<u64>> {
    let (trial, Detail { outcome: Outcome { arrivals, latency }, lost, absences }) =
        testbed.explained(&Plan::steady(rate, time))?;
    let counts = [arrivals.lost, arrivals.reordered, arrivals.duplicated];
    for (row, count) in rows.into_iter().zip(counts).filter(|(row, _)| !row.is_empty()) {
        run.record_count(row, count);
        let (mpps, seconds) = (trial.sent.rate() / 1e6, time.as_secs());
        let mut remark = format!("of {} in {seconds} s at {mpps:.3} Mpps", arrivals.sent);
        if row.contains("lost") {
            remark.push_str(&format!("; {lost}; {}", told(absences.as_deref())));
        }
        run.remark(row, remark);
    }
    Ok(latency)
}

/// Percentiles of a histogram of nanoseconds, in microseconds.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn quantiles(latency: &Histogram<u64>) -> Vec<(f64, f64)> {
    let at = |percent: f64| (percent, latency.value_at_quantile(percent / 100.0) as f64 / 1e3);
    (0..=99).map(|percent| at(f64::from(percent))).chain([99.5, 99.9, 99.99].map(at)).collect()
}
