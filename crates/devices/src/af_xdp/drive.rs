//! The kernel's half of receiving, queue by queue, as the worker drives it.
//!
//! Each queue has a NAPI context. The worker configures it by netlink (when the kernel polls by itself) and
//! by socket options (busy polling), both only when the worker changes its mode. If the driver does not tell
//! a queue's context (veth), no socket can poll it; then the worker governs the context's thread. If senders
//! are on this host and the interface's program drops the excess, a context without a thread gets none: it
//! receives in softirq on the senders' cores, and in polled mode it pauses between two polls, if timers are
//! cheap. The earlier settings are restored at the end.

use super::napi::{Napi, describe, napis, set};
use super::netdev::Netdev;
use super::socket::Refused;
use super::suspend::{Poller, SUSPENDED, suspended};
use super::sys;
use super::thread::{self, Thread};
use polder_datapath::port::{Drive, Driven};
use polder_datapath::units::Nanos;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Identity of a queue: interface index, queue number, and number of queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueIdentity {
    pub(super) interface: u32,
    pub(super) queue: usize,
    pub(super) queues: usize,
}

/// Driver of one queue's NAPI context.
#[derive(Debug)]
pub(super) struct Driver {
    now: Drive,
    place: QueueIdentity,
    told: Option<(Netdev, Napi)>,
    thread: Option<Thread>,
    /// Pause in softirq, if a context without a thread is to get none; and true if this context has none for
    /// that reason.
    softirq: Option<SoftirqPause>,
    is_in_softirq: bool,
    /// Poller of the context, if polling suspends its interrupts.
    poller: Option<Poller>,
    /// True if the kernel has refused a setting; nothing more is tried.
    refused: bool,
    /// First refusal of the kernel, until it is reported.
    refusal: Option<Refused>,
    /// Maximum number of packets of one poll, as set in the kernel.
    budget: u32,
}

impl Driver {
    /// Creates a driver in interrupt mode, which changes no setting unless it `adapts`. For a context that no
    /// socket can poll, its thread is governed; with a pause in `softirq`, only a thread that exists already.
    pub(super) fn new(place: QueueIdentity, adapts: bool, softirq: Option<SoftirqPause>) -> Self {
        let now = Drive::Interrupts(Nanos(0));
        Self {
            now,
            place,
            told: None,
            thread: None,
            softirq,
            is_in_softirq: false,
            poller: None,
            refused: !adapts,
            refusal: None,
            budget: BUDGET,
        }
    }

    /// True if the worker polls the context.
    pub(super) fn is_polled(&self) -> bool {
        self.now == Drive::Polled && self.thread.is_none() && !self.is_in_softirq
    }

    /// True if the context receives only when the worker lets it.
    pub(super) fn is_governed(&self) -> bool {
        self.is_held() || self.is_polled()
    }

    /// Lets the kernel receive, if polling suspends interrupts. Returns `false` if the socket has to be
    /// called.
    pub(super) fn poll(&self) -> bool {
        // The ring shows new packets; the socket's error shows a lost interface.
        self.poller.as_ref().is_some_and(|poller| !poller.poll().contains(EventFlags::ERR))
    }

    /// True if the context's thread receives mainly while the worker sleeps.
    pub(super) fn is_held(&self) -> bool {
        self.thread.as_ref().is_some_and(Thread::is_held)
    }

    /// To be called before the worker sleeps.
    #[inline]
    pub(super) fn sleeps(&mut self) {
        if let Some(thread) = self.thread.as_mut().filter(|thread| thread.is_held()) {
            thread.yield_cpu();
        }
    }

    /// To be called when the worker has woken.
    #[inline]
    pub(super) fn wakes(&mut self) {
        if let Some(thread) = self.thread.as_mut().filter(|thread| thread.is_held()) {
            // A thread that is gone receives nothing.
            let _ = thread.throttle();
        }
    }

    /// Sets if the thread that receives is to run before others at the next sleep, because no packet arrived
    /// during the last one.
    pub(super) fn boost(&mut self, boosts: bool) {
        if let Some(thread) = &mut self.thread {
            thread.boost_next(boosts);
        }
    }

