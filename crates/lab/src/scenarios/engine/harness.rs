//! A gateway's worker between ports that copy: the loop, the stages and the counters are the real ones.

use anyhow::{Context as _, anyhow};
use polder::clock::Clock;
use polder::runtime::accounts::Accounts;
use polder::runtime::wake::Wakeup;
use polder::runtime::worker::{Attachment, Command, Mesh, SendPath, Worker};
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{BufferManager, BufferOptions, Class, Pool, PortId, Region, RegionOptions};
use polder_datapath::counters::{QueueCounters, Stage, WorkerCounters};
use polder_datapath::engine::{Engine, Tables};
use polder_datapath::filter::Filters;
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions, StaticEntry};
use polder_datapath::port::{RxQueue, TxQueue};
use polder_datapath::scheduler::WEIGHT;
use polder_datapath::tunnel::{Encapsulation, TunnelOptions, TunnelState, Tunnels, Underlay, VxlanOptions};
use polder_datapath::units::Nanos;
use polder_datapath::wire::MacAddress;
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::cpu::thread_time;
use polder_testbed::meters::frames;
use polder_testbed::topology::pin_here;
use polder_testbed::traffic::memory::{Drain, Room, Source, Tap};
use polder_testbed::traffic::packet::{Mac, Outer, Talk, Wrap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Addresses that the bridge knows.
pub(crate) const STATIONS: u32 = 1000;
/// Length on a wire in bytes, FCS included: the frame itself has 64 bytes.
pub(crate) const FRAME_BYTES: usize = 68;

/// Time limit for a worker's report, and the interval of polling for it.
const ANSWER: Duration = Duration::from_millis(100);
const LOOK: Duration = Duration::from_micros(20);
const SLOTS: u32 = 4096;
const SLOT_BYTES: u32 = 2048;
pub(crate) const ETHERNET: PortId = PortId(0);
pub(crate) const RADIO: PortId = PortId(1);
const TUNNEL: PortId = PortId(2);
/// Network identifier of VXLAN.
const NETWORK: u32 = 5;
pub(crate) const LOCAL: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 8, 1], Ipv4Addr::new(192, 168, 10, 1));
pub(crate) const REMOTE: (Mac, Ipv4Addr) = ([2, 0, 0, 0, 8, 2], Ipv4Addr::new(192, 168, 20, 1));

/// Path through the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// A bridge between two ports, both directions, all addresses learnt from the traffic.
    Bridge,
    /// From a port of the bridge into a gretap tunnel.
    Encapsulate,
    /// Out of the tunnel to a port of the bridge.
    Decapsulate,
    /// From a port of the bridge into VXLAN.
    EncapsulateVxlan,
    /// Out of VXLAN to a port of the bridge.
    DecapsulateVxlan,
}

/// A worker on its thread.
pub(crate) struct Harness {
    region: Region,
    thread: Option<JoinHandle<()>>,
    id: i32,
    commands: Sender<Command>,
    wakeup: Arc<Wakeup>,
    taps: Vec<Arc<Tap>>,
    worker: Arc<WorkerCounters>,
    queues: Vec<Arc<QueueCounters>>,
    copied: Arc<AtomicU64>,
    _tables: Snapshot<Tables>,
    _memory: Option<BufferManager>,
}

/// Engine and memory to build.
pub(crate) struct Build {
    pub(crate) path: Path,
    pub(crate) flows: u32,
    /// Length on a wire in bytes, FCS included; the frame itself has none.
    pub(crate) frame_bytes: usize,
    pub(crate) filters: Filters,
    pub(crate) room: Room,
    /// Options of packet memory, in place of a number of slots.
    pub(crate) buffers: Option<BufferOptions>,
    /// True if devices that send must not be given packets that cross a boundary of 4 KiB.
    pub(crate) erratum: bool,
}

