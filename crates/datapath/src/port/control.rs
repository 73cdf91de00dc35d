//! Control of the kernel's receive side of a device by the scheduler; packets do not pass here.

use crate::units::Nanos;

/// Event at which a device, or the kernel for the device, receives packets into the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// At the next packet, but at most once in the given time (interrupt moderation).
    Interrupts(Nanos),
    /// At a poll that finds the ring empty. The worker polls without sleeping.
    Polled,
}

/// Effect of a [`Drive`] on a device; a worker uses the greatest value of its devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Driven {
    /// The device has no receive control, or the configuration has fixed its mode; nothing has changed.
    #[default]
    No,
    /// The device receives on its senders' cores independently of the worker: an idle worker may sleep.
    BySenders,
    /// The device follows the drive.
    Yes,
    /// The device receives almost only while the worker sleeps: a worker that needs packets must sleep.
    Asleep,
}

/// Control of the kernel context or NAPI thread that fills a queue's ring. Methods that a device does not
/// implement do nothing.
pub trait RxControl {
    /// Sets the event at which the device receives.
    fn set_mode(&mut self, _drive: Drive) -> Driven {
        Driven::No
    }

    /// Charges the queue's NAPI thread to the worker's share of the core.
    fn claim_thread(&mut self) {}

    /// Makes the NAPI thread yield the core, or continue.
    fn pause_thread(&mut self, _paused: bool) {}

    /// Raises the NAPI thread's priority for its next run: the worker slept long so that the thread could
    /// receive, and no packet arrived, perhaps because other threads had the core.
    fn favour_thread(&mut self) {}

    /// Returns the CPU time that the NAPI thread has used; `None` if there is no thread or its time is
    /// unknown.
    fn thread_time(&mut self) -> Option<Nanos> {
        None
    }

    /// Flushes the device's ring with the next call that receives nothing, if dropping costs less than
    /// receiving; keeps few frames posted until [`end_flush`](Self::end_flush). Returns false, and changes
    /// nothing, if the device cannot flush.
    fn flush(&mut self) -> bool {
        false
    }

    /// Posts as many frames as before the first [`flush`](Self::flush).
    fn end_flush(&mut self) {}

    /// Sets the number of frames to keep posted during a flush; frames beyond the ring's size are kept in
    /// reserve.
    fn set_posted_limit(&mut self, _frames: u32) {}

    /// Sets the number of packets that may wait in the device, control protocols excepted; `None` removes the
    /// limit.
    fn set_waiting_limit(&mut self, _packets: Option<u32>) {}

    /// True if the device ran out of frames when it last received, so that an empty ring does not mean an
    /// empty device.
    fn has_backlog(&mut self) -> bool {
        false
    }

    /// Tells the XDP program, if it carries flows, that received packets are still in user space while
    /// `held`: some wait for another device.
    fn hold_completed(&mut self, _held: bool) {}
}
