//! One worker: the loop that polls, forwards, sends and sleeps.
//!
//! A round gives queues their turns as the [`Schedule`] says, sends packets that other workers handed over,
//! and reclaims sent packets. After a round without work, the worker arms each queue; it sleeps only if no
//! queue answers [`Armed::Raced`](polder_datapath::port::Armed::Raced). `round` and `rest` are these two
//! steps, `hand_over` moves queues to another worker, `senders` is the sending half, `outlet` the egress
//! queue of a port.

mod backlog;
mod cut;
mod hand_over;
mod inlet;
mod messages;
mod others;
mod outlet;
mod rest;
mod round;
mod schedule;
mod senders;
mod share;

pub use hand_over::HandOver;
pub use messages::{Attachment, Command, Mesh, QueueContents, Report, SendPath};
pub use outlet::{NewQueue, Outlet};
pub use schedule::Schedule;

use self::inlet::{InletContext, Inlets};
use self::senders::Senders;
use super::sharing::Sharing;
use super::wake::Wakeup;
use crate::clock::Clock;
use polder_buffers::ring::Consumer;
use polder_buffers::{Batch, Class, Gauge, Packet, Pool, PortId};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::engine::Engine;
use polder_datapath::port::{RxControl, RxQueue};
use polder_datapath::worker_group::WorkerGroup;
use rustix::event::epoll;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender};

/// Number of rounds after which an awake worker publishes where its frames are.
const PUBLISH: u64 = 256;

/// State owned by one worker.
pub struct Worker {
    pool: Pool,
    engine: Engine,
    clock: Clock,
    receivers: Vec<Queue>,
    senders: Senders,
    inlets: Inlets,
    incoming: Vec<Consumer<Packet>>,
    wakeup: Arc<Wakeup>,
    epoll: OwnedFd,
    commands: Receiver<Command>,
    reports: Sender<Report>,
    counters: Arc<WorkerCounters>,
    batch: Batch,
    sharing: Option<Box<Sharing>>,
    /// Number of the worker, and the number of workers.
    number_and_count: (usize, usize),
    /// Gauges of the frames in devices, and of the frames in queues and in reassembly.
    gauges: Option<[Gauge; 2]>,
    schedule: Schedule,
    /// True if receive queues were told that unsent packets wait in a device.
    holds_completed: bool,
    stop: bool,
    /// True if another worker takes over the queues.
    is_handed_over: bool,
    /// True if the worker's cached frames were returned, and none were taken since.
    returned_cache: bool,
    /// Failed allocations before the last sleep.
    failed_allocations: u64,
}

struct Queue {
    port: PortId,
    class: Class,
    /// Number of the queue on the port.
    number: u16,
    rx: Box<dyn RxQueue>,
    closed: bool,
}

impl Queue {
    /// Calls the device's control; `None` if it has none.
    fn control<T>(&mut self, ask: impl FnOnce(&mut dyn RxControl) -> T) -> Option<T> {
        self.rx.control().map(ask)
    }
}

impl Worker {
    /// Creates a worker without ports. The caller moves it to its thread and calls [`run`](Self::run) there.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new(
        pool: Pool,
        engine: Engine,
        clock: Clock,
        mesh: Mesh,
        wakeup: Arc<Wakeup>,
        commands: Receiver<Command>,
        reports: Sender<Report>,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, wakeup.event(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let counters = Arc::clone(engine.counters());
        let me = mesh.outgoing.iter().position(Option::is_none).unwrap_or(0);
        let number_and_count = (me, mesh.outgoing.len().max(1));
        Ok(Self {
            pool,
            engine,
            clock,
            receivers: Vec::new(),
            senders: Senders::new(mesh.outgoing, Arc::clone(&counters)),
            inlets: Inlets::default(),
            incoming: mesh.incoming,
            wakeup,
            epoll,
            commands,
            reports,
            counters,
            batch: Batch::new(),
            sharing: None,
            number_and_count,
            gauges: None,
            schedule: Schedule::default(),
            stop: false,
            is_handed_over: false,
            holds_completed: false,
            returned_cache: false,
            failed_allocations: 0,
        })
    }

    /// Adds the worker to a worker group whose workers have these wake-ups.
    pub fn join(&mut self, mut group: WorkerGroup, wakeups: &[Arc<Wakeup>]) {
        group.count_in(&self.counters);
        self.sharing = Some(Box::new(Sharing::new(group, wakeups)));
    }

    /// Sets the gauges of the frames in devices and of the held frames.
    pub fn count_frames(&mut self, posted: Gauge, held: Gauge) {
        self.gauges = Some([posted, held]);
    }

    /// Replaces the default schedule. Call it before ports are attached.
    pub fn schedule(&mut self, schedule: Schedule) {
        self.schedule = schedule;
    }

    /// Polls until a command stops the worker.
    pub fn run(&mut self) {
        self.claim_share();
        loop {
            while let Ok(command) = self.commands.try_recv() {
                self.apply_command(command);
            }
            if self.stop {
                break;
            }
            let now = self.clock.now();
            let busy = self.round(now);
            self.counters.polls.add(1);
            let yielded = self.keep_share(now);
            if self.counters.polls.get().is_multiple_of(PUBLISH) {
                self.publish();
            }
            self.counters.empty_polls.add(u64::from(!busy));
            // A worker that paused for its CPU share polls once more first.
            if !busy && !yielded {
                self.rest(now);
            }
        }
        if !self.is_handed_over {
            self.drain();
        }
    }

