//! Workers between in-memory cables: queues divided, packets handed over, nothing lost, nobody
//! busy when nothing is to be done.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

use polder::clock::Clock;
use polder::runtime::accounts::Accounts;
use polder::runtime::gateway::{meshes, share};
use polder::runtime::wake::Wakeup;
use polder::runtime::worker::{Attachment, Command, Worker};
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{BATCH, Batch, Class, Packet, Pool, PortId, Region, RegionOptions};
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::drops::DropReason;
use polder_datapath::engine::{Engine, Tables};
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions};
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_datapath::scheduler::WEIGHT;
use polder_datapath::tunnel::Tunnels;
use polder_devices::Queue;
use polder_devices::pair::{self, End, Options, PairRx, PairTx};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type PairQueue = Queue<PairRx, PairTx>;

/// A gateway of two bridged ports, with the far ends of their cables in hand.
struct Bench {
    region: Region,
    far: [End; 2],
    workers: Vec<Arc<WorkerCounters>>,
    queues: Vec<Arc<QueueCounters>>,
    commands: Vec<(Sender<Command>, Arc<Wakeup>)>,
    threads: Vec<JoinHandle<()>>,
}

fn bridges() -> Bridges {
    let member = |port| MemberOptions::new(PortId(port));
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 64, seed: 1 }));
    let bridge = BridgeOptions::new("br0", vec![member(0), member(1)], fdb);
    Bridges::new(vec![bridge], Arc::new(Links::new(2))).expect("a valid bridge")
}

impl Bench {
    /// A gateway with `workers` workers; port `n` has `queues[n]` queues.
    fn new(workers: usize, queues: [usize; 2]) -> Self {
        let region = Region::new(RegionOptions { slots: 4096, slot_bytes: 2048 }).expect("memory");
        let tunnels = Tunnels::new([], []).expect("no tunnels");
        let tables = Tables { bridges: bridges(), tunnels, longest_frame: 2000, ..Tables::default() };
        let tables = Snapshot::new(tables);
        let wakeups = (0..workers).map(|_| Arc::new(Wakeup::new().expect("an event"))).collect::<Vec<_>>();
        let (report, _) = channel();
        let mut bench = Self {
            far: [Vec::new(), Vec::new()],
            workers: Vec::new(),
            queues: Vec::new(),
            commands: Vec::new(),
            threads: Vec::new(),
            region,
        };
        let clock = Clock::start();
        for (number, mesh) in meshes(&wakeups).into_iter().enumerate() {
            let (commands, inbox) = channel();
            let engine = Engine::new(tables.reader(), number);
            bench.workers.push(Arc::clone(engine.counters()));
            let wakeup = Arc::clone(&wakeups[number]);
            let mut worker = Worker::new(
                bench.region.pool(),
                engine,
                clock,
                mesh,
                Arc::clone(&wakeup),
                inbox,
                report.clone(),
            )
            .expect("file descriptors");
            bench.threads.push(std::thread::spawn(move || worker.run()));
            bench.commands.push((commands, wakeup));
        }
        for (port, &count) in queues.iter().enumerate() {
            let (near, far) = pair::cable(Options { queues: count, ..Options::default() }).expect("a cable");
            bench.far[port] = far;
            let near = near.into_iter().map(Queue::boxed).collect();
            let shares = share(near, workers, &mut bench.queues);
            for ((commands, wakeup), (rx, tx)) in bench.commands.iter().zip(shares) {
                let port = PortId(u16::try_from(port).expect("two ports"));
                let (class, weight, backlog) = (Class::Data, WEIGHT, None);
                let attachment = Attachment { port, class, weight, rx, tx, backlog };
                commands.send(Command::Attach(attachment)).expect("the worker runs");
                wakeup.wake();
            }
        }
        bench
    }

    /// Sends `count` frames into each queue of port 0's far end and returns the frames at the far end of
    /// port 1, by queue: the sequence numbers of each sending queue in order of arrival.
    fn forward(&mut self, count: u32) -> Vec<Vec<u32>> {
        let mut pool = self.region.pool();
        let [left, right] = &mut self.far;
        let mut sent = vec![0; left.len()];
        let mut seen = vec![Vec::new(); left.len()];
        let deadline = Instant::now() + Duration::from_secs(20);
        while seen.iter().map(Vec::len).sum::<usize>() < left.len() * count as usize {
            let arrived = seen.iter().map(Vec::len).collect::<Vec<_>>();
            assert!(Instant::now() < deadline, "sent {sent:?}, seen {arrived:?}");
            for (queue, end) in left.iter_mut().enumerate() {
                // Less than a ring at a time, so that the test itself overruns nothing.
                let until = count.min(u32::try_from(arrived[queue]).expect("few") + 32);
                feed(end, queue, sent[queue]..until, &mut pool);
                sent[queue] = until.max(sent[queue]);
            }
            right.iter_mut().for_each(|end| collect(end, &mut seen, &mut pool));
        }
        seen
    }

    /// Stops everything and checks that nothing was lost.
    fn finish(mut self) -> Accounts {
        for (commands, wakeup) in &self.commands {
            commands.send(Command::Stop).expect("the worker runs");
            wakeup.wake();
        }
        self.threads.drain(..).for_each(|thread| thread.join().expect("the worker does not panic"));
        let accounts = Accounts::of(&self.workers, &self.queues);
        assert_eq!(accounts.unaccounted(), 0, "{accounts:?}");
        let Self { region, far, .. } = self;
        drop(far);
        assert_eq!(region.free_slots(), region.slots(), "frames are missing");
        accounts
    }
}

