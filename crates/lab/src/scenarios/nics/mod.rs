//! Kernels with network drivers, in guests: Polder between two cards of each model, with defaults.

mod bench;
mod cells;
mod changes;
mod checks;
mod forward;
mod frames;
mod judge;
mod layers;
pub mod page;
mod rates;
mod shuttle;

pub use cells::{Above, Adapter, CARDS, Column, KERNELS};
pub use forward::forward;

use super::judges::count;
use super::{Run, Scenario};
use anyhow::Context as _;
use bench::Bench;
use checks::Cell;
use polder_testbed::clock;
use polder_testbed::guest::Kernel;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::topology::Topology;
use std::path::Path;
use std::time::Duration;

const CELLS: &str = "nics.cells";
const INJECTED: &str = "nics.injected_frames";
const INJECTED_CONTROL: &str = "nics.injected_frames.control";
const INJECTED_METER: &str = "nics.injected_frames.meter";
const UNTAGGED: &str = "nics.untagged_leaks";
const UNTAGGED_CONTROL: &str = "nics.untagged_leaks.control";
const FALSE_ALARMS: &str = "nics.check.false_alarms";
const MISSED: &str = "nics.check.missed";
/// Rows that count over all cells: a report of several parts has their sums.
pub const SUMS: [&str; 8] =
    [CELLS, INJECTED, INJECTED_CONTROL, INJECTED_METER, UNTAGGED, UNTAGGED_CONTROL, FALSE_ALARMS, MISSED];
/// The middle of a row's name behind that of its cell.
const PASSED: &str = "checks_passed";
const FAILED: &str = "checks_failed";
const RATIO: &str = "tcp_ratio_vs_bridge";

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "nics",
    about: "guests with Debian's kernels and emulated network cards: Polder with defaults on each driver",
    needs_root: true,
    rows: include_str!("../rows/nics.rows"),
    measure,
};

/// Result of a cell.
#[derive(Clone, Debug, Default)]
pub struct CellVerdict {
    /// Checks that Polder passed.
    pub passed: Vec<String>,
    /// Checks that it did not, and why.
    pub failed: Vec<String>,
    /// Mode in which its ports were attached.
    pub mode: String,
    /// Lines of `ethtool -k` about tag stripping before the first start.
    pub offloads: Vec<String>,
    /// Frames that were sent and compared.
    pub frames: usize,
    /// Frames of a sender that only payloads name.
    pub injected: usize,
    /// Injected frames when frames were sent in two parts: the number that the meter must find.
    pub injected_meter: usize,
    /// Injected frames with zero copy in slots that the driver may shorten, without Polder's check.
    pub injected_control: usize,
    /// The last words of the program without the guard.
    pub plain: String,
    /// Frames that lost their tag.
    pub untagged: usize,
    /// Untagged frames with the offload enabled without Polder's knowledge: the number that the meter must find.
    pub untagged_control: usize,
    /// Checks that the cell cannot be asked, and why.
    pub not_run: Vec<String>,
    /// Warnings of `polder check` that did not come true, or stayed with their cure.
    pub false_alarms: Vec<String>,
    /// Faults that `polder check` did not warn of.
    pub missed: Vec<String>,
    /// TCP in Mbit/s, both ways added, through Polder and through the bridge of the guest's kernel, in turns.
    pub rates: Vec<[f64; 2]>,
    /// Time from kill -9 until the kernel answered by the interface.
    pub after_kill: Option<Duration>,
    /// Duration of the cell.
    pub took: Duration,
}

/// Fails where a cell cannot be examined.
///
/// # Errors
/// The missing program or kernel module, and how to get it.
pub fn available(kernel: &Kernel, adapter: &Adapter) -> anyhow::Result<()> {
    bench::available(kernel, adapter)
}

/// Boots a guest with two cards of a model and examines Polder between them. `program` is `polder-lab`; of all lengths
/// of frames every `stride`th is sent.
///
/// # Errors
/// When the guest cannot be had, or the gateway in it does not start at all.
pub fn examine(
    program: &Path,
    kernel: &Kernel,
    adapter: &Adapter,
    (stride, turns): (usize, (usize, usize)),
    says: &dyn Fn(&str),
) -> anyhow::Result<CellVerdict> {
    let start = clock::now();
    let mut topology = Topology::new()?;
    says("boots");
    let mut bench = Bench::boot(&mut topology, program, kernel, adapter)?;
    let mut cell =
        Cell { bench: &mut bench, stride, turns, told: Vec::new(), verdict: CellVerdict::default() };
    cell.examine(says)?;
    let mut verdict = cell.verdict;
    bench.guest.power_off()?;
    verdict.took = clock::now() - start;
    Ok(verdict)
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("the guest", "any", "two emulated processors");
    run.place("the far ends", "any", "TAPs in namespaces");
    let (mut ran, mut not_run) = (Vec::new(), Vec::new());
    for column in KERNELS {
        let kernel = column.find();
        for adapter in CARDS {
            let name = format!("nics.{}.{}", column.name, adapter.name);
            let rows = [PASSED, FAILED, RATIO].map(|what| format!("{name}.{what}"));
            if !run.wants_any(&rows) && !run.wants_any(&SUMS) {
                continue;
            }
            if run.is_out_of_time() {
                run.leave_out(format!("{} with the kernel `{}`: out of time", adapter.name, column.name));
                continue;
            }
            let verdict = measure_cell(run, &program, kernel.as_ref(), column, &adapter);
            polder_testbed::interrupt::check()?;
            match verdict {
                Ok((version, verdict)) => {
                    record(run, &rows, &version, &verdict);
                    ran.push((name, verdict));
                }
                Err(reason) => {
                    rows.iter().for_each(|row| run.missing(row, format!("{reason:#}")));
                    not_run.push(name);
                }
            }
        }
    }
    totals(run, &ran, &not_run);
    Ok(())
}

