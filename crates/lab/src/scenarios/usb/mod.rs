//! USB network functions: Linux as judge of drivers and models, frames through NCM, signalling beside data, and the
//! buffers of received blocks.

pub(super) mod blocks;
mod counted;
mod packing;
mod signalling;
mod volume;

pub use blocks::inside as receive_under_pressure;

use super::{Goal, Promise, Run, Scenario};
use crate::report::Better;
use anyhow::Context as _;
use polder_devices::cdc::Subclass;
use polder_judges::usb::{self, Judgement};
use std::path::Path;
use std::time::Duration;

/// Rows of one judge: passed, failed, broken subjects found.
type Rows = [&'static str; 3];

const NCM: Rows =
    ["usb.ncm_gadget.checks_passed", "usb.ncm_gadget.checks_failed", "usb.ncm_gadget.mutants_caught"];
const ECM: Rows =
    ["usb.ecm_gadget.checks_passed", "usb.ecm_gadget.checks_failed", "usb.ecm_gadget.mutants_caught"];
const CDC_NCM: Rows =
    ["usb.cdc_ncm.checks_passed", "usb.cdc_ncm.checks_failed", "usb.cdc_ncm.mutants_caught"];
const CDC_ETHER: Rows =
    ["usb.cdc_ether.checks_passed", "usb.cdc_ether.checks_failed", "usb.cdc_ether.mutants_caught"];
const CDC_MBIM: Rows =
    ["usb.cdc_mbim.checks_passed", "usb.cdc_mbim.checks_failed", "usb.cdc_mbim.mutants_caught"];
const USBIP_HOST: Rows =
    ["usb.usbip_host.checks_passed", "usb.usbip_host.checks_failed", "usb.usbip_host.mutants_caught"];

const JUDGES: [Rows; 6] = [NCM, ECM, CDC_NCM, CDC_ETHER, CDC_MBIM, USBIP_HOST];

/// Direction and goal of each row of a judge.
const GOALS: [(Better, f64); 3] = [(Better::Higher, 20.0), (Better::Lower, 0.0), (Better::Higher, 6.0)];

const fn promise(name: &'static str, (better, goal): (Better, f64)) -> Promise {
    Promise { name, unit: "checks", better, goal: Goal::Value(goal) }
}

/// Rows of single measurements.
const SINGLE: [Promise; 8] = [
    volume::LOST,
    counted::NOT_SENT,
    packing::FILL,
    packing::RATIO,
    packing::NANOS[0],
    packing::NANOS[1],
    signalling::RATIO[0],
    signalling::RATIO[1],
];

const PROMISES: &[Promise] = &{
    const JUDGED: usize = JUDGES.len() * GOALS.len();
    const BLOCKS: &[Promise] = blocks::ROWS.as_flattened();
    let mut all = [SINGLE[0]; JUDGED + SINGLE.len() + BLOCKS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < JUDGED {
            promise(JUDGES[at / GOALS.len()][at % GOALS.len()], GOALS[at % GOALS.len()])
        } else if at < JUDGED + SINGLE.len() {
            SINGLE[at - JUDGED]
        } else {
            BLOCKS[at - JUDGED - SINGLE.len()]
        };
        at += 1;
    }
    all
};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "usb",
    about: "Linux judges USB drivers and models; frames through NCM; signalling beside data",
    needs_root: false,
    promises: PROMISES,
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    volume::measure(run)?;
    counted::measure(run)?;
    packing::measure(run)?;
    signalling::measure(run)?;
    blocks::measure(run)?;
    let gadget = |subclass| move |program: &Path, says: &dyn Fn(&str)| usb::examine(program, subclass, says);
    let kernel =
        |subclass| move |program: &Path, says: &dyn Fn(&str)| usb::kernel::examine(program, subclass, says);
    judge(run, NCM, usb::available().map(drop), gadget(Subclass::Ncm))?;
    judge(run, ECM, usb::available().map(drop), gadget(Subclass::Ecm))?;
    judge(run, CDC_NCM, usb::kernel::available().map(drop), kernel(Subclass::Ncm))?;
    judge(run, CDC_ETHER, usb::kernel::available().map(drop), kernel(Subclass::Ecm))?;
    judge(run, CDC_MBIM, usb::mbim::available().map(drop), usb::mbim::examine)?;
    judge(run, USBIP_HOST, usb::usbip_host::available().map(drop), usb::usbip_host::examine)
}

/// Lets one judge examine what is honest and what is broken.
fn judge(
    run: &mut Run,
    rows: Rows,
    available: anyhow::Result<()>,
    examine: impl FnOnce(&Path, &dyn Fn(&str)) -> anyhow::Result<Judgement>,
) -> anyhow::Result<()> {
    if !run.wants_any(&rows) {
        return Ok(());
    }
    if let Err(reason) = available {
        run.skip(&rows, &format!("{reason:#}"));
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    run.place("driver or model", "any", "thread of this process");
    run.place("the guest", "any", "emulated processor");
    let verdict = examine(&program, &|what| run.says(what))?;
    record(run, rows, &verdict);
    Ok(())
}

fn record(run: &mut Run, [passed, failed, caught]: Rows, verdict: &Judgement) {
    let count = |list: &[String]| u32::try_from(list.len()).map_or(f64::MAX, f64::from);
    let took = verdict.took.iter().map(|(_, time)| *time).sum::<Duration>();
    run.record_one(passed, count(&verdict.passed));
    run.remark(passed, format!("{}; took {:.0} s", verdict.kernel, took.as_secs_f64()));
    run.record_one(failed, count(&verdict.failed));
    if !verdict.failed.is_empty() {
        run.remark(failed, verdict.failed.join("; "));
    }
    run.record_one(caught, count(&verdict.caught));
    run.remark(caught, verdict.caught.join("; "));
    if !verdict.missed.is_empty() {
        run.remark(caught, format!("not found out: {}", verdict.missed.join(", ")));
    }
}
