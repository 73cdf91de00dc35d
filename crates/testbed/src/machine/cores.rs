//! Latency between two cores, and what they leave of each other's speed.

use crate::clock;
use crate::topology::pin_here;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Round trips between two looks at the clock.
const ROUNDS: u64 = 200;
/// Steps of a computation between two looks at the clock.
const STEPS: u64 = 10_000;

/// The least time that a cache line takes from core `a` to core `b` and back, in nanoseconds, tried for
/// `time`; `None` when a thread cannot run there.
pub(super) fn round_trip(a: usize, b: usize, time: Duration) -> Option<f64> {
    let line = Line::default();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| line.echo(b));
        let here = scope.spawn(|| line.ask(a, time));
        let best = here.join().ok()?;
        there.join().ok()?;
        best
    })
}

/// Speed of core `a` while core `b` computes, too, as a part of its speed while that is idle; `None` when a thread cannot run
/// there. Each is tried for `time`.
pub(super) fn speed_together(a: usize, b: usize, time: Duration) -> Option<f64> {
    let over = AtomicBool::new(false);
    let alone = std::thread::scope(|scope| scope.spawn(|| compute(a, time, &over)).join().ok()?)?;
    let together = std::thread::scope(|scope| {
        let there = scope.spawn(|| compute(b, time * 10, &over));
        let here = scope.spawn(|| compute(a, time, &over));
        let here = here.join().ok()?;
        // Relaxed: the flag orders nothing.
        over.store(true, Ordering::Relaxed);
        there.join().ok()??;
        here
    })?;
    Some(together / alone)
}

/// Steps a second of a computation in registers, on a core, for `time` or until it is over.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 52 bits")]
fn compute(core: usize, time: Duration, over: &AtomicBool) -> Option<f64> {
    pin_here(core).ok()?;
    let (start, mut steps, mut state) = (clock::now(), 0_u64, 1_u64);
    while clock::now() - start < time && !over.load(Ordering::Relaxed) {
        for _ in 0..STEPS {
            state = black_box(state).wrapping_mul(0x5851_f42d_4c95_7f2d).rotate_left(17) ^ state >> 7;
        }
        steps += STEPS;
    }
    Some(steps as f64 / (clock::now() - start).as_secs_f64())
}

/// Cache line that the two cores exchange: odd numbers one way, even ones back.
#[derive(Debug, Default)]
struct Line {
    number: AtomicU64,
    over: AtomicBool,
}

impl Line {
    fn ask(&self, core: usize, time: Duration) -> Option<f64> {
        let mut best = None;
        if pin_here(core).is_ok() {
            let end = clock::now() + time;
            while clock::now() < end && !self.over.load(Ordering::Relaxed) {
                let nanos = self.rounds();
                best = Some(best.map_or(nanos, |best: f64| best.min(nanos)));
            }
        }
        // The other side has ended it only if it could not run.
        let alone = self.over.swap(true, Ordering::Relaxed);
        best.filter(|_| !alone)
    }

    #[expect(clippy::cast_precision_loss, reason = "rounds are few")]
    fn rounds(&self) -> f64 {
        let start = clock::nanos();
        for _ in 0..ROUNDS {
            let sent = self.number.load(Ordering::Relaxed) + 1;
            // Release pairs with the Acquire in `echo`, and the other way round: as a message would go.
            self.number.store(sent, Ordering::Release);
            while self.number.load(Ordering::Acquire) == sent && !self.over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }
        (clock::nanos() - start) as f64 / ROUNDS as f64
    }

    fn echo(&self, core: usize) {
        if pin_here(core).is_err() {
            self.over.store(true, Ordering::Relaxed);
        }
        while !self.over.load(Ordering::Relaxed) {
            let number = self.number.load(Ordering::Acquire);
            if number % 2 == 1 {
                self.number.store(number + 1, Ordering::Release);
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_millis(20);

    #[test]
    fn two_cores_are_some_nanoseconds_apart() {
        if crate::machine::cores() > 1 {
            let nanos = round_trip(0, 1, TIME).unwrap();
            assert!((5.0..1_000_000.0).contains(&nanos), "{nanos}");
        }
    }

    /// The negative control: two threads of one core have half of it each.
    #[test]
    fn one_core_is_not_two() {
        // Other programs may have had the core while it was tried alone.
        let mut tried = (0..10).map(|_| speed_together(0, 0, TIME * 5).unwrap());
        assert!(tried.any(|shared| (0.2..0.8).contains(&shared)), "{:?}", tried.collect::<Vec<_>>());
    }

    #[test]
    fn a_core_that_is_not_there_is_no_distance() {
        assert_eq!(round_trip(0, 1_000, TIME), None);
        assert_eq!(speed_together(0, 1_000, TIME), None);
    }
}
