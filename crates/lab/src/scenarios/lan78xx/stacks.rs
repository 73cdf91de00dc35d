//! Source A's table in its own form: TCP and UDP by real stacks through a gateway, and idle time, without the
//! techniques and with them.

use super::frames::Protocol;
use super::output::{Output, Plan};
use super::{FLOWS, Run, Testbed, rows};
use polder_devices::lan78xx::Techniques;

/// Length of the single long transfer, in seconds.
const LONG: u32 = 60;

/// Fills the rows of the gateway.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let seconds = run.quick_or(1, 6);
    let mut cells: [rows::Cells; FLOWS.len()] = Default::default();
    for round in 0..stand.samples {
        for (cells, (name, protocol, way)) in cells.iter_mut().zip(FLOWS) {
            for (on, cell) in cells.iter_mut().enumerate() {
                run.says(&format!(
                    "{name} by stacks, {}, {} of {}",
                    rows::BOTH[on],
                    round + 1,
                    stand.samples
                ));
                let carried = lay(stand, on == 1)?.carry(protocol, way, seconds)?;
                cell[0].push(carried.mbit);
                cell[1].push(carried.loss_percent);
                cell[2].push(carried.idle_percent);
            }
        }
    }
    for (cells, (name, ..)) in cells.iter().zip(FLOWS) {
        rows::record(run, &format!("lan78xx.gateway.{name}"), cells);
    }
    if run.is_quick() {
        run.leave_out(format!("{LONG} s of TCP"));
        return Ok(());
    }
    for (name, protocol, way) in FLOWS.into_iter().filter(|(_, protocol, _)| *protocol == Protocol::Tcp) {
        for (on, state) in rows::BOTH.into_iter().enumerate() {
            run.says(&format!("{name} by stacks, {state}, for {LONG} s"));
            let carried = lay(stand, on == 1)?.carry(protocol, way, LONG)?;
            let text =
                format!("once for {LONG} s: {:.0} Mbit/s, {:.1} % idle", carried.mbit, carried.idle_percent);
            run.remark(&format!("lan78xx.gateway.{name}.mbit.{state}"), text);
        }
    }
    Ok(())
}

fn lay(stand: &Testbed, on: bool) -> anyhow::Result<Output> {
    Output::lay(&Plan {
        techniques: if on { Techniques::ON } else { Techniques::OFF },
        coalesce: on,
        ..Plan::usual(stand.cores)
    })
}
