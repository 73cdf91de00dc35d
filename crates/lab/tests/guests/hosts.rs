//! Hosts as people have them, whose software needs kernel modules that this machine lacks: the same recipes, probes and
//! faults, judged in a guest with Debian's kernel.

use crate::{program, says};
use polder_judges::hosts::{Mode, Selection, inside};
use polder_testbed::skip::skip;

const TEST: &str = "what_worked_before_polder_works_beside_it_on_another_kernel";

#[test]
#[ignore = "long: the daemons of recipes in an emulated machine"]
fn what_worked_before_polder_works_beside_it_on_another_kernel() {
    if let Err(reason) = inside::available() {
        return skip(TEST, format!("{reason:#}"));
    }
    // Recipes by parts of their names, for a person who has changed one.
    let only = std::env::var("POLDER_HOSTS_ONLY").unwrap_or_default();
    let selection = Selection {
        only: only.split_whitespace().map(str::to_owned).collect(),
        modes: vec![Mode::Skb],
        quick: true,
        mutants: true,
        at_a_time: 2,
    };
    let says = says();
    let seen = inside::examine(program(), &selection, &says).unwrap();
    says("ended");
    println!("{seen:#?}");
    seen.verdict.require().unwrap();
}
