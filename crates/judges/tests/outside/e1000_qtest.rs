//! QEMU's e1000, without a guest, judges our driver: it passes, and broken ones do not.

use polder_judges::e1000;
use polder_testbed::skip::skip;

#[test]
fn the_emulated_controller_judges_the_driver() {
    if let Err(reason) = e1000::available() {
        return skip("the_emulated_controller_judges_the_driver", format!("{reason:#}"));
    }
    let verdict = e1000::examine(&|what| println!("{what}")).unwrap();
    println!("{verdict:#?}");
    verdict.require().unwrap();
}
