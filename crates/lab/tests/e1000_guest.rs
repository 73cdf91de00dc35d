//! A gateway in a guest drives two e1000 by VFIO: it frees, opens, forwards, dies and gives back.
#![cfg(test)]

use polder_lab::skip::skip;
use polder_lab::{clock, e1000};
use std::path::Path;

#[test]
fn a_gateway_drives_pci_devices_by_vfio() {
    if let Err(reason) = e1000::guest_available() {
        return skip("a_gateway_drives_pci_devices_by_vfio", format!("{reason:#}"));
    }
    let start = clock::now();
    let says = |what: &str| println!("{:6.1} s {what}", (clock::now() - start).as_secs_f64());
    let program = Path::new(env!("CARGO_BIN_EXE_polder-lab"));
    let verdict = e1000::examine_in_guest(program, &says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.passed.len() >= 12);
}