impl Build {
    /// Default settings, as scenario `engine` uses them.
    pub(crate) fn new(path: Path, flows: u32) -> Self {
        let (frame_bytes, filters, room) = (FRAME_BYTES, Filters::none(), Room::default());
        Self { path, flows, frame_bytes, filters, room, buffers: None, erratum: false }
    }

    /// Memory, the worker's pool, and their owner.
    fn memory(&self) -> anyhow::Result<(Region, Pool, Option<BufferManager>)> {
        let Some(options) = self.buffers else {
            let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: SLOT_BYTES })?;
            let pool = region.pool();
            return Ok((region, pool, None));
        };
        let manager = BufferManager::new(options)?;
        Ok((manager.region().clone(), manager.pool(Class::Data), Some(manager)))
    }

    fn drain(&self, copied: &Arc<AtomicU64>) -> Drain {
        if self.erratum { Drain::with_erratum(copied) } else { Drain::new() }
    }
}

/// A look at a running harness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    received: u64,
    transmitted: u64,
    /// Number of packets received when `cpu` was read.
    timed: u64,
    cpu: Duration,
    allocations: u64,
    strays: u64,
}

/// Difference of two readings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Packets received.
    pub(crate) packets: u64,
    /// Packets sent.
    pub(crate) sent: u64,
    /// CPU time of the worker.
    pub(crate) cpu: Duration,
    /// Packets received during the window; the other counters are read slightly later.
    pub(crate) timed: u64,
    /// Allocations of the worker.
    pub(crate) allocations: u64,
    /// Frames that were dropped where they ought to have been released.
    pub(crate) strays: u64,
}

/// Counters when all is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Frames that did not come home.
    pub(crate) leaked: u32,
    /// Packets missing in the conservation law.
    pub(crate) unaccounted: i64,
}

impl Window {
    /// CPU time for each packet, in nanoseconds.
    #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits")]
    pub(crate) fn nanos_per_packet(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.timed as f64
    }
}

impl Harness {
    /// Starts a worker on core `core`; packets come when it is [opened](Harness::open).
    pub(crate) fn start(path: Path, flows: u32, core: usize) -> anyhow::Result<Self> {
        Self::filtering(path, flows, core, Filters::none())
    }

    /// Builds a gateway with filter rules.
    pub(crate) fn filtering(path: Path, flows: u32, core: usize, filters: Filters) -> anyhow::Result<Self> {
        Self::build(Build { filters, ..Build::new(path, flows) }, core)
    }

    /// Builds a gateway by the given settings.
    pub(crate) fn build(mut build: Build, core: usize) -> anyhow::Result<Self> {
        let clock = Clock::start();
        let path = build.path;
        let tables = Tables {
            filters: std::mem::replace(&mut build.filters, Filters::none()),
            ..path.tables(clock.now())?
        };
        let sources = path.sources(build.flows, build.frame_bytes);
        let sources =
            sources.map(|(source, tap)| (Box::new(source.in_room(build.room)) as Box<dyn RxQueue>, tap));
        Self::with(&build, clock, tables, sources, core)
    }

    /// A worker with these tables, and a source at each port, beginning with [`ETHERNET`].
    pub(crate) fn between(
        tables: Tables,
        sources: impl IntoIterator<Item = (Box<dyn RxQueue>, Arc<Tap>)>,
        core: usize,
    ) -> anyhow::Result<Self> {
        Self::with(&Build::new(Path::Bridge, 1), Clock::start(), tables, sources, core)
    }

