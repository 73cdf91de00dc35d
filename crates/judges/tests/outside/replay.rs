//! Public captures through the kernel's bridge and through Polder's: what leaves them is the same.

use polder_judges::replay::{self, Check};
use polder_testbed::skip::skip;

#[test]
fn captures_leave_polders_bridge_as_they_came() {
    if let Err(reason) = replay::available() {
        return skip("captures_leave_polders_bridge_as_they_came", format!("{reason:#}"));
    }
    let verdict = replay::examine(1, &|what| println!("{what}")).unwrap();
    println!("{verdict:#?}");
    assert!(verdict.captures >= 300 && verdict.carried > 10_000, "{} captures", verdict.captures);
    for check in Check::REQUIRED {
        let failures = verdict.failures_of(check);
        assert_eq!(failures, 0, "{}: {:#?}", check.name(), verdict.failures.get(&check));
    }
    verdict.faults.require().unwrap();
}
