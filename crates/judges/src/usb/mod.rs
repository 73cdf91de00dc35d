//! Linux as judge of USB: its own network gadgets of our CDC driver, exported by its own `usbip-host` (here), its
//! drivers of our CDC model ([`kernel`]), `mbimcli` of our modem ([`mbim`]), and `usbip-host` of our driver for LAN78xx
//! ([`usbip_host`]).
//!
//! ```text
//!  this process                                  the guest
//!  checks ── driver ── USB/IP ── forwarded ── usbip-host ── dummy_hcd ── usb_f_ncm or usb_f_ecm ── usb0
//! ```
//!
//! The guest's network stack answers echo requests, so that every frame that goes there comes back and is
//! compared. One fault of the driver at a time, imitated between driver and USB/IP (`mutants`), shows that a
//! check finds what it is for.

mod bed;
mod bus;
mod checks;
mod echoes;
pub mod export;
mod forwards;
pub mod gadget;
mod inside;
mod judge;
pub mod kernel;
pub mod mbim;
mod mutants;
mod served;
mod station;
mod testbed;
mod turns;
pub mod usbip_host;

pub use bus::Bus;
pub use judge::{available, examine};
pub use served::{Door, Served};
