//! QEMU's e1000, without a guest, judges our driver: it passes, and broken ones do not.
#![cfg(test)]

use polder_judges::e1000;
use polder_testbed::clock;
use polder_testbed::skip::skip;

#[test]
fn the_emulated_controller_judges_the_driver() {
    if let Err(reason) = e1000::available() {
        return skip("the_emulated_controller_judges_the_driver", format!("{reason:#}"));
    }
    let start = clock::now();
    let verdict = e1000::examine().unwrap();
    println!("{:.1} s {verdict:#?}", (clock::now() - start).as_secs_f64());
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.passed.len() >= 28 && verdict.caught.len() >= 8);
}
