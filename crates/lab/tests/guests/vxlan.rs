//! This machine's kernel examines Polder's VXLAN: an honest one passes, broken ones do not.

use crate::says;
use polder_judges::vxlan;
use polder_testbed::skip::skip;

#[test]
fn the_kernel_judges_vxlan() {
    if let Err(reason) = vxlan::available() {
        return skip("the_kernel_judges_vxlan", format!("{reason:#}"));
    }
    let says = says();
    let verdict = vxlan::examine(&says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.caught.len() >= 13 && verdict.passed.len() >= 80);
}
