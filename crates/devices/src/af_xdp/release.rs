//! Release of an interface that a process has left closed.

use super::error::PinError;
use super::offloads;
use super::pin::PinnedLink;
use crate::bpf::sys;
use std::os::fd::AsFd as _;

/// Opens an interface that a process has left closed, and restores offloads that a process has left off;
/// returns true if there was anything to do.
///
/// If a process still uses the interface, that process loses all packets from here on.
///
/// # Errors
/// [`PinError`] if the BPF file system refuses.
pub fn release(interface: &str) -> Result<bool, PinError> {
    let put_back = offloads::put_back(interface);
    let place = match PinnedLink::of(interface) {
        Ok(place) => place,
        Err(PinError::NoFileSystem { .. }) => return Ok(put_back),
        Err(error @ PinError::Path { .. }) => return Err(error),
    };
    let Some(pinned) = place.find()? else { return Ok(put_back) };
    // A link is deleted with its last name unless a process has it open; then it is detached at least.
    let detached = if pinned.interface == 0 { Ok(()) } else { sys::detach_link(pinned.link.as_fd()) };
    pinned.unpin().map_err(|errno| place.error("remove", errno))?;
    detached.map_err(|errno| place.error("detach", errno))?;
    Ok(true)
}
