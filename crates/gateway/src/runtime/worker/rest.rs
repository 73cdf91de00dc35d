//! Sleep of a worker until the next event, and its drain at the end.

use super::Worker;
use crate::runtime::sharing::WorkerStages;
use polder_datapath::port::Armed;
use polder_datapath::scheduler::PollMode;
use polder_datapath::units::Nanos;
use rustix::event::epoll;

/// Longest sleep of a worker that caches frames, or has state to poll. A worker without cached frames and
/// deadlines sleeps until an event.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(1000);
/// Longest sleep while devices hold frames of sent packets.
const SHORT_SLEEP: Nanos = Nanos::from_millis(20);
/// Maximum time that a stopping worker waits for devices to return frames.
const DRAIN: Nanos = Nanos::from_millis(100);
/// Time without packets from other workers after which a draining worker in a group stops.
const QUIET: Nanos = Nanos::from_millis(2);

impl Worker {
    /// Sleeps, unless other workers are likely to bring packets soon.
    pub(super) fn rest(&mut self, now: Nanos) {
        if self.schedule.pace.is_napping(now) {
            std::thread::sleep(core::time::Duration::from_nanos(PollMode::NAP.0));
            self.counters.slept_nanos.add(self.clock.now().since(now).0);
            return;
        }
        let is_shared = self.sharing.as_ref().is_some_and(|sharing| sharing.must_poll(now));
        if !is_shared && !self.schedule.pace.must_poll(now) {
            self.sleep(now);
        }
    }

    fn sleep(&mut self, now: Nanos) {
        self.wakeup.about_to_sleep();
        // A command sent before the flag was set caused no wake-up.
        if let Ok(command) = self.commands.try_recv() {
            self.wakeup.awake();
            self.apply_command(command);
            return;
        }
        self.note_unsent();
        let raced = self.receivers.iter_mut().any(|queue| !queue.closed && queue.rx.arm() == Armed::Raced)
            || self.incoming.iter_mut().any(|ring| ring.available() > 0)
            || self.sharing.as_mut().is_some_and(|sharing| sharing.group.has_work());
        if raced {
            self.wakeup.awake();
            return;
        }
        let patience = self.schedule.pace.longest_sleep();
        let limit = self.longest_sleep(now, patience);
        let timeout = limit.map(|limit| rustix::event::Timespec {
            tv_sec: i64::try_from(limit.0 / 1_000_000_000).unwrap_or(0),
            tv_nsec: i64::try_from(limit.0 % 1_000_000_000).unwrap_or(0),
        });
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 8];
        self.counters.sleeps.add(1);
        self.schedule.pace.sleeps(now);
        if let Some(sharing) = &mut self.sharing {
            sharing.group.sleeps(now);
        }
        self.publish();
        let woken = epoll::wait(&self.epoll, &mut events, timeout.as_ref());
        self.wakeup.awake();
        self.counters.slept_nanos.add(self.clock.now().since(now).0);
        let is_woken = woken.is_ok_and(|count| count > 0);
        self.counters.wakeups.add(u64::from(is_woken));
        if is_woken {
            self.returned_cache = false;
            self.schedule.pace.record_wakeup();
        } else if patience.is_some() && patience == limit {
            for queue in &mut self.receivers {
                queue.control(|control| control.favour_thread());
            }
        }
        if !is_woken && limit == Some(LONGEST_SLEEP) {
            // After a long sleep without events, the cached frames go back to the pool for other workers.
            self.pool.give_back();
            self.returned_cache = true;
        }
    }

    /// Longest time to sleep without an event; `None` if no deadline and no polling is needed.
    fn longest_sleep(&mut self, now: Nanos, patience: Option<Nanos>) -> Option<Nanos> {
        let missing = self.sharing.as_ref().and_then(|sharing| sharing.group.next_deadline());
        let inlets = self.inlets.next_deadline(now);
        let deadlines = [self.engine.next_deadline(), missing, self.senders.next_deadline(), inlets];
        let deadlines = deadlines.into_iter().flatten().map(|deadline| deadline.since(now));
        let queues = self.receivers.iter().filter(|queue| !queue.closed);
        // A queue without an event descriptor is polled regularly.
        let own = queues.map(|queue| {
            if queue.rx.event().is_some() { queue.rx.longest_sleep() } else { Some(LONGEST_SLEEP) }
        });
        // Frames may be free again after a failed allocation; their return sends no event.
        let lacks_frames = core::mem::replace(&mut self.failed_allocations, self.pool.exhausted())
            != self.failed_allocations;
        let keeps = lacks_frames || !self.returned_cache;
        let in_flight = (self.senders.in_flight() > 0).then_some(SHORT_SLEEP);
        let others = [patience, in_flight, keeps.then_some(LONGEST_SLEEP)];
        deadlines.chain(own.flatten()).chain(others.into_iter().flatten()).min()
    }

    /// Waits, at most [`DRAIN`], until devices have returned the frames of sent packets.
    pub(super) fn drain(&mut self) {
        let start = self.clock.now();
        let (mut now, mut last) = (start, start);
        let quiet = if self.sharing.is_some() { QUIET } else { Nanos::default() };
        while now.since(start) < DRAIN {
            let mut busy = false;
            self.senders.now = now;
            for index in 0..self.incoming.len() {
                busy |= self.take_over(index, now);
            }
            busy |= self.take_last_part(now) | self.let_in(now, |_| true);
            self.senders.round(&mut self.pool);
            if busy {
                last = now;
            } else if self.senders.is_quiet() && now.since(last) >= quiet {
                break;
            } else {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            now = self.clock.now();
        }
        self.let_go_of_the_rest(now);
        self.receivers.clear();
        self.senders.clear(&mut self.pool);
        self.engine.close(now, &mut self.pool);
    }

    /// Sends packets that wait for earlier batches that will not arrive.
    pub(super) fn let_go_of_the_rest(&mut self, now: Nanos) {
        let Self { sharing: Some(sharing), engine, pool, senders, clock, .. } = self else { return };
        let mut stages = WorkerStages { engine, pool, egress: senders, clock: *clock, now, timed: false };
        sharing.group.close(&mut stages);
    }
}
