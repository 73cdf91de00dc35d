//! Devices against their other side. A module a device; what needs root says so when it is not.
#![cfg(test)]

#[cfg(test)]
mod common;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod liars;
#[cfg(test)]
mod pair;

#[cfg(test)]
#[cfg(feature = "af_xdp")]
mod af_xdp;
#[cfg(test)]
#[cfg(feature = "skb")]
mod skb;
#[cfg(test)]
#[cfg(feature = "tap")]
mod tap;