    /// Counts the CPU time of the context's thread as the worker's. If the driver tells a queue's context,
    /// receive work in softirq is charged to no worker.
    pub(super) fn share(&mut self, socket: BorrowedFd<'_>) {
        if self.thread.is_none() && sys::get_option(socket, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID) == Ok(0) {
            match self.guess().and_then(|napi| self.thread_of(&napi)) {
                Ok(thread) => self.thread = thread,
                Err(refused) => self.refusal = Some(refused),
            }
        }
        let Some(thread) = &mut self.thread else { return };
        if let Err(errno) = thread.share() {
            self.refusal = Some(Refused { step: WEIGHT, errno });
            // A thread that cannot be governed is not kept if it was made for this.
            self.thread = self.thread.take().filter(|thread| !thread.is_made());
        }
    }

    /// Returns the kernel's refusal since the last call.
    pub(super) fn refusal(&mut self) -> Option<Refused> {
        self.refusal.take()
    }

    /// Pauses the thread together with the worker, or resumes it.
    pub(super) fn pause(&mut self, is_paused: bool) {
        if let Some(thread) = &mut self.thread {
            thread.pause(is_paused);
        }
    }

    /// Returns the CPU time of the context's thread, if it counts towards the worker's share.
    pub(super) fn shared_time(&self) -> Option<Nanos> {
        self.thread.as_ref()?.shared_time()
    }

    /// Returns the CPU time of the context's governed thread, if any.
    pub(super) fn thread_time(&self) -> Option<Nanos> {
        self.thread.as_ref()?.time()
    }

    /// Returns the thread of a context that no socket can poll; `None` if it is to have none.
    fn thread_of(&self, napi: &Napi) -> Result<Option<Thread>, Refused> {
        if self.softirq.is_some() && napi.thread.is_none() { Ok(None) } else { Thread::of(napi).map(Some) }
    }

    /// Sets how the context of `socket` is driven from this call on.
    pub(super) fn drive(&mut self, socket: BorrowedFd<'_>, drive: Drive) -> Driven {
        if self.refused {
            return Driven::No;
        }
        if drive != self.now {
            match self.tell(socket, drive) {
                Ok(()) => self.now = drive,
                Err(refused) => {
                    (self.refused, self.refusal) = (true, Some(refused));
                    self.undo(socket);
                    return Driven::No;
                }
            }
        }
        match (self.is_held(), self.is_in_softirq) {
            (true, _) => Driven::Asleep,
            (false, true) => Driven::BySenders,
            (false, false) => Driven::Yes,
        }
    }

    /// Restores the settings from before the refusal.
    #[cold]
    fn undo(&mut self, socket: BorrowedFd<'_>) {
        self.now = Drive::Interrupts(Nanos(0));
        self.poller = None;
        self.thread = self.thread.take().filter(Thread::shares);
        if let Some(thread) = &mut self.thread {
            thread.release();
        }
        if let Some((mut netdev, before)) = self.told.take() {
            let _ = set(&mut netdev, before);
            let _ = sys::set_option(socket, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 0);
            let _ = sys::set_option(socket, libc::SOL_SOCKET, SO_BUSY_POLL, 0);
        }
    }

    fn tell(&mut self, socket: BorrowedFd<'_>, drive: Drive) -> Result<(), Refused> {
        let napi = self.find(socket)?;
        if self.is_in_softirq {
            let pause = self.softirq.unwrap_or_default();
            return self.tell_context(socket, napi, pause.instead_of(drive));
        }
        let Some(thread) = &mut self.thread else { return self.tell_context(socket, napi, drive) };
        if drive != Drive::Polled {
            thread.release();
            return self.tell_context(socket, napi, drive);
        }
        thread.hold().map_err(|errno| Refused { step: WEIGHT, errno })?;
        // A context that may run does so at once.
        self.tell_context(socket, napi, Drive::Interrupts(Nanos(0)))
    }

    /// Returns the context with its settings from before any change.
    fn find(&mut self, socket: BorrowedFd<'_>) -> Result<Napi, Refused> {
        if let Some((_, before)) = &self.told {
            return Ok(*before);
        }
        let at = |errno| Refused { step: FIND, errno };
        let id = sys::get_option(socket, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID).map_err(at)?;
        let mut netdev = Netdev::open().map_err(at)?;
        let mut before = if id > 0 { describe(&mut netdev, id).map_err(at)? } else { self.guess()? };
        if id == 0 && self.thread.is_none() {
            self.thread = self.thread_of(&before)?;
            self.is_in_softirq = self.thread.is_none();
        }
        before = unless_left_behind(before);
        self.told = Some((netdev, before));
        Ok(before)
    }

