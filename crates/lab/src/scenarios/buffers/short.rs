//! Short memory: a burst that drains a reserve, control traffic beside greedy data, and the memory that
//! is still held by a burst ten seconds later.

use super::sys::minor_faults;
use anyhow::{Context as _, anyhow};
use polder_buffers::{
    AllocationPolicy, BufferManager, BufferOptions, Class, ClassBuffers, ClassOptions, Frame, Marks, Pool,
    Reloader, ReserveOptions, Switches, Waker,
};
use polder_testbed::clock;
use polder_testbed::topology::{pin_here, put_first};
use std::fs;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SLOT_BYTES: u32 = 2048;
/// Data frames, and how many of them are kept ready.
const SLOTS: u32 = 16_384;
const READY: u32 = 4096;
/// Frames of the burst: three reserves.
const BURST: u32 = 12_288;
/// Nanoseconds from one to the next: a million a second, what a gigabit of small packets brings.
const APART: u64 = 1000;

fn growing(slots: u32, ready: u32) -> ClassBuffers {
    let policy = AllocationPolicy::Growing(Marks::for_target(ready));
    ClassBuffers {
        frames: ClassOptions { slots, policy, reserve_options: ReserveOptions::default() },
        fragments: None,
    }
}

fn manager(control: ClassBuffers, patience: Duration, switches: &Switches) -> anyhow::Result<BufferManager> {
    let options = BufferOptions {
        control,
        data: growing(SLOTS, READY),
        patience: Some(patience),
        ..BufferOptions::fixed(SLOT_BYTES, 0, 0)
    };
    Ok(BufferManager::new(options.with_switches(switches))?)
}

/// Runs `work` while reloaders serve on core `core`; the first one before all others, if it is not alone.
pub(in crate::scenarios) fn with_reloaders<R: Send>(
    manager: &BufferManager,
    core: usize,
    work: impl FnOnce() -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let reloaders = manager.reloaders();
    let wakers = reloaders.iter().map(Reloader::waker).collect::<Vec<_>>();
    let is_over = AtomicBool::new(false);
    let is_split = reloaders.len() > 1;
    std::thread::scope(|scope| {
        for (number, mut reloader) in reloaders.into_iter().enumerate() {
            let is_over = &is_over;
            let is_first = is_split && number == 0;
            scope.spawn(move || serve(&mut reloader, is_over, core, is_first));
        }
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        wakers.iter().for_each(Waker::wake);
        result
    })
}

fn serve(reloader: &mut Reloader, is_over: &AtomicBool, core: usize, is_first: bool) {
    // Without its core, or not before others, it works all the same.
    let _ = pin_here(core);
    if is_first {
        let _ = put_first(rustix::thread::gettid().as_raw_nonzero().get());
    }
    // Relaxed: the flag orders nothing, and the waker wakes after it is set.
    while !is_over.load(Ordering::Relaxed) {
        reloader.turn(clock::now());
        reloader.wait();
    }
}

/// Latencies of a thread that takes frames while a burst drains the reserve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    /// Nanoseconds of one allocation, its first line written: the thousandth longest, and the longest.
    pub(super) p999: f64,
    pub(super) longest: f64,
    pub(super) faults: f64,
    /// Frames that could not be had.
    pub(super) missed: u32,
}

/// Allocates a burst of frames from a smaller reserve, one frame per microsecond.
pub(super) fn drain(reloads: bool, (core, other): (usize, usize)) -> anyhow::Result<Drain> {
    let switches = Switches { reloads, ..Switches::default() };
    let manager = manager(growing(64, 64), Duration::from_secs(60), &switches)?;
    with_reloaders(&manager, other, || {
        let pool = manager.pool(Class::Data);
        on_core(core, move || burst(pool))
    })
}

