//! UDP echo whose requests have a cost.

use super::consumer::Service;
use crate::clock;
use crate::topology::pin_here;
use anyhow::anyhow;
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

/// Service that sends requests back, after work that takes a given time of a core.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// Of the next request, and of the one after it.
    steps: [u64; 2],
}

/// Steps by which a core's speed is found, and how often.
const PROBE: u64 = 200_000;
const PROBES: usize = 31;

/// Speed of a core: nanoseconds of a fixed number of steps.
///
/// Compared services have to do the same work. So a speed is found once in a run, and services are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed(pub u64);

impl Speed {
    /// Speed of a core, as this process found it the first time that it was asked for any.
    ///
    /// # Errors
    /// When there is no such core.
    pub fn once(core: usize) -> anyhow::Result<Self> {
        static FOUND: OnceLock<Speed> = OnceLock::new();
        match FOUND.get() {
            Some(&found) => Ok(found),
            None => Self::of(core).map(|speed| *FOUND.get_or_init(|| speed)),
        }
    }

    /// Current speed of a core.
    fn of(core: usize) -> anyhow::Result<Self> {
        let found = std::thread::spawn(move || pin_here(core).map(|()| Self::here()));
        found.join().map_err(|_| anyhow!("the calibration panicked"))?
    }

    /// Speed of the calling thread's core.
    fn here() -> Self {
        let time = || {
            let begin = clock::thread_cpu();
            work(PROBE);
            clock::thread_cpu() - begin
        };
        let best = (0..PROBES).map(|_| time()).min().unwrap_or_default();
        Self(u64::try_from(best.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Number of steps that take `cost`.
    fn steps(self, cost: Duration) -> u64 {
        let nanos = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        PROBE.saturating_mul(nanos) / self.0.max(1)
    }
}

impl Echo {
    /// Does its work.
    pub(super) fn work(&mut self) {
        work(self.steps[0]);
        self.steps.swap(0, 1);
    }

    /// Service whose every second request has the cost of `other`.
    pub(super) fn and(self, other: Self) -> Self {
        Self { steps: [self.steps[0], other.steps[0]] }
    }

    /// An echo of that cost on a core of that speed.
    pub fn of_cost(cost: Duration, speed: Speed) -> Self {
        Self { steps: [speed.steps(cost); 2] }
    }
}

impl Service for Echo {
    fn answer(&mut self, request: &[u8], answer: &mut Vec<u8>) -> bool {
        self.work();
        answer.extend_from_slice(request);
        true
    }
}

/// Steps of a generator of numbers, each of which waits for the one before.
fn work(steps: u64) {
    let mut state = black_box(0x2545_f491_4f6c_dd1d_u64);
    for _ in 0..steps {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_of_one_speed_do_the_same_work() {
        let found = Speed::once(0).unwrap();
        assert_eq!(Speed::once(0).unwrap(), found, "it is found once");
        let of = |micros, speed| Echo::of_cost(Duration::from_micros(micros), Speed(speed)).steps;
        assert_eq!(of(50, 400_000), [25_000; 2], "200 000 steps take 400 µs");
        assert_eq!(of(50, 800_000), [12_500; 2], "a core of half the speed does half as many");
    }

    #[test]
    fn every_second_request_costs_what_the_other_kind_costs() {
        let (cheap, dear) = (Echo { steps: [3; 2] }, Echo { steps: [70; 2] });
        let (mut mixed, mut seen) = (cheap.and(dear), Vec::new());
        for _ in 0..4 {
            seen.push(mixed.steps[0]);
            assert!(mixed.answer(b"ask", &mut Vec::new()));
        }
        assert_eq!(seen, [3, 70, 3, 70]);
    }
}
