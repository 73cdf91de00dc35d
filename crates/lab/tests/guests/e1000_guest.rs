//! A gateway in a guest drives two e1000 by VFIO: it frees, opens, forwards, dies and gives back; broken ones are found out.

use crate::{judged, program};
use polder_judges::e1000;

#[test]
fn a_gateway_drives_pci_devices_by_vfio() {
    let examine = |says: &dyn Fn(&str)| e1000::examine_in_guest(program(), says);
    judged("a_gateway_drives_pci_devices_by_vfio", e1000::guest_available().map(drop), examine);
}
