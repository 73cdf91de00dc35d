//! Description of the machine, with the speed of its memory (E1): in every report.

mod cores;

use crate::clock;
use crate::interrupt;
use crate::meters::cpu::CpuReading;
use rustix::process::getpid;
use rustix::thread::sched_getaffinity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;
use std::time::Duration;

/// The machine, as a report names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The commit that was built.
    pub commit: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's name.
    pub cpu: String,
    /// The kernel's mitigation of each of the processor's vulnerabilities.
    pub mitigations: BTreeMap<String, String>,
    /// Speed of the memory.
    pub memory: Memory,
    /// Nanoseconds that a cache line takes from the first core to the last and back; `None` with one core.
    ///
    /// On a virtual machine this changes with where the host puts the cores, and with it the cost of
    /// everything that two cores share.
    #[serde(default)]
    pub round_trip: Option<f64>,
    /// Speed of the first core while the last computes, too, as a part of its speed alone; `None` with one core.
    ///
    /// Below 1 the cores are threads of one, or share power: load on one slows the measurement on the other.
    #[serde(default)]
    pub speed_together: Option<f64>,
    /// Percent of each core that was idle before the run.
    pub cores_idle: Vec<f64>,
}

/// Speed of the memory, read by one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes a second, read one after the other.
    pub bandwidth: f64,
    /// Nanoseconds from one dependent load to the next, at random over memory far larger than a cache.
    pub latency: f64,
}

/// Time for which the cores' idle time is measured before a run.
const LOOK: Duration = Duration::from_millis(500);
/// Time for which it is tried how far apart two cores are, in front of everything and in front of one run.
const ROUND_TRIPS: Duration = Duration::from_millis(200);
const GLANCE: Duration = Duration::from_millis(5);
/// Larger than caches.
const MEMORY_BYTES: usize = 256 << 20;
/// Loads of the latency measurement.
const LOADS: usize = 2_000_000;
const CACHE_LINE: usize = 64;

impl Machine {
    /// Looks at the machine and measures its memory; takes about a second.
    ///
    /// # Errors
    /// When interrupted, or when the kernel's books cannot be read.
    pub fn look() -> anyhow::Result<Self> {
        let before = CpuReading::take()?;
        interrupt::sleep(LOOK)?;
        let cores_idle = CpuReading::take()?.idle_percent_of_cores_since(&before);
        let last = cores().checked_sub(1).filter(|&last| last > 0);
        Ok(Self {
            commit: env!("POLDER_COMMIT").to_owned(),
            kernel: kernel(),
            cpu: cpu(),
            mitigations: mitigations(),
            memory: Memory::measure(),
            round_trip: last.and_then(|last| cores::round_trip(0, last, ROUND_TRIPS)),
            speed_together: last.and_then(|last| cores::speed_together(0, last, ROUND_TRIPS)),
            cores_idle,
        })
    }
}

impl Machine {
    /// Distance of the cores from each other, and what they leave of each other's speed; `None` with one core.
    pub fn cores_in_words(&self) -> Option<String> {
        let apart = match self.round_trip? {
            nanos if nanos < 100.0 => format!("{nanos:.1} ns apart"),
            nanos => format!("{nanos:.0} ns apart"),
        };
        let together =
            self.speed_together.map(|part| format!(", {:.0} % as fast when both compute", part * 100.0));
        Some(apart + &together.unwrap_or_default())
    }
}

/// The least time, in nanoseconds, that a cache line takes from core `a` to core `b` and back; `None` when
/// that cannot be had. On a virtual machine the host may have moved them since the last time: two threads of
/// one core are some 25 ns apart, and each has what the other leaves.
///
/// Cost: a few milliseconds of both cores.
pub fn cores_apart(a: usize, b: usize) -> Option<f64> {
    cores::round_trip(a, b, GLANCE)
}

impl Memory {
    /// Measures bandwidth and latency with one core.
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
    pub fn measure() -> Self {
        let words = MEMORY_BYTES / size_of::<u64>();
        let mut memory = (0..words as u64).collect::<Vec<_>>();
        let start = clock::now();
        let sum = memory.iter().fold(0_u64, |sum, &word| sum.wrapping_add(word));
        black_box(sum);
        let bandwidth = MEMORY_BYTES as f64 / (clock::now() - start).as_secs_f64();

        link_at_random(&mut memory);
        let start = clock::now();
        let mut at = 0;
        for _ in 0..LOADS {
            at = usize::try_from(memory[at]).unwrap_or(0);
        }
        black_box(at);
        let latency = (clock::now() - start).as_nanos() as f64 / LOADS as f64;
        Self { bandwidth, latency }
    }
}

/// Makes the first word of each cache line name the first word of another, in one random circle
/// through all of them (Sattolo's shuffle), so that no load can be guessed.
fn link_at_random(memory: &mut [u64]) {
    let stride = CACHE_LINE / size_of::<u64>();
    let lines = memory.len() / stride;
    for line in 0..lines {
        memory[line * stride] = (line * stride) as u64;
    }
    let mut random = fastrand::Rng::with_seed(0);
    for line in (1..lines).rev() {
        memory.swap(line * stride, random.usize(0..line) * stride);
    }
}

/// The kernel's release.
pub fn kernel() -> String {
    first_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned())
}

/// The processor's name.
pub fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name").or(line.strip_prefix("Model")));
    let name = name.and_then(|rest| rest.split_once(':'));
    name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Cores that this process may run on, wherever the calling thread is pinned.
pub fn cores() -> usize {
    // The standard library counts those of the calling thread. The first thread of a process has the
    // process's number, and the lab does not pin it.
    let count = sched_getaffinity(Some(getpid())).map_or(1, |cores| cores.count());
    usize::try_from(count).unwrap_or(1).max(1)
}

fn mitigations() -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else { return BTreeMap::new() };
    let states = entries.flatten().filter_map(|entry| {
        let state = first_line(&entry.path().to_string_lossy())?;
        // A machine that cannot be hurt pays nothing: only what may cost is listed.
        (state != "Not affected").then(|| (entry.file_name().to_string_lossy().into_owned(), state))
    });
    states.collect()
}

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_counts_all_cores() {
        let counted = cores();
        let pinned = std::thread::spawn(|| {
            crate::topology::pin_here(0).unwrap();
            cores()
        });
        assert_eq!(pinned.join().unwrap(), counted);
        assert!(counted >= std::thread::available_parallelism().map_or(1, usize::from));
    }

    #[test]
    fn the_random_walk_visits_every_line_once() {
        let mut memory = vec![0; 8 * 1000];
        link_at_random(&mut memory);
        let (mut at, mut steps) = (0, 0);
        loop {
            at = usize::try_from(memory[at]).unwrap();
            steps += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(steps, 1000);
    }
}
