//! One worker: the loop that polls, forwards, sends and sleeps.
//!
//! A round gives every queue one turn of at most one batch, sends what other workers handed over and
//! reclaims what was sent. When a round finds nothing, the worker asks each queue for an event; only
//! when none of them says [`Armed::Raced`] does it sleep.

use super::clock::Clock;
use super::sharing::{Desk, Sharing};
use super::wake::Bell;
use polder_buffers::ring::{Consumer, Producer};
use polder_buffers::{BATCH, Batch, Packet, Pool, PortId, Region};
use polder_datapath::counters::WorkerCounters;
use polder_datapath::crew::Crew;
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, With};
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_datapath::steer::Order;
use polder_datapath::transmit::Egress;
use polder_datapath::units::Nanos;
use rustix::event::epoll;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// Longest sleep: timers of stages (reassembly) run at least this often.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(1000);
/// Longest sleep while devices hold frames of packets that were sent.
const SHORT_SLEEP: Nanos = Nanos::from_millis(20);
/// How long a worker that is told to stop waits for devices to return frames.
const DRAIN: Nanos = Nanos::from_millis(100);
/// How long a worker that shares its work goes on after nothing more came from the others.
const QUIET: Nanos = Nanos::from_millis(2);

/// What a worker is told.
pub enum Command {
    /// Use these queues of a port.
    Attach(Attachment),
    /// The packets of a port find their worker like this, for a worker in a crew.
    Order(PortId, Order),
    /// Let go of a port; its queues are dropped.
    Detach(PortId),
    /// Drain and end.
    Stop,
}

/// A port as one worker sees it.
pub struct Attachment {
    /// The port.
    pub port: PortId,
    /// The queues that this worker polls.
    pub rx: Vec<Box<dyn RxQueue>>,
    /// How this worker sends on the port.
    pub tx: SendPath,
}

/// How a worker sends on a port.
pub enum SendPath {
    /// On a queue of its own.
    Own(Box<dyn TxQueue>),
    /// Through the worker of that number, which has one.
    Through(usize),
}

/// What a worker tells.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// A queue of the port says that the device is gone.
    Closed(PortId),
    /// The worker has let go of the port.
    Detached(PortId),
}

/// The rings between one worker and the others, by number; none to itself.
#[derive(Default)]
pub struct Mesh {
    /// To each other worker, with its bell.
    pub outgoing: Vec<Option<(Producer<Packet>, Arc<Bell>)>>,
    /// From each other worker.
    pub incoming: Vec<Consumer<Packet>>,
}

/// Everything that one worker owns.
pub struct Worker {
    pool: Pool,
    engine: Engine,
    clock: Clock,
    receivers: Vec<Queue>,
    senders: Senders,
    incoming: Vec<Consumer<Packet>>,
    bell: Arc<Bell>,
    epoll: OwnedFd,
    commands: Receiver<Command>,
    reports: Sender<Report>,
    counters: Arc<WorkerCounters>,
    batch: Batch,
    sharing: Option<Box<Sharing>>,
    stop: bool,
}

struct Queue {
    port: PortId,
    rx: Box<dyn RxQueue>,
    closed: bool,
}

/// The sending half, apart from the rest so that it can be borrowed beside it.
struct Senders {
    ports: Vec<Option<SendPath>>,
    outgoing: Vec<Option<(Producer<Packet>, Arc<Bell>)>>,
    counters: Arc<WorkerCounters>,
}