    fn with(
        build: &Build,
        clock: Clock,
        tables: Tables,
        sources: impl IntoIterator<Item = (Box<dyn RxQueue>, Arc<Tap>)>,
        core: usize,
    ) -> anyhow::Result<Self> {
        let (region, pool, memory) = build.memory()?;
        let tables = Snapshot::new(tables);
        let copied = Arc::<AtomicU64>::default();
        let engine = Engine::new(tables.reader(), 0);
        let worker = Arc::clone(engine.counters());
        let wakeup = Arc::new(Wakeup::new().context("cannot make an event")?);
        let (commands, orders) = channel();
        let (reports, _) = channel();
        let mesh = Mesh::default();
        let mut runner = Worker::new(pool, engine, clock, mesh, Arc::clone(&wakeup), orders, reports)
            .context("cannot make a worker")?;
        let (mut taps, mut queues) = (Vec::new(), Vec::new());
        for (port, (source, tap)) in (ETHERNET.0..).map(PortId).zip(sources) {
            let drain = build.drain(&copied);
            queues.extend([Arc::clone(source.counters()), Arc::clone(drain.counters())]);
            taps.push(tap);
            let attachment = Attachment {
                port,
                class: Class::Data,
                weight: WEIGHT,
                rx: vec![source],
                tx: SendPath::Own(Box::new(drain)),
                backlog: None,
            };
            commands.send(Command::Attach(attachment)).map_err(|_| anyhow!("the worker is gone"))?;
        }
        let (say, ids) = channel();
        let thread = std::thread::Builder::new().name("engine".to_owned()).spawn(move || {
            let pinned = pin_here(core).map(|()| rustix::thread::gettid().as_raw_nonzero().get());
            let ready = pinned.is_ok();
            // The other side waits for it.
            let _ = say.send(pinned);
            if ready {
                runner.run();
            }
        })?;
        let id = ids.recv().context("the worker's thread ended")??;
        let thread = Some(thread);
        let (_tables, _memory) = (tables, memory);
        Ok(Self { region, thread, id, commands, wakeup, taps, worker, queues, copied, _tables, _memory })
    }

    /// Starts or stops the flow of packets.
    pub(crate) fn open(&self, open: bool) {
        self.taps.iter().for_each(|tap| tap.set_open(open));
        self.wakeup.wake();
    }

    /// Lets packets flow for a time, and counts after a first part, in which caches warm up.
    pub(crate) fn window(&self, warm_up: Duration, time: Duration) -> anyhow::Result<Window> {
        self.open(true);
        interrupt::sleep(warm_up)?;
        let before = self.read()?;
        interrupt::sleep(time)?;
        let window = self.read()?.since(&before);
        self.open(false);
        Ok(window)
    }

    /// Reads the counters.
    pub(crate) fn read(&self) -> anyhow::Result<Reading> {
        let told = self.ask()?;
        // Of a worker that sleeps, the scheduler's account is up to date.
        let cpu = told.iter().flatten().next().map_or_else(|| thread_time(self.id), |&(cpu, _)| Ok(cpu))?;
        let sum = |counter: fn(&QueueCounters) -> u64| self.queues.iter().map(|queue| counter(queue)).sum();
        let received = |(queues, told): (&[Arc<QueueCounters>], &Option<(Duration, u64)>)| {
            told.map_or_else(
                || queues.iter().map(|queue| queue.received.get()).sum::<u64>(),
                |(_, count)| count,
            )
        };
        Ok(Reading {
            received: sum(|queue| queue.received.get()),
            transmitted: sum(|queue| queue.transmitted.get()),
            // Each port has a queue that receives and one that does not.
            timed: self.queues.chunks(2).zip(&told).map(received).sum(),
            cpu,
            allocations: self.taps.iter().map(|tap| tap.allocations()).max().unwrap_or(0),
            strays: self.region.late_frees(),
        })
    }

    /// CPU time and allocations of the worker, as it reports them at each open port.
    fn ask(&self) -> anyhow::Result<Vec<Option<(Duration, u64)>>> {
        let asked = self.taps.iter().filter(|tap| tap.is_open()).collect::<Vec<_>>();
        asked.iter().for_each(|tap| tap.ask());
        let end = clock::now() + ANSWER;
        while !asked.is_empty() && asked.iter().all(|tap| tap.answered().is_none()) && clock::now() < end {
            interrupt::sleep(LOOK)?;
        }
        Ok(self.taps.iter().map(|tap| tap.answered().filter(|_| tap.is_open())).collect())
    }

