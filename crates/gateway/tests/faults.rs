//! Queues that misbehave beside one that does not: its packets go on, all of them, and the worker does not
//! spend its core on the others.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

use polder::clock::Clock;
use polder::runtime::wake::Wakeup;
use polder::runtime::worker::{Attachment, Command, Mesh, SendPath, Worker};
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{Batch, Class, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, Tables};
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions, StaticEntry};
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_datapath::scheduler::WEIGHT;
use polder_datapath::wire::MacAddress;
use polder_devices::pair::{self, Options, PairRx, PairTx};
use polder_devices::{AnyQueue, Queue};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Fault of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Its event never ends, and nothing ever comes.
    Spurious,
    /// The queue has packets without end.
    Endless,
    /// The queue is closed after some packets, and its event never ends.
    Dies,
}

struct Faulty {
    fault: Fault,
    left: u32,
    event: OwnedFd,
    counters: Arc<QueueCounters>,
}

impl Faulty {
    fn new(fault: Fault) -> Self {
        // A counter that nobody reads stays readable.
        let event = eventfd(1, EventfdFlags::CLOEXEC).expect("an event");
        Self { fault, left: 1000, event, counters: Arc::default() }
    }
}

impl RxQueue for Faulty {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        if self.fault == Fault::Spurious {
            return Turn::Drained;
        }
        while budget.left() > 0 && !batch.is_full() {
            if self.fault == Fault::Dies && self.left == 0 {
                return Turn::Closed;
            }
            // To where it came from, so that it is dropped.
            let Some(packet) = Packet::copy_from(&back(), pool) else { break };
            batch.push(packet).expect("it is not full");
            budget.spend(1);
            self.left = self.left.saturating_sub(1);
            self.counters.received.add(1);
        }
        Turn::OutOfBudget
    }

    fn arm(&mut self) -> Armed {
        if self.fault == Fault::Endless { Armed::Raced } else { Armed::Waiting }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.event.as_fd())
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.counters
    }
}

/// A frame to a station behind the same port.
fn back() -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&SERVICE.0);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
    frame
}

/// Takes nothing: what is sent to it is dropped.
#[derive(Default)]
struct Nothing(Arc<QueueCounters>);

impl TxQueue for Nothing {
    fn transmit(&mut self, _: &mut Batch, _: &mut Pool) {}

    fn reclaim(&mut self, _: &mut Pool) -> Turn {
        Turn::Drained
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.0
    }
}

const SERVICE: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
/// Ingress and egress of the well-behaved packets, and the port of the other queue.
const FROM: PortId = PortId(0);
const TO: PortId = PortId(1);
const OTHER: PortId = PortId(2);

fn tables() -> Tables {
    let member = |port| MemberOptions { learning: false, flood: port != OTHER, ..MemberOptions::new(port) };
    let entry = |address, port| StaticEntry { address, vlan: None, port };
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 64, seed: 1 }));
    let members = [FROM, TO, OTHER].map(member).to_vec();
    let static_entries = vec![entry(STATION, TO), entry(SERVICE, OTHER)];
    let bridge = BridgeOptions { static_entries, ..BridgeOptions::new("br0", members, fdb) };
    let bridges = Bridges::new(vec![bridge], Arc::new(Links::new(3))).expect("a valid bridge");
    bridges.bind_static(0).expect("room for two");
    Tables { bridges, longest_frame: 2000, ..Tables::default() }
}

/// A worker with a cable on either side, and a third queue.
struct Bench {
    region: Region,
    from: Queue<PairRx, PairTx>,
    to: Queue<PairRx, PairTx>,
    counters: Arc<WorkerCounters>,
    commands: Sender<Command>,
    wakeup: Arc<Wakeup>,
    thread: JoinHandle<()>,
}

