//! USB network functions: Linux as judge of drivers and models, frames through NCM, signalling beside data, and the
//! buffers of received blocks.

pub(super) mod blocks;
mod counted;
mod packing;
mod signalling;
mod volume;

pub use blocks::inside as receive_under_pressure;

use super::judges::{Examine, Judge, Rows, rows};
use super::{Run, Scenario};
use polder_devices::cdc::Subclass;
use polder_judges::usb;

/// Driver and model, and the guest that has the other.
const PLACES: &[(&str, &str)] =
    &[("driver or model", "thread of this process"), ("the guest", "emulated processor")];

const fn judge(rows: Rows, available: fn() -> anyhow::Result<()>, examine: Examine) -> Judge {
    Judge { rows, places: PLACES, available, examine }
}

fn gadgets() -> anyhow::Result<()> {
    usb::available().map(drop)
}

fn drivers() -> anyhow::Result<()> {
    usb::kernel::available().map(drop)
}

/// Every judge.
const JUDGES: [Judge; 6] = [
    judge(rows!("usb.ncm_gadget"), gadgets, |program, says| usb::examine(program, Subclass::Ncm, says)),
    judge(rows!("usb.ecm_gadget"), gadgets, |program, says| usb::examine(program, Subclass::Ecm, says)),
    judge(rows!("usb.cdc_ncm"), drivers, |program, says| usb::kernel::examine(program, Subclass::Ncm, says)),
    judge(rows!("usb.cdc_ether"), drivers, |program, says| {
        usb::kernel::examine(program, Subclass::Ecm, says)
    }),
    judge(rows!("usb.cdc_mbim"), || usb::mbim::available().map(drop), usb::mbim::examine),
    judge(rows!("usb.usbip_host"), || usb::usbip_host::available().map(drop), usb::usbip_host::examine),
];

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "usb",
    about: "Linux judges USB drivers and models; frames through NCM; signalling beside data",
    needs_root: false,
    rows: include_str!("../rows/usb.rows"),
    measure,
};

fn measure(run: &mut Run) -> anyhow::Result<()> {
    volume::measure(run)?;
    counted::measure(run)?;
    packing::measure(run)?;
    signalling::measure(run)?;
    blocks::measure(run)?;
    JUDGES.iter().try_for_each(|judge| judge.measure(run))
}
