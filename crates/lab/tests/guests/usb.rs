//! Linux judges USB network functions: its gadgets and its `usbip-host` our drivers, its drivers and
//! `mbimcli` our models. What is honest passes, and what is broken does not.

use crate::{judged, program};
use polder_devices::cdc::Subclass;
use polder_judges::usb;

#[test]
fn the_kernels_ncm_gadget_judges_the_driver() {
    let examine = |says: &dyn Fn(&str)| usb::examine(program(), Subclass::Ncm, says);
    judged("the_kernels_ncm_gadget_judges_the_driver", usb::available().map(drop), examine);
}

#[test]
fn the_kernels_ecm_gadget_judges_the_driver() {
    let examine = |says: &dyn Fn(&str)| usb::examine(program(), Subclass::Ecm, says);
    judged("the_kernels_ecm_gadget_judges_the_driver", usb::available().map(drop), examine);
}

#[test]
fn the_kernels_cdc_ncm_judges_the_model() {
    let examine = |says: &dyn Fn(&str)| usb::kernel::examine(program(), Subclass::Ncm, says);
    judged("the_kernels_cdc_ncm_judges_the_model", usb::kernel::available().map(drop), examine);
}

#[test]
fn the_kernels_cdc_ether_judges_the_model() {
    let examine = |says: &dyn Fn(&str)| usb::kernel::examine(program(), Subclass::Ecm, says);
    judged("the_kernels_cdc_ether_judges_the_model", usb::kernel::available().map(drop), examine);
}

#[test]
fn the_kernels_usbip_host_judges_the_driver() {
    let examine = |says: &dyn Fn(&str)| usb::usbip_host::examine(program(), says);
    judged("the_kernels_usbip_host_judges_the_driver", usb::usbip_host::available().map(drop), examine);
}

#[test]
fn mbimcli_judges_the_modem() {
    let examine = |says: &dyn Fn(&str)| usb::mbim::examine(program(), says);
    judged("mbimcli_judges_the_modem", usb::mbim::available().map(drop), examine);
}