fn burst(mut pool: Pool) -> Drain {
    let mut frames: Vec<Frame> = Vec::with_capacity(BURST as usize);
    // Written once, so that the thread's own memory is there.
    let mut times = vec![1_u64; BURST as usize];
    times.clear();
    pool.take_bulk(BURST.min(READY) as usize / 2, &mut frames);
    pool.release_bulk(&mut frames);
    let look = look();
    let before = minor_faults();
    let (start, mut missed) = (clock::nanos(), 0);
    for number in 0..u64::from(BURST) {
        let due = start + number * APART;
        while clock::nanos() < due {
            spin_loop();
        }
        let at = clock::nanos();
        match pool.take() {
            Some(mut frame) => {
                frame.slot_mut()[..64].fill(1);
                frames.push(frame);
            }
            None => missed += 1,
        }
        times.push((clock::nanos() - at).saturating_sub(look));
    }
    let faults = minor_faults() - before;
    pool.release_bulk(&mut frames);
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() - times.len() / part - 1).copied().unwrap_or(0);
    Drain {
        p999: nanos(at(1000)),
        longest: nanos(times[times.len() - 1]),
        faults: nanos(faults.cast_unsigned()),
        missed,
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure of a report needs no 52 bits")]
fn nanos(value: u64) -> f64 {
    value as f64
}

/// Duration of two clock readings with nothing between them.
fn look() -> u64 {
    let mut looks = (0..1001)
        .map(|_| {
            let start = clock::nanos();
            clock::nanos() - start
        })
        .collect::<Vec<_>>();
    looks.sort_unstable();
    looks[500]
}

/// Runs `work` on a thread of its own on that core.
pub(in crate::scenarios) fn on_core<R: Send>(
    core: usize,
    work: impl FnOnce() -> R + Send,
) -> anyhow::Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || pin_here(core).map(|()| work()));
        thread.join().map_err(|_| anyhow!("a measurement panicked"))?
    })
}

/// Control frames, how many of them are kept ready, and how many one need takes.
const CONTROL: u32 = 1024;
const CONTROL_READY: u32 = 64;
const CONTROL_NEED: usize = 400;
/// Number taken at a time, and the pause until the next.
const STEP: (usize, Duration) = (8, Duration::from_micros(150));

/// Milliseconds that control rests between its needs. What is superfluous for 2 ms goes back to the system.
const PAUSES: [u64; 7] = [1, 6, 3, 8, 4, 2, 5];

/// Frames that control traffic and data got while data took all memory.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::scenarios) struct Greed {
    pub(super) failed: u32,
    pub(super) taken: u32,
    /// Frames that data asked for, of [`SLOTS`], and got, each time.
    pub(super) demanded: usize,
    pub(super) data_taken: u64,
}

impl Greed {
    /// Percentage of control's allocations that succeeded.
    pub(in crate::scenarios) fn taken_percent(&self) -> f64 {
        100.0 * f64::from(self.taken) / f64::from((self.taken + self.failed).max(1))
    }
}

/// Control takes more than its reserve again and again, while data asks for twice its whole memory.
pub(super) fn greed(splits_reload: bool, time: Duration, cores: (usize, usize)) -> anyhow::Result<Greed> {
    beside_control(splits_reload, time, cores, take_everything)
}

/// Control takes more than its reserve again and again, while `take` takes data until it is told to end; `take` returns
/// the number of frames that it got.
pub(in crate::scenarios) fn beside_control(
    splits_reload: bool,
    time: Duration,
    (core, other): (usize, usize),
    take: impl FnOnce(Pool, &AtomicBool) -> u64 + Send,
) -> anyhow::Result<Greed> {
    let switches = Switches { splits_reload, ..Switches::default() };
    let manager = manager(growing(CONTROL, CONTROL_READY), Duration::from_millis(2), &switches)?;
    let is_over = AtomicBool::new(false);
    with_reloaders(&manager, other, || {
        let (control, data) = (manager.pool(Class::Control), manager.pool(Class::Data));
        std::thread::scope(|scope| {
            let greedy = scope.spawn(|| pin_here(core).map(|()| take(data, &is_over)));
            let needy = scope.spawn(move || pin_here(other).map(|()| need(control, time)));
            let needs = needy.join().map_err(|_| anyhow!("the control thread panicked"))?;
            is_over.store(true, Ordering::Relaxed);
            let data_taken = greedy.join().map_err(|_| anyhow!("the data thread panicked"))??;
            let (failed, taken) = needs?;
            Ok(Greed { failed, taken, demanded: 2 * SLOTS as usize, data_taken })
        })
    })
}

