//! Wake-ups of a gateway on two e1000 while nothing comes.

use super::far::Far;
use anyhow::{Context as _, ensure};
use polder_judges::e1000::Pair;
use polder_testbed::guest::agent::Request;
use polder_testbed::interrupt;
use std::collections::BTreeMap;
use std::time::Duration;

pub(super) const WAKEUPS: &str = "e1000.idle.wakeups";
/// Time for which nothing comes, and time before that in which the worker gets to rest: after a second it gives back
/// the frames that it keeps.
pub(super) const IDLE: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_secs(3);
/// Beginning of the names of workers' threads.
const WORKER: &str = "worker-";

/// Frames a second by which the meter is tried, and the least wake-ups that it has to find then.
const TRIED: f64 = 25.0;
const FOUND: u64 = 10;

/// Wake-ups of a gateway's threads in [`IDLE`].
#[derive(Debug)]
pub(super) struct Wakeups {
    /// Wake-ups of the workers at rest.
    pub(super) workers: u64,
    /// Wake-ups of the workers while frames come: the negative control.
    pub(super) tried: u64,
    /// Wake-ups of each thread at rest, as text.
    pub(super) threads: String,
}

/// Counts the wake-ups of a gateway that has nothing to do.
pub(super) fn count(pair: &mut Pair, far: &Far) -> anyhow::Result<Wakeups> {
    interrupt::sleep(REST)?;
    let before = switches(pair)?;
    interrupt::sleep(IDLE)?;
    let idle = since(&before, &switches(pair)?);
    let before = switches(pair)?;
    far.offer(TRIED, IDLE, || {})?;
    let tried = of_workers(&since(&before, &switches(pair)?));
    ensure!(tried >= FOUND, "{tried} wake-ups of workers are seen where frames come");
    let threads = idle.iter().map(|(thread, count)| format!("{thread} {count}")).collect::<Vec<_>>();
    Ok(Wakeups { workers: of_workers(&idle), tried, threads: threads.join(", ") })
}

fn of_workers(threads: &BTreeMap<String, u64>) -> u64 {
    threads.iter().filter(|(thread, _)| thread.starts_with(WORKER)).map(|(_, count)| count).sum()
}

fn since(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let count = |thread: &String, count: &u64| count - before.get(thread).copied().unwrap_or(0);
    after.iter().map(|(thread, all)| (thread.clone(), count(thread, all))).collect()
}

/// Voluntary context switches of each thread since its start: a thread that sleeps has none.
fn switches(pair: &mut Pair) -> anyhow::Result<BTreeMap<String, u64>> {
    let tasks = format!("/proc/{}/task", pair.process);
    let threads = pair.guest.ask(&Request::List(tasks.clone()))?;
    let mut all = BTreeMap::new();
    for thread in threads.lines() {
        let status = pair.guest.ask(&Request::Read(format!("{tasks}/{thread}/status")))?;
        let (name, count) = switches_in(&status).context("the kernel does not count switches")?;
        // Threads of one name are told apart by their number.
        all.insert(format!("{name} ({thread})"), count);
    }
    Ok(all)
}

/// A thread's name and its voluntary switches (proc(5), `/proc/PID/status`).
fn switches_in(status: &str) -> Option<(&str, u64)> {
    let value = |key: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| *found == key).map(|(_, value)| value.trim())
    };
    Some((value("Name")?, value("voluntary_ctxt_switches")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn voluntary_switches_are_read() {
        let status =
            "Name:\tworker-0\nThreads:\t3\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(switches_in(status), Some(("worker-0", 17)));
        assert_eq!(switches_in("Name:\tworker-0\nnonvoluntary_ctxt_switches:\t4\n"), None);
    }
}
