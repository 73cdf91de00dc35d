//! The LAN78xx adapter: its model by hand, its formats on hostile bytes, and our driver on the model.
#![cfg(test)]
#![cfg(feature = "lan78xx")]

#[cfg(test)]
mod bench;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod formats;
#[cfg(test)]
mod hand;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod model;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod silicon;
#[cfg(test)]
mod techniques;
#[cfg(test)]
#[path = "../usb/mod.rs"]
mod usb;
#[cfg(test)]
mod usbip;
