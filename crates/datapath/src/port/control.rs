//! Control of the kernel's half of a device, which the scheduler has and a packet does not meet.

use crate::units::Nanos;

/// Drive of a queue: the event at which a device, or the kernel for it, receives into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// By itself: at the next packet, but not again before so much time has passed since it last did.
    Interrupts(Nanos),
    /// At a poll that finds the queue empty. The worker polls all the time.
    Polled,
}

/// Effect of a [`Drive`] on a device; of a worker's devices the greatest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driven {
    /// The device has no such control, or the configuration has set it; nothing has changed.
    #[default]
    No,
    /// The device receives on its senders' cores, whatever the worker does: one that finds nothing may as well sleep.
    BySenders,
    /// The device follows the drive.
    Yes,
    /// The device receives while the worker sleeps, and hardly otherwise: a worker that wants
    /// packets has to sleep.
    Asleep,
}

/// Control of the receiver that fills a queue's ring: the kernel, or a thread of it. A device implements what it
/// can; the rest changes nothing.
pub trait RxControl {
    /// Sets the time at which the device receives, from now on.
    fn set_mode(&mut self, _drive: Drive) -> Driven {
        Driven::No
    }

    /// Makes the kernel's thread for the queue a part of the worker's share of its core, from now on.
    fn claim_thread(&mut self) {}

    /// Makes that thread leave the core to others, or go on.
    fn pause_thread(&mut self, _paused: bool) {}

    /// Lets that thread come before others the next time: the worker slept for it to receive, for long, and nothing
    /// came, perhaps because others had the core.
    fn favour_thread(&mut self) {}

    /// CPU time that the thread has used so far; `None` when there is none, or it is not known.
    fn thread_time(&mut self) -> Option<Nanos> {
        None
    }

    /// Flushes the device's ring, where that costs less than to receive its packets, with the next call that
    /// finds nothing received; keeps few frames posted from then on, until [`end_flush`](Self::end_flush).
    /// `false` for one that cannot; nothing has changed then.
    fn flush(&mut self) -> bool {
        false
    }

    /// Takes again as much as before the first [`flush`](Self::flush).
    fn end_flush(&mut self) {}

    /// Number of frames to keep posted while few are; more than it has places for are its reserve.
    fn set_posted_limit(&mut self, _frames: u32) {}

    /// Number of packets that may wait in the device from now on, packets of control protocols aside; `None` for as many
    /// as it has room for.
    fn set_waiting_limit(&mut self, _packets: Option<u32>) {}

    /// True if the device had more than there were frames for when it last received by itself, so that a drained
    /// queue does not mean that it is empty.
    fn has_backlog(&mut self) -> bool {
        false
    }

    /// Tells the device's program, if it carries flows, that the worker is not through with what it has received while
    /// `held`: some of what it has sent waits in front of another device.
    fn hold_completed(&mut self, _held: bool) {}
}
