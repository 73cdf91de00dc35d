//! Best supply of a receive ring: the threshold below which it is refilled, and the length up to which
//! packets are copied out of their frames. A gateway that bridges two veths over AF_XDP is what says so.

use crate::scenarios::Run;
use crate::scenarios::testbed::{Contender, Setup, Testbed, cores};
use crate::scenarios::turns::in_turn;
use polder_testbed::peers::{Receiving, Task};
use polder_testbed::traffic::raw::{Faults, Plan};
use std::time::Duration;

/// The usual one.
pub(super) const USUAL: Receiving = Receiving { refill_below_percent: 67, copy_break: 0 };
/// Settings that are compared, by the name in the rows.
const SETTINGS: [(&str, Receiving); 7] = [
    ("refill_1", Receiving { refill_below_percent: 1, ..USUAL }),
    ("refill_33", Receiving { refill_below_percent: 33, ..USUAL }),
    ("refill_67", USUAL),
    ("refill_100", Receiving { refill_below_percent: 100, ..USUAL }),
    ("copy_break_0", USUAL),
    ("copy_break_256", Receiving { copy_break: 256, ..USUAL }),
    ("copy_break_1024", Receiving { copy_break: 1024, ..USUAL }),
];
const FRAME_BYTES: usize = 64;
const FLOWS: u32 = 100;
/// Packets a second in bursts, and packets of a burst: half of what the wire in front of the gateway holds.
const RATE: f64 = 300_000.0;
const BURST: u32 = 128;
/// Packet rate beyond every peer's capacity, in packets a second.
const OVERLOAD: f64 = 1_500_000.0;
const TIME: Duration = Duration::from_millis(500);

/// Fills the rows; each setting is tried in turn, round after round.
pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    if !run.wants_any_of(&["buffers.ring"]) {
        return Ok(());
    }
    if run.is_quick() {
        run.leave_out("how a receive ring is best supplied");
        return Ok(());
    }
    let (core, other) = cores();
    run.place("how a ring is supplied: polder and its NAPI thread", core, "pinned");
    run.place("how a ring is supplied: generator and sink", other, "pinned");
    let name = |(name, _): &(&str, Receiving)| format!("how a receive ring is supplied: {name}");
    let sheet = in_turn(run, 5, SETTINGS, name, |(name, receiving), sheet| {
        let Ring(mut stand) = Ring::lay(*receiving)?;
        let bursts = stand.run(&Plan { rate: RATE, burst: BURST, time: TIME, faults: Faults::default() })?;
        sheet.push(format!("buffers.ring.{name}.cpu_ns_per_packet"), bursts.nanos_per_packet());
        sheet.push(format!("buffers.ring.{name}.lost_percent"), bursts.loss() * 100.0);
        let overload = stand.run(&Plan::steady(OVERLOAD, TIME))?;
        sheet.push(format!("buffers.ring.{name}.overload_mpps"), overload.rate() / 1e6);
        Ok(())
    })?;
    sheet.record(run);
    Ok(())
}

/// A gateway whose receive rings are supplied in one way.
pub(super) struct Ring(Testbed);

impl Ring {
    pub(super) fn lay(receiving: Receiving) -> anyhow::Result<Self> {
        let usual = Setup::new(Contender::Polder, Task::Bridge, FRAME_BYTES, FLOWS);
        let mut testbed = Testbed::lay(Setup { receiving: Some(receiving), ..usual })?;
        // Everything is there from the second time on.
        testbed.run(&Plan::steady(RATE, TIME / 5))?;
        Ok(Self(testbed))
    }

    /// CPU time of a packet in bursts.
    pub(super) fn nanos(&mut self, time: Duration) -> anyhow::Result<f64> {
        let plan = Plan { rate: RATE, burst: BURST, time, faults: Faults::default() };
        Ok(self.0.run(&plan)?.nanos_per_packet())
    }
}
