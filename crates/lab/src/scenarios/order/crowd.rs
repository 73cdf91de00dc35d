//! One flow for two workers whose cores others want as well: what is lost, and where.
//!
//! Packets come at a steady rate into a ring like a device's. Two threads that never rest are on each
//! worker's core, so a worker runs a third of the time and stands still for several milliseconds in between.

use super::harness::{Harness, Left, Plan};
use super::{Run, work};
use anyhow::ensure;
use polder_buffers::{Batch, Pool};
use polder_datapath::counters::QueueCounters;
use polder_datapath::port::{Armed, Budget, RxQueue, Turn};
use polder_datapath::steer::Order;
use polder_testbed::clock;
use polder_testbed::interrupt;
use polder_testbed::meters::sequence::ratio;
use polder_testbed::meters::statistics::Samples;
use polder_testbed::topology::pin_here;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::hint::black_box;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) const SPREAD: &str = "order.crowded.lost_percent.spread";
pub(super) const HASH: &str = "order.crowded.lost_percent.hash";

/// Maximum number of packets that wait for the worker.
const RING: u64 = 4096;
/// Packets a second; a third of two cores does twice as much.
const PACE: u64 = 250_000;
/// Work a packet, in nanoseconds.
const COST: u32 = 1000;
/// Threads beside the worker on each core.
const RIVALS: usize = 2;
/// Time without arrivals after which the worker is woken for waiting packets.
const MODERATION: i64 = 50_000;

/// A source at a steady rate behind a ring; what finds no room in it is lost.
pub(in crate::scenarios) struct Steady<S> {
    source: S,
    pace: u64,
    start: u64,
    /// Number of received or lost packets.
    gone: u64,
    missed: Arc<AtomicU64>,
    timer: OwnedFd,
}

impl<S: RxQueue> Steady<S> {
    /// Source that offers `pace` packets a second of `source`, which never runs dry; and the count
    /// of the lost.
    pub(in crate::scenarios) fn new(source: S, pace: u64) -> anyhow::Result<(Self, Arc<AtomicU64>)> {
        let missed = Arc::<AtomicU64>::default();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK)?;
        Ok((Self { source, pace, start: 0, gone: 0, missed: Arc::clone(&missed), timer }, missed))
    }

    /// Number of waiting packets.
    fn waiting(&mut self) -> u64 {
        let now = clock::nanos();
        if self.start == 0 {
            self.start = now;
        }
        let due = u128::from(now - self.start) * u128::from(self.pace) / 1_000_000_000;
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let excess = (due - self.gone).saturating_sub(RING);
        self.missed.fetch_add(excess, Ordering::Relaxed);
        self.gone += excess;
        due - self.gone
    }
}

impl<S: RxQueue> RxQueue for Steady<S> {
    fn receive(&mut self, budget: &mut Budget, batch: &mut Batch, pool: &mut Pool) -> Turn {
        // Nothing to read means that it has not rung.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        let waiting = self.waiting();
        let limit = u32::try_from(waiting).unwrap_or(u32::MAX).min(budget.left());
        if limit == 0 {
            return Turn::Drained;
        }
        let mut part = Budget::new(limit);
        if self.source.receive(&mut part, batch, pool) == Turn::Drained {
            // It is closed: what is due goes nowhere.
            self.gone += waiting;
            return Turn::Drained;
        }
        let taken = limit - part.left();
        budget.spend(taken);
        self.gone += u64::from(taken);
        if u64::from(taken) < waiting { Turn::OutOfBudget } else { Turn::Drained }
    }

    fn arm(&mut self) -> Armed {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let once = Itimerspec { it_interval: zero, it_value: Timespec { tv_sec: 0, tv_nsec: MODERATION } };
        match timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once) {
            Ok(_) => Armed::Waiting,
            Err(_) => Armed::Raced,
        }
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.timer.as_fd())
    }

    fn counters(&self) -> &Arc<QueueCounters> {
        self.source.counters()
    }
}