/// Sends the frames of these numbers.
fn feed(end: &mut PairQueue, queue: usize, numbers: std::ops::Range<u32>, pool: &mut Pool) {
    let mut batch = Batch::new();
    for number in numbers {
        let packet = Packet::copy_from(&frame(queue, number), pool).expect("memory");
        batch.push(packet).expect("emptied below");
        end.tx.transmit(&mut batch, pool);
        assert!(batch.is_empty(), "the ring holds what is on its way");
    }
}

/// Notes arrived frames, by the queue that they were sent into.
fn collect(end: &mut PairQueue, seen: &mut [Vec<u32>], pool: &mut Pool) {
    let mut batch = Batch::new();
    let _ = end.rx.receive(&mut Budget::new(64), &mut batch, pool);
    for packet in batch.iter() {
        let bytes = packet.bytes();
        let number = u32::from_be_bytes([bytes[15], bytes[16], bytes[17], bytes[18]]);
        seen[usize::from(bytes[14])].push(number);
    }
    pool.release(&mut batch);
}

/// A frame from station 1 to station 2 that says which queue and which place it has.
fn frame(queue: usize, sequence: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5];
    frame.push(u8::try_from(queue).expect("few queues"));
    frame.extend(sequence.to_be_bytes());
    frame.resize(60, 0);
    frame
}

#[test]
fn one_worker_forwards_in_order_and_loses_nothing() {
    let mut bench = Bench::new(1, [1, 1]);
    let seen = bench.forward(5000);
    assert!(seen[0].iter().copied().eq(0..5000));
    let accounts = bench.finish();
    assert_eq!((accounts.received, accounts.transmitted, accounts.dropped), (5000, 5000, 0));
}

#[test]
fn two_workers_with_a_queue_each_share_the_work() {
    let mut bench = Bench::new(2, [2, 2]);
    let seen = bench.forward(5000);
    assert!(seen.iter().all(|queue| queue.iter().copied().eq(0..5000)), "in order by queue");
    assert!(bench.workers.iter().all(|worker| worker.handed_over.get() == 0));
    assert!(bench.workers.iter().all(|worker| worker.stages[0].packets.get() == 5000));
    assert_eq!(bench.finish().transmitted, 10_000);
}

#[test]
fn a_worker_without_a_queue_hands_over() {
    let mut bench = Bench::new(2, [2, 1]);
    let seen = bench.forward(5000);
    assert!(seen.iter().all(|queue| queue.iter().copied().eq(0..5000)), "in order by queue");
    assert_eq!(bench.workers[1].handed_over.get(), 5000);
    assert_eq!(bench.workers[0].taken_over.get(), 5000);
    let accounts = bench.finish();
    assert_eq!((accounts.transmitted, accounts.held), (10_000, 0));
}

#[test]
fn an_idle_worker_sleeps_and_wakes() {
    let mut bench = Bench::new(1, [1, 1]);
    bench.forward(10);
    std::thread::sleep(Duration::from_millis(100));
    let polls = bench.workers[0].polls.get();
    std::thread::sleep(Duration::from_millis(300));
    assert!(bench.workers[0].polls.get() - polls <= 30, "an idle worker polls on");
    assert!(bench.workers[0].sleeps.get() > 0);
    let woken = bench.workers[0].wakeups.get();
    // A packet can meet the worker between two sleeps; not each of them does.
    let met = (0..20).any(|_| {
        bench.forward(1);
        std::thread::sleep(Duration::from_millis(50));
        bench.workers[0].wakeups.get() > woken
    });
    assert!(met, "packets are found by a timer, nothing wakes the worker");
    bench.finish();
}

#[test]
fn a_worker_at_rest_sleeps_until_something_comes() {
    let mut bench = Bench::new(1, [1, 1]);
    bench.forward(10);
    let polls = |bench: &Bench| bench.workers[0].polls.get();
    // After a second it gives back the frames that it keeps, and has no reason to wake then.
    let rests = (0..20).any(|_| {
        let before = polls(&bench);
        std::thread::sleep(Duration::from_millis(1300));
        polls(&bench) == before
    });
    assert!(rests, "a worker at rest wakes by itself");
    let seen = bench.forward(10);
    assert!(seen.iter().flatten().count() >= 10, "packets wake it");
    bench.finish();
}

#[test]
fn a_full_port_drops_with_a_reason() {
    let mut bench = Bench::new(1, [1, 1]);
    let mut pool = bench.region.pool();
    let mut batch = Batch::new();
    // Nobody reads the far end of port 1, whose ring holds 256.
    for round in 0..20 {
        for sequence in 0..BATCH {
            let frame = frame(0, u32::try_from(round * BATCH + sequence).expect("few"));
            batch.push(Packet::copy_from(&frame, &mut pool).expect("memory")).expect("room");
        }
        while !batch.is_empty() {
            bench.far[0][0].tx.transmit(&mut batch, &mut pool);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(pool);
    let worker = Arc::clone(&bench.workers[0]);
    let deadline = Instant::now() + Duration::from_secs(5);
    while worker.stages[0].packets.get() < 20 * 64 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let accounts = bench.finish();
    assert_eq!(accounts.received, 20 * 64);
    assert!(accounts.dropped >= 20 * 64 - 256 - 64);
    assert_eq!(worker.drops.get(DropReason::TxFull), accounts.dropped);
}
