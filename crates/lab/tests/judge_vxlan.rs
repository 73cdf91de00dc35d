//! This machine's kernel examines Polder's VXLAN: an honest one passes, broken ones do not.
#![cfg(test)]

use polder_lab::skip::skip;
use polder_lab::{clock, vxlan};

#[test]
fn the_kernel_judges_vxlan() {
    if let Err(reason) = vxlan::available() {
        return skip("the_kernel_judges_vxlan", format!("{reason:#}"));
    }
    let start = clock::now();
    let says = |what: &str| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64());
    let verdict = vxlan::examine(&says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.caught.len() >= 13 && verdict.passed.len() >= 80);
}
