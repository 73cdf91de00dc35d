//! A Linux kernel's gretap, ip6gretap, gre and ip6gre, in a guest, examine Polder's: an honest one passes, broken ones
//! do not.

use crate::{program, says};
use polder_judges::tunnels;
use polder_testbed::skip::skip;

#[test]
fn the_kernel_judges_tunnels() {
    if let Err(reason) = tunnels::available() {
        return skip("the_kernel_judges_tunnels", format!("{reason:#}"));
    }
    let says = says();
    let verdict = tunnels::examine(program(), &says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.caught.len() >= 12 && verdict.passed.len() >= 170);
}
