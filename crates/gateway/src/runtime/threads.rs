//! Scheduling statistics of the gateway's threads.

use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::path::Path;

/// Use of a thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// Time on a CPU.
    pub(super) on_cpu: Nanos,
    /// Time ready to run while another thread had the CPU.
    pub(super) waiting: Nanos,
}

/// Time of `elapsed` for which a thread was asleep, neither on a CPU nor ready to run, from the kernel's
/// statistics. Returns `counted`, the thread's own measurement, where the kernel has none.
pub(super) fn asleep(times: Option<&Times>, elapsed: Nanos, counted: Nanos) -> Nanos {
    let Some(times) = times else { return counted };
    Nanos(elapsed.0.saturating_sub(times.on_cpu.0).saturating_sub(times.waiting.0))
}

/// Times of the threads whose names begin with `prefix`, by name; threads without statistics are left out.
pub(super) fn times(prefix: &str) -> HashMap<String, Times> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let path = thread.path();
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let name = name.trim_end().to_owned();
        if !name.starts_with(prefix) {
            return None;
        }
        Some((name, read(&path)?))
    });
    times.collect()
}

/// Source: Linux, Documentation/scheduler/sched-stats.rst, `/proc/<pid>/schedstat`.
fn read(thread: &Path) -> Option<Times> {
    let text = std::fs::read_to_string(thread.join("schedstat")).ok()?;
    let mut numbers = text.split_whitespace().map(str::parse);
    let on_cpu = Nanos(numbers.next()?.ok()?);
    let waiting = Nanos(numbers.next()?.ok()?);
    Some(Times { on_cpu, waiting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_is_all_accounted_for() {
        let (elapsed, counted) = (Nanos(1000), Nanos(930));
        let times = Times { on_cpu: Nanos(70), waiting: Nanos(200) };
        assert_eq!(
            asleep(Some(&times), elapsed, counted),
            Nanos(730),
            "who is woken late has not slept meanwhile"
        );
        let ahead = Times { on_cpu: Nanos(1001), waiting: Nanos(0) };
        assert_eq!(asleep(Some(&ahead), elapsed, counted), Nanos(0));
        assert_eq!(asleep(None, elapsed, counted), counted);
    }

    #[test]
    fn a_thread_that_works_has_been_on_a_cpu() {
        let thread = std::thread::Builder::new().name("pd-busy".to_owned());
        let (send, receive) = std::sync::mpsc::channel::<()>();
        let thread = thread.spawn(move || {
            (0..200_000_u64).fold(0, |sum, number| std::hint::black_box(sum ^ number));
            receive.recv().unwrap_err();
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        let times = times("pd-");
        drop(send);
        thread.unwrap().join().unwrap();
        // Some systems keep no such statistics; then nothing is shown.
        if Path::new("/proc/self/schedstat").exists() {
            assert!(times["pd-busy"].on_cpu > Nanos(0));
        }
    }
}
