//! One or two workers of the gateway between ports in memory: loop, stages, steering and reordering are
//! the real ones; one stage more takes as long as it is told to.

use super::super::capture::{Looks, Reader, begin};
use super::super::engine::harness::{Path, RECEIVER};
use super::super::filter::filters;
use super::crowd::Steady;
use super::ports::{BYTES, FROM, Ledger, Link, Sink, Source, TO, Tap, frame};
use super::work::work;
use anyhow::{Context as _, anyhow, ensure};
use polder::clock::Clock;
use polder::runtime::accounts::{Accounts, drops};
use polder::runtime::gateway::meshes;
use polder::runtime::wake::Wakeup;
use polder::runtime::worker::{Attachment, Command, Outlet, SendPath, Worker};
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Class, HEADROOM, Packet, PortId, Region, RegionOptions};
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, ExtraStage, Tables};
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions, StaticEntry};
use polder_datapath::port::{RxQueue, TxQueue as _};
use polder_datapath::queue::{CodelOptions, Discipline, QueueOptions};
use polder_datapath::scheduler::WEIGHT;
use polder_datapath::steer::{Hasher, Order, Thresholds};
use polder_datapath::units::{BytesPerSecond, Nanos};
use polder_datapath::wire::MacAddress;
use polder_datapath::worker_group::{WorkerGroupOptions, worker_group};
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::thread_time;
use polder_testbed::topology::pin_here;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const SLOTS: u32 = 32_768;
const NEAR: PortId = PortId(0);
const FAR: PortId = PortId(1);
/// Outer headers of gretap: Ethernet, IPv4 and GRE.
const OUTER: usize = 14 + 20 + 4;
/// Rules of a tunnel's gateway, and sockets that look for DHCP.
const RULES: usize = 100;
const SOCKETS: u64 = 2;
/// Queue of its way out: CoDel, at a rate above all that is reached, which is 12.5 GB/s.
const RATE: BytesPerSecond = BytesPerSecond(12_500_000_000);
const QUEUE_BYTES: u64 = 1 << 20;
/// Any number will do, as long as it is the same in each run.
const SEED: u64 = 0x5eed;

/// Parameters of a harness.
#[derive(Clone, Debug)]
pub(in crate::scenarios) struct Plan {
    pub(in crate::scenarios) workers: usize,
    pub(in crate::scenarios) order: Order,
    /// Links of work a packet.
    pub(in crate::scenarios) links: u32,
    pub(in crate::scenarios) reordering: bool,
    pub(in crate::scenarios) thresholds: Thresholds,
    /// The home of each flow, by worker.
    pub(in crate::scenarios) flows: Vec<usize>,
    /// Packets a second; none for as many as can be.
    pub(in crate::scenarios) pace: Option<u64>,
    /// Packets a second that come into a ring, wanted or not.
    pub(in crate::scenarios) steady: Option<u64>,
    pub(in crate::scenarios) link: Option<Link>,
    /// True if all sending queues write into one ledger, and wait for each other there.
    pub(in crate::scenarios) one_ledger: bool,
    /// True if the part of the work that puts a packet into a tunnel is done by one worker at a time.
    pub(in crate::scenarios) one_path: bool,
    /// Packets go into a tunnel, by rules and past captures.
    pub(in crate::scenarios) tunnel: Option<Tunnel>,
}

/// Work of a tunnel's gateway for a packet, beside the links: rules that accept it, captures for DHCP, and gretap.
#[derive(Clone, Copy, Debug)]
pub(in crate::scenarios) struct Tunnel {
    /// Length of frames in bytes, FCS excluded.
    pub(in crate::scenarios) bytes: usize,
    /// Bytes in front of them; without any, each packet is copied (E4).
    pub(in crate::scenarios) headroom: u16,
    /// Filter of the captures in the worker (E6).
    pub(in crate::scenarios) looks: Looks,
}

