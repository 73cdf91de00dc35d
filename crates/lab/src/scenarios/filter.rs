//! `filter`: what rules cost, in memory, on one core.

use super::engine::harness::{Harness, Path};
use super::{Run, Scenario};
use anyhow::ensure;
use polder_datapath::filter::{Action, Filters, Prefix, Rule, RuleCounts};
use polder_testbed::machine;
use polder_testbed::meters::statistics::Samples;
use std::net::Ipv4Addr;
use std::time::Duration;

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "filter",
    about: "what filter rules cost: in memory, one core, into a tunnel, by number of rules",
    needs_root: false,
    rows: include_str!("rows/filter.rows"),
    measure,
};

const STAGES: &str = "filter.stages_in_path.rules_0";
const ONE: &str = "filter.cost_ns.rules_1";
const HUNDRED: &str = "filter.cost_ns.rules_100";
const TEN_THOUSAND: &str = "filter.cost_ns.rules_10000";

const FLOWS: u32 = 1000;
/// Rules that fit one sender of the traffic each, at most.
const FITTING: usize = 500;
const WARM_UP: Duration = Duration::from_millis(200);
/// Destination address of the traffic, and its first source address.
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 1);
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);

/// A gateway with a number of rules, and its cost per packet.
struct Candidate {
    rules: usize,
    harness: Harness,
    costs: Samples,
    /// More than the first one, which has no rules, in the same round.
    differences: Samples,
}

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let core = machine::cores() - 1;
    run.place("engine", core, "the only thread of each worker, pinned; they take turns");
    let (rounds, time) = run.quick_or((5, 200), (15, 600));
    let mut candidates = Vec::new();
    // Without rules twice: how much two gateways differ that are the same.
    for rules in [0, 0, 1, 100, 10_000] {
        let harness = Harness::filtering(Path::Encapsulate, FLOWS, core, filters(rules, 1)?)?;
        candidates.push(Candidate {
            rules,
            harness,
            costs: Samples::default(),
            differences: Samples::default(),
        });
    }
    for round in 1..=rounds {
        run.says(&format!("run {round} of {rounds}"));
        let mut without = None;
        for candidate in &mut candidates {
            let cost = cost(&candidate.harness, Duration::from_millis(time), round == 1)?;
            let without = *without.get_or_insert(cost);
            candidate.costs.push(cost);
            candidate.differences.push(cost - without);
        }
    }
    report(run, candidates)
}

fn report(run: &mut Run, candidates: Vec<Candidate>) -> anyhow::Result<()> {
    let mut same = None;
    for (number, candidate) in candidates.into_iter().enumerate() {
        let Candidate { rules, harness, costs, differences } = candidate;
        let cost = costs.median().unwrap_or(0.0);
        let row = match rules {
            0 => {
                let batches = harness.filter_batches();
                let unit = if batches > 0 { 1.0 } else { 0.0 };
                let earlier = run.value(STAGES).unwrap_or(0.0);
                run.record_one(STAGES, earlier.max(unit));
                if number == 1 {
                    let (low, high) = differences.spread().unwrap_or_default();
                    let median = differences.median().unwrap_or(0.0);
                    same = Some(format!(
                        "two gateways without rules: {cost:.1} ns a packet, apart by {median:.2} ns ({low:.2} to {high:.2})"
                    ));
                }
                None
            }
            1 => Some(ONE),
            100 => Some(HUNDRED),
            _ => Some(TEN_THOUSAND),
        };
        if let Some(row) = row {
            run.record(row, &differences);
            let size = filters(rules, 1)?.size();
            run.remark(
                row,
                format!(
                    "{cost:.1} ns a packet in all; {} tables, compared with at most {} of {} boxes, {} KiB",
                    size.tables,
                    size.most_compared,
                    size.boxes,
                    size.bytes.div_ceil(1024)
                ),
            );
        }
        let left = harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{rules} rules: {left:?}");
    }
    if let Some(same) = same {
        run.remark(STAGES, same);
    }
    Ok(())
}

fn cost(harness: &Harness, time: Duration, is_first: bool) -> anyhow::Result<f64> {
    let window = harness.window(if is_first { WARM_UP } else { WARM_UP / 10 }, time)?;
    ensure!(window.sent * 100 > window.packets * 99, "rules drop what they ought to accept: {window:?}");
    Ok(window.nanos_per_packet())
}

/// Rules of the kinds that operators write, in the networks of the traffic: a quarter for one sender
/// each, the others for other destinations; all of them accept.
pub(super) fn filters(count: usize, workers: usize) -> anyhow::Result<Filters> {
    let mut random = fastrand::Rng::with_seed(7);
    let mut rules = Vec::new();
    while rules.len() < count {
        let rule = if count == 1 || rules.len() % 4 == 0 && rules.len() / 4 < FITTING {
            fitting(u32::try_from(rules.len() / 4)?)
        } else {
            other(&mut random)
        };
        rules.push(rule);
    }
    let mut counts = RuleCounts::new(workers);
    counts.grow_to(count);
    Ok(Filters::new(&rules.into_iter().zip(0..).collect::<Vec<_>>(), Vec::new(), counts)?)
}

/// A rule for the packets of one flow.
fn fitting(flow: u32) -> Rule {
    // Two flows apart, so that every second one has no rule.
    let source = Ipv4Addr::from_bits(FIRST_SOURCE.to_bits() + 2 * flow);
    Rule {
        sources: vec![Prefix { address: source.into(), bits: 32 }],
        destinations: vec![Prefix { address: DESTINATION.into(), bits: 24 }],
        protocols: vec![17],
        action: Action::Accept,
        ..Rule::default()
    }
}

/// A rule for packets to somewhere else.
fn other(random: &mut fastrand::Rng) -> Rule {
    const LENGTHS: [u8; 10] = [0, 8, 12, 16, 16, 20, 24, 24, 28, 32];
    let in_ten = |random: u32| Ipv4Addr::from_bits(10 << 24 | random & 0x00ff_ffff);
    let prefix = |random: u32, bits: u8| {
        let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        Prefix { address: Ipv4Addr::from_bits(in_ten(random).to_bits() & mask).into(), bits }
    };
    let holds = |prefix: &Prefix| {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.bits)).unwrap_or(0);
        prefix.address == std::net::IpAddr::from(Ipv4Addr::from_bits(DESTINATION.to_bits() & mask))
    };
    let destination = loop {
        let bits = LENGTHS[2 + random.u32(..) as usize % 8];
        let found = prefix(random.u32(..), bits);
        if !holds(&found) {
            break found;
        }
    };
    let bits = LENGTHS[random.u32(..) as usize % LENGTHS.len()];
    let sources = if bits == 0 { Vec::new() } else { vec![prefix(random.u32(..), bits)] };
    let low = u16::try_from(random.u32(..) & 0x7fff).unwrap_or(0);
    let (protocols, destination_ports) = match random.u32(..) % 5 {
        0 => (vec![], vec![]),
        1 => (vec![17], vec![low..=low]),
        2 => (vec![6], vec![1024..=u16::MAX]),
        3 => (vec![6], vec![low..=low + 100]),
        _ => (vec![6], vec![low..=low]),
    };
    Rule { sources, destinations: vec![destination], protocols, destination_ports, ..Rule::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_as_many_as_asked_and_few_tables() {
        for count in [0, 1, 100, 10_000] {
            let size = filters(count, 1).unwrap().size();
            assert_eq!(size.rules, count);
            assert!(size.tables <= 64 && size.boxes == count, "{size:?}");
        }
    }
}
