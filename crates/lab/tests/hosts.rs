//! Hosts as people have them: what worked before Polder started works after.
#![cfg(test)]

use polder_judges::hosts::{self, Mode, Name, Selection, Verdict};
use polder_testbed::clock;
use polder_testbed::skip::skip;

/// Probes that do not work with Polder yet.
const EXPECTED_BROKEN: &[Name] = &[];

/// Examines what `choose` makes of a quick selection, and asserts that nothing breaks.
fn examine(name: &str, choose: impl FnOnce(Selection) -> Selection) {
    if let Err(reason) = hosts::available() {
        return skip(name, format!("{reason:#}"));
    }
    let start = clock::now();
    let says = |what: &str| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64());
    let selection = Selection {
        only: Vec::new(),
        modes: vec![Mode::Skb],
        quick: true,
        mutants: false,
        at_a_time: 5,
        known: EXPECTED_BROKEN.to_vec(),
    };
    let verdict = hosts::examine(&choose(selection), &says).unwrap();
    says("ended");
    for (recipe, reason) in &verdict.skipped {
        skip(&format!("{name} {recipe}"), reason);
    }
    println!("{verdict:#?}");
    judge(&verdict);
}

fn judge(verdict: &Verdict) {
    let worked = EXPECTED_BROKEN.iter().filter(|name| !verdict.broken.contains_key(*name));
    println!("expected to be broken, and works: {:?}", worked.collect::<Vec<_>>());
    let broken = verdict.broken.iter().filter(|(name, _)| !EXPECTED_BROKEN.contains(name));
    assert_eq!(broken.collect::<Vec<_>>(), [], "broken");
    assert!(verdict.void.is_empty(), "does not work with the kernel alone: {:#?}", verdict.void);
    assert!(verdict.false_alarms.is_empty(), "false alarms: {:#?}", verdict.false_alarms);
    assert!(verdict.missed.is_empty(), "not found: {:#?}", verdict.missed);
}

#[test]
fn what_worked_before_polder_works_beside_it() {
    examine("what_worked_before_polder_works_beside_it", |quick| quick);
}

#[test]
#[ignore = "long: every phase, mode and fault"]
fn what_worked_before_polder_works_in_every_phase_and_mode() {
    examine("what_worked_before_polder_works_in_every_phase_and_mode", |quick| Selection {
        modes: Mode::ALL.to_vec(),
        quick: false,
        mutants: true,
        ..quick
    });
}