    /// Sends the worker a command.
    pub(crate) fn tell(&self, command: Command) -> anyhow::Result<()> {
        self.commands.send(command).map_err(|_| anyhow!("the worker is gone"))?;
        self.wakeup.wake();
        Ok(())
    }

    /// Number of packets that were copied because a device could not read them.
    pub(crate) fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Batches that have met the stage of filters.
    pub(crate) fn filter_batches(&self) -> u64 {
        self.worker.stage(Stage::Filter).batches.get()
    }

    /// Ends the worker and counts the remaining frames.
    pub(crate) fn stop(mut self) -> anyhow::Result<Left> {
        self.open(false);
        self.end()?;
        let accounts = Accounts::of(std::slice::from_ref(&self.worker), &self.queues);
        Ok(Left { leaked: frames::away(&self.region), unaccounted: accounts.unaccounted() })
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        // A worker that has ended already takes no orders and needs none.
        let _ = self.commands.send(Command::Stop);
        self.wakeup.wake();
        thread.join().map_err(|_| anyhow!("the worker panicked"))
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        // Only on the way out of an error, which is the one that matters.
        let _ = self.end();
    }
}

impl Reading {
    /// Difference to the reading `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Window {
        Window {
            packets: self.received - earlier.received,
            sent: self.transmitted - earlier.transmitted,
            cpu: self.cpu.saturating_sub(earlier.cpu),
            timed: self.timed - earlier.timed,
            allocations: self.allocations - earlier.allocations,
            strays: self.strays - earlier.strays,
        }
    }
}

impl Path {
    /// The tables, with those addresses bound that no traffic teaches.
    pub(crate) fn tables(self, now: Nanos) -> anyhow::Result<Tables> {
        let (members, bound) = match self {
            Self::Bridge => ([ETHERNET, RADIO], None),
            Self::Encapsulate | Self::EncapsulateVxlan => ([ETHERNET, TUNNEL], Some(TUNNEL)),
            Self::Decapsulate | Self::DecapsulateVxlan => ([ETHERNET, TUNNEL], Some(ETHERNET)),
        };
        let receivers = (0..STATIONS / 2).map(|station| address(RECEIVER.0, station));
        let static_entries =
            bound.map(|port| receivers.map(|address| StaticEntry { address, vlan: None, port }).collect());
        let bridges = bridge(members, static_entries.unwrap_or_default(), now)?;
        let tunnels = match self {
            Self::Bridge => Tunnels::new([], [])?,
            Self::Encapsulate | Self::Decapsulate => tunnel(Encapsulation::Gre)?,
            Self::EncapsulateVxlan | Self::DecapsulateVxlan => {
                tunnel(Encapsulation::Vxlan(VxlanOptions::new(NETWORK)))?
            }
        };
        Ok(tables(bridges, tunnels))
    }

    /// Traffic sources of both ports.
    pub(super) fn sources(self, flows: u32, frame_bytes: usize) -> [(Source, Arc<Tap>); 2] {
        let talk = talk(flows);
        match self {
            Self::Bridge => [talk, talk.answered()].map(|talk| Source::new(talk, frame_bytes)),
            Self::Encapsulate | Self::EncapsulateVxlan => [Source::new(talk, frame_bytes), Source::dry()],
            Self::Decapsulate | Self::DecapsulateVxlan => {
                let is_gre = self == Self::Decapsulate;
                let wrap = if is_gre { Wrap::Gretap(None) } else { Wrap::Vxlan(NETWORK) };
                let outer = Outer { wrap, source: REMOTE, destination: LOCAL };
                [Source::dry(), Source::new(Talk { outer: Some(outer), ..talk }, frame_bytes)]
            }
        }
    }
}

/// Tables without routes, rules and fast paths.
pub(crate) fn tables(bridges: Bridges, tunnels: Tunnels) -> Tables {
    Tables { bridges, tunnels, ..Tables::default() }
}

