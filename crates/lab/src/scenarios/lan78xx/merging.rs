//! A6: segments that a machine's stack receives as one. TCP from a station, through the adapter and a
//! gateway, into the stack of the gateway's machine.

use super::frames::Protocol;
use super::harness::Way;
use super::output::{Output, Plan};
use super::rows::{A6, TO_STACK, TO_STACK_LONGER};
use super::{Run, Testbed};
use anyhow::Context as _;
use polder_devices::lan78xx::{Options, Techniques};
use polder_testbed::meters::statistics::Samples;

/// Twenty frames at 1 Gbit/s, in microseconds; what the adapter usually waits for has room for eleven.
const LONGER: u16 = 300;

/// One combination of the driver's techniques and merging.
struct Column {
    techniques: Techniques,
    coalesce: bool,
    gather_us: u16,
    mbit: Samples,
    cost: Samples,
    /// Packets to the stack for each Mbit.
    to_stack: Samples,
}

/// Fills the rows of A6.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let usual = Options::default().gather_us;
    let all = [
        (Techniques::OFF, false, usual),
        (Techniques::OFF, true, usual),
        (Techniques::ON, false, usual),
        (Techniques::ON, true, usual),
        (Techniques::ON, true, LONGER),
    ];
    let mut columns = all.map(Column::new);
    let seconds = run.quick_or(1, 3);
    for sample in 0..stand.samples {
        for (number, column) in columns.iter_mut().enumerate() {
            run.says(&format!("merging for the stack, {number} of {}, {}", all.len(), sample + 1));
            column.take(stand, seconds)?;
        }
    }
    let [plain, merging, on, on_merging, longer] = &columns;
    run.record(A6[0], &merging.mbit);
    run.record(A6[1], &merging.cost);
    let text = |column: &Column| {
        let [mbit, cost, to_stack] =
            [&column.mbit, &column.cost, &column.to_stack].map(|of| of.median().unwrap_or_default());
        format!("{mbit:.0} Mbit/s, {cost:.0} ns a packet, {to_stack:.1} packets to the stack a Mbit")
    };
    run.remark(
        A6[0],
        format!(
            "TCP through the adapter and a gateway into its machine's stack, time of the gateway's worker; A6 alone {}; \
             nothing {}; A1 to A5 without A6 {}; all {}; all, and transfers held back for {LONGER} µs {}",
            text(merging),
            text(plain),
            text(on),
            text(on_merging),
            text(longer)
        ),
    );
    for (row, merged) in [(TO_STACK, on_merging), (TO_STACK_LONGER, longer)] {
        run.record(row, &merged.to_stack.over(&on.to_stack).into_iter().collect());
    }
    Ok(())
}

/// Mbit/s of TCP into the machine's stack with all techniques of the driver, and merging or not.
pub(super) fn rate(stand: &Testbed, coalesce: bool, seconds: u32) -> anyhow::Result<f64> {
    let mut column = Column::new((Techniques::ON, coalesce, Options::default().gather_us));
    column.take(stand, seconds)?;
    column.mbit.median().context("nothing was measured")
}

impl Column {
    fn new((techniques, coalesce, gather_us): (Techniques, bool, u16)) -> Self {
        let (mbit, cost, to_stack) = (Samples::new(), Samples::new(), Samples::new());
        Self { techniques, coalesce, gather_us, mbit, cost, to_stack }
    }

    fn take(&mut self, stand: &Testbed, seconds: u32) -> anyhow::Result<()> {
        let plan = Plan {
            techniques: self.techniques,
            coalesce: self.coalesce,
            gather_us: self.gather_us,
            ..Plan::usual(stand.cores)
        };
        let output = Output::lay(&plan)?;
        let before = output.count()?;
        let carried = output.carry(Protocol::Tcp, Way::Receive, seconds)?;
        let after = output.count()?;
        let packets = count(after.adapter - before.adapter);
        self.mbit.push(carried.mbit);
        self.cost.push((after.cpu - before.cpu).as_secs_f64() * 1e9 / packets.max(1.0));
        self.to_stack.push(count(after.to_stack - before.to_stack) / carried.megabits.max(1.0));
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of packets is far below 2^52")]
fn count(packets: u64) -> f64 {
    packets as f64
}
