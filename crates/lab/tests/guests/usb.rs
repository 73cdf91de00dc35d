//! Linux judges USB network functions: its gadgets and its `usbip-host` our drivers, its drivers and
//! `mbimcli` our models. What is honest passes, and what is broken does not.

use crate::{program, says};
use polder_devices::cdc::Subclass;
use polder_judges::usb::{self, Judgement};
use polder_testbed::guest::Kernel;
use polder_testbed::skip::skip;

fn judged(
    test: &str,
    available: anyhow::Result<Kernel>,
    examine: impl FnOnce(&dyn Fn(&str)) -> anyhow::Result<Judgement>,
    caught: usize,
) {
    if let Err(reason) = available {
        return skip(test, format!("{reason:#}"));
    }
    let says = says();
    let verdict = examine(&says).unwrap();
    says("ended");
    println!("{verdict:#?}");
    assert!(verdict.failed.is_empty(), "failed: {:#?}", verdict.failed);
    assert!(verdict.missed.is_empty(), "not found out: {:#?}", verdict.missed);
    assert!(verdict.passed.len() >= 20 && verdict.caught.len() >= caught);
}

#[test]
fn the_kernels_ncm_gadget_judges_the_driver() {
    let examine = |says: &dyn Fn(&str)| usb::examine(program(), Subclass::Ncm, says);
    judged("the_kernels_ncm_gadget_judges_the_driver", usb::available(), examine, 10);
}

#[test]
fn the_kernels_ecm_gadget_judges_the_driver() {
    let examine = |says: &dyn Fn(&str)| usb::examine(program(), Subclass::Ecm, says);
    judged("the_kernels_ecm_gadget_judges_the_driver", usb::available(), examine, 4);
}

#[test]
fn the_kernels_cdc_ncm_judges_the_model() {
    let examine = |says: &dyn Fn(&str)| usb::kernel::examine(program(), Subclass::Ncm, says);
    judged("the_kernels_cdc_ncm_judges_the_model", usb::kernel::available(), examine, 6);
}

#[test]
fn the_kernels_cdc_ether_judges_the_model() {
    let examine = |says: &dyn Fn(&str)| usb::kernel::examine(program(), Subclass::Ecm, says);
    judged("the_kernels_cdc_ether_judges_the_model", usb::kernel::available(), examine, 6);
}

#[test]
fn the_kernels_usbip_host_judges_the_driver() {
    let examine = |says: &dyn Fn(&str)| usb::usbip_host::examine(program(), says);
    judged("the_kernels_usbip_host_judges_the_driver", usb::usbip_host::available(), examine, 13);
}

#[test]
fn mbimcli_judges_the_modem() {
    let examine = |says: &dyn Fn(&str)| usb::mbim::examine(program(), says);
    judged("mbimcli_judges_the_modem", usb::mbim::available(), examine, 9);
}
