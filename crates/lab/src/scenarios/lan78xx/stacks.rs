//! Source A's table in its own form: TCP and UDP by real stacks through a gateway, and idle time, without the
//! techniques and with them.

use super::frames::Protocol;
use super::output::{Output, Plan};
use super::{Case, Run, Testbed, cases};
use crate::scenarios::turns::in_turn;
use polder_devices::lan78xx::Techniques;

/// Length of the single long transfer, in seconds.
const LONG: u32 = 60;

/// Fills the rows of the gateway.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let seconds = run.quick_or(1, 6);
    let sheet = in_turn(run, stand.samples, cases(), Case::to_string, |case, sheet| {
        let carried = lay(stand, case.techniques)?.carry(case.protocol, case.way, seconds)?;
        let row = |what| case.row("lan78xx.gateway", what);
        sheet.push(row("mbit"), carried.mbit);
        sheet.push(row("loss_percent"), carried.loss_percent);
        sheet.push(row("idle_percent"), carried.idle_percent);
        Ok(())
    })?;
    sheet.record(run);
    if run.is_quick() {
        run.leave_out(format!("{LONG} s of TCP"));
        return Ok(());
    }
    for case in cases().into_iter().filter(|case| case.protocol == Protocol::Tcp) {
        run.says(&format!("{case}, by stacks for {LONG} s"));
        let carried = lay(stand, case.techniques)?.carry(case.protocol, case.way, LONG)?;
        let text =
            format!("once for {LONG} s: {:.0} Mbit/s, {:.1} % idle", carried.mbit, carried.idle_percent);
        run.remark(&case.row("lan78xx.gateway", "mbit"), text);
    }
    Ok(())
}

fn lay(stand: &Testbed, techniques: Techniques) -> anyhow::Result<Output> {
    Output::lay(&Plan { techniques, coalesce: techniques == Techniques::ON, ..Plan::usual(stand.cores) })
}
