//! A driver on one thread, a model of the adapter with its link partner on another.
//!
//! The driver's thread does what a worker does: a turn of receiving, a turn of sending, and sleep when
//! neither finds anything. Its time is the processor's time of that thread, less what making packets
//! takes, which is measured beside it. The other thread is the hardware and costs nothing. Hardware is
//! never held up by a scheduler: when that thread was, the model catches up in small steps of its own
//! time, as if it had run all the while.

use super::flow::{Receiver, Sender};
use super::frames::Protocol;
use anyhow::{Context as _, anyhow, ensure};
use polder_buffers::{Batch, Packet, Pool, Region, RegionOptions};
use polder_datapath::port::{Armed, Budget, Turn};
use polder_datapath::units::Nanos;
use polder_devices::AnyQueue;
use polder_devices::lan78xx::model::{self, Adapter, Timing};
use polder_devices::lan78xx::{self, Techniques};
use polder_devices::usb::local::{Clock, Host, Local, connect};
use polder_devices::usb::model::{Bench, Model};
use polder_devices::usb::{PortStatus, Speed};
use polder_testbed::clock;
use polder_testbed::topology::pin_here;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Maximum lag of the model behind the clock; time beyond it was lost to the thread. Less than the URBs
/// in flight of a receiver last for.
const SLACK: Nanos = Nanos::from_millis(4);
/// Longest step of the model's time: less than the FIFOs last for.
const STEP: Nanos = Nanos(12_000);
/// A turn of the model's thread that takes longer was held up.
const LONG_TURN: Nanos = Nanos(100_000);
/// Before anything counts.
const WARM_UP: Duration = Duration::from_millis(150);
/// After the sources have stopped.
const SETTLE: Duration = Duration::from_millis(40);
/// Maximum number of packets received in a turn.
const BUDGET: u32 = 64;
/// Longest sleep of the driver's thread.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// Direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scenarios) enum Way {
    /// From the adapter to the driver.
    Receive,
    /// From the driver.
    Send,
}

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug)]
pub(in crate::scenarios) struct Setting {
    pub(in crate::scenarios) protocol: Protocol,
    pub(in crate::scenarios) way: Way,
    pub(in crate::scenarios) techniques: Techniques,
    /// Cost of a URB to the driver's thread.
    pub(in crate::scenarios) urb: Nanos,
    /// Time that a weaker machine spends on a frame beyond what this one does.
    pub(in crate::scenarios) frame: Nanos,
    pub(in crate::scenarios) time: Duration,
    pub(in crate::scenarios) cores: [usize; 2],
    /// Between two packets, instead of as many as there is room for.
    pub(in crate::scenarios) pause: Option<Duration>,
}

/// Result of a measurement.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scenarios) struct Outcome {
    /// Payload that arrived, each byte once.
    pub(in crate::scenarios) mbit: f64,
    /// Packets that the driver received or sent.
    pub(in crate::scenarios) packets: f64,
    /// Frames of the flow that did not arrive.
    pub(in crate::scenarios) loss_percent: f64,
    /// Time of the driver's thread.
    pub(in crate::scenarios) cpu: Duration,
    /// Mean fill of bulk-out transfers.
    pub(in crate::scenarios) fill_percent: Option<f64>,
    /// Mean time from the driver's port to the end of the wire.
    pub(in crate::scenarios) latency_us: f64,
    /// Time for which the model's thread was held up and then caught up, and for how long at a time.
    pub(in crate::scenarios) held: Duration,
    pub(in crate::scenarios) longest: Duration,
}

/// State that the threads share.
#[derive(Debug, Default)]
struct Shared {
    go: AtomicBool,
    stop: AtomicBool,
    sent: AtomicU64,
    received: AtomicU64,
    /// Frames received, repetitions included.
    came: AtomicU64,
    damaged: AtomicU64,
    /// Time at which a paced packet was handed to the port, and the sum of the waiting times.
    handed: AtomicU64,
    waited: AtomicU64,
    /// Time for which the model's thread was held up.
    held: AtomicU64,
    longest: AtomicU64,
}

/// Relaxed everywhere: numbers that order nothing; threads are joined before totals are read.
const RELAXED: Ordering = Ordering::Relaxed;

/// One of the two ends of the flow.
#[derive(Debug)]
enum End {
    Source(Sender),
    Sink(Receiver),
}

impl End {
    fn new(protocol: Protocol, sends: bool) -> Self {
        if sends { Self::Source(Sender::new(protocol, now())) } else { Self::Sink(Receiver::new(protocol)) }
    }

    fn hear(&mut self, frame: &[u8], now: Nanos) {
        match self {
            Self::Source(sender) => sender.hear(frame, now),
            Self::Sink(receiver) => receiver.take(frame, now),
        }
    }

    /// The next frame that it has to send.
    fn next(&mut self, now: Nanos, go: bool) -> Option<&[u8]> {
        match self {
            Self::Source(sender) => (go && sender.is_ready(now)).then(|| sender.next()),
            Self::Sink(receiver) => receiver.answer(now),
        }
    }

