//! The kernel's forwarding selftests, rebuilt: what passes with the kernel as the forwarder passes with Polder.

use crate::{program, says};
use polder_judges::selftests::{self, Outcome};
use polder_testbed::skip::skip;

/// Runs the selftests that `wanted` chooses: none fails, and every broken forwarder is found.
fn examine(name: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<Outcome> {
    if let Err(reason) = selftests::available() {
        skip(name, format!("{reason:#}"));
        return Vec::new();
    }
    let says = says();
    let verdicts = selftests::examine(program(), wanted, &says).unwrap();
    says("ended");
    println!("{verdicts:#?}");
    let bad = verdicts.iter().flat_map(|(_, verdict)| verdict.failed.iter().chain(&verdict.missed));
    let bad = bad.collect::<Vec<_>>();
    assert!(bad.is_empty(), "{bad:#?}");
    verdicts
}

/// Selftests that need no guest, without those that look at packets in tunnels.
fn is_short(name: &str) -> bool {
    !selftests::needs_guest(name) && !name.starts_with("gre_")
}

#[test]
fn selftests_pass_with_polder() {
    let verdicts = examine("selftests_pass_with_polder", &is_short);
    let passed = verdicts.iter().map(|(_, verdict)| verdict.passed.len()).sum::<usize>();
    assert!(verdicts.is_empty() || passed >= 55, "{passed} checks passed");
}

#[test]
#[ignore = "long: every selftest"]
fn all_selftests_pass_with_polder() {
    let verdicts = examine("all_selftests_pass_with_polder", &|_| true);
    let passed = verdicts.iter().map(|(_, verdict)| verdict.passed.len()).sum::<usize>();
    assert!(verdicts.is_empty() || passed >= 80, "{passed} checks passed");
}
