//! A wire that adds and removes a VLAN tag, for a machine whose kernel has no VLAN interfaces.

use polder_testbed::traffic::raw::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Carries frames between two interfaces until it is dropped.
#[derive(Debug)]
pub(super) struct Shuttle {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shuttle {
    /// Frames get `tag` on the way from `plain` to `tagged`; on the way back those without it are lost.
    pub(super) fn new(plain: PacketSocket, tagged: PacketSocket, tag: Option<[u8; 4]>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            // Relaxed: it ends a little later.
            while !seen.load(Ordering::Relaxed) {
                carry(&plain, &tagged, tag.as_ref());
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

fn carry(plain: &PacketSocket, tagged: &PacketSocket, tag: Option<&[u8; 4]>) {
    let mut room = vec![0; 1 << 16];
    let mut ready = [plain, tagged].map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
    let pause = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    // One that is interrupted is asked again.
    let _ = poll(&mut ready, Some(&pause));
    while let Ok(mut frame) = plain.receive_tagged(&mut room) {
        if let Some(tag) = tag.filter(|_| frame.len() > ADDRESSES) {
            frame.splice(ADDRESSES..ADDRESSES, *tag);
        }
        // A wire that is full loses frames, as wires do.
        let _ = tagged.send(&frame);
    }
    while let Ok(mut frame) = tagged.receive_tagged(&mut room) {
        if let Some(tag) = tag {
            if frame.get(ADDRESSES..ADDRESSES + 4) != Some(tag) {
                continue;
            }
            frame.drain(ADDRESSES..ADDRESSES + 4);
        }
        let _ = plain.send(&frame);
    }
}

impl Drop for Shuttle {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Bytes of the link-layer addresses, behind which a tag stands.
const ADDRESSES: usize = 12;
