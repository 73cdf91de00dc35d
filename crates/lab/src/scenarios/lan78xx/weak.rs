//! Source A's table on a weaker machine than this one, which is imitated by a cost for each URB and each frame.

use super::harness::{self, Setting};
use super::{Case, Run, Testbed, cases};
use crate::scenarios::turns::in_turn;
use polder_datapath::units::Nanos;

/// A machine that sends as many frames as the source's Raspberry Pi 4B before its changes, one in a URB: 683 Mbit/s,
/// 56 700 frames a second, 17.6 µs a frame.
const URB: Nanos = Nanos(16_000);
const FRAME: Nanos = Nanos(1_600);

/// Fills the rows of the weak host.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let sheet = in_turn(
        run,
        stand.samples,
        cases(),
        |case| format!("{case}, weak host"),
        |case, sheet| {
            let (&Case { protocol, way, techniques, .. }, &Testbed { time, cores, .. }) = (&*case, stand);
            let setting =
                Setting { protocol, way, techniques, urb: URB, frame: FRAME, time, cores, pause: None };
            let outcome = harness::run(&setting)?;
            let busy = outcome.cpu.as_secs_f64() / time.as_secs_f64();
            let row = |what| case.row("lan78xx.weak_host", what);
            sheet.push(row("mbit"), outcome.mbit);
            sheet.push(row("loss_percent"), outcome.loss_percent);
            sheet.push(row("idle_percent"), 100.0 * (1.0 - busy).max(0.0));
            Ok(())
        },
    )?;
    sheet.record(run);
    let text = format!("{} ns for each URB and {} ns for each frame of the driver's thread", URB.0, FRAME.0);
    run.rows("lan78xx.weak_host.").iter().for_each(|row| run.remark(row, text.clone()));
    Ok(())
}
