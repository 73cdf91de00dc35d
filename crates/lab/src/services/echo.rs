//! UDP echo whose requests cost something.

use crate::clock;
use polder_devices::service::Service;
use std::hint::black_box;
use std::time::Duration;

/// Sends back what it gets, after work that takes a given time of a core.
#[derive(Clone, Copy, Debug)]
pub struct Echo {
    steps: u64,
}

/// Steps by which the machine's speed is found, and how often.
const PROBE: u64 = 200_000;
const PROBES: usize = 7;

impl Echo {
    /// Does its work.
    pub(super) fn work(self) {
        work(self.steps);
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
        Self { steps: PROBE.saturating_mul(nanos(cost)) / nanos(best).max(1) }
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
