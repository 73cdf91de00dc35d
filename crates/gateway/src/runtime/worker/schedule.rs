//! How a worker divides its time: turns, rest, and its share of the core.

use super::Worker;
use polder_datapath::port::Driven;
use polder_datapath::receive::{Allowance, Line, Mode, Options, Pace};
use polder_datapath::units::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Whose turn it is, when to rest, and how much of the core is the worker's.
#[derive(Debug)]
pub struct Schedule {
    pub(super) line: Line,
    pub(super) pace: Pace,
    /// Whether the pace follows what comes.
    adapts: bool,
    share: Option<Share>,
}

/// A share of the core.
#[derive(Debug)]
struct Share {
    allowance: Allowance,
    /// When the thread's time is looked at next.
    look_at: Nanos,
}

/// How often a worker with a share looks at its thread's clock.
const LOOK: Nanos = Nanos(500_000);
/// The longest pause at a time: a command waits no longer.
const LONGEST: Nanos = Nanos::from_millis(10);

impl Default for Schedule {
    fn default() -> Self {
        Self::new(Options::default(), None)
    }
}

impl Schedule {
    /// Turns like that, and so many percent of a core at most.
    pub fn new(options: Options, percent: Option<u8>) -> Self {
        let share = percent.filter(|&percent| percent < 100).map(|percent| Share {
            allowance: Allowance::new(u16::from(percent) * 10),
            look_at: Nanos::default(),
        });
        Self { line: Line::new(options), pace: Pace::default(), adapts: options.balance, share }
    }

    /// Takes note of a round that began at `now`. Answers how devices are to be driven when that changes.
    pub(super) fn note(&mut self, now: Nanos, packets: u32) -> Option<Mode> {
        if self.adapts { self.pace.cycle(now, packets) } else { None }
    }
}

impl Worker {
    /// Tells a queue's device when to receive.
    pub(super) fn drive(&mut self, index: usize) {
        // One that cannot be told does as it does.
        let _: Driven = self.receivers[index].rx.drive(self.schedule.pace.mode().drive());
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
        self.schedule.pace.rest_while_polled(driven == Driven::Asleep);
        let mode = if driven == Driven::No { Mode::Interrupts } else { self.schedule.pace.mode() };
        self.counters.mode.set(mode as u64);
    }

    /// Tells all devices how they are driven; what the most obedient of them makes of it, but that a worker
    /// sleeps if one of them needs that.
    fn tell_all(&mut self) -> Driven {
        let drive = self.schedule.pace.mode().drive();
        let mut driven = Driven::No;
        // Each is told, whatever the others do.
        for queue in self.receivers.iter_mut().filter(|queue| !queue.closed) {
            driven = match (driven, queue.rx.drive(drive)) {
                (Driven::Asleep, _) | (_, Driven::Asleep) => Driven::Asleep,
                (Driven::Yes, _) | (_, Driven::Yes) => Driven::Yes,
                (Driven::No, Driven::No) => Driven::No,
            };
        }
        driven
    }

    /// Leaves the core to others when the worker's share of it is used up.
    pub(super) fn keep_share(&mut self, now: Nanos) {
        let Some(share) = &mut self.schedule.share else { return };
        if now < share.look_at {
            return;
        }
        share.look_at = now + LOOK;
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let used = u64::try_from(used.tv_sec).unwrap_or(0) * Nanos::SECOND.0
            + u64::try_from(used.tv_nsec).unwrap_or(0);
        let Some(pause) = share.allowance.pause(now, Nanos(used)) else { return };
        std::thread::sleep(Duration::from_nanos(pause.min(LONGEST).0));
        self.counters.share_nanos.add(self.clock.now().since(now).0);
    }
}
