//! Linux's USB network gadgets, exported by Linux's `usbip-host`, judge our driver: it passes, and broken ones do
//! not.

use crate::{program, says};
use polder_devices::cdc::Subclass;
use polder_lab::skip::skip;
use polder_lab::usb;

fn judge(test: &str, subclass: Subclass, caught: usize) {
    if let Err(reason) = usb::available() {
        return skip(test, format!("{reason:#}"));
    }
    let says = says();
    let verdict = usb::examine(program(), subclass, &says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.passed.len() >= 20 && verdict.caught.len() >= caught);
}

#[test]
fn the_kernels_ncm_gadget_judges_the_driver() {
    judge("the_kernels_ncm_gadget_judges_the_driver", Subclass::Ncm, 10);
}

#[test]
fn the_kernels_ecm_gadget_judges_the_driver() {
    judge("the_kernels_ecm_gadget_judges_the_driver", Subclass::Ecm, 4);
}
