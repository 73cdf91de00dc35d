//! Kernels with network drivers, in guests: Polder between two cards of each model, with defaults.

mod bench;
mod cells;
mod checks;
mod frames;

pub use cells::{CARDS, Column, KERNELS};

use super::{Goal, Promise, Run, Scenario};
use crate::clock;
use crate::guest::{Kernel, Model};
use crate::report::Better;
use crate::topology::Topology;
use anyhow::Context as _;
use bench::Bench;
use checks::Cell;
use std::path::Path;
use std::time::Duration;

const CELLS: &str = "nics.cells";
const INJECTED: &str = "nics.injected_frames";
const INJECTED_CONTROL: &str = "nics.injected_frames.control";
const UNTAGGED: &str = "nics.untagged_leaks";
const UNTAGGED_CONTROL: &str = "nics.untagged_leaks.control";

const fn promise(name: &'static str, unit: &'static str, better: Better, goal: Goal) -> Promise {
    Promise { name, unit, better, goal }
}

/// Rows of all cells, and those about all of them.
macro_rules! promises {
    ($($kernel:literal: $($card:literal)*;)*) => {
        &[
            $($(
                promise(concat!("nics.", $kernel, ".", $card, ".checks_passed"), "checks", Better::Higher, Goal::None),
                promise(concat!("nics.", $kernel, ".", $card, ".checks_failed"), "checks", Better::Lower, Goal::Value(0.0)),
            )*)*
            promise(CELLS, "cells", Better::Higher, Goal::Value(15.0)),
            promise(INJECTED, "frames", Better::Lower, Goal::Value(0.0)),
            promise(INJECTED_CONTROL, "frames", Better::Higher, Goal::Value(1.0)),
            promise(UNTAGGED, "frames", Better::Lower, Goal::Value(0.0)),
            promise(UNTAGGED_CONTROL, "frames", Better::Higher, Goal::Value(1.0)),
        ]
    };
}

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "nics",
    about: "guests with Debian's kernels and emulated network cards: Polder with defaults on each driver",
    needs_root: true,
    promises: promises! {
        "stable": "virtio" "virtio_plain" "e1000" "e1000e" "vmxnet3" "igb" "rtl8139";
        "backports": "virtio" "virtio_plain" "e1000" "e1000e" "vmxnet3" "igb" "rtl8139";
        "newest": "virtio" "virtio_plain" "e1000" "e1000e" "vmxnet3" "igb" "rtl8139";
    },
    measure,
};

/// What came of a cell.
#[derive(Clone, Debug, Default)]
pub struct CellVerdict {
    /// Checks that Polder passed.
    pub passed: Vec<String>,
    /// Checks that it did not, and why.
    pub failed: Vec<String>,
    /// How its ports were attached.
    pub mode: String,
    /// What `ethtool -k` said of taking tags off before the first start.
    pub offloads: Vec<String>,
    /// Frames that were sent and compared.
    pub frames: usize,
    /// Frames of a sender that only payloads name.
    pub injected: usize,
    /// The same when frames were sent in two parts: what the meter has to find.
    pub injected_control: usize,
    /// Frames that lost their tag.
    pub untagged: usize,
    /// The same with the offload switched on behind Polder's back: what the meter has to find.
    pub untagged_control: usize,
    /// What it took.
    pub took: Duration,
}

/// Whether a cell can be examined here.
///
/// # Errors
/// What is missing, and how to get it.
pub fn available(kernel: &Kernel, model: Model) -> anyhow::Result<()> {
    bench::available(kernel, model)
}

/// Boots a guest with two cards of a model and examines Polder between them. `program` is `polder-lab`; of all lengths
/// of frames every `stride`th is sent.
///
/// # Errors
/// When the guest cannot be had, or the gateway in it does not start at all.
pub fn examine(
    program: &Path,
    kernel: &Kernel,
    model: Model,
    stride: usize,
    says: &dyn Fn(&str),
) -> anyhow::Result<CellVerdict> {
    let start = clock::now();
    let mut topology = Topology::new()?;
    says("boots");
    let mut bench = Bench::boot(&mut topology, program, kernel, model)?;
    let mut cell = Cell { bench: &mut bench, stride, verdict: CellVerdict::default() };
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
    let (mut whole, mut cells, mut not_run) = (CellVerdict::default(), 0_usize, Vec::new());
    for column in KERNELS {
        let kernel = column.find();
        for (card, model) in CARDS {
            let rows = ["passed", "failed"].map(|what| format!("nics.{}.{card}.checks_{what}", column.name));
            let totals = [CELLS, INJECTED, INJECTED_CONTROL, UNTAGGED, UNTAGGED_CONTROL];
            if !run.wants_any(&[&rows[0], &rows[1]]) && !run.wants_any(&totals) {
                continue;
            }
            if run.is_out_of_time() {
                run.leave_out(format!("{card} with the kernel `{}`: out of time", column.name));
                continue;
            }
            let says = |what: &str| run.says(&format!("{} {card}: {what}", column.name));
            let stride = run.quick_or(29, 1);
            let verdict = match &kernel {
                Err(reason) => Err(anyhow::anyhow!("{reason:#}")),
                Ok(kernel) => available(kernel, model)
                    .and_then(|()| examine(&program, kernel, model, stride, &says))
                    .map(|verdict| (kernel.version().to_owned(), verdict)),
            };
            crate::interrupt::check()?;
            match verdict {
                Ok((version, verdict)) => {
                    cells += 1;
                    record(run, &rows, &version, &verdict);
                    whole.frames += verdict.frames;
                    whole.injected += verdict.injected;
                    whole.injected_control += verdict.injected_control;
                    whole.untagged += verdict.untagged;
                    whole.untagged_control += verdict.untagged_control;
                }
                Err(reason) => {
                    rows.iter().for_each(|row| run.missing(row, format!("{reason:#}")));
                    not_run.push(format!("{card} with {}", column.name));
                }
            }
        }
    }
    totals(run, &whole, cells, &not_run);
    Ok(())
}

fn record(run: &mut Run, [passed, failed]: &[String; 2], version: &str, verdict: &CellVerdict) {
    let CellVerdict { mode, frames, took, .. } = verdict;
    run.record_one(passed, count(verdict.passed.len()));
    run.remark(passed, format!("{version}; {mode}; {frames} frames; {:.0} s", took.as_secs_f64()));
    run.record_one(failed, count(verdict.failed.len()));
    if !verdict.failed.is_empty() {
        run.remark(failed, verdict.failed.join("; "));
    }
}

fn totals(run: &mut Run, whole: &CellVerdict, cells: usize, not_run: &[String]) {
    run.record_one(CELLS, count(cells));
    if !not_run.is_empty() {
        run.remark(CELLS, format!("not run: {}", not_run.join(", ")));
    }
    if cells == 0 {
        return run.skip(&[INJECTED, INJECTED_CONTROL, UNTAGGED, UNTAGGED_CONTROL], "no cell has run");
    }
    run.record_one(INJECTED, count(whole.injected));
    run.remark(INJECTED, format!("{} frames were compared", whole.frames));
    run.record_one(INJECTED_CONTROL, count(whole.injected_control));
    run.record_one(UNTAGGED, count(whole.untagged));
    run.record_one(UNTAGGED_CONTROL, count(whole.untagged_control));
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}
