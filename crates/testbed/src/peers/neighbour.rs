//! Other work on a core: a process that wants all of it, one that wants to be woken every millisecond, and one that has
//! most of it.

use crate::clock;
use crate::command::Running;
use crate::meters::cpu::thread_time;
use crate::topology::{pin_here, put_first};
use anyhow::Context as _;
use hdrhistogram::Histogram;
use rustix::thread::{ClockId, clock_nanosleep_absolute};
use rustix::time::Timespec;
use std::hint::black_box;
use std::io::Write as _;
use std::process::Command;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

/// Kind of a neighbour's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The neighbour computes without end.
    Compute,
    /// The neighbour is woken every millisecond, and measures its wake-up latency.
    Wake,
    /// The neighbour has nine tenths of each millisecond, before all ordinary threads: for them, it is a core of a tenth
    /// of the speed.
    Occupy,
}

impl Work {
    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Wake => "wake",
            Self::Occupy => "occupy",
        }
    }
}

/// Process that shares a core.
#[derive(Debug)]
pub struct Neighbour {
    process: Running,
    thread: i32,
}

/// Wake-up period of the periodic neighbour.
const PERIOD: Duration = Duration::from_millis(1);
/// Part of it that the neighbour has that comes before all.
const OCCUPIED: Duration = Duration::from_micros(900);
/// The latest that is told apart, in nanoseconds.
const LATEST: u64 = 10_000_000_000;
/// Time for which a process may take to begin, and to answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Line that a neighbour prints when it is ready, the request for its figures, and the end of its answer.
const READY: &str = "ready";
const ASK: &str = "how late";
const END: &str = "that late";

impl Neighbour {
    /// Begins its work on `core`.
    ///
    /// # Errors
    /// When it does not begin.
    pub fn start(work: Work, core: usize) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find the lab's own program")?;
        let mut command = Command::new(own);
        command.args(["neighbour", work.name(), "--core", &core.to_string()]);
        let mut process = Running::start_interactive("a neighbour", &mut command)?;
        process.wait_for(READY, 0, PATIENCE)?;
        let thread = i32::try_from(process.id()).context("a process has a small number")?;
        Ok(Self { process, thread })
    }

    /// CPU time of the thread that works.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> anyhow::Result<Duration> {
        thread_time(self.thread)
    }

    /// Wake-up latency since the last request: median, 99th percentile and maximum, in microseconds.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn lateness(&mut self) -> anyhow::Result<[f64; 3]> {
        let from = self.process.said().len();
        self.process.tell(ASK)?;
        let said = self.process.wait_for(END, from, PATIENCE)?;
        let numbers = said.lines().find_map(|line| line.strip_prefix("late "));
        let mut numbers =
            numbers.context("a neighbour does not say how late it was")?.split(' ').map(str::parse);
        let mut next = || numbers.next().context("a number is missing")?.context("no number");
        Ok([next()?, next()?, next()?])
    }
}

/// The process itself: works until its standard input ends.
///
/// # Errors
/// When there is no such core.
pub fn work(work: Work, core: usize) -> anyhow::Result<()> {
    let (sender, asked) = channel();
    std::thread::Builder::new().name("asks".to_owned()).spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if line == ASK && sender.send(()).is_err() {
                break;
            }
        }
    })?;
    pin_here(core)?;
    say(READY);
    match work {
        Work::Compute => compute(&asked),
        Work::Wake => wake(&asked),
        Work::Occupy => occupy(&asked),
    }
}

fn occupy(asked: &Receiver<()>) -> anyhow::Result<()> {
    put_first(rustix::thread::gettid().as_raw_nonzero().get())?;
    let mut due = clock::now() + PERIOD;
    while asked.try_recv() != Err(TryRecvError::Disconnected) {
        sleep_until(due)?;
        while clock::now() < due + OCCUPIED {
            std::hint::spin_loop();
        }
        due += PERIOD;
    }
    Ok(())
}

fn sleep_until(due: Duration) -> anyhow::Result<()> {
    let until = Timespec { tv_sec: i64::try_from(due.as_secs())?, tv_nsec: due.subsec_nanos().into() };
    while clock_nanosleep_absolute(ClockId::Monotonic, &until) == Err(rustix::io::Errno::INTR) {}
    Ok(())
}

fn compute(asked: &Receiver<()>) -> anyhow::Result<()> {
    let mut state = 1_u64;
    while asked.try_recv() != Err(TryRecvError::Disconnected) {
        for _ in 0..100_000 {
            state = black_box(state).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        }
    }
    Ok(())
}

fn wake(asked: &Receiver<()>) -> anyhow::Result<()> {
    let mut late = Histogram::<u64>::new_with_max(LATEST, 3)?;
    let mut due = clock::now() + PERIOD;
    loop {
        sleep_until(due)?;
        let now = clock::now();
        late.saturating_record(u64::try_from(now.saturating_sub(due).as_nanos())?);
        // What was slept through is one late wake-up, not several.
        due = (due + PERIOD).max(now);
        match asked.try_recv() {
            Ok(()) => {
                let [p50, p99] = [0.5, 0.99].map(|quantile| micros(late.value_at_quantile(quantile)));
                say(&format!("late {p50} {p99} {}\n{END}", micros(late.max())));
                late.clear();
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

fn say(line: &str) {
    // Without a reader there is nobody to tell.
    let _ = writeln!(std::io::stdout(), "{line}");
}
