//! Time in windows, of which the median counts, so that another process on the core changes nothing.
//! The programs in C beside this file do the same (`common.h`).

use polder_testbed::clock;
use polder_testbed::meters::statistics::Samples;

/// Objects that are handled together.
pub(super) const BULK: usize = 32;
/// Objects of one window.
pub(in crate::scenarios) const WINDOW: usize = 2048;

/// Windows of nanoseconds an object.
#[derive(Debug)]
pub(in crate::scenarios) struct Windows {
    samples: Samples,
    sum: u64,
    objects: usize,
    /// Duration of two clock readings with nothing between them.
    look: u64,
}

impl Windows {
    pub(in crate::scenarios) fn new() -> Self {
        let mut looks = (0..1001)
            .map(|_| {
                let start = clock::nanos();
                clock::nanos() - start
            })
            .collect::<Vec<_>>();
        looks.sort_unstable();
        Self { samples: Samples::default(), sum: 0, objects: 0, look: looks[500] }
    }

    /// Times `work` on `objects` objects.
    #[inline(always)]
    pub(super) fn time(&mut self, objects: usize, work: impl FnOnce()) {
        let start = clock::nanos();
        work();
        self.add(start, objects);
    }

    /// Adds the time since `start` for `objects` objects.
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a window need no 52 bits")]
    pub(in crate::scenarios) fn add(&mut self, start: u64, objects: usize) {
        self.sum += (clock::nanos() - start).saturating_sub(self.look);
        self.objects += objects;
        if self.objects >= WINDOW {
            self.samples.push(self.sum as f64 / self.objects as f64);
            (self.sum, self.objects) = (0, 0);
        }
    }

    /// The median of the windows.
    pub(in crate::scenarios) fn nanos(&self) -> f64 {
        self.samples.median().unwrap_or(f64::NAN)
    }
}
