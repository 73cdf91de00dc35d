//! USB network functions: Linux as judge of drivers and models, frames through NCM, signalling beside data, and the
//! buffers of received blocks.

pub(super) mod blocks;
mod counted;
mod packing;
mod signalling;
mod volume;

pub use blocks::inside as receive_under_pressure;

use super::judges::{Examine, Judge, Rows, promises, rows};
use super::{Goal, Promise, Run, Scenario};
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

/// Goals of checks passed and faults found.
const GOALS: [Goal; 2] = [Goal::Value(20.0), Goal::Value(6.0)];

/// Rows of single measurements.
const SINGLE: [Promise; 8] = [
    volume::LOST,
    counted::NOT_SENT,
    packing::FILL,
    packing::RATIO,
    packing::NANOS[0],
    packing::NANOS[1],
    signalling::RATIO[0],
    signalling::RATIO[1],
];

const PROMISES: &[Promise] = &{
    const ROWS: usize = 3;
    const JUDGED: usize = JUDGES.len() * ROWS;
    const BLOCKS: &[Promise] = blocks::ROWS.as_flattened();
    let mut all = [SINGLE[0]; JUDGED + SINGLE.len() + BLOCKS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < JUDGED {
            promises(JUDGES[at / ROWS].rows, GOALS)[at % ROWS]
        } else if at < JUDGED + SINGLE.len() {
            SINGLE[at - JUDGED]
        } else {
            BLOCKS[at - JUDGED - SINGLE.len()]
        };
        at += 1;
    }
    all
};

/// The scenario.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "usb",
    about: "Linux judges USB drivers and models; frames through NCM; signalling beside data",
    needs_root: false,
    promises: PROMISES,
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