    /// Guesses the context: contexts are numbered in the order of the queues, if there are as many.
    fn guess(&self) -> Result<Napi, Refused> {
        let at = |errno| Refused { step: FIND, errno };
        let mut found = napis(self.place.interface).map_err(at)?;
        found.sort_by_key(|napi| napi.id);
        if found.len() != self.place.queues {
            return Err(at(Errno::NODEV));
        }
        found.get(self.place.queue).copied().ok_or(at(Errno::NODEV))
    }

    /// Limits the next poll to about `packets`: the excess stays in the device.
    pub(super) fn bound(&mut self, socket: BorrowedFd<'_>, packets: u32) {
        // The kernel polls a context twice for each request.
        let budget = (packets / 2).min(BUDGET).next_power_of_two().max(FEWEST);
        if budget == self.budget {
            return;
        }
        self.budget = budget;
        // On refusal the limit stays: excess packets then wait in the ring.
        if let Some(poller) = &self.poller {
            let _ = poller.bound(budget);
            return;
        }
        let _ = sys::set_option(socket, libc::SOL_SOCKET, SO_BUSY_POLL_BUDGET, budget);
    }

    fn tell_context(&mut self, socket: BorrowedFd<'_>, before: Napi, drive: Drive) -> Result<(), Refused> {
        let at = |step| move |errno| Refused { step, errno };
        let Some((netdev, _)) = &mut self.told else { return Err(at(FIND)(Errno::NODEV)) };
        // Without the poller, the context's interrupts resume at once.
        self.poller = None;
        if drive == Drive::Polled
            && let Some(told) = suspended(before, SUSPENDED)
        {
            set(netdev, told).map_err(at("suspend the interrupts of the NAPI context"))?;
            self.poller = Poller::new(socket, self.budget).ok();
            if self.poller.is_some() {
                return Ok(());
            }
        }
        let (defer_hard_irqs, timer) = match drive {
            Drive::Interrupts(Nanos(0)) => (before.defer_hard_irqs, before.gro_flush_timeout),
            Drive::Interrupts(Nanos(nanos)) => (EMPTY_POLLS, nanos),
            Drive::Polled => (POLLED_EMPTY_POLLS, POLLED_TIMER),
        };
        set(netdev, Napi { defer_hard_irqs, gro_flush_timeout: timer, ..before })
            .map_err(at("set the timers of the NAPI context"))?;
        let option = |option, value| {
            sys::set_option(socket, libc::SOL_SOCKET, option, value).map_err(at("let the socket busy poll"))
        };
        if drive == Drive::Polled {
            option(SO_BUSY_POLL_BUDGET, self.budget)?;
            option(SO_BUSY_POLL, 1)?;
            option(SO_PREFER_BUSY_POLL, 1)?;
        } else {
            // One more poll, after which the kernel applies the wait times set here.
            option(SO_PREFER_BUSY_POLL, 0)?;
            let _ = sys::wake_kernel(socket, false);
            option(SO_BUSY_POLL, 0)?;
        }
        Ok(())
    }
}

/// Restores the NAPI contexts of an interface, and their threads, to the settings from before a crashed
/// worker of this process changed them. Workers that ended in order have restored theirs already.
pub fn restore(interface: u32) {
    thread::set_right(interface, &mut Vec::new());
    // A kernel that does not list contexts has none that were changed.
    let Ok(mut netdev) = Netdev::open() else { return };
    for napi in napis(interface).unwrap_or_default() {
        let before = unless_left_behind(napi);
        if before != napi {
            let _ = set(&mut netdev, before);
        }
        thread::unmake(&mut netdev, napi.id);
    }
}

/// Returns a context's settings without the changes that a killed process left.
fn unless_left_behind(found: Napi) -> Napi {
    let is_ours = found.gro_flush_timeout == POLLED_TIMER || found.irq_suspend_timeout == Some(SUSPENDED);
    if !is_ours {
        return found;
    }
    let irq_suspend_timeout = found.irq_suspend_timeout.map(|_| 0);
    Napi { defer_hard_irqs: 0, gro_flush_timeout: 0, irq_suspend_timeout, ..found }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.poller = None;
        if let Some((netdev, before)) = &mut self.told {
            // A context that is gone needs no restoring.
            let _ = set(netdev, *before);
        }
    }
}

