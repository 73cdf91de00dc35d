//! Chooses between sleep and polling by the arrival of packets.
//!
//! Packets and idle time are counted in windows of 10 ms. Each change of mode has hysteresis, and a change
//! that failed is retried after a pause that doubles each time. An overloaded worker polls at once:
//! interrupts would cost the kernel a wake-up per packet on the same core.

use crate::port::{Drive, Driven};
use crate::units::Nanos;

/// Mode in which a worker waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The worker sleeps when all queues are empty; every packet may wake it.
    #[default]
    Interrupts,
    /// As `Interrupts`, but devices wake the worker at most every [`PollMode::THROTTLE`].
    Throttled,
    /// The worker polls without sleeping, and devices receive at each poll.
    Polled,
}

impl Mode {
    /// Name of the mode in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Throttled => "throttled",
            Self::Polled => "polled",
        }
    }

    /// Mode of `number`, the reverse of `Mode as u64`.
    pub const fn of(number: u64) -> Self {
        match number {
            1 => Self::Throttled,
            2 => Self::Polled,
            _ => Self::Interrupts,
        }
    }

    /// Event at which devices receive in this mode.
    pub const fn drive(self) -> Drive {
        match self {
            Self::Interrupts => Drive::Interrupts(Nanos(0)),
            Self::Throttled => Drive::Interrupts(PollMode::THROTTLE),
            Self::Polled => Drive::Polled,
        }
    }
}

/// Length of a window.
const WINDOW: Nanos = Nanos::from_millis(10);
/// Threshold of throttling: wake-ups or packets per window. Throttling by packets too saves the kernel an
/// interrupt per packet while the worker is busy.
const MANY: u32 = 200;
/// Throttling ends after `FEW_WINDOWS` consecutive windows with fewer packets than this.
const FEW_PACKETS: u32 = 50;
const FEW_WINDOWS: u8 = 4;
/// Packets per wake-up from which polling is tried: more packets arrive than a turn takes.
const FULL_TURN: u32 = 64;
/// Minimum number of wake-ups or busy cycles in a window for a decision.
const MIN_SAMPLES: u32 = 4;
/// Maximum share of empty polls in a window: 1/4.
const MAX_IDLE_SHARE: u64 = 4;
/// Like [`MAX_IDLE_SHARE`], for a worker that sleeps to receive: 1/2, since the kernel receives in that time.
const MAX_IDLE_SHARE_ASLEEP: u64 = 2;
/// Overload threshold: the worker was idle for less than 1/16 of the window, so a backlog cannot drain.
const OVERLOAD_DIVISOR: u64 = 16;
/// Consecutive windows with too much idle time after which polling ends, if that time was slept.
const SLEPT_WINDOWS: u8 = 4;
/// Polling ends at once, regardless of its minimum time, if the worker was busy for less than 1/4 of the
/// window.
const MIN_BUSY_DIVISOR: u64 = 4;
/// Windows with enough packets after which polling counts as successful.
const SUCCESS: u8 = 10;
/// Initial and maximum pause before polling is tried again; also the minimum time of polling after overload.
const FIRST_PAUSE: Nanos = Nanos::from_millis(20);
const LONGEST_PAUSE: Nanos = Nanos::from_millis(1280);
/// Number of wake-ups in a window that are spurious if each brings fewer packets than 1/`NOISE`: a device
/// whose event never clears, or that signals without packets.
const NOISE_WAKEUPS: u32 = 100;
const NOISE: u32 = 8;
/// Maximum sleep while devices receive only during sleep.
const MAX_SLEEP: Nanos = Nanos::from_millis(1);
/// Duration of a short busy poll.
const BUSY_POLL_TIME: Nanos = Nanos(5_000);
/// Number of short busy polls per evaluation; at least half of them must find packets.
const TRIES: u32 = 16;

/// Counts of a window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    packets: u32,
    cycles: u32,
    sleeps: u32,
    wakeups: u32,
    /// Duration of cycles that found no packet.
    idle: Nanos,
}

/// Decides whether and how a worker waits for packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollMode {
    mode: Mode,
    window: Nanos,
    seen: WindowCounts,
    /// Consecutive windows with few packets, or with successful polling.
    windows: u8,
    /// Time before which polling is not tried, and the next pause after a failure.
    not_before: Nanos,
    pause: Nanos,
    min_polling: MinPolling,
    /// Start of the previous cycle, and true if it found packets.
    last: Option<(Nanos, bool)>,
    busy_poll: BusyPoll,
    spurious: SpuriousWakeups,
    /// Effect of the mode on the devices.
    driven: Driven,
    /// Time at which the worker fell asleep; `None` while awake.
    asleep: Option<Nanos>,
}

impl PollMode {
    /// Minimum time between two wake-ups by a throttled device.
    pub const THROTTLE: Nanos = Nanos(50_000);

