//! USB/IP: a USB device over a stream, between processes or machines.
//!
//! [`Server`] exports a model to any client, Linux's `vhci_hcd` or our own; [`Client`] is a
//! [`Transport`](crate::usb::Transport) to a device that Linux's `usbip-host` or a model exports. Own code,
//! because the protocol is small: two messages for set-up, four for transfers.
//!
//! Source: Linux, Documentation/usb/usbip_protocol.rst.

#[cfg(feature = "models")]
mod answer;
mod attach;
mod client;
mod list;
mod message;
mod outgoing;
#[cfg(feature = "models")]
mod server;

pub use attach::{ClientError, ServerAddress};
pub use client::Client;
pub use list::{Listed, list};
#[cfg(feature = "models")]
pub use server::{Server, ServerError, Stopper};
