//! Processor time by thread and core, from the kernel's counters.

use crate::{clock, interrupt};
use anyhow::{Context as _, ensure};
use std::fs;
use std::time::Duration;

/// A reading of `/proc/stat`: time of all cores, in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuReading {
    cores: Vec<Core>,
}

/// `USER_HZ`, the same on all architectures of today (proc(5)).
const TICKS_A_SECOND: u32 = 100;
/// Time for which a thread may take to name itself.
const NAMED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Core {
    idle: u64,
    stolen: u64,
    total: u64,
}

impl CpuReading {
    /// Reads the books.
    ///
    /// # Errors
    /// When they cannot be read or are of an unknown form.
    pub fn take() -> anyhow::Result<Self> {
        let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let cores = text.lines().filter_map(core_in).collect::<Vec<_>>();
        ensure!(!cores.is_empty(), "/proc/stat names no core");
        Ok(Self { cores })
    }

    /// Percent of all cores' time that was idle between `earlier` and this.
    pub fn idle_percent_since(&self, earlier: &Self) -> f64 {
        let idle = self.sum(|core| core.idle).saturating_sub(earlier.sum(|core| core.idle));
        let total = self.sum(|core| core.total).saturating_sub(earlier.sum(|core| core.total));
        100.0 * super::sequence::ratio(idle, total)
    }

    /// Time that core `core` was busy between `earlier` and this; a tick is not finer than 10 ms.
    pub fn busy_since(&self, earlier: &Self, core: usize) -> Duration {
        let pair = self.cores.get(core).zip(earlier.cores.get(core));
        let ticks = pair.map_or(0, |(now, then)| {
            now.total.saturating_sub(then.total).saturating_sub(now.idle.saturating_sub(then.idle))
        });
        Duration::from_secs(ticks) / TICKS_A_SECOND
    }

    /// Time in which the host ran other work on core `core` although it had work; a tick is not
    /// finer than 10 ms.
    pub fn stolen_since(&self, earlier: &Self, core: usize) -> Duration {
        let pair = self.cores.get(core).zip(earlier.cores.get(core));
        let ticks = pair.map_or(0, |(now, then)| now.stolen.saturating_sub(then.stolen));
        Duration::from_secs(ticks) / TICKS_A_SECOND
    }

    /// Percent of each core's time that was idle between `earlier` and this.
    pub fn idle_percent_of_cores_since(&self, earlier: &Self) -> Vec<f64> {
        let pairs = self.cores.iter().zip(&earlier.cores);
        pairs
            .map(|(now, then)| {
                let idle = now.idle.saturating_sub(then.idle);
                100.0 * super::sequence::ratio(idle, now.total.saturating_sub(then.total))
            })
            .collect()
    }

