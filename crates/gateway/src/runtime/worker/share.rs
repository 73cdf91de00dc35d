//! Use of the [`Schedule`](super::Schedule): recording CPU time, setting devices' modes, keeping the CPU
//! share.

use super::Worker;
use polder_datapath::port::{Driven, RxControl};
use polder_datapath::scheduler::{Elapsed, Mode};
use polder_datapath::units::Nanos;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::time::Duration;

/// Interval at which a worker with a CPU share reads its thread's clock.
const LOOK: Nanos = Nanos(100_000);
/// Maximum length of a pause, which bounds the delay of commands.
const LONGEST: Nanos = Nanos::from_millis(10);
/// CPU time of NAPI threads during a pause is not charged if it exceeds the pause divided by this number.
const OWED: u64 = 4;
/// Number of normal threads against which the nice value secures the share.
const RIVALS: f64 = 4.0;
/// Ratio of weights between neighbouring nice values (sched(7)).
const STEP: f64 = 1.25;

impl Worker {
    /// CPU time of the worker between `begun` and `now`.
    pub(super) fn cpu_since(&mut self, begun: Nanos, now: Nanos) -> Nanos {
        let cpu = self.clock.cpu();
        self.schedule.contention.record(now, cpu);
        cpu.since(begun)
    }

    /// CPU time of the worker in a turn, if known; it is charged to the queue.
    pub(super) fn cpu_time(
        &mut self,
        index: usize,
        packets: u32,
        elapsed: Elapsed,
        now: Nanos,
    ) -> Option<Nanos> {
        let expected = self.schedule.line.expected(index, packets);
        let took = self.schedule.contention.own(elapsed, expected, now);
        self.receivers[index].rx.counters().worked_nanos.add(took.unwrap_or(expected).0);
        took
    }

    /// Sets the receive mode of a queue's device.
    pub(super) fn drive(&mut self, index: usize) {
        // A device without a control keeps its mode.
        let drive = self.schedule.pace.mode().drive();
        let _: Option<Driven> = self.receivers[index].control(|control| control.set_mode(drive));
    }

    /// Sets the mode of all devices.
    #[cold]
    pub(super) fn drive_all(&mut self, mode: Mode, now: Nanos) {
        let mut driven = self.tell_all();
        if driven == Driven::No && mode == Mode::Polled {
            // If no device supports the mode, polling would only take CPU time from other threads.
            self.schedule.pace.disable_polling(now);
            driven = self.tell_all();
        }
        self.schedule.pace.set_driven(driven);
        let mode = if driven == Driven::No { Mode::Interrupts } else { self.schedule.pace.mode() };
        self.counters.mode.set(mode as u64);
    }

    /// Sets the mode of all devices; returns the largest effect on one of them.
    fn tell_all(&mut self) -> Driven {
        let drive = self.schedule.pace.mode().drive();
        let queues = self.receivers.iter_mut().filter(|queue| !queue.closed);
        let driven = queues.filter_map(|queue| queue.control(|control| control.set_mode(drive)));
        driven.max().unwrap_or_default()
    }

    /// Sets the calling thread's nice value for its share. Call it on the worker's thread before ports are
    /// attached.
    pub(super) fn claim_share(&self) {
        let Some(share) = &self.schedule.share else { return };
        let nice = nice_for(share.percent);
        if let Err(error) = setpriority_process(Some(gettid()), nice) {
            tracing::info!(%error, nice, "cannot raise the worker's priority: other threads may leave it \
                less than its `cpu_share`");
        }
    }

    /// Charges the CPU time of the queue's NAPI thread to the share.
    pub(super) fn share_with(&mut self, index: usize) {
        if let Some(share) = &mut self.schedule.share {
            let claim = |control: &mut dyn RxControl| {
                control.claim_thread();
                control.thread_time()
            };
            // CPU time used until this moment is not charged.
            let used = self.receivers[index].control(claim).flatten();
            share.others_then = share.others_then + used.unwrap_or_default();
        }
    }

    /// Total CPU time of the NAPI threads that are charged to the share.
    fn others_time(&mut self) -> Nanos {
        let times = self.receivers.iter_mut();
        let times = times.filter_map(|queue| queue.control(|control| control.thread_time()).flatten());
        times.fold(Nanos::default(), |sum, time| sum + time)
    }

    /// Pauses the worker when its share of the core is used up. Returns true if it paused.
    pub(super) fn keep_share(&mut self, now: Nanos) -> bool {
        if self.schedule.share.as_ref().is_none_or(|share| now < share.look_at) {
            return false;
        }
        let time = self.others_time();
        let Some(share) = &mut self.schedule.share else { return false };
        share.look_at = now + LOOK;
        share.others = share.others + time.since(share.others_then);
        share.others_then = time;
        let used = share.others + self.clock.cpu();
        let Some(pause) = share.token_bucket.pause(now, used) else { return false };
        self.pause_for_share(now, pause.min(LONGEST));
        true
    }

    /// Pauses or resumes all NAPI threads that receive for the worker.
    fn pause_threads(&mut self, paused: bool) {
        for queue in &mut self.receivers {
            queue.control(|control| control.pause_thread(paused));
        }
    }

    fn pause_for_share(&mut self, now: Nanos, pause: Nanos) {
        self.pause_threads(true);
        std::thread::sleep(Duration::from_nanos(pause.0));
        self.pause_threads(false);
        let (time, passed) = (self.others_time(), self.clock.now().since(now));
        if let Some(share) = &mut self.schedule.share {
            // A short time was due to the threads from before the pause; a longer time means that no other
            // thread wanted the core.
            let meanwhile = time.since(share.others_then);
            if meanwhile.0 < passed.0 / OWED {
                share.others = share.others + meanwhile;
            }
            share.others_then = time;
        }
        self.schedule.pace.yielded();
        self.counters.share_nanos.add(passed.0);
    }
}

/// Nice value, 0 or less, with which one thread gets `percent` of a core against [`RIVALS`] normal threads.
fn nice_for(percent: u8) -> i32 {
    let part = f64::from(percent.clamp(1, 99)) / 100.0;
    let weight = RIVALS * part / (1.0 - part);
    let steps = weight.ln() / STEP.ln();
    #[expect(clippy::cast_possible_truncation, reason = "clamped to what a nice value can be")]
    let steps = steps.ceil().clamp(0.0, 20.0) as i32;
    -steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_the_weight_that_it_needs_against_four() {
        assert_eq!(nice_for(1), 0);
        assert_eq!(nice_for(20), 0, "an equal part of five");
        assert_eq!(nice_for(30), -3);
        assert_eq!(nice_for(50), -7);
        assert_eq!(nice_for(99), -20);
        for percent in 20..99 {
            let weight = STEP.powi(-nice_for(percent));
            let part = 100.0 * weight / (weight + RIVALS);
            assert!(part >= f64::from(percent) || nice_for(percent) == -20, "{percent}: {part}");
        }
    }
}