impl Plan {
    /// Plan with one flow at the highest rate.
    pub(in crate::scenarios) fn one_flow(workers: usize, links: u32) -> Self {
        Self {
            workers,
            order: if workers == 1 { Order::Queue } else { Order::Spread },
            links,
            reordering: true,
            thresholds: Thresholds::default(),
            flows: vec![workers - 1],
            pace: None,
            steady: None,
            link: None,
            one_ledger: false,
            one_path: false,
            tunnel: None,
        }
    }

    /// Way out of a sink: behind a queue where packets go into a tunnel.
    fn send_path(&self, sink: Sink) -> SendPath {
        if self.tunnel.is_none() {
            return SendPath::Own(Box::new(sink));
        }
        let codel = Discipline::Codel(CodelOptions::default());
        let options = QueueOptions { rate: Some(RATE), ..QueueOptions::new(codel, QUEUE_BYTES) };
        SendPath::Queued(Box::new(Outlet::new(Box::new(sink), &options, Arc::default())))
    }

    /// A bridge between both ports, or one from [`NEAR`] into a gretap tunnel whose packets leave by [`FAR`], and rules.
    fn tables(&self, now: Nanos) -> anyhow::Result<Tables> {
        if self.tunnel.is_none() {
            return tables(now);
        }
        let filters = filters(RULES, self.workers)?;
        Ok(Tables { filters, ..Path::Encapsulate.tables(now)? })
    }
}

/// A running harness.
pub(in crate::scenarios) struct Harness {
    region: Region,
    threads: Vec<JoinHandle<()>>,
    /// The threads' numbers, by worker.
    pub(in crate::scenarios) ids: Vec<i32>,
    commands: Vec<(Sender<Command>, Arc<Wakeup>)>,
    pub(in crate::scenarios) tap: Arc<Tap>,
    /// One ledger for all sending queues, or one for each.
    ledgers: Vec<Arc<Mutex<Ledger>>>,
    /// Number of packets that a steady source has lost.
    pub(in crate::scenarios) missed: Option<Arc<AtomicU64>>,
    /// The workers' cores.
    pub(in crate::scenarios) cores: Vec<usize>,
    passed: Arc<AtomicU64>,
    pub(in crate::scenarios) workers: Vec<Arc<WorkerCounters>>,
    queues: Vec<Arc<QueueCounters>>,
    readers: Vec<Reader>,
    _tables: Snapshot<Tables>,
}

/// Counters of a running harness.
#[derive(Clone, Debug, Default)]
pub(in crate::scenarios) struct Reading {
    pub(in crate::scenarios) at: Duration,
    pub(in crate::scenarios) passed: u64,
    pub(in crate::scenarios) cpu: Vec<Duration>,
}

/// Counters when all is over.
#[derive(Clone, Debug, Default)]
pub(in crate::scenarios) struct Left {
    pub(in crate::scenarios) sent: Vec<u64>,
    pub(in crate::scenarios) late: u64,
    pub(in crate::scenarios) no_core: u64,
    pub(in crate::scenarios) expired: u64,
    pub(in crate::scenarios) changes: u64,
    pub(in crate::scenarios) helped: u64,
    pub(in crate::scenarios) tickets: u64,
}

