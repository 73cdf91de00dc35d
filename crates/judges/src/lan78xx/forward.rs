//! Two ports joined by a thread: what one receives, the other sends. A gateway in its smallest form,
//! for tests in which the ports are what matters.

use polder_buffers::{Batch, Pool};
use polder_datapath::port::{Armed, Budget, Turn};
use polder_devices::AnyQueue;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Longest sleep: who stops the thread sets a flag.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Joins two ports until it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts a thread; frames come from `pool`.
    ///
    /// # Errors
    /// When there can be no more threads.
    pub fn start(left: AnyQueue, right: AnyQueue, pool: Pool) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("forwarder".to_owned())
            .spawn(move || run(left, right, pool, &flag))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Waits until a port is closed.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Relaxed: the flag orders nothing.
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(mut left: AnyQueue, mut right: AnyQueue, mut pool: Pool, stop: &AtomicBool) {
    let (mut to_right, mut to_left) = (Batch::new(), Batch::new());
    while !stop.load(Ordering::Relaxed) {
        let one = carry(&mut left, &mut right, &mut to_right, &mut pool);
        let two = carry(&mut right, &mut left, &mut to_left, &mut pool);
        if (one, two) == (Turn::Closed, Turn::Closed) || one == Turn::Closed || two == Turn::Closed {
            break;
        }
        let is_idle =
            (one, two) == (Turn::Drained, Turn::Drained) && to_left.is_empty() && to_right.is_empty();
        if is_idle && (left.rx.arm(), right.rx.arm()) == (Armed::Waiting, Armed::Waiting) {
            sleep(&left, &right);
        }
    }
    pool.release(&mut to_right);
    pool.release(&mut to_left);
}

fn carry(from: &mut AnyQueue, to: &mut AnyQueue, batch: &mut Batch, pool: &mut Pool) -> Turn {
    // What the other port has not taken waits, and nothing more is received meanwhile.
    let turn =
        if batch.is_empty() { from.rx.receive(&mut Budget::new(64), batch, pool) } else { Turn::OutOfBudget };
    if !batch.is_empty() {
        to.tx.transmit(batch, pool);
    }
    match to.tx.reclaim(pool) {
        Turn::Closed => Turn::Closed,
        Turn::Drained | Turn::OutOfBudget => turn,
    }
}

fn sleep(left: &AnyQueue, right: &AnyQueue) {
    let events = [left.rx.event(), right.rx.event()];
    let mut look: Vec<_> =
        events.into_iter().flatten().map(|event| PollFd::from_borrowed_fd(event, PollFlags::IN)).collect();
    // Woken or not: the next turn looks.
    let _ = rustix::event::poll(&mut look, Some(&NAP));
}
