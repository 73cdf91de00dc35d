//! Other work on the core of an overloaded datapath: what is left for a process that computes, and how late
//! one is woken that asks for it every millisecond.

use super::loads::ROUNDS;
use super::{COST_US, RECEIVING_US, books, lay};
use crate::scenarios::Run;
use crate::scenarios::testbed::cores;
use crate::scenarios::turns::rounds;
use polder_testbed::peers::asks::Asks;
use polder_testbed::peers::echo::{Over, Service, Settings};
use polder_testbed::peers::neighbour::{Neighbour, Work};
use polder_testbed::traffic::raw::Plan;
use std::time::Duration;

/// Error of the datapath's share of the core against `cpu_share`, in percentage points.
pub(super) const SHARE: &str = "overload.neighbour.share_error_points";
/// Wake-up latency of the other process.
pub(super) const WAKE: &str = "overload.neighbour.wake_p99_us";

/// Values of `cpu_share`: one below what two busy threads get from the scheduler, and the half.
const PROMISED: [u8; 2] = [30, 50];
/// Offered, as a multiple of the capacity.
const FAR: f64 = 10.0;

pub(super) fn measure(run: &mut Run, unaccounted: &mut u64) -> anyhow::Result<()> {
    run.place("neighbours", cores().0, "one that computes, one that is woken every millisecond; ordinary");
    let alone = alone(run)?;
    let sheet = rounds(run, run.quick_or(1, ROUNDS), "neighbours, with each promise", |sheet| {
        let (mut worst, mut latest) = (0.0_f64, 0.0_f64);
        for promised in PROMISED {
            let over = Over::Polder(Settings { share: promised, ..Settings::DEFAULT });
            let seen = beside(run, over, unaccounted)?;
            worst = worst.max((seen.share - f64::from(promised)).abs());
            latest = latest.max(seen.late[1]);
            sheet.push(format!("share of {promised}"), seen.share);
            sheet.push(format!("rate of {promised}"), seen.rate);
        }
        sheet.push(SHARE, worst);
        sheet.push(WAKE, latest);
        Ok(())
    })?;
    sheet.record(run);
    let kernel = beside(run, Over::KernelThreaded, unaccounted)?;
    let text = PROMISED.map(|promised| {
        let [share, rate] = ["share", "rate"].map(|what| sheet.median(&format!("{what} of {promised}")));
        format!("{share:.1} of {promised} %, {rate:.0} requests/s")
    });
    run.remark(SHARE, format!("{}; the kernel {:.1} %", text.join("; "), kernel.share));
    run.remark(
        WAKE,
        format!("{:.0} beside the kernel's receiving, {:.0} without a datapath", kernel.late[1], alone[1]),
    );
    Ok(())
}

struct ShareResult {
    /// The datapath's part of the core, in percent.
    share: f64,
    late: [f64; 3],
    rate: f64,
}

/// Measures both neighbours without a gateway.
fn alone(run: &Run) -> anyhow::Result<[f64; 3]> {
    run.says("neighbours without a datapath");
    let time = Duration::from_millis(run.quick_or(800, 3000));
    let core = cores().0;
    let _busy = Neighbour::start(Work::Compute, core)?;
    let mut woken = Neighbour::start(Work::Wake, core)?;
    polder_testbed::interrupt::sleep(time)?;
    woken.lateness()
}

fn beside(run: &Run, over: Over, unaccounted: &mut u64) -> anyhow::Result<ShareResult> {
    let time = Duration::from_millis(run.quick_or(1000, 1500));
    let rate = FAR * 1e6 / (f64::from(COST_US) + RECEIVING_US);
    let core = cores().0;
    let mut testbed = lay(Service { asks: Asks::Echo, over, cost_us: COST_US })?;
    let mut woken = Neighbour::start(Work::Wake, core)?;
    let _busy = Neighbour::start(Work::Compute, core)?;
    // What came before is not of the run.
    woken.lateness()?;
    let trial = testbed.run(&Plan::steady(rate, time))?;
    let late = woken.lateness()?;
    let share = trial.device.as_secs_f64() / trial.sent.time.as_secs_f64() * 100.0;
    *unaccounted += books(&mut testbed)?;
    Ok(ShareResult { share, late, rate: trial.rate_in_time() })
}