impl Harness {
    /// Starts the workers: worker 0 on the last core, the next one on the core before.
    pub(in crate::scenarios) fn start(
        plan: &Plan,
        prepare: impl FnOnce(&mut Ledger),
    ) -> anyhow::Result<Self> {
        let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: 2048 })?;
        let clock = Clock::start();
        let tables = Snapshot::new(plan.tables(clock.now())?);
        let count = if plan.one_ledger { 1 } else { plan.workers };
        let mut ledgers = (0..count).map(|_| Ledger::new(plan.flows.len(), plan.link)).collect::<Vec<_>>();
        ledgers.iter_mut().for_each(|ledger| ledger.outer = plan.tunnel.map_or(0, |_| OUTER));
        prepare(&mut ledgers[0]);
        let ledgers = ledgers.into_iter().map(|ledger| Arc::new(Mutex::new(ledger))).collect::<Vec<_>>();
        let headroom = plan.tunnel.map_or(HEADROOM, |tunnel| tunnel.headroom);
        let (source, tap) = Source::new(frames(plan, &region)?, headroom, plan.pace);
        let (sinks, passed) = Sink::new(&ledgers, plan.workers);
        let mut harness = Self {
            region,
            threads: Vec::new(),
            ids: Vec::new(),
            commands: Vec::new(),
            tap,
            ledgers,
            missed: None,
            cores: (0..plan.workers).map(|number| core_of(number, plan.workers)).collect(),
            passed,
            workers: Vec::new(),
            queues: vec![Arc::clone(source.counters())],
            readers: Vec::new(),
            _tables: tables,
        };
        harness.start_workers(plan, clock)?;
        let mut source = Some(harness.steadied(source, plan.steady)?);
        for ((commands, wakeup), sink) in harness.commands.iter().zip(sinks) {
            harness.queues.push(Arc::clone(sink.counters()));
            let rx = source.take();
            let near = Attachment {
                port: NEAR,
                class: Class::Data,
                weight: WEIGHT,
                rx: rx.into_iter().collect(),
                tx: SendPath::Through(0),
                backlog: None,
            };
            let far = Attachment {
                port: FAR,
                class: Class::Data,
                weight: WEIGHT,
                rx: Vec::new(),
                tx: plan.send_path(sink),
                backlog: None,
            };
            let told = [Command::Order(NEAR, plan.order), Command::Attach(near), Command::Attach(far)];
            for command in told {
                commands.send(command).map_err(|_| anyhow!("a worker is gone"))?;
            }
            wakeup.wake();
        }
        harness.capture(plan)?;
        Ok(harness)
    }

    /// Begins the captures of a tunnel's gateway, each in all workers.
    fn capture(&mut self, plan: &Plan) -> anyhow::Result<()> {
        let Some(tunnel) = plan.tunnel else { return Ok(()) };
        for socket in 0..SOCKETS {
            for worker in 0..self.commands.len() {
                let number = u16::try_from(worker)?;
                let reader =
                    begin(|command| self.tell(worker, command), tunnel.looks, (socket, number), None)?;
                self.readers.extend(reader);
            }
        }
        Ok(())
    }

    fn tell(&self, worker: usize, command: Command) -> anyhow::Result<()> {
        let (commands, wakeup) = &self.commands[worker];
        commands.send(command).map_err(|_| anyhow!("a worker is gone"))?;
        wakeup.wake();
        Ok(())
    }

    /// The source itself, or behind a ring.
    fn steadied(&mut self, source: Source, pace: Option<u64>) -> anyhow::Result<Box<dyn RxQueue>> {
        let Some(pace) = pace else { return Ok(Box::new(source)) };
        let (steady, missed) = Steady::new(source, pace)?;
        self.missed = Some(missed);
        Ok(Box::new(steady))
    }

    fn start_workers(&mut self, plan: &Plan, clock: Clock) -> anyhow::Result<()> {
        let wakeups =
            (0..plan.workers).map(|_| Wakeup::new().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        let mut options = WorkerGroupOptions::new(Hasher::mixed(SEED, false), plan.workers);
        options.thresholds = plan.thresholds;
        options.reordering = plan.reordering;
        let mut shares = worker_group(plan.workers, &options).into_iter();
        let (reports, _) = channel();
        let path = plan.one_path.then(|| Arc::new(Mutex::new(())));
        let (say, ids) = channel();
        for (number, mesh) in meshes(&wakeups).into_iter().enumerate() {
            let (commands, inbox) = channel();
            let mut engine = Engine::new(self._tables.reader(), number);
            if plan.links > 0 {
                engine.set_extra(extra(plan.links, path.clone()));
            }
            self.workers.push(Arc::clone(engine.counters()));
            let wakeup = Arc::clone(&wakeups[number]);
            let mut worker = Worker::new(
                self.region.pool(),
                engine,
                clock,
                mesh,
                Arc::clone(&wakeup),
                inbox,
                reports.clone(),
            )?;
            if let Some(share) = shares.next().filter(|_| plan.workers > 1) {
                worker.join(share, &wakeups);
            }
            let core = self.cores[number];
            let say = say.clone();
            let name = format!("order-{number}");
            let thread = std::thread::Builder::new().name(name).spawn(move || {
                run_on(core, &mut worker, |pinned| say.send((number, pinned)).is_ok());
            })?;
            self.threads.push(thread);
            self.commands.push((commands, wakeup));
        }
        self.ids = vec![0; plan.workers];
        for _ in 0..plan.workers {
            let (number, id) = ids.recv().context("a worker's thread ended")?;
            self.ids[number] = id?;
        }
        Ok(())
    }

    /// Starts or stops the flow of packets.
    pub(in crate::scenarios) fn open(&self, open: bool) {
        self.tap.set_open(open);
        self.commands.iter().for_each(|(_, wakeup)| wakeup.wake());
    }

    /// Reads the counters.
    pub(in crate::scenarios) fn read(&self) -> anyhow::Result<Reading> {
        let cpu = self.ids.iter().map(|&id| thread_time(id)).collect::<anyhow::Result<_>>()?;
        Ok(Reading { at: polder_testbed::clock::now(), passed: self.passed.load(Ordering::Relaxed), cpu })
    }

    /// Packets lost so far: in the ring of a steady source, without a ticket or ring, after their turn.
    pub(super) fn lost(&self) -> u64 {
        let missed = self.missed.as_ref().map_or(0, |missed| missed.load(Ordering::Relaxed));
        let reasons = [DropReason::NoCore, DropReason::LateAfterReorder];
        missed + reasons.iter().map(|&reason| drops(&self.workers, &self.queues, reason)).sum::<u64>()
    }

    /// Runs for a while and returns the difference of the counters.
    pub(in crate::scenarios) fn window(&self, time: Duration) -> anyhow::Result<Reading> {
        let before = self.read()?;
        interrupt::sleep(time)?;
        let after = self.read()?;
        let cpu = after.cpu.iter().zip(&before.cpu).map(|(after, before)| after.saturating_sub(*before));
        let window =
            Reading { at: after.at - before.at, passed: after.passed - before.passed, cpu: cpu.collect() };
        ensure!(window.passed > 0, "nothing has passed in {time:?}");
        Ok(window)
    }

    /// Stops the source, waits until everything is through, ends the workers, and checks the books.
    pub(in crate::scenarios) fn stop(mut self) -> anyhow::Result<(Left, Ledger)> {
        self.open(false);
        // What is on its way takes milliseconds; what waits for a slow link goes with the harness.
        interrupt::sleep(Duration::from_millis(30))?;
        self.end()?;
        let accounts = Accounts::of(&self.workers, &self.queues);
        ensure!(accounts.unaccounted() == 0, "packets are missing: {accounts:?}");
        let sum = |read: fn(&WorkerCounters) -> u64| self.workers.iter().map(|worker| read(worker)).sum();
        let left = Left {
            sent: self.tap.sent(),
            late: drops(&self.workers, &self.queues, DropReason::LateAfterReorder),
            no_core: drops(&self.workers, &self.queues, DropReason::NoCore),
            expired: sum(|worker| worker.order.expired.get()),
            changes: sum(|worker| worker.order.changes.get()),
            helped: sum(|worker| worker.order.helped.get()),
            tickets: sum(|worker| worker.order.tickets.get()),
        };
        let ledgers = self.ledgers.iter();
        let mut ledgers =
            ledgers.map(|ledger| std::mem::take(&mut *ledger.lock().unwrap_or_else(PoisonError::into_inner)));
        let mut all = ledgers.next().context("there is a ledger")?;
        ledgers.try_for_each(|ledger| all.add(&ledger))?;
        Ok((left, all))
    }

    fn end(&mut self) -> anyhow::Result<()> {
        for (commands, wakeup) in &self.commands {
            // A worker that has ended already takes no orders and needs none.
            let _ = commands.send(Command::Stop);
            wakeup.wake();
        }
        let ended = self.threads.drain(..).map(JoinHandle::join).collect::<Vec<_>>();
        for reader in self.readers.drain(..) {
            reader.stop()?;
        }
        ensure!(ended.iter().all(Result::is_ok), "a worker panicked");
        Ok(())
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        // Only on the way out of an error, which is the one that matters.
        let _ = self.end();
    }
}

