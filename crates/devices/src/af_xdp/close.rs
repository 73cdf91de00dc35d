//! The end of AF_XDP sockets, on a thread that has the time for it.
//!
//! The kernel takes milliseconds to close a socket, in which a worker has other ports to serve. Whether a driver has
//! given memory back is found out by another socket, which a worker may have no right to make.

use super::bind::{SMALLEST_RING, Transfer, bind, register};
use polder_buffers::{Frame, Region, RegionOptions};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The way to the thread that closes sockets, if there is one: one for the process, like the sockets themselves.
static CLOSER: OnceLock<Sender<End>> = OnceLock::new();

/// Closes the sockets that other threads are done with.
#[derive(Debug)]
pub struct Closer(Receiver<End>);

impl Closer {
    /// The closer of this process, for a thread that [runs](Self::run) it; `None` when it was given out before.
    ///
    /// Without one, a thread is started for each socket.
    pub fn new() -> Option<Self> {
        let (sender, receiver) = channel();
        CLOSER.set(sender).ok().map(|()| Self(receiver))
    }

    /// Closes sockets for as long as the process lives.
    pub fn run(self) {
        while let Ok(first) = self.0.recv() {
            let mut ends = std::iter::once(first).chain(self.0.try_iter()).collect::<Vec<_>>();
            // All of them before drivers are waited for, which then let go at the same time.
            ends.iter_mut().for_each(End::close);
        }
    }
}

/// Closes a socket, later and elsewhere.
pub(super) fn hand_over(end: End) {
    let end = match CLOSER.get() {
        Some(closer) => match closer.send(end) {
            Ok(()) => return,
            Err(unsent) => unsent.0,
        },
        None => end,
    };
    // Without a thread it happens here.
    let _ = std::thread::Builder::new().name("close-af-xdp".to_owned()).spawn(move || drop(end));
}

/// Remains of a queue: its socket, and the frames that the kernel may use until that is closed.
#[derive(Debug)]
pub(super) struct End {
    pub(super) region: Region,
    pub(super) frames: Vec<Frame>,
    pub(super) socket: Option<OwnedFd>,
    /// Interface and queue, in zero-copy mode.
    pub(super) device: Option<(u32, u32)>,
}

impl End {
    /// In copy mode the kernel writes to the region while the socket is open and not later.
    fn close(&mut self) {
        drop(self.socket.take());
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let frames = core::mem::take(&mut self.frames);
        self.close();
        if self.device.is_some_and(|(interface, queue)| !device_has_let_go(interface, queue)) {
            // The device may still write to these frames. They are lost, which is the lesser evil.
            core::mem::forget(frames);
            return;
        }
        let mut pool = self.region.pool();
        frames.into_iter().for_each(|frame| pool.release_frame(frame));
    }
}

/// Waits until the driver has given up the memory of a closed zero-copy socket.
///
/// The kernel takes the memory away from the driver some time after the socket is closed, and lets
/// nobody bind to the queue before it has. So a successful binding is the proof.
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
    // An interface that is gone was taken from its driver before it went.
    matches!(probe(), Ok(()) | Err(Errno::NODEV))
}