/// Threads that never rest.
struct Rivals {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Rivals {
    fn start(cores: &[usize]) -> anyhow::Result<Self> {
        let mut rivals = Self { stop: Arc::default(), threads: Vec::new() };
        for core in cores.iter().copied().flat_map(|core| [core; RIVALS]) {
            let stop = Arc::clone(&rivals.stop);
            let rival = std::thread::Builder::new().name("rival".to_owned());
            rivals.threads.push(rival.spawn(move || spin(core, &stop))?);
        }
        Ok(rivals)
    }
}

fn spin(core: usize, stop: &AtomicBool) {
    // One that runs elsewhere is beside the workers as well.
    let _ = pin_here(core);
    while !stop.load(Ordering::Relaxed) {
        black_box(work::work(black_box(&[0x5a; 64]), 1000));
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // One that panicked is not beside anybody any more.
            let _ = thread.join();
        }
    }
}

/// Fate of the packets of one run.
struct Fate {
    came: u64,
    left: Left,
    missed: u64,
    silence: Duration,
}

/// A second of it.
fn run_beside(order: Order, links: u32, time: Duration) -> anyhow::Result<Fate> {
    let plan = Plan { order, steady: Some(PACE), ..Plan::one_flow(2, links) };
    let harness = Harness::start(&plan, |_| {})?;
    let missed = harness.missed.clone();
    let rivals = Rivals::start(&harness.cores)?;
    harness.open(true);
    interrupt::sleep(time)?;
    harness.open(false);
    drop(rivals);
    let (left, ledger) = harness.stop()?;
    let missed = missed.map_or(0, |missed| missed.load(Ordering::Relaxed));
    ensure!(ledger.flows[0].reordered == 0, "{} packets reordered", ledger.flows[0].reordered);
    let out = ledger.flows[0].packets + left.no_core + left.late;
    ensure!(out == left.sent[0], "{out} of {} packets are accounted for", left.sent[0]);
    let silence = Duration::from_nanos(ledger.flows[0].longest_gap);
    Ok(Fate { came: left.sent[0] + missed, left, missed, silence })
}

/// Measures both rows.
pub(super) fn measure(run: &mut Run, link: f64) -> anyhow::Result<()> {
    let links = work::links(COST, link);
    let (rounds, time) = run.quick_or((2, Duration::from_millis(700)), (10, Duration::from_secs(1)));
    for (order, row) in [(Order::Spread, SPREAD), (Order::Hash, HASH)] {
        run.says("workers beside threads that never rest");
        let fates =
            (0..rounds).map(|_| run_beside(order, links, time)).collect::<anyhow::Result<Vec<_>>>()?;
        let lost = |fate: &Fate| fate.missed + fate.left.no_core + fate.left.late;
        run.record(row, &fates.iter().map(|fate| 100.0 * ratio(lost(fate), fate.came)).collect::<Samples>());
        let sum = |part: fn(&Fate) -> u64| fates.iter().map(part).sum::<u64>();
        run.remark(
            row,
            format!(
                "of {} packets {} found no room in the device's ring, {} no ticket or ring, {} came after their turn; \
                 {} of {} work_batches done by the other worker; the longest silence {} ms",
                sum(|fate| fate.came),
                sum(|fate| fate.missed),
                sum(|fate| fate.left.no_core),
                sum(|fate| fate.left.late),
                sum(|fate| fate.left.helped),
                sum(|fate| fate.left.tickets),
                fates.iter().map(|fate| fate.silence).max().unwrap_or_default().as_millis(),
            ),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polder_testbed::machine;

    #[test]
    fn every_packet_beside_rivals_is_in_a_book_and_in_order() {
        if machine::cores() < 2 {
            eprintln!("SKIPPED: two workers take two cores");
            return;
        }
        for order in [Order::Spread, Order::Hash] {
            let fate = run_beside(order, 100, Duration::from_millis(300)).unwrap();
            assert!(fate.came > 0, "{:?}", fate.left);
        }
    }
}