    /// Publishes where the worker's frames are.
    fn publish(&self) {
        self.pool.publish();
        self.counters.budget.set(u64::from(self.schedule.line.largest_budget()));
        let bound = (0..self.receivers.len()).filter(|&index| self.schedule.line.is_bound(index));
        let bound = bound.map(|index| u64::from(self.receivers[index].rx.posted())).sum::<u64>();
        if bound > 0 {
            self.counters.bound.set(bound + u64::from(self.senders.backlog_limit()));
        }
        if let Some([posted, held]) = &self.gauges {
            let receiving = self.receivers.iter().map(|queue| u64::from(queue.rx.posted())).sum::<u64>();
            posted.set(receiving + self.senders.posted());
            let waiting = self.senders.waiting_slots() + self.inlets.slots();
            held.set(waiting + self.counters.ledger.held_slots.get());
        }
    }

    fn apply_command(&mut self, command: Command) {
        match command {
            Command::Attach(attachment) => self.attach(attachment),
            Command::Order(port, order) => {
                if let Some(sharing) = &mut self.sharing {
                    sharing.set_order(port, order);
                }
            }
            Command::Weigh(port, weight) => self.weigh(port, weight),
            Command::Queue(port, queue) => self.senders.set_queue(port, queue, &mut self.pool),
            Command::AdjustQueue(port, options) => {
                self.senders.adjust_queue(port, &options);
            }
            Command::Inlet(port, inlet) => self.set_inlet(port, inlet),
            Command::AdjustInlet(port, options) => self.inlets.adjust(port, &options),
            Command::ReportQueue(port, answer) => self.report_queue(port, &answer),
            Command::Detach(port) => self.detach(port),
            Command::Tap(tap) => self.engine.add_tap(*tap),
            Command::Untap(capture) => self.engine.remove_tap(capture),
            Command::Stop => self.stop = true,
            Command::Leave => (self.stop, self.is_handed_over) = (true, true),
        }
    }

    fn attach(&mut self, attachment: Attachment) {
        let Attachment { port, class, weight, rx, tx, backlog } = attachment;
        for rx in rx {
            if let Err(error) = self.listen(&*rx) {
                tracing::error!(port = port.0, %error, "cannot poll the port's event descriptor");
            }
            // Queue *q* is polled by worker *q* mod the number of workers.
            let before = self.receivers.iter().filter(|queue| queue.port == port).count();
            let number =
                u16::try_from(self.number_and_count.0 + before * self.number_and_count.1).unwrap_or(u16::MAX);
            self.schedule.line.add(weight, class == Class::Control);
            let mut queue = Queue { port, class, number, rx, closed: false };
            queue.control(|control| control.hold_completed(self.holds_completed));
            self.receivers.push(queue);
            self.share_with(self.receivers.len() - 1);
            self.drive(self.receivers.len() - 1);
        }
        self.senders.attach(port, tx, backlog);
        self.engine.grow_to(usize::from(port.0) + 1);
    }

    /// Reports what waits in the queues of a port that the worker owns.
    #[cold]
    fn report_queue(&self, port: PortId, answer: &SyncSender<QueueContents>) {
        let worker = self.number_and_count.0;
        let now = self.senders.now;
        let reports = [(false, self.senders.report(port)), (true, self.inlets.report(port, now))];
        for (is_inlet, report) in reports {
            if let Some(report) = report {
                // An error means that nobody waits for the answer any more.
                let _ = answer.try_send(QueueContents { port, worker, is_inlet, report });
            }
        }
    }

    fn weigh(&mut self, port: PortId, weight: u16) {
        let queues = self.receivers.iter().enumerate().filter(|(_, queue)| queue.port == port);
        queues.for_each(|(index, _)| self.schedule.line.set_weight(index, weight));
        self.publish();
    }

    fn listen(&self, rx: &dyn RxQueue) -> std::io::Result<()> {
        let Some(event) = rx.event() else { return Ok(()) };
        epoll::add(&self.epoll, event, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(())
    }

    /// Stops polling a closed queue and listening to its event, which may stay readable.
    fn unregister(&mut self, index: usize) {
        self.schedule.line.close(index);
        let queue = &mut self.receivers[index];
        queue.closed = true;
        if let Some(event) = queue.rx.event() {
            // Fails for a descriptor that was never added.
            let _ = epoll::delete(&self.epoll, event);
        }
    }

    fn detach(&mut self, port: PortId) {
        // Closing a descriptor removes it from the epoll set (epoll(7), question 6): queues' descriptors have
        // no duplicates that outlive both ends.
        let Self { receivers, schedule, .. } = self;
        schedule.line.retain(|index| receivers[index].port != port);
        receivers.retain(|queue| queue.port != port);
        self.senders.detach(port, &mut self.pool);
        let with = InletContext { now: self.senders.now, pool: &mut self.pool, counters: &self.counters };
        self.inlets.remove(port, with);
        self.report(Report::Detached(port));
    }

    fn report(&self, report: Report) {
        // The receiver is gone when the gateway ends.
        let _ = self.reports.send(report);
    }
}
