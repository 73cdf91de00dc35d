//! Use of the [`Schedule`](super::Schedule): CPU time is noted, devices are driven, and the share of the core is kept.

use super::Worker;
use polder_datapath::port::{Driven, RxControl};
use polder_datapath::scheduler::{Elapsed, Mode};
use polder_datapath::units::Nanos;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::time::Duration;

/// Interval at which a worker with a share reads its thread's clock.
const LOOK: Nanos = Nanos(100_000);
/// The longest pause at a time: a command waits no longer.
const LONGEST: Nanos = Nanos::from_millis(10);
/// Divisor of a pause for the maximum time that others used in it by right.
const OWED: u64 = 4;
/// Number of ordinary threads that a share is held against by its weight.
const RIVALS: f64 = 4.0;
/// Factor of a weight for a step of the nice value (sched(7)).
const STEP: f64 = 1.25;

impl Worker {
    /// CPU time of the worker up to `now`, since its clock said `begun`.
    pub(super) fn cpu_since(&mut self, begun: Nanos, now: Nanos) -> Nanos {
        let cpu = self.clock.cpu();
        self.schedule.contention.record(now, cpu);
        cpu.since(begun)
    }

    /// CPU time of the worker in a turn, if that is known; it is charged to the queue.
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

    /// Tells a queue's device when to receive.
    pub(super) fn drive(&mut self, index: usize) {
        // One that cannot be told does as it does.
        let drive = self.schedule.pace.mode().drive();
        let _: Option<Driven> = self.receivers[index].control(|control| control.set_mode(drive));
    }

    /// Tells all devices.
    #[cold]
    pub(super) fn drive_all(&mut self, mode: Mode, now: Nanos) {
        let mut driven = self.tell_all();
        if driven == Driven::No && mode == Mode::Polled {
            // Without a device that it drives, polling would only keep others from their work.
            self.schedule.pace.refuse(now);
            driven = self.tell_all();
        }
        self.schedule.pace.set_driven(driven);
        let mode = if driven == Driven::No { Mode::Interrupts } else { self.schedule.pace.mode() };
        self.counters.mode.set(mode as u64);
    }

    /// Tells all devices how they are driven; the greatest effect on one of them.
    fn tell_all(&mut self) -> Driven {
        let drive = self.schedule.pace.mode().drive();
        let queues = self.receivers.iter_mut().filter(|queue| !queue.closed);
        let driven = queues.filter_map(|queue| queue.control(|control| control.set_mode(drive)));
        driven.max().unwrap_or_default()
    }

    /// Gives the calling thread the weight that its share needs. To be called on the worker's thread before there are ports.
    pub(super) fn claim_share(&self) {
        let Some(share) = &self.schedule.share else { return };
        let nice = nice_for(share.percent);
        if let Err(error) = setpriority_process(Some(gettid()), nice) {
            tracing::info!(%error, nice, "the worker keeps its weight: others may leave it less than its share");
        }
    }

    /// Charges the CPU time of the queue's NAPI thread to the share.
    pub(super) fn share_with(&mut self, index: usize) {
        if let Some(share) = &mut self.schedule.share {
            let claim = |control: &mut dyn RxControl| {
                control.claim_thread();
                control.thread_time()
            };
            // What it has used until now is its own affair.
            let used = self.receivers[index].control(claim).flatten();
            share.others_then = share.others_then + used.unwrap_or_default();
        }
    }

    /// CPU time of the NAPI threads that are charged to the share.
    fn others_time(&mut self) -> Nanos {
        let times = self.receivers.iter_mut();
        let times = times.filter_map(|queue| queue.control(|control| control.thread_time()).flatten());
        times.fold(Nanos::default(), |sum, time| sum + time)
    }

    /// Leaves the core to others when the worker's share of it is used up. Says whether it did.
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
        self.stand_back(now, pause.min(LONGEST));
        true
    }

    /// Makes all threads that receive for the worker leave the core, or go on.
    fn pause_threads(&mut self, paused: bool) {
        for queue in &mut self.receivers {
            queue.control(|control| control.pause_thread(paused));
        }
    }

    fn stand_back(&mut self, now: Nanos, pause: Nanos) {
        self.pause_threads(true);
        std::thread::sleep(Duration::from_nanos(pause.0));
        self.pause_threads(false);
        let (time, passed) = (self.others_time(), self.clock.now().since(now));
        if let Some(share) = &mut self.schedule.share {
            // A little is what the scheduler owed them from before; what is more nobody else wanted.
            let meanwhile = time.since(share.others_then);
            if meanwhile.0 < passed.0 / OWED {
                share.others = share.others + meanwhile;
            }
            share.others_then = time;
        }
        self.schedule.pace.stood_back();
        self.counters.share_nanos.add(passed.0);
    }
}

/// The nice value by which one thread has `percent` of a core against [`RIVALS`] ordinary ones; never a
/// larger one than an ordinary thread's.
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
