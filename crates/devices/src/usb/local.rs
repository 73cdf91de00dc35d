//! A transport to a model in this process.
//!
//! [`connect`] joins a driver's end, [`Local`], to a host's end, [`Host`], which owns the model. The host
//! runs on a thread of its own, like a USB host; or the driver's end runs it ([`Local::pumped`]), so that one
//! thread runs both and a test is deterministic.

use super::model::{Bench, Model};
use super::monotonic;
use super::transport::{Completion, Speed, Transport, Urb};
use crate::wakeup::{Wakeup, WakeupReceiver};
use core::time::Duration;
use polder_buffers::ring::{self, Consumer, Producer};
use polder_datapath::port::Armed;
use polder_datapath::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of URBs in transit in each direction.
const RING: usize = 512;

/// Clock of a model.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's monotonic clock.
    Monotonic,
    /// A clock that a test advances, and that advances by itself during a wait.
    Virtual(Arc<AtomicU64>),
}

impl Clock {
    /// Creates a virtual clock at zero.
    pub fn at_zero() -> Self {
        Self::Virtual(Arc::default())
    }

    /// Returns the time.
    pub fn now(&self) -> Nanos {
        match self {
            Self::Monotonic => monotonic(),
            // Relaxed: the time orders nothing.
            Self::Virtual(time) => Nanos(time.load(Ordering::Relaxed)),
        }
    }

    /// Advances a virtual clock; does nothing to the machine's.
    pub fn pass(&self, time: Nanos) {
        if let Self::Virtual(now) = self {
            now.fetch_add(time.0, Ordering::Relaxed);
        }
    }
}

/// Command of the driver's end to the host.
#[derive(Debug)]
enum Order {
    Submit(Urb),
    Cancel(u8),
}

/// The host's end: the model, and the rings to and from the driver.
#[derive(Debug)]
pub struct Host<M: Model> {
    /// The model with its wire.
    pub bench: Bench<M>,
    orders: Consumer<Order>,
    done: Producer<Completion>,
    /// Completed transfers for which the ring had no room.
    waiting: VecDeque<Completion>,
    wakeup: Arc<Wakeup>,
    /// Number of transfers after which the device is unplugged.
    unplugs_after: Option<u32>,
}

impl<M: Model> Host<M> {
    /// Unplugs the device after `transfers` more transfers.
    pub fn unplug_after(&mut self, transfers: u32) {
        self.unplugs_after = Some(transfers);
    }

    /// Takes commands, runs the model up to `now`, returns completed transfers; `true` if there was any work.
    pub fn step(&mut self, now: Nanos) -> bool {
        let Self { bench: Bench { adapter, .. }, unplugs_after, .. } = self;
        adapter.advance(now);
        let mut some = self.orders.pop_all(RING, |order| match order {
            Order::Submit(urb) => {
                adapter.submit(urb);
                *unplugs_after = unplugs_after.map(|left| left.saturating_sub(1));
                if *unplugs_after == Some(0) {
                    adapter.unplug();
                }
            }
            Order::Cancel(endpoint) => adapter.cancel_endpoint(endpoint),
        }) > 0;
        some |= self.bench.step(now);
        self.waiting.extend(core::iter::from_fn(|| self.bench.adapter.complete()));
        let count = self.waiting.len();
        if count > 0 {
            let sent = self.done.push_all(count, core::iter::from_fn(|| self.waiting.pop_front()));
            some |= sent > 0;
        }
        if some {
            self.wakeup.wake_if_armed();
        }
        some
    }

    /// True if the driver's end is gone.
    pub fn is_abandoned(&self) -> bool {
        self.done.is_abandoned()
    }

    /// Unplugs the device.
    pub fn unplug(&mut self, now: Nanos) {
        self.bench.adapter.unplug();
        self.step(now);
        self.wakeup.close();
    }
}

/// A host of any model.
trait Step: Send {
    fn step_to(&mut self, now: Nanos);
}

impl<M: Model> Step for Host<M> {
    fn step_to(&mut self, now: Nanos) {
        self.step(now);
    }
}