impl Bench {
    fn new(other: AnyQueue) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory");
        let tables = Snapshot::new(tables());
        let (commands, inbox) = channel();
        let (report, _) = channel();
        let engine = Engine::new(tables.reader(), 0);
        let counters = Arc::clone(engine.counters());
        let wakeup = Arc::new(Wakeup::new().expect("an event"));
        let (mesh, heard) = (Mesh::default(), Arc::clone(&wakeup));
        let mut worker = Worker::new(region.pool(), engine, Clock::start(), mesh, heard, inbox, report)
            .expect("file descriptors");
        let cable = || pair::cable(Options::default()).expect("a cable");
        let ((near_from, mut from), (near_to, mut to)) = (cable(), cable());
        let near = [near_from, near_to].map(|mut end| end.remove(0).boxed());
        for (queue, port) in near.into_iter().chain([other]).zip([FROM, TO, OTHER]) {
            let attachment = Attachment {
                port,
                class: Class::Data,
                weight: WEIGHT,
                rx: vec![queue.rx],
                tx: SendPath::Own(queue.tx),
                backlog: None,
            };
            commands.send(Command::Attach(attachment)).expect("the worker has its end");
        }
        let thread = std::thread::spawn(move || worker.run());
        Self { region, from: from.remove(0), to: to.remove(0), counters, commands, wakeup, thread }
    }

    /// Sends `count` frames to the station, a few at a time; waits until they have arrived.
    fn forward(&mut self, count: u32) {
        let mut pool = self.region.pool();
        let mut batch = Batch::new();
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut sent, mut seen) = (0_u32, 0_u32);
        while seen < count {
            assert!(
                Instant::now() < deadline,
                "{seen} of {count} have arrived, {sent} were sent, {:?}",
                drops(&self.counters)
            );
            if sent < count && sent - seen < 32 {
                let frame = frame(sent);
                send(&mut self.from, &frame, &mut pool);
                sent += 1;
            }
            let _ = self.to.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
            for packet in batch.iter().filter(|packet| packet.bytes()[..6] == STATION.0) {
                assert_eq!(packet.bytes(), frame(seen), "none is missing: {:?}", drops(&self.counters));
                seen += 1;
            }
            pool.release(&mut batch);
            let _ = self.from.rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
            pool.release(&mut batch);
        }
    }

    fn finish(self) -> Arc<WorkerCounters> {
        self.commands.send(Command::Stop).expect("the worker runs");
        self.wakeup.wake();
        self.thread.join().expect("the worker does not panic");
        drop((self.from, self.to));
        assert_eq!(self.region.free_slots(), self.region.slots(), "frames are missing");
        self.counters
    }
}

/// Drops of the worker, by reason.
fn drops(counters: &WorkerCounters) -> Vec<(&'static str, u64)> {
    let all = DropReason::ALL.iter().map(|&reason| (reason.name(), counters.drops.get(reason)));
    all.filter(|&(_, count)| count > 0).collect()
}

fn send(end: &mut Queue<PairRx, PairTx>, frame: &[u8], pool: &mut Pool) {
    let mut batch = Batch::new();
    batch.push(Packet::copy_from(frame, pool).expect("memory")).expect("room");
    end.tx.transmit(&mut batch, pool);
    assert!(batch.is_empty(), "the cable holds what is on its way");
}

fn frame(number: u32) -> Vec<u8> {
    let mut frame = [&STATION.0[..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(60, 0);
    frame
}

fn faulty(fault: Fault) -> AnyQueue {
    Queue { rx: Faulty::new(fault), tx: Nothing::default() }.boxed()
}

#[test]
fn a_queue_that_is_never_drained_leaves_others_their_turns() {
    let mut bench = Bench::new(faulty(Fault::Endless));
    bench.forward(20_000);
    let counters = bench.finish();
    assert!(counters.stages[0].packets.get() > 20_000, "the other had turns, too");
}

#[test]
fn a_queue_that_dies_is_looked_at_no_more() {
    let mut bench = Bench::new(faulty(Fault::Dies));
    bench.forward(20_000);
    let sleeps = bench.counters.sleeps.get();
    std::thread::sleep(Duration::from_millis(300));
    // Its event never ends; a worker that listened on would be woken again and again.
    assert!(
        bench.counters.sleeps.get() - sleeps < 100,
        "woken {} times",
        bench.counters.sleeps.get() - sleeps
    );
    bench.finish();
}

#[test]
fn events_without_packets_keep_nobody_awake_for_long() {
    let mut bench = Bench::new(faulty(Fault::Spurious));
    let deadline = Instant::now() + Duration::from_secs(60);
    // It naps after a while: rounds then take a millisecond.
    loop {
        let before = bench.counters.polls.get();
        std::thread::sleep(Duration::from_millis(100));
        if bench.counters.polls.get() - before <= 150 {
            break;
        }
        assert!(Instant::now() < deadline, "it never rests");
    }
    bench.forward(2_000);
    bench.finish();
}
