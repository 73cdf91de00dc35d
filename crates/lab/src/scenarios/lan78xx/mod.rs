//! The LAN78xx driver on a model of the adapter: source A's table, technique by technique.

pub(super) mod cost;
mod flent;
mod flow;
pub(super) mod frames;
pub(super) mod harness;
mod merging;
mod output;
mod rows;
mod rrul;
mod stacks;
pub(super) mod switched;
mod weak;

use super::testbed::cores;
use super::turns::in_turn;
use super::{Run, Scenario};
use frames::Protocol;
use harness::{Outcome, Setting, Way};
use polder_datapath::units::Nanos;
use polder_devices::lan78xx::Techniques;
use polder_testbed::interrupt;
use polder_testbed::meters::statistics::Samples;
use rows::{CPU_RATIO, FILL};
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "lan78xx",
    about: "a driver for USB Ethernet adapters in user space, with and without its techniques",
    needs_root: false,
    rows: include_str!("../rows/lan78xx.rows"),
    measure,
};

const FLOWS: [(&str, Protocol, Way); 4] = [
    ("tcp_rx", Protocol::Tcp, Way::Receive),
    ("tcp_tx", Protocol::Tcp, Way::Send),
    ("udp_rx", Protocol::Udp, Way::Receive),
    ("udp_tx", Protocol::Udp, Way::Send),
];
/// A flow in one state of the driver.
#[derive(Clone, Copy, Debug)]
struct Case {
    flow: &'static str,
    protocol: Protocol,
    way: Way,
    state: &'static str,
    techniques: Techniques,
}

impl Case {
    /// Name of a row about it.
    fn row(&self, begin: &str, what: &str) -> String {
        format!("{begin}.{}.{what}.{}", self.flow, self.state)
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}, {}", self.flow, self.state)
    }
}

/// All flows, without the techniques and with them.
fn cases() -> Vec<Case> {
    let both = |(flow, protocol, way)| {
        STATES.map(|(state, techniques)| Case { flow, protocol, way, state, techniques })
    };
    FLOWS.into_iter().flat_map(both).collect()
}

/// States of the driver, and their techniques.
const STATES: [(&str, Techniques); 2] = [("off", Techniques::OFF), ("on", Techniques::ON)];
/// Packets a second at low load: one in each millisecond.
const LOW_LOAD: Duration = Duration::from_millis(1);

/// Parameters that all measurements of a run have in common.
struct Testbed {
    urb: Nanos,
    time: Duration,
    cores: [usize; 2],
    samples: usize,
}

impl Testbed {
    /// Measures the cost of a URB at a socket.
    fn new(time: Duration, samples: usize) -> anyhow::Result<Self> {
        let mut urb = Samples::default();
        for _ in 0..3 {
            urb.push(nanos_of(cost::of_a_urb()?));
        }
        let urb = Nanos(whole(urb.median().unwrap_or_default()));
        Ok(Self { urb, time, cores: cores().into(), samples })
    }

    fn run(&self, flow: (Protocol, Way), techniques: Techniques) -> anyhow::Result<Outcome> {
        interrupt::check()?;
        let (protocol, way) = flow;
        let Self { urb, time, cores, .. } = *self;
        harness::run(&Setting { protocol, way, techniques, urb, frame: Nanos(0), time, cores, pause: None })
    }
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    run.says("what a URB costs at a socket");
    let stand = Testbed::new(Duration::from_millis(run.quick_or(200, 1000)), run.quick_or(1, 10))?;
    run.place("the driver's thread", stand.cores[0], "pinned");
    run.place("the model and its link partner", stand.cores[1], "pinned, never sleeps");
    if run.wants_any(&driver_rows(run)) {
        table(run, &stand)?;
        ablation(run, &stand)?;
        low_load(run, &stand)?;
        run.remark(CPU_RATIO, format!("a URB costs {} ns, as measured at a USB/IP socket", stand.urb.0));
    }
    if run.wants_any_of(&["lan78xx.weak_host."]) {
        weak::measure(run, &stand)?;
    }
    stacks(run, &stand)
}

/// Rows of the driver's thread alone.
fn driver_rows(run: &Run) -> Vec<&'static str> {
    let flows = FLOWS.iter().flat_map(|(name, ..)| run.rows(&format!("lan78xx.{name}.")));
    let ablation = run.rows("lan78xx.ablation.").into_iter().filter(|row| !rows::A6.contains(row));
    flows.chain(ablation).chain([CPU_RATIO, FILL]).collect()
}

/// Measures between the stacks of two machines.
fn stacks(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let [gateway, rrul] = ["lan78xx.gateway.", "lan78xx.rrul."].map(|begin| run.rows(begin));
    let all = [&gateway[..], &rrul, &rows::FLENT, &rows::MERGING].concat();
    if run.or_skip(&all, output::available())?.is_none() {
        return Ok(());
    }
    if run.wants_any(&all) {
        run.place("the gateway and its machine's stack", stand.cores[0], "pinned");
        run.place("the model behind USB/IP, and the station's stack", stand.cores[1], "pinned");
    }
    if run.wants_any(&rows::MERGING) {
        merging::measure(run, stand)?;
    }
    if run.wants_any(&gateway) {
        stacks::measure(run, stand)?;
    }
    if run.wants_any(&rrul) {
        rrul::measure(run, stand)?;
    }
    if run.wants_any(&rows::FLENT) {
        flent::measure(run, stand)?;
    }
    Ok(())
}

