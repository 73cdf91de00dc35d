//! Latency between two cores.

use crate::clock;
use crate::topology::pin_here;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Round trips between two looks at the clock.
const ROUNDS: u64 = 200;

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

    #[test]
    fn a_core_that_is_not_there_is_no_distance() {
        assert_eq!(round_trip(0, 1_000, TIME), None);
    }
}
