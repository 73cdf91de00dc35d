//! A cable between two TUN interfaces: a point-to-point link without Ethernet.

use super::Namespace;
use anyhow::Context as _;
use polder_devices::tap::tun;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

/// A TUN interface in each of two namespaces, and a thread that copies the packets of each to the other.
///
/// Both interfaces are gone when this value is dropped.
#[derive(Debug)]
pub struct Cable {
    ends: Arc<AtomicBool>,
    copied: Arc<[AtomicU64; 2]>,
    thread: Option<JoinHandle<()>>,
}

/// One end of a cable.
#[derive(Clone, Copy, Debug)]
pub struct CableEnd<'a> {
    /// Namespace of the interface.
    pub namespace: &'a Namespace,
    /// The interface's name there.
    pub interface: &'a str,
}

impl Cable {
    /// Makes both interfaces, with that MTU, and sets them up. With `segments`, super-packets and partial checksums
    /// pass.
    ///
    /// # Errors
    /// When an interface cannot be made.
    pub fn lay(ends: [CableEnd<'_>; 2], mtu: u32, segments: bool) -> anyhow::Result<Self> {
        let file = |end: CableEnd<'_>| -> anyhow::Result<OwnedFd> {
            let file = end.namespace.inside(|| tun(end.interface, segments))?;
            let file = file.with_context(|| format!("cannot make the TUN interface {}", end.interface))?;
            let mtu = mtu.to_string();
            end.namespace.ip(&["link", "set", end.interface, "mtu", &mtu, "up"])?;
            Ok(file)
        };
        let files = [file(ends[0])?, file(ends[1])?];
        let (end, copied) =
            (Arc::new(AtomicBool::new(false)), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let (ends, counts) = (Arc::clone(&end), Arc::clone(&copied));
        let thread = std::thread::Builder::new().name("cable".to_owned());
        let thread = thread.spawn(move || copy(&files, &end, &counts))?;
        Ok(Self { ends, copied, thread: Some(thread) })
    }

    /// Packets that were copied from the first to the second end, and back.
    pub fn copied(&self) -> [u64; 2] {
        // Relaxed: the numbers order nothing.
        [0, 1].map(|way: usize| self.copied[way].load(Ordering::Relaxed))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // Relaxed: the thread reads only this flag.
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Copies packets until the flag is set or an interface is gone.
fn copy(files: &[OwnedFd; 2], ends: &AtomicBool, copied: &[AtomicU64; 2]) {
    let mut room = vec![0; ROOM];
    while !ends.load(Ordering::Relaxed) {
        let mut polled = files.each_ref().map(|file| PollFd::new(file, PollFlags::IN));
        let waits = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        match poll(&mut polled, Some(&waits)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        for way in 0..2 {
            if !drain([&files[way], &files[1 - way]], &mut room, &copied[way]) {
                return;
            }
        }
    }
}

/// Copies the packets that wait; false if an interface is gone.
fn drain([from, to]: [&OwnedFd; 2], room: &mut [u8], copied: &AtomicU64) -> bool {
    for _ in 0..BATCH {
        let length = match rustix::io::read(from, &mut *room) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        };
        match rustix::io::write(to, &room[..length]) {
            Ok(_) => copied.fetch_add(1, Ordering::Relaxed),
            Err(Errno::BADFD) => return false,
            // The interface is down.
            Err(_) => 0,
        };
    }
    true
}

/// Bytes of the longest packet with its header.
const ROOM: usize = 65_536 + 64;
/// Packets that are copied one way before the other has its turn.
const BATCH: usize = 64;