/// Source A's table, off beside on.
fn table(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    // Processor time for each Mbit, over all four flows.
    let mut spent = [0.0, 0.0];
    let sheet = in_turn(run, stand.samples, cases(), Case::to_string, |case, sheet| {
        let outcome = stand.run((case.protocol, case.way), case.techniques)?;
        let row = |what| case.row("lan78xx", what);
        sheet.push(row("mbit"), outcome.mbit);
        sheet.push(row("loss_percent"), outcome.loss_percent);
        sheet.push(row("driver_cpu_ns_per_packet"), per_packet(&outcome));
        sheet.push(row("held_ms"), outcome.held.as_secs_f64() * 1e3);
        sheet.push(row("longest_ms"), outcome.longest.as_secs_f64() * 1e3);
        let is_on = case.state == "on";
        let cost = outcome.cpu.as_secs_f64() / stand.time.as_secs_f64() / outcome.mbit.max(1.0);
        spent[usize::from(is_on)] += cost;
        // The last measurement of a round.
        if is_on && (case.protocol, case.way) == (Protocol::Udp, Way::Send) {
            outcome.fill_percent.into_iter().for_each(|percent| sheet.push(FILL, percent));
            let [off, on] = std::mem::take(&mut spent);
            sheet.push(CPU_RATIO, on / off);
        }
        Ok(())
    })?;
    sheet.record(run);
    for (name, ..) in FLOWS {
        let row = |what: &str| format!("lan78xx.{name}.{what}.on");
        let [held, longest] = ["held_ms", "longest_ms"].map(|what| sheet.median(&row(what)));
        let text = format!(
            "the model's thread was held up for {held:.1} ms of a sample, for {longest:.1} ms at a time, and caught up"
        );
        run.remark(&row("mbit"), text);
    }
    Ok(())
}

/// Each technique alone: receiving and sending UDP.
fn ablation(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let off = Techniques::OFF;
    let techniques = [
        ("A1", Techniques { poll_cycle: true, ..off }),
        ("A2", Techniques { urb_pools: true, ..off }),
        ("A3", Techniques { pending_queue: true, ..off }),
        ("A4", Techniques { resubmit_in_cycle: true, ..off }),
        ("A5", Techniques { frame_is_unit: true, ..off }),
    ];
    let alone = |(name, _): &(&str, Techniques)| format!("{name} alone");
    let sheet = in_turn(run, stand.samples, techniques, alone, |&mut (name, techniques), sheet| {
        let receive = stand.run((Protocol::Udp, Way::Receive), techniques)?;
        let send = stand.run((Protocol::Udp, Way::Send), techniques)?;
        let row = |what: &str| format!("lan78xx.ablation.{name}.{what}");
        sheet.push(row("mbit"), f64::midpoint(receive.mbit, send.mbit));
        let nanos = f64::midpoint(per_packet(&receive), per_packet(&send));
        sheet.push(row("driver_cpu_ns_per_packet"), nanos);
        Ok(())
    })?;
    sheet.record(run);
    for (name, _) in techniques {
        let text = format!("{name} alone, the others off; UDP, mean of receiving and sending");
        run.remark(&format!("lan78xx.ablation.{name}.mbit"), text);
    }
    Ok(())
}

/// Effect of packing on a packet that comes alone.
fn low_load(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let packing =
        [("one", Techniques { pending_queue: false, ..Techniques::ON }), ("packed", Techniques::ON)];
    let name = |_: &(&str, Techniques)| "one packet at a time".to_owned();
    let sheet = in_turn(run, stand.samples, packing, name, |&mut (name, techniques), sheet| {
        let Testbed { urb, time, cores, .. } = *stand;
        let (protocol, way, pause) = (Protocol::Udp, Way::Send, Some(LOW_LOAD));
        let setting = Setting { protocol, way, techniques, urb, frame: Nanos(0), time, cores, pause };
        sheet.push(name, harness::run(&setting)?.latency_us);
        Ok(())
    })?;
    let [one, packed] = ["one", "packed"].map(|name| sheet.median(name));
    let added = packed - one;
    let text = format!(
        "one packet in a millisecond takes {packed:.1} µs from the port to the end of the wire, {one:.1} µs \
         without packing: packing adds {added:.1} µs; a full URB takes 262 µs on the wire"
    );
    run.remark(FILL, text);
    Ok(())
}

fn per_packet(outcome: &Outcome) -> f64 {
    outcome.cpu.as_secs_f64() * 1e9 / outcome.packets.max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "a cost is far below 2⁵² ns")]
fn nanos_of(time: Nanos) -> f64 {
    time.0 as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cost is positive and small")]
fn whole(nanos: f64) -> u64 {
    nanos.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each flow, each way, off and on: everything arrives as it was sent.
    #[test]
    fn flows_flow() {
        let cores = cores().into();
        let time = Duration::from_millis(60);
        let stand = Testbed { urb: Nanos(0), time, cores, samples: 1 };
        for (name, protocol, way) in FLOWS {
            for techniques in [Techniques::OFF, Techniques::ON] {
                let outcome = stand.run((protocol, way), techniques).unwrap();
                assert!(outcome.mbit > 0.1 && outcome.packets > 1.0, "{name}: {outcome:?}");
                assert!(outcome.cpu > Duration::ZERO && outcome.loss_percent <= 100.0, "{outcome:?}");
            }
        }
    }
}
