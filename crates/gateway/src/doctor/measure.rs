//! Measured costs of the host: system call, clock, timer, wake-up, stolen time.

use crate::clock::Clock;
use polder_devices::af_xdp::timer_cost;
use std::hint::black_box;
use std::time::Duration;

/// Number of calls in a trial.
const CALLS: u32 = 20_000;
/// Number of trials; the fastest is used.
const TRIALS: u32 = 5;
/// Number of measured sleeps.
const SLEEPS: usize = 200;
/// Length of a measured sleep.
const SLEEP: Duration = Duration::from_millis(1);

/// Measured costs of the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Time of a system call without work, in nanoseconds.
    pub system_call_ns: f64,
    /// Time of a clock reading, in nanoseconds.
    pub clock_ns: f64,
    /// Time of setting a timer, in nanoseconds.
    pub timer_ns: f64,
    /// Median delay after a sleep of 1 ms, in microseconds.
    pub wake_p50_us: f64,
    /// 99th percentile of that delay, in microseconds.
    pub wake_p99_us: f64,
    /// Share of CPU time stolen by the hypervisor during the measurement, from 0 to 1; `None` if the kernel
    /// does not count it.
    pub stolen: Option<f64>,
}

/// Measures this host. Takes a quarter of a second.
#[must_use]
pub fn measure() -> Measured {
    let clock = Clock::start();
    let before = times();
    let system_call_ns = fastest(&clock, || {
        black_box(rustix::process::getppid());
    });
    let clock_ns = fastest(&clock, || {
        black_box(clock.now());
    });
    let mut late = (0..SLEEPS).map(|_| lateness_us(&clock)).collect::<Vec<_>>();
    late.sort_by(f64::total_cmp);
    let stolen = before.zip(times()).and_then(|(before, after)| stolen(&before, &after));
    Measured {
        system_call_ns,
        clock_ns,
        timer_ns: Duration::from_nanos(timer_cost().0).as_secs_f64() * 1e9,
        wake_p50_us: late[SLEEPS / 2],
        wake_p99_us: late[SLEEPS * 99 / 100],
        stolen,
    }
}

/// Time of a call in nanoseconds, in the fastest trial.
fn fastest(clock: &Clock, call: impl Fn()) -> f64 {
    let trial = |_| {
        let start = clock.now();
        (0..CALLS).for_each(|_| call());
        Duration::from_nanos(clock.now().since(start).0).as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..TRIALS).map(trial).fold(f64::INFINITY, f64::min)
}

fn lateness_us(clock: &Clock) -> f64 {
    let start = clock.now();
    std::thread::sleep(SLEEP);
    Duration::from_nanos(clock.now().since(start).0).saturating_sub(SLEEP).as_secs_f64() * 1e6
}

/// CPU ticks of all processors by use, from /proc/stat.
fn times() -> Option<Vec<u64>> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    Some(line.split_whitespace().filter_map(|ticks| ticks.parse().ok()).collect())
}

/// Share of stolen ticks between two readings: the eighth number. Guest time, after it, is included in the
/// first.
#[expect(clippy::cast_precision_loss, reason = "ticks of a quarter of a second")]
fn stolen(before: &[u64], after: &[u64]) -> Option<f64> {
    let spent = after.iter().zip(before).take(8).map(|(after, before)| after.saturating_sub(*before));
    let spent = spent.collect::<Vec<_>>();
    let all = spent.iter().sum::<u64>();
    (all > 0).then(|| spent.get(7).map(|stolen| *stolen as f64 / all as f64)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_possible() {
        let measured = measure();
        assert!(
            measured.clock_ns > 1.0
                && measured.timer_ns > measured.system_call_ns
                && measured.system_call_ns > 10.0,
            "{measured:?}"
        );
        assert!(measured.wake_p50_us > 0.0 && measured.wake_p50_us <= measured.wake_p99_us, "{measured:?}");
        assert!(measured.stolen.is_none_or(|part| (0.0..=1.0).contains(&part)), "{measured:?}");
    }

    #[test]
    fn stolen_time_is_a_part_of_all() {
        let before = [10, 0, 10, 100, 0, 0, 0, 5, 3, 0];
        let after = [20, 0, 20, 160, 0, 0, 0, 25, 9, 0];
        assert_eq!(stolen(&before, &after), Some(0.2));
        assert_eq!(stolen(&before, &before), None);
        assert_eq!(stolen(&[1, 2], &[2, 3]), None);
    }
}