impl Worker {
    /// A worker without ports. It is moved to its thread and [`run`](Self::run) there.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new(
        region: &Region,
        engine: Engine,
        clock: Clock,
        mesh: Mesh,
        bell: Arc<Bell>,
        commands: Receiver<Command>,
        reports: Sender<Report>,
    ) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell.event(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let counters = Arc::clone(engine.counters());
        Ok(Self {
            pool: region.pool(),
            engine,
            clock,
            receivers: Vec::new(),
            senders: Senders { ports: Vec::new(), outgoing: mesh.outgoing, counters: Arc::clone(&counters) },
            incoming: mesh.incoming,
            bell,
            epoll,
            commands,
            reports,
            counters,
            batch: Batch::new(),
            sharing: None,
            stop: false,
        })
    }

    /// Makes the worker part of a crew, whose workers have these bells.
    pub fn join(&mut self, mut crew: Crew, bells: &[Arc<Bell>]) {
        crew.count_in(&self.counters);
        self.sharing = Some(Box::new(Sharing::new(crew, bells)));
    }

    /// Polls until it is told to stop.
    pub fn run(&mut self) {
        loop {
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            if self.stop {
                break;
            }
            let now = self.clock.now();
            let busy = self.round(now);
            self.counters.polls.add(1);
            if !busy {
                self.counters.empty_polls.add(1);
                self.rest(now);
            }
        }
        self.drain();
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Attach(attachment) => self.attach(attachment),
            Command::Order(port, order) => {
                if let Some(sharing) = &mut self.sharing {
                    sharing.set_order(port, order);
                }
            }
            Command::Detach(port) => self.detach(port),
            Command::Stop => self.stop = true,
        }
    }

    fn attach(&mut self, attachment: Attachment) {
        let Attachment { port, rx, tx } = attachment;
        for rx in rx {
            if let Err(error) = self.listen(&*rx) {
                tracing::error!(port = port.0, %error, "cannot wait for the port's events");
            }
            self.receivers.push(Queue { port, rx, closed: false });
        }
        let index = usize::from(port.0);
        if self.senders.ports.len() <= index {
            self.senders.ports.resize_with(index + 1, || None);
        }
        self.senders.ports[index] = Some(tx);
        self.engine.grow_to(index + 1);
    }

    fn listen(&self, rx: &dyn RxQueue) -> std::io::Result<()> {
        let Some(event) = rx.event() else { return Ok(()) };
        epoll::add(&self.epoll, event, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(())
    }

    fn detach(&mut self, port: PortId) {
        // Closing a descriptor takes it out of the epoll set (epoll(7), question 6): nothing
        // duplicates those of queues.
        self.receivers.retain(|queue| queue.port != port);
        if let Some(sender) = self.senders.ports.get_mut(usize::from(port.0)) {
            *sender = None;
        }
        self.report(Report::Detached(port));
    }

    /// One turn for everything. Says whether there is reason for another round at once.
    fn round(&mut self, now: Nanos) -> bool {
        let mut busy = false;
        for index in 0..self.receivers.len() {
            busy |= self.turn(index, now);
        }
        for index in 0..self.incoming.len() {
            busy |= self.take_over(index, now);
        }
        if self.sharing.is_some() {
            busy = self.take_part(busy, now);
        }
        busy |= self.senders.reclaim(&mut self.pool);
        self.engine.tick(now, &mut self.pool);
        self.counters.cached_frames.set(self.pool.cached() as u64);
        self.counters.pool_exhausted.set(self.pool.exhausted());
        busy
    }

    fn turn(&mut self, index: usize, now: Nanos) -> bool {
        let queue = &mut self.receivers[index];
        if queue.closed {
            return false;
        }
        let timed = self.engine.begin_turn();
        let start = if timed { self.clock.now() } else { now };
        let mut budget = Budget::new(BATCH_BUDGET);
        let turn = queue.rx.receive(&mut budget, &mut self.batch, &mut self.pool);
        let port = queue.port;
        let received = self.batch.len();
        if received > 0 {
            for packet in self.batch.iter_mut() {
                packet.ingress = port;
                packet.received_at = now.0;
            }
            let clock = self.clock;
            let elapsed = timed.then(|| clock.now().since(start));
            self.engine.received(received, elapsed);
            match self.sharing.as_ref().map_or(Order::Queue, |sharing| sharing.order(port)) {
                Order::Queue => {
                    let with = With { now, pool: &mut self.pool, timed };
                    self.engine.process(&mut self.batch, port, with, &mut self.senders, &mut || clock.now());
                }
                order @ (Order::Hash | Order::Spread | Order::Auto) => self.share_out(port, order, now),
            }
        }
        if turn == Turn::Closed {
            self.receivers[index].closed = true;
            self.report(Report::Closed(port));
        }
        received > 0 || turn == Turn::OutOfBudget
    }

    /// Shares a received batch with the other workers.
    fn share_out(&mut self, port: PortId, order: Order, now: Nanos) {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, batch, .. } = self else { return };
        let kind = (order, engine.is_underlay(port));
        let mut desk = Desk { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.crew.define(batch, kind, &mut desk);
        sharing.wake();
        sharing.crew.share(now, &mut desk);
        sharing.wake();
    }

    /// Does what other workers brought, and their work when there is nothing else to do. `busy` and the
    /// answer: whether there is reason for another round at once.
    fn take_part(&mut self, mut busy: bool, now: Nanos) -> bool {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, .. } = self else { return busy };
        let mut desk = Desk { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.crew.round(now, sharing.was_busy);
        let mut shared = sharing.crew.collect(now, &mut desk);
        if !busy && !shared {
            shared = sharing.crew.help(now, &mut desk);
        }
        busy |= shared;
        if shared {
            sharing.shared_at = now;
        }
        sharing.wake();
        sharing.was_busy = busy;
        busy
    }

    /// Sends what another worker handed over.
    fn take_over(&mut self, index: usize, now: Nanos) -> bool {
        let batch = &mut self.batch;
        let taken = self.incoming[index].pop_all(BATCH, |packet| {
            // The batch is empty before and holds as many as are taken at most.
            let pushed = batch.push(packet);
            debug_assert!(pushed.is_ok(), "a batch has room for a batch");
        });
        if taken > 0 {
            self.counters.taken_over.add(taken as u64);
            let with = With { now, pool: &mut self.pool, timed: false };
            self.engine.transmit(&mut self.batch, with, &mut self.senders);
        }
        taken > 0
    }

    /// Sleeps, unless more is to be expected from other workers at once.
    fn rest(&mut self, now: Nanos) {
        if !self.sharing.as_ref().is_some_and(|sharing| sharing.stays_awake(now)) {
            self.sleep(now);
        }
    }

    fn sleep(&mut self, now: Nanos) {
        self.bell.about_to_sleep();
        // A command that came before the flag was up rang no bell.
        if let Ok(command) = self.commands.try_recv() {
            self.bell.awake();
            self.obey(command);
            return;
        }
        let raced = self.receivers.iter_mut().any(|queue| !queue.closed && queue.rx.arm() == Armed::Raced)
            || self.incoming.iter_mut().any(|ring| ring.available() > 0)
            || self.sharing.as_mut().is_some_and(|sharing| sharing.crew.has_work());
        if raced {
            self.bell.awake();
            return;
        }
        let limit = if self.senders.in_flight() > 0 { SHORT_SLEEP } else { LONGEST_SLEEP };
        let missing = self.sharing.as_ref().and_then(|sharing| sharing.crew.next_deadline());
        let deadlines = [self.engine.next_deadline(), missing].into_iter().flatten();
        let limit = deadlines.fold(limit, |limit, deadline| limit.min(deadline.since(now)));
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(limit.0 / 1_000_000_000).unwrap_or(0),
            tv_nsec: i64::try_from(limit.0 % 1_000_000_000).unwrap_or(0),
        };
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
        self.counters.sleeps.add(1);
        let woken = epoll::wait(&self.epoll, &mut events, Some(&timeout));
        self.bell.awake();
        self.counters.slept_nanos.add(self.clock.now().since(now).0);
        self.counters.wakeups.add(u64::from(woken.is_ok_and(|count| count > 0)));
    }

    /// Waits, within bounds, until the devices have returned the frames of what was sent.
    fn drain(&mut self) {
        let start = self.clock.now();
        let (mut now, mut last) = (start, start);
        let quiet = if self.sharing.is_some() { QUIET } else { Nanos::default() };
        while now.since(start) < DRAIN {
            let mut busy = false;
            for index in 0..self.incoming.len() {
                busy |= self.take_over(index, now);
            }
            busy |= self.take_part(false, now);
            self.senders.reclaim(&mut self.pool);
            if busy {
                last = now;
            } else if self.senders.in_flight() == 0 && now.since(last) >= quiet {
                break;
            } else {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            now = self.clock.now();
        }
        self.let_go_of_the_rest(now);
        self.receivers.clear();
        self.senders.ports.clear();
        self.engine.close(now, &mut self.pool);
    }

    /// Sends what waits for a turn that will not come.
    fn let_go_of_the_rest(&mut self, now: Nanos) {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, .. } = self else { return };
        let mut desk = Desk { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.crew.close(&mut desk);
    }

    fn report(&self, report: Report) {
        // Nobody listens when the gateway ends; then there is nobody to tell.
        let _ = self.reports.send(report);
    }
}

