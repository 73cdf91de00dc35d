//! Settings of the TAP that keep foreign packets away from it, and its state.

use crate::af_xdp::link::{self, Which};
use crate::bpf::window::{CHARGE, DEEP_BYTES};
use crate::netlink::{Client, put};
use rustix::io::Errno;

/// State of a TAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TapState {
    pub(super) up: bool,
    /// Number of packets that it has dropped because they were not read in time.
    pub(super) dropped: u64,
}

/// Gives the TAP a ring as long as the largest window as its only queue, and no addresses; its alias names
/// its interface.
pub(super) fn prepare(index: u32, interface: &str, window_bytes: u32) -> Result<(), Errno> {
    let mut client = Client::open(None)?;
    // The window is full before the ring, unless the kernel segments packets.
    let length = window_bytes.max(DEEP_BYTES) / u32::from(CHARGE) + SPARE;
    let mut body = header(index, 0);
    put(&mut body, libc::IFLA_TXQLEN, &length.to_ne_bytes());
    put(&mut body, libc::IFLA_IFALIAS, alias(interface).as_bytes());
    client.ask(libc::RTM_NEWLINK, &body)?;
    // A kernel without IPv6 assigns no addresses anyway.
    let _ = client.ask(libc::RTM_NEWLINK, &no_addresses(index));
    let mut body = vec![0; 20];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[12..16].copy_from_slice(&ROOT.to_ne_bytes());
    put(&mut body, KIND, b"noqueue\0");
    client.replace(libc::RTM_NEWQDISC, &body)
}

/// Sets another interface in the alias of the TAP.
pub(super) fn rename(index: u32, interface: &str) -> Result<(), Errno> {
    let mut body = header(index, 0);
    put(&mut body, libc::IFLA_IFALIAS, alias(interface).as_bytes());
    Client::open(None)?.ask(libc::RTM_NEWLINK, &body).map(drop)
}

fn alias(interface: &str) -> String {
    format!("Polder's packets of {interface}")
}

/// Sets the TAP up.
pub(super) fn switch_on(index: u32) -> Result<(), Errno> {
    Client::open(None)?.ask(libc::RTM_NEWLINK, &header(index, libc::IFF_UP.cast_unsigned())).map(drop)
}

/// Returns the TAP's state.
///
/// # Errors
/// `NODEV` if it is gone.
pub(super) fn state(index: u32) -> Result<TapState, Errno> {
    let link = link::query(Which::Index(index))?;
    Ok(TapState { up: link.up, dropped: link.transmit_dropped })
}

/// Returns the `ifinfomsg` of an interface, with flags to set.
fn header(index: u32, flags: u32) -> Vec<u8> {
    let mut body = vec![0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&flags.to_ne_bytes());
    body[12..16].copy_from_slice(&flags.to_ne_bytes());
    body
}

/// Returns the attribute `IFLA_AF_SPEC` for `AF_INET6` that switches the generation of addresses off.
fn no_addresses(index: u32) -> Vec<u8> {
    let (mut mode, mut family, mut body) = (Vec::new(), Vec::new(), header(index, 0));
    put(&mut mode, ADDRESSES_ARE_MADE, &[NOT_AT_ALL]);
    put(&mut family, IPV6, &mode);
    put(&mut body, libc::IFLA_AF_SPEC, &family);
    body
}

/// Entries of the TAP's ring beyond those that the window can fill.
const SPARE: u32 = 1024;
/// `TC_H_ROOT` and `TCA_KIND`.
const ROOT: u32 = u32::MAX;
const KIND: u16 = 1;
/// `AF_INET6`, `IFLA_INET6_ADDR_GEN_MODE`, `IN6_ADDR_GEN_MODE_NONE`.
const IPV6: u16 = 10;
const ADDRESSES_ARE_MADE: u16 = 8;
const NOT_AT_ALL: u8 = 1;
