//! A service beside processes that want the worker's core: what it is booked with is the worker's own time.

use super::{Bench, request};
use polder_buffers::{Batch, Packet};
use polder_datapath::port::{Budget, RxQueue as _, TxQueue as _};
use polder_testbed::services::consumer::Service;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Processes that compute beside the worker.
const RIVALS: usize = 2;
/// Requests at a time.
const AT_ONCE: u64 = 32;

/// Computes for some ten microseconds, however long that takes.
struct Dear;

impl Service for Dear {
    fn answer(&mut self, _: &[u8], answer: &mut Vec<u8>) -> bool {
        let sum = (0..20_000_u64).fold(0, |sum, number| black_box(sum ^ number.wrapping_mul(0x9e37)));
        answer.extend_from_slice(&sum.to_be_bytes());
        true
    }
}

/// Nanoseconds for which the worker's thread had the core, and for which it waited for it.
fn scheduled() -> [u64; 2] {
    let tasks = || std::fs::read_dir("/proc/self/task").expect("threads").filter_map(Result::ok);
    let is_worker =
        |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "worker-0");
    // A thread gives itself its name.
    let looks = (0..2000).map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        tasks().map(|task| task.path()).find(|path| is_worker(path))
    });
    let worker = looks.flatten().next().expect("it runs");
    let text = std::fs::read_to_string(worker.join("schedstat")).expect("a kernel with schedstat");
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    [(); 2].map(|()| numbers.next().expect("two numbers"))
}

/// Lets the rivals go, also when a test fails among them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Computes on the worker's core until it is told to stop.
fn rival(core: CpuSet, stop: &AtomicBool) {
    sched_setaffinity(None, &core).expect("a core of our own");
    while !stop.load(Ordering::Relaxed) {
        black_box((0..10_000_u64).fold(0, |sum, number| black_box(sum ^ number)));
    }
}

#[test]
fn what_others_had_of_the_core_is_booked_on_nobody() {
    let allowed = sched_getaffinity(None).expect("some cores");
    let cpu = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).expect("one at least");
    let Bench { _alone, memory, mut near, mut gateway, done, .. } =
        Bench::start("contention", cpu, Box::new(|| Box::new(Dear)));
    let mut pool = memory.region().pool();
    let mut core = CpuSet::new();
    core.set(cpu);
    let stop = AtomicBool::new(false);
    let [had, waited] = std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        (0..RIVALS).for_each(|_| drop(scope.spawn(|| rival(core, &stop))));
        let (deadline, mut sent) = (Instant::now() + Duration::from_secs(60), 0);
        loop {
            let answered = done.answered.get();
            let times = scheduled();
            // Long enough that the worker has lost its core again and again.
            if (answered > 2_000 && times[1] > times[0] && times[0] > 50_000_000) || Instant::now() > deadline
            {
                break times;
            }
            let mut batch = Batch::new();
            while sent < answered + AT_ONCE {
                batch.push(Packet::copy_from(&request(1), &mut pool).expect("memory")).expect("room");
                sent += 1;
            }
            near[0].tx.transmit(&mut batch, &mut pool);
            let _ = near[0].rx.receive(&mut Budget::new(64), &mut batch, &mut pool);
            pool.release(&mut batch);
        }
    });
    let worked = |port: usize| -> u64 {
        gateway.ports[port].counters.iter().map(|queue| queue.worked_nanos.get()).sum()
    };
    let [of_port, of_service] = [0, 1].map(worked);
    let booked = of_port + of_service;
    let answered = done.answered.get();
    gateway.stop();
    assert!(waited > had, "{answered} answered: others had the core for as long at least: {had}, {waited}");
    // By the clock it would be as much as it had and waited for.
    assert!(booked < had + had / 10, "{booked} booked, {had} had, {waited} waited, {answered} answered");
    assert!(of_service > had / 2, "{of_service} of the service, {had} had, {answered} answered");
}