    fn sum(&self, field: impl Fn(&Core) -> u64) -> u64 {
        self.cores.iter().map(field).sum()
    }
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice` (proc(5)).
fn core_in(line: &str) -> Option<Core> {
    let rest = line.strip_prefix("cpu")?;
    let (number, times) = rest.split_once(' ')?;
    number.parse::<usize>().ok()?;
    let times = times.split_whitespace().map(|time| time.parse::<u64>().ok()).collect::<Option<Vec<_>>>()?;
    // Guest time is in user time already.
    let total = times.iter().take(8).sum();
    Some(Core { idle: times.get(3)? + times.get(4)?, stolen: *times.get(7)?, total })
}

/// CPU time that a thread of any process has used, from its scheduler's account in nanoseconds.
///
/// # Errors
/// When there is no such thread.
pub fn thread_time(thread: i32) -> anyhow::Result<Duration> {
    let path = format!("/proc/{thread}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let nanos = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanos.with_context(|| format!("{path} has an unknown form"))?))
}

/// CPU time that all threads that a process has now have used.
///
/// # Errors
/// When there is no such process.
pub fn process_time(process: u32) -> anyhow::Result<Duration> {
    let tasks = format!("/proc/{process}/task");
    let entries = fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))?;
    let threads = entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    threads.map(thread_time).sum()
}

/// The threads of a process whose names are wanted, at least `count` of them.
///
/// A thread names itself once it runs, which on a busy machine is some time after its process answers:
/// it is waited for, 10 s at most.
///
/// # Errors
/// When there are fewer threads of such a name, or no such process.
pub fn threads_named(
    process: u32,
    count: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<i32>> {
    let tasks = format!("/proc/{process}/task");
    let end = clock::now() + NAMED_WITHIN;
    loop {
        let mut threads = Vec::new();
        for entry in fs::read_dir(&tasks).with_context(|| format!("cannot read {tasks}"))? {
            let path = entry?.path();
            // A thread that has just ended has no name.
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            let id = path.file_name().and_then(|id| id.to_string_lossy().parse::<i32>().ok());
            threads.extend(id.filter(|_| is_wanted(name.trim_end())));
        }
        if threads.len() >= count {
            return Ok(threads);
        }
        let found = threads.len();
        ensure!(clock::now() < end, "{found} of {count} threads of process {process} have such a name");
        interrupt::sleep(Duration::from_millis(2))?;
    }
}

/// The threads of the kernel that work for packets when the one that sent them does not, one for each processor.
///
/// # Errors
/// When processes cannot be listed.
pub fn softirq_threads() -> anyhow::Result<Vec<i32>> {
    let processes = fs::read_dir("/proc").context("cannot read /proc")?.flatten();
    let named = processes.filter(|process| {
        let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        name.starts_with("ksoftirqd/")
    });
    Ok(named.filter_map(|process| process.file_name().to_string_lossy().parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seventeen_stolen_ticks_are_seventeen() {
        let of = |stolen| {
            let cores = [0, stolen].map(|stolen| Core { idle: 5, stolen, total: 5 + stolen });
            CpuReading { cores: cores.to_vec() }
        };
        assert_eq!(of(20).stolen_since(&of(3), 1), Duration::from_millis(170));
        assert_eq!(of(20).stolen_since(&of(3), 0), Duration::ZERO);
    }

    #[test]
    fn lines_of_cores_are_read_and_the_sum_is_not() {
        assert_eq!(core_in("cpu  1 2 3 4 5 6 7 8 9 10"), None);
        assert_eq!(core_in("cpu1 1 2 3 4 5 6 7 8 9 10"), Some(Core { idle: 9, stolen: 8, total: 36 }));
        assert_eq!(core_in("ctxt 17"), None);
    }

    #[test]
    fn idle_is_a_part_of_the_difference() {
        let before = CpuReading {
            cores: vec![Core { idle: 100, stolen: 0, total: 100 }, Core { idle: 0, stolen: 0, total: 100 }],
        };
        let after = CpuReading {
            cores: vec![Core { idle: 200, stolen: 0, total: 200 }, Core { idle: 0, stolen: 0, total: 200 }],
        };
        assert!((after.idle_percent_since(&before) - 50.0).abs() < 1e-9);
        assert_eq!(after.idle_percent_of_cores_since(&before), [100.0, 0.0]);
        assert_eq!(after.busy_since(&before, 0), Duration::ZERO);
        assert_eq!(after.busy_since(&before, 1), Duration::from_secs(1));
    }

    #[test]
    fn threads_are_found_by_name_also_when_they_are_named_late() {
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            rustix::thread::set_name(c"pd-named-late").unwrap();
            receive.recv().unwrap_err();
        });
        let found = threads_named(std::process::id(), 1, |name| name == "pd-named-late").unwrap();
        assert_eq!(found.len(), 1);
        drop(send);
        thread.join().unwrap();
        assert!(threads_named(std::process::id(), 0, |_| false).unwrap().is_empty());
    }

    #[test]
    fn a_busy_thread_is_charged() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let (before, own) = (thread_time(thread).unwrap(), clock::thread_cpu());
        while clock::thread_cpu() - own < Duration::from_millis(30) {}
        let charged = thread_time(thread).unwrap() - before;
        assert!(charged >= Duration::from_millis(25), "{charged:?}");
    }
}
