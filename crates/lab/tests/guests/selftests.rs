//! The kernel's forwarding selftests, rebuilt: what passes with the kernel as the forwarder passes with Polder.

use crate::{program, says};
use polder_judges::selftests;
use polder_testbed::skip::skip;
use std::collections::BTreeSet;

/// Runs the selftests that `wanted` chooses: none fails, and every broken forwarder is found.
fn examine(name: &str, wanted: &dyn Fn(&str) -> bool) {
    if let Err(reason) = selftests::available() {
        return skip(name, format!("{reason:#}"));
    }
    let says = says();
    let verdicts = selftests::examine(program(), wanted, &says).unwrap();
    says("ended");
    println!("{verdicts:#?}");
    let examined = verdicts.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>();
    assert_eq!(examined, selftests::names().filter(|name| wanted(name)).collect::<BTreeSet<_>>());
    verdicts.iter().for_each(|(name, verdict)| verdict.require().expect(name));
}

/// Selftests that need no guest, without those that look at packets in tunnels.
fn is_short(name: &str) -> bool {
    !selftests::needs_guest(name) && !name.starts_with("gre_")
}

#[test]
fn selftests_pass_with_polder() {
    examine("selftests_pass_with_polder", &is_short);
}

#[test]
#[ignore = "long: every selftest"]
fn all_selftests_pass_with_polder() {
    examine("all_selftests_pass_with_polder", &|_| true);
}
