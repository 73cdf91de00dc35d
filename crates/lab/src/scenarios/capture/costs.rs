//! Cost of a capture per packet, in memory.
//!
//! There is one gateway, whose captures come and go: two gateways differ by where their memory lies, by as much as a capture costs. A window
//! with the capture stands between two without one, all of them short, and is compared with these two alone: what the machine does meanwhile is in
//! all three. Many such pairs give a median, and between which values it lies.

use super::super::engine::harness::{Harness, Path};
use super::{Looks, Reader, Run, UNMATCHED, begin};
use anyhow::ensure;
use polder::runtime::worker::Command;
use polder_datapath::filter::Filters;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use std::time::Duration;

const FLOWS: u32 = 1000;
/// Waiting time after the first packets, and after the start or end of a capture.
const WARM_UP: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_millis(1);

/// Capture filter, and its cost so far.
struct Candidate {
    looks: Looks,
    row: &'static str,
    /// Nanoseconds a packet.
    costs: Samples,
    /// Percent more than without.
    differences: Samples,
    counters: Counters,
}

/// Counters of its captures.
#[derive(Default)]
struct Counters {
    asked: u64,
    matched: u64,
    lost: u64,
}

pub(super) fn measure(run: &mut Run, core: usize, other: usize) -> anyhow::Result<()> {
    let (rounds, time) = run.quick_or((50, 5), (250, 5));
    let mut candidates = wanted(run);
    if candidates.is_empty() {
        return Ok(());
    }
    let harness = Harness::filtering(Path::Encapsulate, FLOWS, core, Filters::none())?;
    let begin = harness.read()?;
    harness.open(true);
    interrupt::sleep(WARM_UP)?;
    for round in 1..=rounds {
        if round % 10 == 1 {
            run.says(&format!("cost, pair {round} of {rounds}"));
        }
        for candidate in &mut candidates {
            candidate.pair(&harness, Duration::from_millis(time), other)?;
        }
    }
    harness.open(false);
    interrupt::sleep(WARM_UP)?;
    let all = harness.read()?.since(&begin);
    ensure!(all.sent * 1000 >= all.packets * 999, "a capture loses traffic: {all:?}");
    let left = harness.stop()?;
    ensure!(left.leaked == 0 && left.unaccounted == 0, "{left:?}");
    candidates.into_iter().for_each(|candidate| candidate.record(run));
    Ok(())
}

fn wanted(run: &Run) -> Vec<Candidate> {
    let of = |(looks, row)| Candidate {
        looks,
        row,
        costs: Samples::default(),
        differences: Samples::default(),
        counters: Counters::default(),
    };
    let all = [
        (Looks::Off, "capture.cost_percent.off"),
        (Looks::Unmatched, UNMATCHED),
        (Looks::Dhcp, "capture.cost_percent.dhcp"),
        (Looks::All, "capture.cost_percent.all"),
        (Looks::Clone, "capture.cost_percent.clone"),
        (Looks::FourUnmatched, "capture.control.four_unmatched.cost_percent"),
    ];
    all.into_iter().filter(|(_, row)| run.wants(row)).map(of).collect()
}

impl Candidate {
    /// A window without, one as long as two of these with, and one without.
    fn pair(&mut self, harness: &Harness, time: Duration, other: usize) -> anyhow::Result<()> {
        let before = cost(harness, time)?;
        let count = match self.looks {
            Looks::Off => 0,
            Looks::FourUnmatched => 4,
            Looks::Unmatched | Looks::Dhcp | Looks::All | Looks::Clone => 1,
        };
        let mut readers = Vec::new();
        for capture in 0..count {
            readers.extend(
                begin(|command| harness.tell(command), self.looks, (capture, 0), Some(other))?
                    .map(|reader| (capture, reader)),
            );
        }
        readers.iter().for_each(|(_, reader)| reader.wake(true));
        let with = cost(harness, time * 2)?;
        for (capture, reader) in readers {
            harness.tell(Command::Untap(capture))?;
            self.counters.add(reader)?;
        }
        let without = f64::midpoint(before, cost(harness, time)?);
        self.costs.push(with);
        self.differences.push((with / without - 1.0) * 100.0);
        Ok(())
    }

    fn record(self, run: &mut Run) {
        let Self { row, costs, differences, counters: Counters { asked, matched, lost }, .. } = self;
        let mut remark = format!("{:.1} ns a packet", costs.median().unwrap_or(0.0));
        if let Some((low, high)) = differences.interval() {
            remark.push_str(&format!(
                "; median of {} pairs, 95 %: {low:.2} to {high:.2} %",
                differences.count()
            ));
        }
        if asked > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a percentage")]
            let share = lost as f64 / matched.max(1) as f64 * 100.0;
            remark.push_str(&format!(
                "; of {asked} packets {matched} matched, of which {lost} found no room on their way to the file ({share:.0} %)"
            ));
        }
        run.record(row, &differences);
        run.remark(row, remark);
    }
}

impl Counters {
    fn add(&mut self, reader: Reader) -> anyhow::Result<()> {
        let (asked, matched, lost) = reader.stop()?;
        *self = Self { asked: self.asked + asked, matched: self.matched + matched, lost: self.lost + lost };
        Ok(())
    }
}

/// CPU time of a packet, in nanoseconds.
fn cost(harness: &Harness, time: Duration) -> anyhow::Result<f64> {
    interrupt::sleep(SETTLE)?;
    let before = harness.read()?;
    interrupt::sleep(time)?;
    Ok(harness.read()?.since(&before).nanos_per_packet())
}