    /// Duration of a nap while wake-ups are spurious.
    pub const NAP: Nanos = Nanos::from_millis(1);

    /// Current mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Records a cycle that began at `start` and moved `packets` packets. Returns the new mode if it changes.
    #[inline]
    pub fn cycle(&mut self, start: Nanos, packets: u32) -> Option<Mode> {
        if let Some((before, false)) = self.last {
            self.seen.idle = self.seen.idle + start.since(before);
        }
        if let Some(since) = self.asleep.take() {
            self.seen.idle = self.seen.idle + start.since(since);
        }
        self.last = Some((start, packets > 0));
        self.seen.packets = self.seen.packets.saturating_add(packets);
        self.seen.cycles += u32::from(packets > 0);
        if packets > 0 {
            self.busy_poll.found(start);
        }
        if start.since(self.window) < WINDOW { None } else { self.end(start) }
    }

    /// Called after a cycle without packets: true if the worker must poll again rather than sleep.
    pub fn must_poll(&mut self, now: Nanos) -> bool {
        (self.mode == Mode::Polled && !self.sleeps_when_idle()) || self.busy_poll.continues(now)
    }

    /// Maximum sleep while devices receive only during sleep, since their NAPI thread may not get the core;
    /// `None` otherwise.
    pub fn longest_sleep(&self) -> Option<Nanos> {
        (self.mode == Mode::Polled && self.driven == Driven::Asleep).then_some(MAX_SLEEP)
    }

    /// True while wake-ups are spurious: the worker must nap for [`PollMode::NAP`] rather than wait for events.
    pub fn is_napping(&self, now: Nanos) -> bool {
        now < self.spurious.until
    }

    /// Leaves polling for a long time because no device supports it.
    pub fn disable_polling(&mut self, now: Nanos) {
        self.mode = Mode::Interrupts;
        self.windows = 0;
        self.not_before = now + LONGEST_PAUSE;
    }

    /// Sets the effect that the mode has on the devices.
    pub fn set_driven(&mut self, driven: Driven) {
        self.driven = driven;
    }

    /// True if a polling worker sleeps after an empty cycle.
    fn sleeps_when_idle(&self) -> bool {
        matches!(self.driven, Driven::BySenders | Driven::Asleep)
    }

    /// Records that the worker sleeps from `now` on.
    pub fn sleeps(&mut self, now: Nanos) {
        self.seen.sleeps += 1;
        self.last = None;
        self.asleep = Some(now);
    }

    /// Records that the worker has yielded the core: the time since the last cycle is not counted.
    pub fn yielded(&mut self) {
        (self.last, self.asleep) = (None, None);
    }

    /// Records a wake-up by an event.
    pub fn record_wakeup(&mut self) {
        self.seen.wakeups += 1;
    }

    /// Ends a window; returns the new mode if it changes.
    #[cold]
    fn end(&mut self, now: Nanos) -> Option<Mode> {
        let passed = now.since(self.window);
        let seen = core::mem::take(&mut self.seen);
        self.window = now;
        self.spurious.judge(seen, now);
        let next = match self.mode {
            // A window of more than four times its length was spent asleep.
            _ if passed.0 > 4 * WINDOW.0 => Mode::Interrupts,
            Mode::Polled => self.polled(seen, passed, now),
            Mode::Interrupts | Mode::Throttled if is_overloaded(seen, passed) => self.overloaded(now),
            Mode::Interrupts | Mode::Throttled if self.is_full(seen, now) => Mode::Polled,
            Mode::Interrupts if seen.wakeups.max(seen.packets) >= MANY => Mode::Throttled,
            Mode::Interrupts => Mode::Interrupts,
            Mode::Throttled => self.throttled(seen),
        };
        if next == self.mode {
            return None;
        }
        self.mode = next;
        self.windows = 0;
        Some(next)
    }

    /// True if each wake-up finds a full turn of packets, and polling may be tried.
    fn is_full(&self, seen: WindowCounts, now: Nanos) -> bool {
        now >= self.not_before && seen.wakeups >= MIN_SAMPLES && seen.packets / seen.wakeups >= FULL_TURN
    }

    /// Starts polling because of overload, even during the pause after a failed trial: with interrupts the
    /// worker cannot catch up.
    fn overloaded(&mut self, now: Nanos) -> Mode {
        self.min_polling.begin(now);
        Mode::Polled
    }

