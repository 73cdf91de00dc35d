//! The steady path makes no system call and waits for no lock, however many packets there are: two workers
//! that share their memory carry them, and every system call of theirs is counted. A lock that two threads
//! want at a time would show as `futex`.

#![expect(clippy::disallowed_methods, reason = "a test looks at the real clock to give up")]

mod sys;

use polder::clock::Clock;
use polder::runtime::wake::Wakeup;
use polder::runtime::worker::{Attachment, Command, Mesh, SendPath, Worker};
use polder_buffers::snapshot::Snapshot;
use polder_buffers::{
    Batch, BufferManager, BufferOptions, Class, FragmentOptions, Packet, Pool, PortId, Segment,
};
use polder_datapath::counters::{QueueCounters, WorkerCounters};
use polder_datapath::engine::{Engine, Tables};
use polder_datapath::forward::{BridgeOptions, Bridges, Fdb, FdbOptions, Links, MemberOptions};
use polder_datapath::port::{Armed, Budget, RxQueue, Turn, TxQueue};
use polder_datapath::scheduler::WEIGHT;
use std::io::Write as _;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use sys::Calls;

/// Packets of each worker that are looked at.
const PACKETS: u64 = 200_000;

/// Packets without end, every second one in a fragment.
#[derive(Default)]
struct Source(Arc<QueueCounters>);

impl RxQueue for Source {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        let mut count = 0;
        while budget.left() > count && !batch.is_full() {
            let (bytes, offset) = if count % 2 == 0 { (2048, 256) } else { (128, 28) };
            let Some(mut frame) = pool.take_for(bytes) else { break };
            let start = usize::from(offset);
            frame.slot_mut()[start..start + 14]
                .copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
            let segment = Segment { frame, offset, length: 100 };
            batch.push(Packet::from_segment(segment)).expect("it is not full");
            count += 1;
        }
        budget.spend(count);
        self.0.received.add(count.into());
        Turn::OutOfBudget
    }

    fn arm(&mut self) -> Armed {
        Armed::Raced
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.0
    }
}

/// Takes everything.
#[derive(Default)]
struct Drain(Arc<QueueCounters>);

impl TxQueue for Drain {
    fn transmit(&mut self, batch: &mut Batch, pool: &mut Pool) {
        self.0.transmitted.add(batch.len() as u64);
        pool.release(batch);
    }

    fn reclaim(&mut self, _pool: &mut Pool) -> Turn {
        Turn::Drained
    }

    fn held(&self) -> u32 {
        0
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        &self.0
    }
}

fn tables() -> Tables {
    let member = |port| MemberOptions::new(PortId(port));
    let fdb = Arc::new(Fdb::new(FdbOptions { capacity: 64, seed: 1 }));
    let bridge = BridgeOptions::new("br0", vec![member(0), member(1)], fdb);
    let bridges = Bridges::new(vec![bridge], Arc::new(Links::new(2))).expect("a valid bridge");
    Tables { bridges, longest_frame: 2000, ..Tables::default() }
}

struct Runner {
    commands: Sender<Command>,
    counters: Arc<WorkerCounters>,
    transmitted: Arc<QueueCounters>,
    calls: std::io::Result<Arc<Calls>>,
    thread: JoinHandle<()>,
}

impl Runner {
    fn start(pool: Pool, engine: Engine) -> Self {
        let (commands, inbox) = channel();
        let (report, _) = channel();
        let counters = Arc::clone(engine.counters());
        let wakeup = Arc::new(Wakeup::new().expect("an event"));
        let mut worker =
            Worker::new(pool, engine, Clock::start(), Mesh::default(), wakeup, inbox, report).expect("files");
        let drain = Drain::default();
        let transmitted = Arc::clone(drain.counters());
        let (port, class) = (PortId(0), Class::Data);
        let source = Attachment {
            port,
            class,
            weight: WEIGHT,
            rx: vec![Box::new(Source::default())],
            tx: SendPath::Own(Box::new(Drain::default())),
            backlog: None,
        };
        let sink = Attachment {
            port: PortId(1),
            class,
            weight: WEIGHT,
            rx: Vec::new(),
            tx: SendPath::Own(Box::new(drain)),
            backlog: None,
        };
        for attachment in [source, sink] {
            commands.send(Command::Attach(attachment)).expect("the worker has its end");
        }
        let (say, said) = channel();
        let thread = std::thread::spawn(move || {
            let calls = Calls::of_this_thread();
            let _ = say.send(calls);
            worker.run();
        });
        let calls = said.recv().expect("the thread says so");
        Self { commands, counters, transmitted, calls, thread }
    }

    /// Packets sent, rounds, and system calls until now.
    fn look(&self) -> [u64; 3] {
        let calls = self.calls.as_ref().map_or(0, |calls| calls.count());
        [self.transmitted.transmitted.get(), self.counters.polls.get(), calls]
    }

    /// Waits until `packets` packets have been sent.
    fn wait(&self, packets: u64) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.transmitted.transmitted.get() < packets {
            assert!(Instant::now() < deadline, "{:?}", self.look());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn no_system_call_a_packet() {
    let mut options = BufferOptions::fixed(2048, 0, 4096);
    options.data.fragments = Some(FragmentOptions::default());
    let memory = BufferManager::new(options).expect("memory");
    let tables = Snapshot::new(tables());
    let runners =
        [0, 1].map(|number| Runner::start(memory.pool(Class::Data), Engine::new(tables.reader(), number)));
    let refused = runners.iter().find_map(|runner| runner.calls.as_ref().err().map(ToString::to_string));
    let mut seen = Vec::new();
    for runner in &runners {
        // The first packets find everything new.
        runner.wait(10_000);
        let before = runner.look();
        runner.wait(before[0] + PACKETS);
        let after = runner.look();
        seen.push([0, 1, 2].map(|index| after[index] - before[index]));
    }
    for runner in runners {
        runner.commands.send(Command::Stop).expect("the worker runs");
        runner.thread.join().expect("the worker does not panic");
    }
    if let Some(why) = refused {
        skip(&why);
        return;
    }
    for [packets, rounds, calls] in seen {
        assert!(packets >= PACKETS);
        // On a busy machine the thread's clock is asked at both ends of a turn, and one is all that a round has here.
        assert!(
            calls <= 2 * rounds + 8 && calls < packets / 16,
            "{calls} calls for {packets} packets in {rounds} rounds"
        );
    }
    assert_eq!(memory.region().late_frees(), 0);
}

/// Says loudly that the system does not allow it.
fn skip(why: &str) {
    let line = format!("skipped: no_system_call_a_packet: seccomp: {why}");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(path) = std::env::var_os("POLDER_SKIP_LOG") {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(path);
        writeln!(log.expect("the log"), "{line}").expect("the log");
    }
}
