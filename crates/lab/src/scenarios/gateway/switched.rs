//! Table E: what each technique brings a tunnel's gateway, at the length of frames that it is for and at the other
//! one, and all that a worker has for itself at every length.

use super::alone::{self, LONG, SHORT, Side, Sides, TECHNIQUES};
use super::together::{COST, many, one_path, outer_only, packets_a_second, tunnel};
use crate::scenarios::Run;
use crate::scenarios::contrast::{contrast, is_wanted, skip};
use crate::scenarios::order::harness::Plan;
use crate::scenarios::order::work;
use crate::scenarios::testbed::cores;
use polder_datapath::steer::Order;
use polder_testbed::machine;
use std::time::Duration;

/// Lengths of frames in bytes, FCS included.
const LENGTHS: [usize; 6] = [64, 128, 256, 512, 1024, LONG];
/// Bytes of the checksum behind a frame.
const FCS: usize = 4;
/// Numbers of flows.
const FLOWS: [u32; 2] = [1, 64];

/// Fills the rows of table E.
pub(in crate::scenarios) fn measure(run: &mut Run) -> anyhow::Result<()> {
    memory(run);
    let time = Duration::from_millis(run.quick_or(60, 200));
    for (technique, sides, bytes) in TECHNIQUES {
        one(run, &format!("E.{technique}"), (sides, bytes), time)?;
        let (other, named) = if bytes == LONG { (SHORT, 64) } else { (LONG, LONG) };
        one(run, &format!("E.{technique}_{named}"), (sides, other), time)?;
    }
    if run.is_quick() {
        run.leave_out("E.all and E.work: all lengths but the least and the largest");
    }
    for (bytes, flows) in lengths(run).flat_map(|bytes| FLOWS.map(|flows| (bytes, flows))) {
        let technique = format!("E.all_{bytes}_flows_{flows}");
        if !is_wanted(run, &technique) {
            continue;
        }
        // The shortest frame of the harness has its probe in it.
        let sides = alone::together(cores(), bytes.max(SHORT), flows);
        compare(run, &technique, sides, megabits(bytes), time)?;
    }
    two_workers(run)?;
    tunnels(run)
}

/// Lengths of frames of a gateway with all techniques; of a quick run, the least and the largest.
fn lengths(run: &Run) -> impl Iterator<Item = usize> + use<> {
    let is_quick = run.is_quick();
    LENGTHS.into_iter().filter(move |&bytes| !is_quick || bytes == LENGTHS[0] || bytes == LONG)
}

/// E1: nothing to switch.
fn memory(run: &mut Run) {
    let memory = run.machine().memory;
    let rows = [("tables.E.E1.bandwidth", memory.bandwidth / 1e9), ("tables.E.E1.latency", memory.latency)];
    for (row, value) in rows {
        if run.wants(row) {
            run.record_one(row, value);
            run.remark(row, "recorded in every report; there is nothing to switch");
        }
    }
}

fn one(run: &mut Run, technique: &str, (sides, bytes): (Sides, usize), time: Duration) -> anyhow::Result<()> {
    if !is_wanted(run, technique) {
        return Ok(());
    }
    compare(run, technique, sides(cores(), bytes), 1.0, time)
}

/// Compares two gateways, in packets for each second of CPU time, times `unit`.
fn compare(
    run: &mut Run,
    technique: &str,
    sides: anyhow::Result<[Side; 2]>,
    unit: f64,
    time: Duration,
) -> anyhow::Result<()> {
    let [with, without] = match sides {
        Ok(sides) => sides,
        Err(error) => return skip(run, technique, &error),
    };
    run.place("E: a worker for itself", cores().0, "one worker's thread, pinned; they take turns");
    run.place("E: readers of captures", cores().1, "threads, pinned, never sleep in their turn");
    let rate = |side: &Side| Ok(side.rate(time)? * unit);
    contrast(run, technique, || rate(&with), || rate(&without), ["", ""])?;
    for (ending, side) in [("on", with), ("off", without)] {
        let remark = side.stop(technique)?;
        run.remark(&crate::scenarios::contrast::row(technique, ending), remark);
    }
    Ok(())
}

