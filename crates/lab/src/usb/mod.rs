//! Linux's own USB network gadgets as judges of our CDC driver, exported by Linux's own `usbip-host`.
//!
//! ```text
//!  this process                                  the guest
//!  checks ── driver ── USB/IP ── forwarded ── usbip-host ── dummy_hcd ── usb_f_ncm or usb_f_ecm ── usb0
//! ```
//!
//! The guest's network stack answers echo requests, so that every frame that goes there comes back and is
//! compared. One fault of the driver at a time, imitated between driver and USB/IP (`mutants`), shows that a
//! check finds what it is for.

mod checks;
pub mod gadget;
mod judge;
mod mutants;
mod station;
mod testbed;

pub use judge::{Judgement, available, examine};
