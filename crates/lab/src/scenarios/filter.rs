//! `filter`: what rules cost, in memory, on one core.

use super::engine::harness::{Harness, Path};
use super::turns::in_turn;
use super::{Run, Scenario};
use anyhow::ensure;
use polder_datapath::filter::{Action, Filters, Prefix, Rule, RuleCounts};
use polder_testbed::machine;
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

/// Gateways by the number of their rules. Without rules twice: how much two differ that are the same.
const GATEWAYS: [(usize, &str); 5] =
    [(0, "without rules"), (0, SAME), (1, ONE), (100, HUNDRED), (10_000, TEN_THOUSAND)];
const SAME: &str = "without rules, again";

fn measure(run: &mut Run) -> anyhow::Result<()> {
    let core = machine::cores() - 1;
    run.place("engine", core, "the only thread of each worker, pinned; they take turns");
    let (rounds, time) = run.quick_or((5, 200), (15, 600));
    let mut gateways = Vec::new();
    for (rules, row) in GATEWAYS {
        let harness = Harness::filtering(Path::Encapsulate, FLOWS, core, filters(rules, 1)?)?;
        harness.window(WARM_UP, WARM_UP)?;
        gateways.push((rules, row, harness));
    }
    let mut without = f64::NAN;
    let name = |(_, row, _): &(usize, &str, Harness)| (*row).to_owned();
    let sheet = in_turn(run, rounds, &mut gateways, name, |(_, row, harness), sheet| {
        let cost = cost(harness, Duration::from_millis(time))?;
        without = if *row == GATEWAYS[0].1 { cost } else { without };
        sheet.push(cost_of(row), cost);
        sheet.push(*row, cost - without);
        Ok(())
    })?;
    sheet.record(run);
    let batches =
        gateways.iter().map(|(rules, _, harness)| if *rules == 0 { harness.filter_batches() } else { 0 });
    run.record_one(STAGES, f64::from(u8::from(batches.max() > Some(0))));
    let (cost, differences) = (sheet.median(&cost_of(SAME)), sheet.samples(SAME));
    let (low, high) = differences.spread().unwrap_or_default();
    let median = sheet.median(SAME);
    run.remark(
        STAGES,
        format!("two gateways without rules: {cost:.1} ns a packet, apart by {median:.2} ns ({low:.2} to {high:.2})"),
    );
    for (rules, row, harness) in gateways {
        let size = filters(rules, 1)?.size();
        run.remark(
            row,
            format!(
                "{:.1} ns a packet in all; {} tables, compared with at most {} of {} boxes, {} KiB",
                sheet.median(&cost_of(row)),
                size.tables,
                size.most_compared,
                size.boxes,
                size.bytes.div_ceil(1024)
            ),
        );
        let left = harness.stop()?;
        ensure!(left.leaked == 0 && left.unaccounted == 0, "{rules} rules: {left:?}");
    }
    Ok(())
}

/// Name of a gateway's cost in the report, beside its increase over the cost without rules.
fn cost_of(row: &str) -> String {
    format!("{row}: a packet")
}

fn cost(harness: &Harness, time: Duration) -> anyhow::Result<f64> {
    let window = harness.window(WARM_UP / 10, time)?;
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