/// Mbit of a packet of that length.
#[expect(clippy::cast_precision_loss, reason = "a length of a frame")]
fn megabits(bytes: usize) -> f64 {
    bytes as f64 * 8e-6
}

/// Techniques by which two workers do more together (E2, E3, E8).
fn two_workers(run: &mut Run) -> anyhow::Result<()> {
    let techniques = ["E.E2", "E.E2_constant_hash", "E.E3", "E.E8", "E.E8_unrestored"];
    let wanted = techniques.into_iter().filter(|technique| is_wanted(run, technique)).collect::<Vec<_>>();
    if wanted.is_empty() {
        return Ok(());
    }
    let cores = machine::cores();
    if cores < 2 {
        run.leave_out("E2, E3, E8: they take two cores, and this machine has one");
        return Ok(());
    }
    run.place("E: worker 0, which receives", cores - 1, "pinned");
    run.place("E: worker 1", cores - 2, "pinned");
    let links = work::links(COST, work::calibrate());
    let time = Duration::from_millis(run.quick_or(100, 250));
    let hashed = many(links, Order::Hash);
    let spread = Plan { one_ledger: true, ..Plan::one_flow(2, links) };
    let flows = "64 flows by one queue, each hashed to one of two workers; 1 µs of work a packet";
    let one_flow = "one flow, spread over two workers and put in order again; 1 µs of work a packet";
    for technique in wanted {
        let (on, off, remarks) = match technique {
            "E.E2" => (&hashed, many(links, Order::Queue), [flows, "all stay with the worker that receives"]),
            "E.E2_constant_hash" => {
                let off = "a constant hash, or that of outer headers, which all packets share";
                (&hashed, outer_only(hashed.clone()), [flows, off])
            }
            "E.E3" => {
                let off = "one way into the tunnel, six tenths of the work, and sending, behind a lock";
                (&hashed, one_path(hashed.clone()), [flows, off])
            }
            "E.E8" => {
                let off = Plan { order: Order::Hash, ..spread.clone() };
                (&spread, off, [one_flow, "hashed: one flow has one worker"])
            }
            _ => {
                let off = Plan { reordering: false, ..spread.clone() };
                (&spread, off, [one_flow, "spread and left as it comes: packets overtake each other"])
            }
        };
        let rate = |plan: &Plan| packets_a_second(plan, time);
        contrast(run, technique, || rate(on), || rate(&off), remarks)?;
    }
    Ok(())
}

/// A whole tunnel's gateway with one worker and with two, with all techniques and with none.
fn tunnels(run: &mut Run) -> anyhow::Result<()> {
    let bytes = lengths(run).collect::<Vec<_>>();
    let cases = [1, 2].into_iter().flat_map(|workers| FLOWS.map(|flows| (workers, flows)));
    let cases = cases.flat_map(|case| bytes.iter().map(move |&bytes| (case, bytes)));
    let mut links = None;
    let time = Duration::from_millis(run.quick_or(60, 150));
    for ((workers, flows), bytes) in cases {
        let technique = format!("E.work_{bytes}_flows_{flows}_workers_{workers}");
        if !is_wanted(run, &technique) {
            continue;
        }
        if machine::cores() < workers {
            run.leave_out(format!("{technique}: this machine has {} core", machine::cores()));
            continue;
        }
        let links = *links.get_or_insert_with(|| work::links(COST, work::calibrate()));
        let frame = bytes.max(SHORT) - FCS;
        let [on, off] = [true, false].map(|is_on| tunnel((workers, flows), frame, links, is_on));
        let rate = |plan: &Plan| Ok(packets_a_second(plan, time)? * megabits(bytes));
        let remarks = [
            "E2 to E6 and E8; 100 rules, a DHCP server's and a client's capture, gretap, CoDel, and 1 µs a packet",
            "a constant hash, one transmit queue behind a lock, each packet copied, and cloned to both sockets",
        ];
        contrast(run, &technique, || rate(&on), || rate(&off), remarks)?;
    }
    Ok(())
}
