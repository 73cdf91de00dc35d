//! A service for which few requests wait sends an answer before it goes on to the next request.

use super::{Bench, request};
use polder_buffers::{Batch, Packet, Pool};
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_devices::pair;
use polder_testbed::services::consumer::Service;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A request that takes as long as it is told to.
const DEAR: u8 = 0;
/// One that is done when the answer before it has come, or has not for long.
const WAITS: u8 = 1;
/// Work that takes 10 to 40 µs, on slow machines and on fast ones: costly enough to be sent alone, cheap enough for a turn of several.
const WORK: [u64; 3] = [12_500, 25_000, 50_000];
const LONG: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Shared {
    /// The answer to the first request has come.
    come: AtomicBool,
    /// The second one has seen that.
    seen: AtomicBool,
    /// Rounds of work a request.
    work: AtomicU64,
}

struct Waiting(Arc<Shared>);

impl Service for Waiting {
    fn answer(&mut self, request: &[u8], answer: &mut Vec<u8>) -> bool {
        if request.first() == Some(&WAITS) {
            let start = Instant::now();
            while !self.0.come.load(Ordering::Relaxed) && start.elapsed() < LONG {
                std::hint::spin_loop();
            }
            self.0.seen.store(self.0.come.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let sum = (0..self.0.work.load(Ordering::Relaxed))
            .fold(0, |sum, number| black_box(sum ^ number.wrapping_mul(0x9e37)));
        answer.extend_from_slice(&sum.to_be_bytes());
        true
    }
}

struct Client {
    near: pair::End,
    pool: Pool,
}

impl Client {
    fn send(&mut self, requests: &[u8]) {
        let mut batch = Batch::new();
        for &what in requests {
            batch.push(Packet::copy_from(&request(what), &mut self.pool).expect("memory")).expect("room");
        }
        self.near[0].tx.transmit(&mut batch, &mut self.pool);
    }

    /// Answers that have come.
    fn take(&mut self) -> usize {
        let mut batch = Batch::new();
        let _ = self.near[0].rx.receive(&mut Budget::new(64), &mut batch, &mut self.pool);
        let count = batch.len();
        self.pool.release(&mut batch);
        count
    }
}

#[test]
fn an_answer_leaves_before_the_next_request_is_done() {
    let allowed = sched_getaffinity(None).expect("some cores");
    let cpu = (0..CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu)).expect("one at least");
    let shared = Arc::<Shared>::default();
    let service = Arc::clone(&shared);
    let maker = Box::new(move || Box::new(Waiting(Arc::clone(&service))) as Box<dyn Service>);
    let Bench { _alone, memory, near, mut gateway, done, .. } = Bench::start("answers", cpu, maker);
    let mut client = Client { near, pool: memory.region().pool() };
    let (mut tries, deadline) = (0, Instant::now() + Duration::from_secs(60));
    // A worker that loses its core, or this thread, may spoil a try, never all of them.
    while !shared.seen.load(Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "{} answers, none before the next was done", done.answered.get());
        shared.work.store(WORK[tries % WORK.len()], Ordering::Relaxed);
        tries += 1;
        // What a request costs is known, and a turn has room for several of them.
        for _ in 0..50 {
            all_of(&mut client, &[DEAR; 4], || ());
        }
        shared.come.store(false, Ordering::Relaxed);
        all_of(&mut client, &[DEAR, WAITS], || shared.come.store(true, Ordering::Relaxed));
    }
    gateway.stop();
}

/// Sends requests at once, and waits for all answers; says when the first has come.
fn all_of(client: &mut Client, requests: &[u8], first: impl Fn()) {
    client.send(requests);
    let (mut count, deadline) = (0, Instant::now() + Duration::from_secs(10));
    while count < requests.len() && Instant::now() < deadline {
        count += client.take();
        if count > 0 {
            first();
        }
    }
}
