//! Closing of AF_XDP sockets on a separate thread.
//!
//! The kernel takes milliseconds to close a socket, and a worker has other ports to serve meanwhile. A second
//! socket finds out if the driver has released the memory; a worker may lack the right to open one.

use super::bind::{SMALLEST_RING, Transfer, bind, register};
use polder_buffers::{Frame, Region, RegionOptions};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Channel to the closing thread, one for the process; unset without one.
static CLOSER: OnceLock<Sender<End>> = OnceLock::new();

/// Thread body that closes the sockets that other threads hand over.
#[derive(Debug)]
pub struct Closer(Receiver<End>);

impl Closer {
    /// Returns the closer of this process, for a thread to [run](Self::run); `None` if it was taken before.
    ///
    /// Without one, each socket is closed by a thread of its own.
    pub fn new() -> Option<Self> {
        let (sender, receiver) = channel();
        CLOSER.set(sender).ok().map(|()| Self(receiver))
    }

    /// Closes sockets for as long as the process lives.
    pub fn run(self) {
        while let Ok(first) = self.0.recv() {
            let mut ends = std::iter::once(first).chain(self.0.try_iter()).collect::<Vec<_>>();
            // All are closed before drivers are waited for, so that the drivers release them at the same
            // time.
            ends.iter_mut().for_each(End::close);
        }
    }
}

/// Hands a socket to the closing thread.
pub(super) fn hand_over(end: End) {
    let end = match CLOSER.get() {
        Some(closer) => match closer.send(end) {
            Ok(()) => return,
            Err(unsent) => unsent.0,
        },
        None => end,
    };
    // If the thread cannot be started, the socket is closed here.
    let _ = std::thread::Builder::new().name("close-af-xdp".to_owned()).spawn(move || drop(end));
}

/// A closed queue's socket, and the frames that the kernel may use until the socket is closed.
#[derive(Debug)]
pub(super) struct End {
    pub(super) region: Region,
    pub(super) frames: Vec<Frame>,
    pub(super) socket: Option<OwnedFd>,
    /// Interface and queue number, in zero-copy mode.
    pub(super) device: Option<(u32, u32)>,
}

impl End {
    /// Closes the socket. In copy mode the kernel writes to the region only while the socket is open.
    fn close(&mut self) {
        drop(self.socket.take());
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let frames = core::mem::take(&mut self.frames);
        self.close();
        if self.device.is_some_and(|(interface, queue)| !device_has_let_go(interface, queue)) {
            // The device may still write to these frames: they are leaked, which is the lesser evil.
            core::mem::forget(frames);
            return;
        }
        let mut pool = self.region.pool();
        frames.into_iter().for_each(|frame| pool.release_frame(frame));
    }
}

/// Waits until the driver has released the memory of a closed zero-copy socket.
///
/// The kernel detaches the memory from the driver some time after the close, and refuses a binding to the
/// queue until then: a successful binding is the proof.
fn device_has_let_go(interface: u32, queue: u32) -> bool {
    let Ok(region) = Region::new(RegionOptions { slots: 2, slot_bytes: 2048 }) else {
        return false;
    };
    let probe = || {
        let socket =
            rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        register(&socket, &region)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, SMALLEST_RING)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, SMALLEST_RING)?;
        sockopt::set_xdp_tx_ring_size(&socket, SMALLEST_RING)?;
        bind(&socket, interface, queue, Transfer { zero_copy: false, multi_buffer: false }, None)
    };
    // Before an interface is deleted, the kernel detaches it from its driver.
    matches!(probe(), Ok(()) | Err(Errno::NODEV))
}