/// The driver's end.
pub struct Local {
    orders: Producer<Order>,
    /// Commands that found no room.
    held: VecDeque<Order>,
    done: Consumer<Completion>,
    receiver: WakeupReceiver,
    pump: Option<Arc<Mutex<dyn Step>>>,
    clock: Clock,
    speed: Speed,
    /// Processor time per URB, as on a real host.
    cost: Nanos,
    in_flight: u32,
}

/// Joins a driver's end to the host's end of `bench`. Submitting and taking back a URB costs `cost` of the
/// driver's time, as with a real host.
///
/// # Errors
/// If the process may open no more files.
pub fn connect<M: Model>(bench: Bench<M>, clock: Clock, cost: Nanos) -> rustix::io::Result<(Local, Host<M>)> {
    let wakeup = Arc::new(Wakeup::new()?);
    let (orders_in, orders) = ring::channel(RING);
    let (done_in, done) = ring::channel(RING);
    let speed = bench.adapter.identity().speed;
    let host = Host {
        bench,
        orders,
        done: done_in,
        waiting: VecDeque::new(),
        wakeup: Arc::clone(&wakeup),
        unplugs_after: None,
    };
    let local = Local {
        orders: orders_in,
        held: VecDeque::new(),
        done,
        receiver: WakeupReceiver::new(wakeup),
        pump: None,
        clock,
        speed,
        cost,
        in_flight: 0,
    };
    Ok((local, host))
}

impl core::fmt::Debug for Local {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Local").field("speed", &self.speed).finish_non_exhaustive()
    }
}

impl Local {
    /// Makes the driver's end run the host whenever it polls.
    #[must_use]
    pub fn pumped<M: Model + 'static>(mut self, host: Arc<Mutex<Host<M>>>) -> Self {
        self.pump = Some(host);
        self
    }

    fn pump(&self) {
        if let Some(host) = &self.pump {
            let now = self.clock.now();
            let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
            // Twice: the first step may enable more work.
            host.step_to(now);
            host.step_to(now);
        }
    }

    fn order(&mut self, order: Order) {
        self.held.push_back(order);
        let count = self.held.len();
        self.orders.push_all(count, core::iter::from_fn(|| self.held.pop_front()));
    }

    fn spend(&self) {
        if self.cost == Nanos(0) {
            return;
        }
        let end = monotonic() + self.cost;
        while monotonic() < end {
            core::hint::spin_loop();
        }
    }
}

impl Transport for Local {
    fn speed(&self) -> Speed {
        self.speed
    }

    fn submit(&mut self, urb: Urb) {
        self.spend();
        self.in_flight += 1;
        self.order(Order::Submit(urb));
    }

    fn cancel(&mut self, endpoint: u8) {
        self.order(Order::Cancel(endpoint));
    }

    fn flush(&mut self) {
        self.pump();
    }

    fn complete(&mut self) -> Option<Completion> {
        if self.done.available() == 0 {
            self.pump();
        }
        let done = self.done.pop()?;
        self.in_flight = self.in_flight.saturating_sub(1);
        Some(done)
    }

    fn wait(&mut self, limit: Duration) {
        self.pump();
        if self.done.available() > 0 {
            return;
        }
        if let Clock::Virtual(_) = &self.clock {
            self.clock.pass(Nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)));
            self.pump();
            return;
        }
        if self.arm() == Armed::Waiting {
            let event = self.receiver.event();
            let mut look = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
            // Woken or not, the caller checks.
            let _ = rustix::event::poll(&mut look, Timespec::try_from(limit).ok().as_ref());
        }
    }

    fn arm(&mut self) -> Armed {
        self.pump();
        let Self { receiver, done, .. } = self;
        receiver.arm(|| done.available() > 0)
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.event())
    }

    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn is_gone(&self) -> bool {
        self.receiver.is_gone()
    }

    fn place(&self) -> String {
        "a model in this process".to_owned()
    }
}

impl<M: Model> Drop for Host<M> {
    fn drop(&mut self) {
        // URBs that the model holds return to their owner's memory with it.
        self.bench.adapter.unplug();
        self.wakeup.close();
    }
}