/// Maximum pause of a context in softirq between two polls, under overload; 0 for no pause at any load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SoftirqPause(Nanos);

impl SoftirqPause {
    /// Returns the pause for a machine on which setting a timer takes `timer`, which each pause costs on a
    /// sender's core.
    pub(super) fn with_timers_of(timer: Nanos) -> Self {
        Self(if timer.0 * MAX_TIMER_SHARE > SOFTIRQ_THROTTLE.0 { Nanos(0) } else { SOFTIRQ_THROTTLE })
    }

    /// Returns the mode in softirq that replaces `drive`.
    fn instead_of(self, drive: Drive) -> Drive {
        match drive {
            Drive::Interrupts(_) if self.0 == Nanos(0) => Drive::Interrupts(Nanos(0)),
            Drive::Interrupts(pause) => Drive::Interrupts(pause),
            Drive::Polled => Drive::Interrupts(self.0),
        }
    }
}

/// Pause of a context in softirq under overload. Its ring (`VETH_RING_SIZE`, 256 frames) precedes the
/// program, and a full ring loses packets, control packets included.
const SOFTIRQ_THROTTLE: Nanos = Nanos(10_000);
/// Maximum share of the pause that setting a timer may take: 1/4.
const MAX_TIMER_SHARE: u64 = 4;
/// Names of steps that the kernel may refuse.
const FIND: &str = "find the NAPI context of the queue";
const WEIGHT: &str = "set the weight of the NAPI thread";
/// Number of empty polls after which interrupts resume: two, since one may fall in a gap of a flow.
const EMPTY_POLLS: u32 = 2;
/// Number of empty polls while the worker polls, and nanoseconds after which the kernel polls by itself:
/// longer than an awake worker leaves any queue alone, or pauses.
const POLLED_EMPTY_POLLS: u32 = 100;
const POLLED_TIMER: u64 = 25_000_000;
/// Maximum and minimum number of packets of one poll by the kernel.
pub(super) const BUDGET: u32 = 64;
const FEWEST: u32 = 4;
/// Constants of asm-generic/socket.h.
const SO_BUSY_POLL: i32 = 46;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_ring_holds_what_comes_in_a_pause() {
        const { assert!(SOFTIRQ_THROTTLE.0 * 10 / 1_000 <= 256 / 2, "ten million packets a second") };
    }

    #[test]
    fn where_timers_are_dear_a_context_in_softirq_never_pauses() {
        let (usual, throttled) = (Drive::Interrupts(Nanos(0)), Drive::Interrupts(Nanos(50_000)));
        let cheap = SoftirqPause::with_timers_of(Nanos(2_500));
        let driven = [usual, throttled, Drive::Polled].map(|drive| cheap.instead_of(drive));
        assert_eq!(driven, [usual, throttled, Drive::Interrupts(SOFTIRQ_THROTTLE)]);
        let dear = SoftirqPause::with_timers_of(Nanos(2_501));
        let driven = [usual, throttled, Drive::Polled].map(|drive| dear.instead_of(drive));
        assert_eq!(driven, [usual; 3]);
    }

    #[test]
    fn what_a_killed_process_leaves_is_told_from_what_others_set() {
        let napi = |gro_flush_timeout, irq_suspend_timeout| Napi {
            id: 1,
            thread: None,
            defer_hard_irqs: 100,
            gro_flush_timeout,
            irq_suspend_timeout,
        };
        for ours in [napi(POLLED_TIMER, Some(0)), napi(50_000, Some(SUSPENDED)), napi(POLLED_TIMER, None)] {
            let before = unless_left_behind(ours);
            assert_eq!((before.defer_hard_irqs, before.gro_flush_timeout), (0, 0), "{ours:?}");
            assert!(before.irq_suspend_timeout.is_none_or(|timeout| timeout == 0), "{ours:?}");
        }
        for others in [napi(50_000, Some(20_000_000)), napi(200_000, None), napi(0, Some(0))] {
            assert_eq!(unless_left_behind(others), others);
        }
    }
}