    fn tell(&self, shared: &Shared) {
        match self {
            Self::Source(sender) => shared.sent.store(sender.sent, RELAXED),
            Self::Sink(receiver) => {
                shared.received.store(receiver.received, RELAXED);
                shared.came.store(receiver.came, RELAXED);
                shared.damaged.store(receiver.damaged, RELAXED);
            }
        }
    }
}

fn now() -> Nanos {
    Clock::Monotonic.now()
}

/// An open port of any USB function.
pub(in crate::scenarios) struct Port<S> {
    pub(in crate::scenarios) status: Arc<PortStatus<S>>,
    pub(in crate::scenarios) queue: AnyQueue,
}

/// Runs one flow through a model of the adapter.
pub(in crate::scenarios) fn run(setting: &Setting) -> anyhow::Result<Outcome> {
    let speed = Speed::Super;
    let options = model::Options { speed, timing: Timing::real(speed), ..model::Options::default() };
    run_on(setting, Adapter::new(options), |local| {
        // Pause frames would hide what is lost.
        let options = lan78xx::Options {
            techniques: setting.techniques,
            flow_control: false,
            ..lan78xx::Options::default()
        };
        let port = lan78xx::open(Box::new(local), &options)?;
        Ok(Port { status: port.status, queue: port.queue })
    })
}

/// Runs one flow through that model, with the port that `open` opens.
pub(in crate::scenarios) fn run_on<M: Model, S: Debug + Default + Send + Sync>(
    setting: &Setting,
    model: M,
    open: impl FnOnce(Local) -> anyhow::Result<Port<S>> + Send,
) -> anyhow::Result<Outcome> {
    let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 })?;
    let bench = Bench::new(model, None, region.pool());
    let (local, host) = connect(bench, Clock::Monotonic, setting.urb).context("cannot make an event")?;
    let shared = Shared::default();
    let sends = setting.way == Way::Receive;
    std::thread::scope(|scope| {
        let hardware = scope.spawn(|| {
            pin_here(setting.cores[1])?;
            far(host, End::new(setting.protocol, sends), &shared);
            anyhow::Ok(())
        });
        let driver = scope.spawn(|| {
            let result =
                pin_here(setting.cores[0]).and_then(|()| near(open(local)?, region.pool(), setting, &shared));
            shared.stop.store(true, RELAXED);
            result
        });
        let outcome = driver.join().map_err(|_| anyhow!("the driver's thread panicked"))?;
        hardware.join().map_err(|_| anyhow!("the model's thread panicked"))??;
        outcome
    })
}

/// The hardware: model, wire and link partner.
fn far<M: Model>(mut host: Host<M>, mut end: End, shared: &Shared) {
    let mut time = now();
    while !shared.stop.load(RELAXED) {
        let clock = now();
        let late = clock.since(time);
        if late > LONG_TURN {
            shared.held.fetch_add(late.0, RELAXED);
            shared.longest.fetch_max(late.0, RELAXED);
        }
        time = time.max(Nanos(clock.0.saturating_sub(SLACK.0)));
        while time < clock {
            time = clock.min(time + STEP);
            advance(&mut host, &mut end, shared, time);
        }
        end.tell(shared);
    }
}

/// Simulates the hardware until `time`.
fn advance<M: Model>(host: &mut Host<M>, end: &mut End, shared: &Shared, time: Nanos) {
    host.step(time);
    let go = shared.go.load(RELAXED);
    let adapter = &mut host.bench.adapter;
    while let Some(frame) = adapter.wire_out() {
        let handed = shared.handed.swap(0, RELAXED);
        if handed > 0 {
            shared.waited.fetch_add(time.0.saturating_sub(handed), RELAXED);
        }
        end.hear(&frame, time);
    }
    while adapter.has_link() && !adapter.holds_partner() && adapter.wire_free_at() <= time {
        let Some(frame) = end.next(time, go) else { break };
        adapter.wire_in(frame, adapter.wire_free_at().max(time - STEP));
    }
}

/// Counters of the driver's thread at one moment.
#[derive(Clone, Copy)]
struct Reading {
    at: Duration,
    cpu: Duration,
    making: Duration,
    arrived: u64,
    packets: u64,
    held: Duration,
}

/// The driver's end.
struct Near<'a, S> {
    port: Port<S>,
    pool: Pool,
    end: End,
    shared: &'a Shared,
    received: Batch,
    outgoing: Batch,
    making: Duration,
    pause: Option<Duration>,
    frame: Duration,
    next_at: Duration,
    packets: u64,
}

fn near<S>(port: Port<S>, pool: Pool, setting: &Setting, shared: &Shared) -> anyhow::Result<Outcome> {
    let status = Arc::clone(&port.status);
    let mut near = Near {
        port,
        pool,
        end: End::new(setting.protocol, setting.way == Way::Send),
        shared,
        received: Batch::new(),
        outgoing: Batch::new(),
        making: Duration::ZERO,
        pause: setting.pause,
        frame: Duration::from_nanos(setting.frame.0),
        next_at: Duration::ZERO,
        packets: 0,
    };
    // A function tells its link when data flow.
    near.work(SETTLE, false);
    ensure!(status.connection().link.up, "the adapter has no link");
    shared.go.store(true, RELAXED);
    near.work(WARM_UP, true);
    let (sent_bytes, sent_room) = (status.sent_bytes.get(), status.sent_room.get());
    let first = near.read();
    shared.longest.store(0, RELAXED);
    near.work(setting.time, true);
    let last = near.read();
    let filled = (status.sent_bytes.get() - sent_bytes, status.sent_room.get() - sent_room);
    shared.go.store(false, RELAXED);
    near.work(SETTLE, false);
    near.end.tell(shared);
    ensure!(shared.damaged.load(RELAXED) == 0, "frames arrived otherwise than they were sent");
    Ok(near.outcome(setting, first, last, filled))
}