fn measure_cell(
    run: &Run,
    program: &Path,
    kernel: Result<&Kernel, &anyhow::Error>,
    column: Column,
    adapter: &Adapter,
) -> anyhow::Result<(String, CellVerdict)> {
    let kernel = kernel.map_err(|reason| anyhow::anyhow!("{reason:#}"))?;
    available(kernel, adapter)?;
    let says = |what: &str| run.says(&format!("{} {}: {what}", column.name, adapter.name));
    let (stride, turns) = run.quick_or((29, (1, 1)), (7, (3, 2)));
    let verdict = examine(program, kernel, adapter, (stride, turns), &says)?;
    Ok((kernel.version().to_owned(), verdict))
}

fn record(run: &mut Run, [passed, failed, ratio]: &[String; 3], version: &str, verdict: &CellVerdict) {
    let CellVerdict { mode, frames, took, .. } = verdict;
    run.record_one(passed, count(verdict.passed.len()));
    let mut said = format!("{version}; {mode}; {frames} frames; {:.0} s", took.as_secs_f64());
    if let Some(time) = verdict.after_kill {
        said += &format!("; kernel back {:.1} s after kill -9", time.as_secs_f64());
    }
    if !verdict.not_run.is_empty() {
        said += &format!("; not run: {}", verdict.not_run.join("; "));
    }
    run.remark(passed, said);
    run.record_all(failed, &verdict.failed);
    let mut ratios = Samples::new();
    verdict.rates.iter().for_each(|[ours, theirs]| ratios.push(ours / theirs));
    if ratios.count() == 0 {
        return run.missing(ratio, "nothing was measured");
    }
    run.record(ratio, &ratios);
    let rates = verdict.rates.iter().map(|[ours, theirs]| format!("{ours:.0} : {theirs:.0}"));
    run.remark(
        ratio,
        format!("Mbit/s, Polder : bridge, both ways added: {}", rates.collect::<Vec<_>>().join(", ")),
    );
}

fn totals(run: &mut Run, ran: &[(String, CellVerdict)], not_run: &[String]) {
    if ran.is_empty() {
        return run.skip(&SUMS, "no cell has run");
    }
    let sum = |of: fn(&CellVerdict) -> usize| count(ran.iter().map(|(_, verdict)| of(verdict)).sum());
    run.record_one(CELLS, count(ran.len()));
    if !not_run.is_empty() {
        run.remark(CELLS, format!("not run: {}", not_run.join(", ")));
    }
    run.record_one(INJECTED, sum(|verdict| verdict.injected));
    run.remark(INJECTED, format!("{} frames were compared", sum(|verdict| verdict.frames)));
    run.record_one(INJECTED_CONTROL, sum(|verdict| verdict.injected_control));
    let by = ran.iter().filter(|(_, verdict)| verdict.injected_control > 0);
    let by = by.map(|(name, _)| name.clone());
    let others = ran.iter().filter(|(_, verdict)| verdict.injected_control == 0 && !verdict.plain.is_empty());
    let others = others.map(|(name, verdict)| format!("{name} none: {}", verdict.plain));
    run.remark(INJECTED_CONTROL, by.chain(others).collect::<Vec<_>>().join("; "));
    run.record_one(INJECTED_METER, sum(|verdict| verdict.injected_meter));
    run.record_one(UNTAGGED, sum(|verdict| verdict.untagged));
    run.record_one(UNTAGGED_CONTROL, sum(|verdict| verdict.untagged_control));
    let said = |of: fn(&CellVerdict) -> &Vec<String>| {
        let each = ran.iter().flat_map(|(name, verdict)| of(verdict).iter().map(move |text| (name, text)));
        each.map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    run.record_all(FALSE_ALARMS, &said(|verdict| &verdict.false_alarms));
    run.record_all(MISSED, &said(|verdict| &verdict.missed));
}
