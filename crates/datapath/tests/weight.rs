//! Weights in virtual time: shares follow them, whatever packets cost, and when they change.

use polder_datapath::port::Turn;
use polder_datapath::scheduler::{MAX_WEIGHT, MOST, Options, Outcome, RunQueue, WEIGHT};
use polder_datapath::units::Nanos;

/// Runs queues that always have more packets for `time`; returns the time that each has had. A packet of
/// queue *i* costs `costs[i]`, and each turn 200 ns beside.
fn shares(line: &mut RunQueue, costs: &[u64], now: &mut u64, time: u64) -> Vec<u64> {
    let (mut had, end) = (vec![0; costs.len()], *now + time);
    while *now < end {
        line.begin(Nanos(*now), None);
        while let Some(grant) = line.next(Nanos(*now), None) {
            let took = 200 + costs[grant.index] * u64::from(grant.packets);
            *now += took;
            had[grant.index] += took;
            let outcome = Outcome {
                packets: grant.packets,
                took: Some(Nanos(took)),
                turn: Turn::OutOfBudget,
                unwanted: false,
                elsewhere: true,
                has_backlog: false,
            };
            line.ended(grant, outcome, Nanos(*now));
        }
    }
    had
}

fn part(had: &[u64], index: usize) -> f64 {
    had[index] as f64 / had.iter().sum::<u64>() as f64
}

#[test]
fn shares_follow_weights_that_change() {
    let (mut line, mut now) = (RunQueue::new(Options::default()), 0);
    (0..2).for_each(|_| line.add(WEIGHT, false));
    let costs = [250, 1_000];
    for (weight, fair) in [(WEIGHT, 0.5), (300, 0.75), (10, 1.0 / 11.0), (WEIGHT, 0.5)] {
        line.set_weight(0, weight);
        // It is on its way there for some cycles.
        shares(&mut line, &costs, &mut now, 10_000_000);
        let had = shares(&mut line, &costs, &mut now, 100_000_000);
        assert!((part(&had, 0) - fair).abs() < 0.03, "{had:?}, weight {weight}");
    }
}

#[test]
fn who_has_hardly_any_weight_has_a_packet_a_cycle() {
    let (mut line, mut now) = (RunQueue::new(Options::default()), 0);
    line.add(1, false);
    line.add(MAX_WEIGHT, false);
    let had = shares(&mut line, &[2_000, 2_000], &mut now, 100_000_000);
    // Of 200 µs a packet takes one part in a hundred.
    assert!((0.005..0.03).contains(&part(&had, 0)), "{had:?}");
}

#[test]
fn a_fixed_budget_is_that_of_ordinary_weight() {
    let mut line = RunQueue::new(Options { budget: Some(64), ..Options::default() });
    let budgets = [(1, 1), (50, 32), (WEIGHT, 64), (300, 192), (MAX_WEIGHT, MOST)];
    budgets.iter().for_each(|&(weight, _)| line.add(weight, false));
    for (index, &(weight, budget)) in budgets.iter().enumerate() {
        assert_eq!(line.budget(index), budget, "of weight {weight}");
    }
}
