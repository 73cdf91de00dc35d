//! A gateway in a guest drives two e1000 by VFIO: it frees, opens, forwards, dies and gives back; broken ones are found out.

use crate::{program, says};
use polder_judges::e1000;
use polder_testbed::skip::skip;

#[test]
fn a_gateway_drives_pci_devices_by_vfio() {
    if let Err(reason) = e1000::guest_available() {
        return skip("a_gateway_drives_pci_devices_by_vfio", format!("{reason:#}"));
    }
    let says = says();
    let verdict = e1000::examine_in_guest(program(), &says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.passed.len() >= 16 && verdict.caught.len() >= 8);
}