fn take_everything(mut pool: Pool, is_over: &AtomicBool) -> u64 {
    let mut hoard = Vec::with_capacity(SLOTS as usize);
    let mut taken = 0;
    while !is_over.load(Ordering::Relaxed) {
        let mut left = 2 * SLOTS as usize;
        let until = clock::now() + Duration::from_millis(4);
        while left > 0 && clock::now() < until {
            left -= pool.take_bulk(left.min(64), &mut hoard);
            if hoard.len() == SLOTS as usize {
                break;
            }
        }
        taken += hoard.len() as u64;
        pool.release_bulk(&mut hoard);
        pool.give_back();
        // So long that the system gets back what was superfluous, and has to bring it in again.
        std::thread::sleep(Duration::from_millis(6));
    }
    taken
}

fn need(mut pool: Pool, time: Duration) -> (u32, u32) {
    let mut frames = Vec::with_capacity(CONTROL_NEED);
    let (mut failed, mut taken, mut round) = (0, 0, 0);
    let end = clock::now() + time;
    while clock::now() < end {
        for number in 0..CONTROL_NEED {
            match pool.take() {
                Some(mut frame) => {
                    frame.slot_mut()[..64].fill(1);
                    frames.push(frame);
                    taken += 1;
                }
                None => failed += 1,
            }
            if number % STEP.0 == STEP.0 - 1 {
                std::thread::sleep(STEP.1);
            }
        }
        pool.release_bulk(&mut frames);
        pool.give_back();
        // The next need comes before, while and after the system gets back what is not needed.
        std::thread::sleep(Duration::from_millis(PAUSES[round % PAUSES.len()]));
        round += 1;
    }
    (failed, taken)
}

/// Memory of the process in KiB, shared parts by halves, before a burst, at its peak, and after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) before: f64,
    pub(super) peak: f64,
    pub(super) after: f64,
}

/// Allocates all frames, releases them, and waits; memory unused for `patience` returns to the system if
/// `gives_back`.
pub(super) fn memory_after_burst(
    wait: Duration,
    (gives_back, patience): (bool, Duration),
    (core, other): (usize, usize),
) -> anyhow::Result<Memory> {
    let switches = Switches { gives_back, ..Switches::default() };
    let manager = manager(growing(64, 64), patience, &switches)?;
    with_reloaders(&manager, other, || {
        let mut pool = manager.pool(Class::Data);
        on_core(core, move || {
            let mut frames = Vec::with_capacity(SLOTS as usize);
            let before = pss()?;
            let patience = clock::now() + Duration::from_secs(5);
            while frames.len() < SLOTS as usize && clock::now() < patience {
                pool.take_bulk(SLOTS as usize - frames.len(), &mut frames);
                frames.iter_mut().for_each(|frame: &mut Frame| frame.slot_mut()[0] = 1);
            }
            let peak = pss()?;
            pool.release_bulk(&mut frames);
            pool.give_back();
            polder_testbed::interrupt::sleep(wait)?;
            Ok(Memory { before, peak, after: pss()? })
        })?
    })
}

/// The proportional set size of this process in KiB.
pub(in crate::scenarios) fn pss() -> anyhow::Result<f64> {
    let text = fs::read_to_string("/proc/self/smaps_rollup").context("the kernel does not sum up maps")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.context("the kernel does not say what the process takes")
}