/// A learning bridge without VLANs, with static addresses of its members.
pub(crate) fn bridge(
    members: impl IntoIterator<Item = PortId>,
    static_entries: Vec<StaticEntry>,
    now: Nanos,
) -> anyhow::Result<Bridges> {
    let members = members.into_iter().map(MemberOptions::new).collect();
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 65_536, seed: 0x5eed }));
    let bridge = BridgeOptions { static_entries, ..BridgeOptions::new("lan", members, fdb) };
    let bridges = Bridges::new(vec![bridge], Arc::new(Links::new(usize::from(u16::MAX))))?;
    bridges.bind_static(u32::try_from(now.0 / Nanos::SECOND.0)?)?;
    Ok(bridges)
}

/// The first station that is talked to.
pub(crate) const RECEIVER: MacAddress = MacAddress([2, 0, 0, 2, 0, 0]);

/// Half of the stations talk to the other half.
pub(super) fn talk(flows: u32) -> Talk {
    let source = ([2, 0, 0, 1, 0, 0], Ipv4Addr::new(10, 1, 0, 1));
    let destination = (RECEIVER.0, Ipv4Addr::new(10, 2, 0, 1));
    Talk { flows, macs: (STATIONS / 2).min(flows), ..Talk::simple(source, destination) }
}

fn tunnel(encapsulation: Encapsulation) -> anyhow::Result<Tunnels> {
    let state = Arc::new(TunnelState::new(1));
    state.next_hop.set_address(Some(MacAddress(REMOTE.0)));
    let mut options = TunnelOptions::new(TUNNEL, (LOCAL.1, REMOTE.1), RADIO, state);
    options.encapsulation = encapsulation;
    options.dont_fragment = encapsulation != Encapsulation::Gre;
    let underlay =
        Underlay { port: RADIO, mac: MacAddress(LOCAL.0), mtu: 1600, vlan: None, is_shared: false };
    Ok(Tunnels::new([underlay], [options])?)
}

pub(super) fn address(first: Mac, station: u32) -> MacAddress {
    let [a, b, c, d, _, _] = first;
    let [_, _, high, low] = station.to_be_bytes();
    MacAddress([a, b, c, d, high, low])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path delivers its packets, without flooding, allocation or leak.
    #[test]
    fn every_path_forwards_and_accounts() {
        let vxlan = [(Path::EncapsulateVxlan, 1000), (Path::DecapsulateVxlan, 64_000)];
        let others = [(Path::Bridge, 1000), (Path::Encapsulate, 1000), (Path::Decapsulate, 64_000)];
        for (path, flows) in others.into_iter().chain(vxlan) {
            let harness = Harness::start(path, flows, 0).unwrap();
            harness.open(true);
            std::thread::sleep(Duration::from_millis(50));
            let before = harness.read().unwrap();
            let window = (0..200)
                .map(|_| {
                    std::thread::sleep(Duration::from_millis(50));
                    harness.read().unwrap().since(&before)
                })
                .find(|window| window.packets > 10_000);
            let window = window.unwrap();
            let difference = window.packets.abs_diff(window.sent);
            assert!(difference <= 256, "{path:?} {window:?}");
            assert_eq!((window.allocations, window.strays), (0, 0), "{path:?}");
            assert_eq!(harness.stop().unwrap(), Left { leaked: 0, unaccounted: 0 }, "{path:?}");
        }
    }

    /// The scheduler's account, read from outside, stands still between two ticks.
    #[test]
    fn each_look_at_a_busy_worker_is_of_this_moment() {
        let harness = Harness::start(Path::Bridge, 1, 0).unwrap();
        harness.open(true);
        std::thread::sleep(Duration::from_millis(20));
        let mut before = harness.read().unwrap();
        for look in 0..50 {
            let now = harness.read().unwrap();
            let window = now.since(&before);
            assert!(window.cpu > Duration::ZERO && window.timed > 0, "look {look}: {window:?}");
            before = now;
        }
        assert_eq!(harness.stop().unwrap(), Left { leaked: 0, unaccounted: 0 });
    }
}