    fn polled(&mut self, seen: WindowCounts, passed: Nanos, now: Nanos) -> Mode {
        // A worker that sleeps to receive may also wait for the core; half a batch per wake-up justifies
        // polling.
        let full =
            self.sleeps_when_idle() && seen.wakeups > 0 && seen.packets / seen.wakeups >= FULL_TURN / 2;
        let part = if self.sleeps_when_idle() { MAX_IDLE_SHARE_ASLEEP } else { MAX_IDLE_SHARE };
        if full || seen.idle.0 < passed.0 / part {
            (self.windows, self.min_polling.idle) = (self.windows.saturating_add(1), 0);
            if self.windows >= SUCCESS {
                self.pause = FIRST_PAUSE;
            }
            return Mode::Polled;
        }
        let is_nearly_idle = passed.0.saturating_sub(seen.idle.0) < passed.0 / MIN_BUSY_DIVISOR;
        if !self.min_polling.ends(now, is_nearly_idle, self.sleeps_when_idle()) {
            return Mode::Polled;
        }
        self.min_polling.left = Some(now);
        self.pause = self.pause.max(FIRST_PAUSE);
        self.not_before = now + self.pause;
        self.pause = Nanos(2 * self.pause.0).min(LONGEST_PAUSE);
        // This packet rate is too high for interrupts without throttling.
        if seen.packets >= MANY { Mode::Throttled } else { Mode::Interrupts }
    }

    fn throttled(&mut self, seen: WindowCounts) -> Mode {
        self.windows = if seen.packets < FEW_PACKETS { self.windows + 1 } else { 0 };
        if self.windows >= FEW_WINDOWS { Mode::Interrupts } else { Mode::Throttled }
    }
}

/// True if the worker was idle for less than 1/16 of the window while packets arrived.
fn is_overloaded(seen: WindowCounts, passed: Nanos) -> bool {
    seen.cycles >= MIN_SAMPLES && seen.idle.0 < passed.0 / OVERLOAD_DIVISOR
}

/// Minimum time of polling: doubled each time that the worker is overloaded soon after polling ended.
#[derive(Clone, Copy, Debug, Default)]
struct MinPolling {
    /// Time at which polling last ended, the minimum time of polling, and the end of that time.
    left: Option<Nanos>,
    time: Nanos,
    until: Nanos,
    /// Consecutive windows with too much idle time.
    idle: u8,
}

impl MinPolling {
    fn begin(&mut self, now: Nanos) {
        let again = self.left.is_some_and(|left| now.since(left) < LONGEST_PAUSE);
        let twice = Nanos(2 * self.time.0).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.time = if again { twice } else { Nanos(0) };
        (self.until, self.idle) = (now + self.time, 0);
    }

    /// Called after a window with too much idle time: true if polling ends. `is_nearly_idle`: the worker was nearly
    /// idle.
    fn ends(&mut self, now: Nanos, is_nearly_idle: bool, asleep: bool) -> bool {
        self.idle = self.idle.saturating_add(1);
        is_nearly_idle || (now >= self.until && (!asleep || self.idle >= SLEPT_WINDOWS))
    }
}

/// Spurious wake-ups: while they last the worker naps, and the nap phase doubles each time.
#[derive(Clone, Copy, Debug, Default)]
struct SpuriousWakeups {
    until: Nanos,
    pause: Nanos,
}

impl SpuriousWakeups {
    fn judge(&mut self, seen: WindowCounts, now: Nanos) {
        // A window that overlaps naps is not judged.
        if self.until.0 > 0 && now < self.until + WINDOW {
            return;
        }
        if seen.wakeups >= NOISE_WAKEUPS && seen.packets < seen.wakeups / NOISE {
            self.pause = Nanos(2 * self.pause.0).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            self.until = now + self.pause;
        } else {
            self.pause = Nanos(0);
        }
    }
}

/// Short busy polls, done while packets arrive at short intervals and most polls find some.
#[derive(Clone, Copy, Debug, Default)]
struct BusyPoll {
    /// Time at which packets last arrived.
    arrived_at: Nanos,
    /// Moving average of the time between arrivals.
    gap: Nanos,
    is_polling: bool,
    tries: u32,
    hits: u32,
    not_before: Nanos,
}

impl BusyPoll {
    #[inline]
    fn found(&mut self, now: Nanos) {
        let gap = now.since(self.arrived_at).0.min(Nanos::SECOND.0);
        self.gap = Nanos(self.gap.0 - self.gap.0 / 8 + gap / 8);
        self.arrived_at = now;
        self.hits += u32::from(core::mem::take(&mut self.is_polling));
    }

    fn continues(&mut self, now: Nanos) -> bool {
        if self.is_polling {
            self.is_polling = now.since(self.arrived_at) < BUSY_POLL_TIME;
            return self.is_polling;
        }
        if self.gap > BUSY_POLL_TIME || now < self.not_before || now.since(self.arrived_at) >= BUSY_POLL_TIME
        {
            return false;
        }
        if self.tries >= TRIES {
            if self.hits < TRIES / 2 {
                self.not_before = now + LONGEST_PAUSE;
            }
            (self.tries, self.hits) = (0, 0);
            return false;
        }
        self.tries += 1;
        self.is_polling = true;
        true
    }
}
