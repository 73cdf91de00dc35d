//! UDP echo whose requests cost something.

use crate::clock;
use polder_devices::service::Service;
use std::hint::black_box;
use std::time::Duration;

/// Sends back what it gets, after work that takes a given time of a core.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    /// Of the next request, and of the one after it.
    steps: [u64; 2],
}

/// Steps by which the machine's speed is found, and how often.
const PROBE: u64 = 200_000;
const PROBES: usize = 7;

impl Echo {
    /// Does its work.
    pub(super) fn work(&mut self) {
        work(self.steps[0]);
        self.steps.swap(0, 1);
    }

    /// One whose every second request costs what those of `other` cost.
    pub(super) fn and(self, other: Self) -> Self {
        Self { steps: [self.steps[0], other.steps[0]] }
    }

    /// An echo of that cost on the calling thread's core, as it is now.
    pub fn of_cost(cost: Duration) -> Self {
        let time = || {
            let begin = clock::thread_cpu();
            work(PROBE);
            clock::thread_cpu() - begin
        };
        let best = (0..PROBES).map(|_| time()).min().unwrap_or_default();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let steps = PROBE.saturating_mul(nanos(cost)) / nanos(best).max(1);
        Self { steps: [steps; 2] }
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
