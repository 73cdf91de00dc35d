//! Linux's e1000 driver, in a guest, judges our model of the controller: it passes, and models that deviate do not.

use crate::{program, says};
use polder_judges::e1000;
use polder_testbed::skip::skip;

#[test]
fn the_kernels_driver_judges_the_model() {
    if let Err(reason) = e1000::kernel_available() {
        return skip("the_kernels_driver_judges_the_model", format!("{reason:#}"));
    }
    let says = says();
    let mut verdict = e1000::examine_model(program(), &says).unwrap();
    if !verdict.failed.is_empty() {
        // On a busy machine the emulated guest may answer late; a model that is wrong is so twice.
        says(&format!("once more: {:?}", verdict.failed));
        verdict = e1000::examine_model(program(), &says).unwrap();
    }
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.passed.len() >= 12 && verdict.caught.len() >= 6);
}
