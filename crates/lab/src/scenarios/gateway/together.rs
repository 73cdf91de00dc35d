//! Techniques by which workers do more together than one alone (E2, E3, E8): in memory, two cores, with
//! work a packet as a small core has it.

use super::super::capture::Looks;
use super::super::order::harness::{Harness, Plan, Tunnel};
use super::super::order::{rate, throughput, work};
use super::{FLOWS, Run, effort, remark, rows};
use polder_buffers::HEADROOM;
use polder_datapath::steer::Order;
use polder_testbed::interrupt;
use polder_testbed::machine;
use std::time::Duration;

/// Work a packet, in nanoseconds: what a kernel's gateway takes, rounded.
pub(super) const COST: u32 = 1000;
const WARM_UP: Duration = Duration::from_millis(50);

pub(super) fn measure(run: &mut Run) -> anyhow::Result<()> {
    let link = work::calibrate();
    let links = work::links(COST, link);
    let cores = machine::cores();
    for technique in ["E2", "E3", "E8"] {
        if !run.is_due(&rows(technique)) {
            continue;
        }
        if cores < 2 {
            run.leave_out(format!("{technique}: it takes two cores, and this machine has one"));
            continue;
        }
        run.place("worker 0, which receives, for techniques of several", cores - 1, "pinned");
        run.place("worker 1", cores - 2, "pinned");
        match technique {
            "E2" => steering(run, links)?,
            "E3" => paths(run, links)?,
            _ => order(run, links)?,
        }
    }
    Ok(())
}

/// Many flows, every second one at home with the other worker.
pub(super) fn many(links: u32, order: Order) -> Plan {
    let flows = (0..FLOWS as usize).map(|flow| flow % 2).collect();
    Plan { order, flows, ..Plan::one_flow(2, links) }
}

/// The plan with flows hashed by their common part: a tunnel's outer headers, or a constant.
pub(super) fn outer_only(plan: Plan) -> Plan {
    Plan { flows: vec![1; FLOWS as usize], ..plan }
}

/// The plan with encapsulation and sending behind one lock.
pub(super) fn one_path(plan: Plan) -> Plan {
    Plan { one_path: true, one_ledger: true, ..plan }
}

/// A tunnel's gateway with that many workers and flows, for frames of `bytes` bytes without FCS: with all techniques,
/// or with none.
pub(super) fn tunnel((workers, flows): (usize, u32), bytes: usize, links: u32, is_on: bool) -> Plan {
    let (headroom, looks) = if is_on { (HEADROOM, Looks::Dhcp) } else { (0, Looks::Clone) };
    let order = match flows {
        _ if workers == 1 => Order::Queue,
        1 if is_on => Order::Spread,
        _ => Order::Hash,
    };
    // A constant hash is that of a worker which does not receive.
    let home = |flow: usize| if is_on { flow % workers } else { workers - 1 };
    let flows = (0..flows as usize).map(home).collect();
    let one_ledger = !is_on || order == Order::Spread;
    let tunnel = Some(Tunnel { bytes, headroom, looks });
    Plan { order, flows, one_ledger, tunnel, ..Plan::one_flow(workers, links) }
}

/// Fills the rows of a technique with packets a second of both plans, in turn.
fn compare(run: &mut Run, technique: &str, plans: [&Plan; 2]) -> anyhow::Result<()> {
    let time = effort(run).1;
    super::compare(run, technique, &plans, |plan| packets_a_second(plan, time))
}

pub(super) fn packets_a_second(plan: &Plan, time: Duration) -> anyhow::Result<f64> {
    if plan.reordering {
        return Ok(rate(&throughput(plan, time)?));
    }
    let harness = Harness::start(plan, |_| {})?;
    harness.open(true);
    interrupt::sleep(WARM_UP)?;
    let window = harness.window(time)?;
    harness.stop()?;
    Ok(rate(&window))
}

/// E2: the packets of one queue find all cores.
fn steering(run: &mut Run, links: u32) -> anyhow::Result<()> {
    let (on, off) = (many(links, Order::Hash), many(links, Order::Queue));
    compare(run, "E2", [&on, &off])?;
    // A tunnel has one pair of outer addresses, so all of it is one flow.
    let outer = outer_only(on);
    let outer = packets_a_second(&outer, effort(run).1)?;
    let remarks = [
        format!("{FLOWS} flows by one queue, each hashed to a worker"),
        format!(
            "all stay with the worker that receives; hashed by outer headers alone, which are the same for all: {:.2} Mpps",
            outer / 1e6
        ),
    ];
    remark(run, "E2", remarks);
    Ok(())
}

/// E3: every core has its own way into the tunnel.
fn paths(run: &mut Run, links: u32) -> anyhow::Result<()> {
    let on = many(links, Order::Hash);
    let off = one_path(on.clone());
    compare(run, "E3", [&on, &off])?;
    let remarks = [
        "two workers, each with its own way into the tunnel and its own sending queue".to_owned(),
        "one way for both: six tenths of the work, and sending, behind a lock".to_owned(),
    ];
    remark(run, "E3", remarks);
    Ok(())
}

/// E8: one flow on all cores, in order.
fn order(run: &mut Run, links: u32) -> anyhow::Result<()> {
    let on = Plan { one_ledger: true, ..Plan::one_flow(2, links) };
    let off = Plan { reordering: false, ..on.clone() };
    compare(run, "E8", [&on, &off])?;
    let time = effort(run).1;
    let hashed = packets_a_second(&Plan { order: Order::Hash, ..on }, time)?;
    let harness = Harness::start(&off, |_| {})?;
    harness.open(true);
    interrupt::sleep(time)?;
    let (left, ledger) = harness.stop()?;
    let (sent, reordered) = (left.sent.iter().sum::<u64>(), ledger.flows[0].reordered);
    let remarks = [
        "one flow, spread over two workers and put in order again".to_owned(),
        format!(
            "spread and left as it comes: {reordered} of {sent} packets out of order; hashed, it has one worker: {:.2} Mpps",
            hashed / 1e6
        ),
    ];
    remark(run, "E8", remarks);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets go into the tunnel, and their numbers are read behind outer headers: both ways of every case.
    #[test]
    fn a_tunnel_carries_what_comes() {
        let cases = [(1, 1), (2, 1), (2, 4)];
        for (case, is_on) in cases.into_iter().flat_map(|case| [(case, true), (case, false)]) {
            let plan = tunnel(case, 64, 0, is_on);
            let harness = Harness::start(&plan, |_| {}).unwrap();
            harness.open(true);
            std::thread::sleep(Duration::from_millis(60));
            harness.window(Duration::from_millis(60)).unwrap();
            let (left, ledger) = harness.stop().unwrap();
            let came = ledger.flows.iter().map(|flow| flow.packets).sum::<u64>();
            let sent = left.sent.iter().sum::<u64>();
            assert!(came > 1000 && came + left.no_core == sent, "{came} of {sent}, {left:?}, {plan:?}");
            assert!(ledger.flows.iter().all(|flow| flow.reordered == 0), "{plan:?}");
        }
    }
}
