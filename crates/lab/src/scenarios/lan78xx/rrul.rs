//! Realtime response under load ([`response`](crate::scenarios::response)), with a queue of the gateway in front of the adapter.

use super::output::{self, HOST, Output, Plan, STATION};
use super::{Run, Testbed};
use crate::report::Curve;
use crate::scenarios::response::{Ends, FLOWS, INTERVAL, PATIENCE, Times};
use crate::scenarios::turns::in_turn;

/// Number of packets that wait for a URB after the queue: a few more than a URB holds.
pub(super) const PENDING: u32 = 32;

/// CoDel in front of the adapter, which is not told its rate.
pub(super) const CODEL: &str = "{ kind = \"codel\", target_ms = 1, interval_ms = 5 }";

/// One queue in front of the adapter, with one congestion control.
struct Case {
    /// End of its rows' names.
    row: &'static str,
    name: &'static str,
    queue: Option<&'static str>,
    congestion: &'static str,
}

const CASES: [Case; 4] = [
    Case { row: "", name: "CoDel, target 1 ms", queue: Some(CODEL), congestion: output::CUBIC },
    Case {
        row: ".bytes",
        name: "byte limit, 64 kB",
        queue: Some("{ kind = \"drop-tail\", limit_bytes = 64_000 }"),
        congestion: output::CUBIC,
    },
    Case { row: ".none", name: "no queue", queue: None, congestion: output::CUBIC },
    Case { row: ".bbr", name: "CoDel, BBR", queue: Some(CODEL), congestion: output::BBR },
];

/// Fills the rows and draws the curves of the first round.
pub(super) fn measure(run: &mut Run, stand: &Testbed) -> anyhow::Result<()> {
    let times =
        run.quick_or(Times { before: 1.0, load: 4, after: 0.5 }, Times { before: 1.5, load: 7, after: 0.5 });
    let mut told: [Option<(String, [Curve; 2])>; CASES.len()] = Default::default();
    let mut cases = CASES.iter().zip(&mut told).collect::<Vec<_>>();
    let name = |(case, _): &(&Case, _)| format!("{FLOWS} flows each way, {}", case.name);
    let sheet = in_turn(run, stand.samples, &mut cases, name, |(case, told), sheet| {
        let output = Output::lay(&case.plan(stand))?;
        let before = output.count()?;
        let outcome = ends(&output).load(case.congestion, &times)?;
        let dropped = output.count()?.dropped - before.dropped;
        let added = outcome.added(&times)?;
        let [p99, lost, mbit] = case.rows();
        sheet.push(p99, added.last);
        sheet.push(lost, added.lost);
        sheet.push(mbit, outcome.mbit[0] + outcome.mbit[1]);
        told.get_or_insert_with(|| {
            let text = format!("{}, {dropped} packets dropped by the queue", outcome.text(&added));
            (text, outcome.curves(case.name))
        });
        Ok(())
    })?;
    sheet.record(run);
    for (case, told) in CASES.iter().zip(told) {
        let (told, curves) = told.unwrap_or_default();
        curves.into_iter().for_each(|curve| run.curve(curve));
        let text = format!(
            "{FLOWS} TCP flows each way ({}), an ICMP and a UDP probe every {} ms; p99 of all probes under load, \
             lost ones as {} s, less the median without. Queue in front of the adapter: {}; at the station: \
             CoDel, target 1 ms. CoDel's interval is 5 ms. {} packets wait behind the queue for a URB. First round: {}",
            case.congestion,
            INTERVAL.as_millis(),
            PATIENCE.as_secs(),
            case.name,
            case.pending(),
            told
        );
        run.remark(&case.rows()[0], text);
    }
    Ok(())
}

/// The station, which sends and answers probes, and the gateway's machine.
fn ends(output: &Output) -> Ends<'_> {
    Ends {
        near: (&output.gateway, HOST, Some(output.core(false))),
        far: (&output.station, STATION, Some(output.core(true))),
    }
}

impl Case {
    /// Rows of added latency, of losses and of goodput.
    fn rows(&self) -> [String; 3] {
        ["p99_added_ms", "lost_percent", "mbit"].map(|what| format!("lan78xx.rrul.{what}{}", self.row))
    }

    fn plan(&self, stand: &Testbed) -> Plan {
        Plan { queue: self.queue, pending: self.pending(), ..Plan::usual(stand.cores) }
    }

    fn pending(&self) -> u32 {
        if self.queue.is_some() { PENDING } else { 128 }
    }
}
