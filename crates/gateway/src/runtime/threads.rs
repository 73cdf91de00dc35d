//! What the scheduler says about the gateway's threads.

use polder_datapath::units::Nanos;
use std::collections::HashMap;
use std::path::Path;

/// Where the time of a thread went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// On a CPU.
    pub(super) on_cpu: Nanos,
    /// Ready to run, and something else had the CPU.
    pub(super) waiting: Nanos,
}

/// The times of the threads whose names begin with `prefix`, by name; without those that the system does
/// not tell.
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