/// The part of the work that is done before a packet goes into a tunnel: what the bridge takes of the way
/// through bridge and tunnel (`engine`), in tenths.
const BEFORE_TUNNEL: u32 = 4;

/// Stage that does `links` links of work for each packet; the work for the tunnel, when there is one path for all
/// workers, while no other thread does so.
fn extra(links: u32, path: Option<Arc<Mutex<()>>>) -> ExtraStage {
    let all =
        |batch: &Batch, links| batch.iter().for_each(|packet| _ = black_box(work(packet.bytes(), links)));
    let before = links * BEFORE_TUNNEL / 10;
    Box::new(move |batch: &mut Batch| match &path {
        None => all(batch, links),
        Some(path) => {
            all(batch, before);
            let _held = path.lock().unwrap_or_else(PoisonError::into_inner);
            all(batch, links - before);
        }
    })
}

/// Worker 0 is on the last core, the next one on the core before.
fn core_of(number: usize, workers: usize) -> usize {
    let cores = polder_testbed::machine::cores();
    (cores + workers - 1 - number) % cores
}

/// Runs a worker on this thread, pinned; says the thread's number first.
fn run_on(core: usize, worker: &mut Worker, say: impl FnOnce(anyhow::Result<i32>) -> bool) {
    let pinned = pin_here(core).map(|()| rustix::thread::gettid().as_raw_nonzero().get());
    let ready = pinned.is_ok();
    if say(pinned) && ready {
        worker.run();
    }
}