/// Packets a turn: one batch.
#[expect(clippy::cast_possible_truncation, reason = "64 fits")]
const BATCH_BUDGET: u32 = BATCH as u32;

impl Senders {
    fn reclaim(&mut self, pool: &mut Pool) -> bool {
        let mut busy = false;
        for sender in self.ports.iter_mut().flatten() {
            if let SendPath::Own(queue) = sender {
                busy |= queue.reclaim(pool) == Turn::OutOfBudget;
            }
        }
        busy
    }

    fn in_flight(&self) -> u32 {
        let held = |sender: &SendPath| match sender {
            SendPath::Own(queue) => queue.held(),
            SendPath::Through(_) => 0,
        };
        self.ports.iter().flatten().map(held).sum()
    }

    /// Hands packets over to worker `owner`; what its ring has no room for is dropped here, before
    /// any more work is spent on it.
    fn hand_over(&mut self, owner: usize, batch: &mut Batch, pool: &mut Pool) {
        self.push_to(owner, batch);
        if !batch.is_empty() {
            self.counters.drops.count(DropReason::NoCore, batch.len() as u64);
            pool.release(batch);
        }
    }
}

impl Senders {
    /// Hands packets over to worker `owner` while its ring has room.
    fn push_to(&mut self, owner: usize, batch: &mut Batch) {
        let Some(Some((ring, bell))) = self.outgoing.get_mut(owner) else { return };
        let room = ring.room(batch.len());
        let handed = ring.push_all(room, batch.drain_front(room));
        if handed > 0 {
            self.counters.handed_over.add(handed as u64);
            bell.ring();
        }
    }
}

/// The worker that writes sequence numbers: it has the first queue of every port.
const SEALER: usize = 0;

impl Egress for Senders {
    fn send(&mut self, port: PortId, batch: &mut Batch, pool: &mut Pool) -> bool {
        let Some(Some(sender)) = self.ports.get_mut(usize::from(port.0)) else { return false };
        match sender {
            SendPath::Own(queue) => {
                queue.transmit(batch, pool);
                if !batch.is_empty() && queue.reclaim(pool) != Turn::Closed {
                    queue.transmit(batch, pool);
                }
            }
            SendPath::Through(owner) => {
                let owner = *owner;
                self.hand_over(owner, batch, pool);
            }
        }
        true
    }

    fn seals(&self, _: PortId) -> bool {
        // There is no ring from a worker to itself.
        self.outgoing.get(SEALER).is_none_or(Option::is_none)
    }

    fn hand_to_sealer(&mut self, batch: &mut Batch) {
        self.push_to(SEALER, batch);
    }
}
