//! Public captures through the kernel's bridge and through Polder's: what leaves them is the same.
#![cfg(test)]

use polder_lab::replay::{self, Check};
use polder_lab::skip::skip;

/// Replays every `step`-th capture.
fn examine(name: &str, step: usize, captures: usize) {
    if let Err(reason) = replay::available() {
        return skip(name, format!("{reason:#}"));
    }
    let verdict = replay::examine(step, &|what| println!("{what}")).unwrap();
    println!("{verdict:#?}");
    assert!(verdict.captures >= captures && verdict.carried > 1000, "{} captures", verdict.captures);
    for check in Check::REQUIRED {
        let failures = verdict.failures_of(check);
        assert_eq!(failures, 0, "{}: {:#?}", check.name(), verdict.failures.get(&check));
    }
    assert!(verdict.missed.is_empty(), "passed for honest: {:?}", verdict.missed);
    assert_eq!(verdict.caught.len(), replay::MUTANTS);
}

#[test]
fn captures_leave_polders_bridge_as_they_came() {
    examine("captures_leave_polders_bridge_as_they_came", 4, 50);
}

#[test]
#[ignore = "long: every capture"]
fn all_captures_leave_polders_bridge_as_they_came() {
    examine("all_captures_leave_polders_bridge_as_they_came", 1, 200);
}