/// A frame of each flow, whose UDP port is chosen such that the flow has its home where it is wanted.
fn frames(plan: &Plan, region: &Region) -> anyhow::Result<Vec<Vec<u8>>> {
    let hasher = Hasher::mixed(SEED, false);
    let mut pool = region.pool();
    let mut port = 1024;
    let mut frames = Vec::new();
    for (flow, &home) in (0..).zip(&plan.flows) {
        loop {
            port += 1;
            let mut candidate = frame(flow, port).to_vec();
            if let Some(tunnel) = plan.tunnel {
                candidate.resize(tunnel.bytes.max(BYTES), 0);
                candidate[..6].copy_from_slice(&RECEIVER.0);
            }
            let packet = Packet::copy_from(&candidate, &mut pool).context("no memory")?;
            // Buckets are dealt to workers in turn, and there is a power of two of them.
            let found = hasher.flow(&packet, false).hash as usize % plan.workers.next_power_of_two() == home;
            pool.release_packet(packet);
            if found {
                frames.push(candidate);
                break;
            }
        }
    }
    Ok(frames)
}

/// A bridge between two ports that knows both stations.
fn tables(now: Nanos) -> anyhow::Result<Tables> {
    let entry = |address, port| StaticEntry { address: MacAddress(address), vlan: None, port };
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 64, seed: SEED }));
    let static_entries = vec![entry(FROM, NEAR), entry(TO, FAR)];
    let members = [NEAR, FAR].map(MemberOptions::new).to_vec();
    let bridge = BridgeOptions { static_entries, ..BridgeOptions::new("lan", members, fdb) };
    let bridges = Bridges::new(vec![bridge], Arc::new(Links::new(2)))?;
    bridges.bind_static(u32::try_from(now.0 / Nanos::SECOND.0)?)?;
    Ok(Tables { bridges, ..Tables::default() })
}
