//! Source A's table on a weaker machine than this one, which is imitated by a cost for each URB and each frame.

use super::harness::{self, Setting};
use super::{FLOWS, Run, Testbed, rows};
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::Techniques;
use polder_testbed::interrupt;

/// A machine that sends as many frames as the source's Raspberry Pi 4B before its changes, one in a URB: 683 Mbit/s,
/// 56 700 frames a second, 17.6 µs a frame.
const URB: Nanos = Nanos(16_000);
const FRAME: Nanos = Nanos(1_600);

/// Fills the rows of the weak host.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    for (name, protocol, way) in FLOWS {
        let mut cells = rows::Cells::default();
        for round in 0..stand.samples {
            for (on, techniques) in [Techniques::OFF, Techniques::ON].into_iter().enumerate() {
                interrupt::check()?;
                run.says(&format!("{name}, weak host, {} of {}", round + 1, stand.samples));
                let Testbed { time, cores, .. } = *stand;
                let setting =
                    Setting { protocol, way, techniques, urb: URB, frame: FRAME, time, cores, pause: None };
                let outcome = harness::run(&setting)?;
                let busy = outcome.cpu.as_secs_f64() / time.as_secs_f64();
                cells[on][0].push(outcome.mbit);
                cells[on][1].push(outcome.loss_percent);
                cells[on][2].push(100.0 * (1.0 - busy).max(0.0));
            }
        }
        rows::record(run, &format!("lan78xx.weak_host.{name}"), &cells);
    }
    let text = format!("{} ns for each URB and {} ns for each frame of the driver's thread", URB.0, FRAME.0);
    run.rows("lan78xx.weak_host.").iter().for_each(|row| run.remark(row, text.clone()));
    Ok(())
}
