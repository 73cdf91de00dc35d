//! CDC network functions: blocks against an independent encoder, hostile bytes, and our driver on the model.
#![cfg(test)]
#![cfg(feature = "cdc")]

#[cfg(test)]
mod blocks;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod modem;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod stand;
#[cfg(test)]
#[path = "../usb/mod.rs"]
mod usb;