impl<S> Near<'_, S> {
    fn work(&mut self, time: Duration, go: bool) {
        let end = clock::now() + time;
        while clock::now() < end {
            let some = self.receive() | self.send(go);
            if !some && self.port.queue.rx.arm() == Armed::Waiting {
                self.sleep();
            }
        }
    }

    fn receive(&mut self) -> bool {
        let Self { port, received, pool, .. } = self;
        let turn = port.queue.rx.receive(&mut Budget::new(BUDGET), received, pool);
        let start = clock::now();
        let count = self.received.len();
        let now = now();
        for packet in self.received.iter() {
            self.end.hear(packet.bytes(), now);
        }
        self.pool.release(&mut self.received);
        self.packets += count as u64;
        self.making += clock::now() - start;
        self.toil(count);
        count > 0 || turn == Turn::OutOfBudget
    }

    fn send(&mut self, go: bool) -> bool {
        if self.outgoing.is_empty() {
            let start = clock::now();
            self.make(go);
            self.making += clock::now() - start;
        }
        let before = self.outgoing.len();
        if before > 0 {
            self.port.queue.tx.transmit(&mut self.outgoing, &mut self.pool);
        }
        let _ = self.port.queue.tx.reclaim(&mut self.pool);
        let taken = before - self.outgoing.len();
        self.packets += taken as u64;
        self.toil(taken);
        taken > 0
    }

    /// Spends what a weaker machine does on frames.
    fn toil(&self, frames: usize) {
        let time = self.frame.saturating_mul(u32::try_from(frames).unwrap_or(u32::MAX));
        let start = clock::thread_cpu();
        while !time.is_zero() && clock::thread_cpu() - start < time {
            core::hint::spin_loop();
        }
    }

    /// Makes packets for one batch, or the one that is due.
    fn make(&mut self, go: bool) {
        let at = clock::now();
        if self.pause.is_some() && (at < self.next_at || !go) {
            return;
        }
        let now = now();
        while !self.outgoing.is_full() {
            let Some(frame) = self.end.next(now, go) else { return };
            let Some(packet) = Packet::copy_from(frame, &mut self.pool) else { return };
            self.outgoing.push(packet).expect("the batch is not full");
            if let Some(pause) = self.pause {
                self.next_at = at + pause;
                self.shared.handed.store(now.0, RELAXED);
                return;
            }
        }
    }

    fn sleep(&self) {
        let Some(event) = self.port.queue.rx.event() else { return };
        let mut look = [PollFd::from_borrowed_fd(event, PollFlags::IN)];
        // Woken or not: the next turn looks.
        let _ = rustix::event::poll(&mut look, Some(&NAP));
    }

    fn read(&self) -> Reading {
        let arrived = match &self.end {
            End::Sink(receiver) => receiver.received,
            End::Source(_) => self.shared.received.load(RELAXED),
        };
        let Self { making, packets, .. } = *self;
        let held = Duration::from_nanos(self.shared.held.load(RELAXED));
        Reading { at: clock::now(), cpu: clock::thread_cpu(), making, arrived, packets, held }
    }

    #[expect(clippy::cast_precision_loss, reason = "rates and shares need no more than 52 bits")]
    fn outcome(&self, setting: &Setting, first: Reading, last: Reading, filled: (u64, u64)) -> Outcome {
        let seconds = (last.at - first.at).as_secs_f64();
        let bits = (last.arrived - first.arrived) as f64 * setting.protocol.payload() as f64 * 8.0;
        // Everything that was sent, and everything that arrived of it.
        let (sent, arrived) = match &self.end {
            End::Sink(receiver) => (self.shared.sent.load(RELAXED), receiver.came),
            End::Source(sender) => (sender.sent - self.outgoing.len() as u64, self.shared.came.load(RELAXED)),
        };
        let lost = sent.saturating_sub(arrived);
        let (bytes, room) = filled;
        Outcome {
            mbit: bits / seconds / 1e6,
            packets: (last.packets - first.packets) as f64,
            loss_percent: 100.0 * lost as f64 / sent.max(1) as f64,
            cpu: (last.cpu - first.cpu).saturating_sub(last.making - first.making),
            fill_percent: (room > 0).then(|| 100.0 * bytes as f64 / room as f64),
            latency_us: self.shared.waited.load(RELAXED) as f64 / arrived.max(1) as f64 / 1e3,
            held: last.held - first.held,
            longest: Duration::from_nanos(self.shared.longest.load(RELAXED)),
        }
    }
}
