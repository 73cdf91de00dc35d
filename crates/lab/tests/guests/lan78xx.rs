//! The kernel's lan78xx driver, in a guest, examines the model: honest ones pass, broken ones do not.

use crate::{program, says};
use polder_judges::lan78xx::judge;
use polder_testbed::skip::skip;

#[test]
fn the_kernel_judges_the_model() {
    if let Err(reason) = judge::available() {
        return skip("the_kernel_judges_the_model", format!("{reason:#}"));
    }
    let says = says();
    let verdict = judge::examine(program(), &says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.caught.len() >= 6 && verdict.passed.len() >= 40);
}
