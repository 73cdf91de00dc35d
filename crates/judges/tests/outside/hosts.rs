//! Hosts as people have them: what worked before Polder started works after.

use polder_judges::hosts::{self, Mode, Selection};
use polder_testbed::clock;
use polder_testbed::skip::skip;

/// Examines what `choose` makes of a quick selection, and asserts that nothing breaks.
fn examine(name: &str, choose: impl FnOnce(Selection) -> Selection) {
    if let Err(reason) = hosts::available() {
        return skip(name, format!("{reason:#}"));
    }
    let start = clock::now();
    let says = |what: &str| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64());
    let selection =
        Selection { only: Vec::new(), modes: vec![Mode::Skb], quick: true, mutants: false, at_a_time: 5 };
    let seen = hosts::examine(&choose(selection), &says).unwrap();
    says("ended");
    println!("{seen:#?}");
    seen.verdict.require().unwrap();
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
