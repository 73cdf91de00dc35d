//! Choice between sleep and polling, from arrivals.
//!
//! Time is looked at in windows of ten milliseconds. Each change has two thresholds that lie apart, and
//! what was tried in vain is tried again only after a while that doubles each time. A worker that hardly finds time
//! to sleep is behind, and polls at once: what comes by interrupts costs the kernel a wake-up a packet, on the same core.

use crate::port::{Drive, Driven};
use crate::units::Nanos;

/// Mode in which a worker waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The worker sleeps at once when nothing is there; every packet may wake it.
    #[default]
    Interrupts,
    /// The same, and devices wake it at most every [`Pace::THROTTLE`].
    Throttled,
    /// The worker polls, and devices receive when they are polled.
    Polled,
}

impl Mode {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interrupts => "interrupts",
            Self::Throttled => "throttled",
            Self::Polled => "polled",
        }
    }

    /// The mode of that number, which [`Pace::mode`] as an integer is.
    pub const fn of(number: u64) -> Self {
        match number {
            1 => Self::Throttled,
            2 => Self::Polled,
            _ => Self::Interrupts,
        }
    }

    /// Drive that devices are set to.
    pub const fn drive(self) -> Drive {
        match self {
            Self::Interrupts => Drive::Interrupts(Nanos(0)),
            Self::Throttled => Drive::Interrupts(Pace::THROTTLE),
            Self::Polled => Drive::Polled,
        }
    }
}

/// The window.
const WINDOW: Nanos = Nanos::from_millis(10);
/// Wake-ups, or packets, in a window from which on devices are throttled: a worker with enough to do is not woken, and the
/// kernel is, for each packet.
const MANY: u32 = 200;
/// Packets in a window below which they are not, and in how many windows in a row.
const FEW_PACKETS: u32 = 50;
const FEW_WINDOWS: u8 = 4;
/// Packets a wake-up that fill a device's turn: more come than are taken.
const FULL: u32 = 64;
/// Wake-ups, or busy cycles, without which a window proves nothing.
const PROOF: u32 = 4;
/// The part of the time that polling in vain may take: one in so many.
const VAIN: u64 = 4;
/// The same where the worker sleeps to receive: the kernel's half is a part of that time.
const VAIN_ASLEEP: u64 = 2;
/// Overload threshold: the worker was idle for less than 1/16 of the window, so a backlog cannot drain.
const BEHIND: u64 = 16;
/// Windows in a row with time in vain after which polling is left, where that time was slept.
const SLEPT_WINDOWS: u8 = 4;
/// Divisor of the window for the maximum worked time at which polling ends, however short it has been.
const HARDLY: u64 = 4;
/// Windows after which a trial has succeeded.
const SUCCESS: u8 = 10;
/// Time for which polling is not tried again, at first and at most; and how long it is kept by who fell behind without it.
const FIRST_PAUSE: Nanos = Nanos::from_millis(20);
const LONGEST_PAUSE: Nanos = Nanos::from_millis(1280);
/// Number of wake-ups in a window that are noise if fewer packets come for each than the bound below: a
/// device whose event never ends, or one that rings for nothing.
const NOISE_WAKEUPS: u32 = 100;
const NOISE: u32 = 8;
/// The longest sleep for devices that receive only meanwhile.
const PATIENCE: Nanos = Nanos::from_millis(1);
/// A short busy poll.
const LINGER: Nanos = Nanos(5_000);
/// Tries after which it is known whether short busy polls find packets, and the number of tries
/// that must.
const TRIES: u32 = 16;

/// Counts of a window.
#[derive(Clone, Copy, Debug, Default)]
struct WindowCounts {
    packets: u32,
    cycles: u32,
    sleeps: u32,
    wakeups: u32,
    /// Time of cycles that found nothing.
    vain: Nanos,
}

/// Decides how a worker waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    mode: Mode,
    window: Nanos,
    seen: WindowCounts,
    /// Windows in a row with few packets, or in which polling went well.
    windows: u8,
    /// Time at which polling may be tried again, and how long it may not after the next failure.
    not_before: Nanos,
    pause: Nanos,
    hold: Hold,
    /// The cycle before: when it began, and whether it found something.
    last: Option<(Nanos, bool)>,
    linger: Linger,
    noise: Noise,
    /// Effect that the mode has on the devices.
    driven: Driven,
    /// Time at which the worker fell asleep.
    asleep: Option<Nanos>,
}

impl Pace {
    /// Time for which a throttled device waits.
    pub const THROTTLE: Nanos = Nanos(50_000);

    /// Time for which a worker naps whose devices wake it for nothing.
    pub const NAP: Nanos = Nanos::from_millis(1);

    /// Current mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Notes a cycle that began at `start` and moved `packets` packets. Returns the mode when it changes.
    #[inline]
    pub fn cycle(&mut self, start: Nanos, packets: u32) -> Option<Mode> {
        if let Some((before, false)) = self.last {
            self.seen.vain = self.seen.vain + start.since(before);
        }
        if let Some(since) = self.asleep.take() {
            self.seen.vain = self.seen.vain + start.since(since);
        }
        self.last = Some((start, packets > 0));
        self.seen.packets = self.seen.packets.saturating_add(packets);
        self.seen.cycles += u32::from(packets > 0);
        if packets > 0 {
            self.linger.found(start);
        }
        if start.since(self.window) < WINDOW { None } else { self.end(start) }
    }

    /// A cycle found nothing: whether to poll on instead of sleeping.
    pub fn stays_awake(&mut self, now: Nanos) -> bool {
        (self.mode == Mode::Polled && !self.rests()) || self.linger.goes_on(now)
    }

    /// The longest sleep where devices receive only meanwhile: their NAPI thread may not get the core.
    pub fn longest_sleep(&self) -> Option<Nanos> {
        (self.mode == Mode::Polled && self.driven == Driven::Asleep).then_some(PATIENCE)
    }

    /// True if to nap instead of waiting for events, because they come without packets.
    pub fn naps(&self, now: Nanos) -> bool {
        now < self.noise.until
    }

    /// No device can be polled: the mode is left, and not tried for long.
    pub fn refuse(&mut self, now: Nanos) {
        self.mode = Mode::Interrupts;
        self.windows = 0;
        self.not_before = now + LONGEST_PAUSE;
    }

    /// Sets the effect that the mode has on the devices.
    pub fn set_driven(&mut self, driven: Driven) {
        self.driven = driven;
    }

    /// True if a worker that polls sleeps when it finds nothing.
    fn rests(&self) -> bool {
        matches!(self.driven, Driven::BySenders | Driven::Asleep)
    }

    /// The worker sleeps, from `now` on.
    pub fn sleeps(&mut self, now: Nanos) {
        self.seen.sleeps += 1;
        self.last = None;
        self.asleep = Some(now);
    }

    /// The worker has left the core to others for a while: that time says nothing about packets.
    pub fn stood_back(&mut self) {
        (self.last, self.asleep) = (None, None);
    }

    /// The worker was woken by an event.
    pub fn woken(&mut self) {
        self.seen.wakeups += 1;
    }

    /// The window has ended.
    #[cold]
    fn end(&mut self, now: Nanos) -> Option<Mode> {
        let passed = now.since(self.window);
        let seen = core::mem::take(&mut self.seen);
        self.window = now;
        self.noise.judge(seen, now);
        let next = match self.mode {
            // A window that took far longer was slept through.
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

    /// True if each wake-up finds all that a turn takes, and polling may be tried.
    fn is_full(&self, seen: WindowCounts, now: Nanos) -> bool {
        now >= self.not_before && seen.wakeups >= PROOF && seen.packets / seen.wakeups >= FULL
    }

    /// Begins polling after an overload, which no failed trial forbids to end: by interrupts the
    /// worker does not catch up.
    fn overloaded(&mut self, now: Nanos) -> Mode {
        self.hold.begin(now);
        Mode::Polled
    }

    fn polled(&mut self, seen: WindowCounts, passed: Nanos, now: Nanos) -> Mode {
        // A worker that has to sleep to receive may wait for the core as well; a full batch says that it was worth it.
        let full = self.rests() && seen.wakeups > 0 && seen.packets / seen.wakeups >= FULL / 2;
        let part = if self.rests() { VAIN_ASLEEP } else { VAIN };
        if full || seen.vain.0 < passed.0 / part {
            (self.windows, self.hold.vain) = (self.windows.saturating_add(1), 0);
            if self.windows >= SUCCESS {
                self.pause = FIRST_PAUSE;
            }
            return Mode::Polled;
        }
        let hardly = passed.0.saturating_sub(seen.vain.0) < passed.0 / HARDLY;
        if !self.hold.ends(now, hardly, self.rests()) {
            return Mode::Polled;
        }
        self.hold.left = Some(now);
        self.pause = self.pause.max(FIRST_PAUSE);
        self.not_before = now + self.pause;
        self.pause = Nanos(2 * self.pause.0).min(LONGEST_PAUSE);
        // What came until now is more than interrupts without a throttle are good for.
        if seen.packets >= MANY { Mode::Throttled } else { Mode::Interrupts }
    }

    fn throttled(&mut self, seen: WindowCounts) -> Mode {
        self.windows = if seen.packets < FEW_PACKETS { self.windows + 1 } else { 0 };
        if self.windows >= FEW_WINDOWS { Mode::Interrupts } else { Mode::Throttled }
    }
}

/// True if hardly any of the window was left over, while packets came.
fn is_overloaded(seen: WindowCounts, passed: Nanos) -> bool {
    seen.cycles >= PROOF && seen.vain.0 < passed.0 / BEHIND
}

/// Minimum time of polling: twice as long each time that a worker fell behind soon after it was left.
#[derive(Clone, Copy, Debug, Default)]
struct Hold {
    /// Time at which polling was left last, for how long it is kept, and until when.
    left: Option<Nanos>,
    time: Nanos,
    until: Nanos,
    /// Windows in a row with time in vain.
    vain: u8,
}

impl Hold {
    fn begin(&mut self, now: Nanos) {
        let again = self.left.is_some_and(|left| now.since(left) < LONGEST_PAUSE);
        let twice = Nanos(2 * self.time.0).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.time = if again { twice } else { Nanos(0) };
        (self.until, self.vain) = (now + self.time, 0);
    }

    /// A window had much time in vain: whether polling is left. `hardly`: next to nothing was done in it.
    fn ends(&mut self, now: Nanos, hardly: bool, asleep: bool) -> bool {
        self.vain = self.vain.saturating_add(1);
        hardly || (now >= self.until && (!asleep || self.vain >= SLEPT_WINDOWS))
    }
}

/// Wake-ups for nothing: while they last the worker naps, twice as long each time that they go on.
#[derive(Clone, Copy, Debug, Default)]
struct Noise {
    until: Nanos,
    pause: Nanos,
}

impl Noise {
    fn judge(&mut self, seen: WindowCounts, now: Nanos) {
        // A window that was napped through in part says nothing.
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

/// Short busy polls, while packets are expected at once and most of them find some.
#[derive(Clone, Copy, Debug, Default)]
struct Linger {
    /// Time at which packets last came.
    came: Nanos,
    /// The usual time between them.
    gap: Nanos,
    lingers: bool,
    tries: u32,
    hits: u32,
    not_before: Nanos,
}

impl Linger {
    #[inline]
    fn found(&mut self, now: Nanos) {
        let gap = now.since(self.came).0.min(Nanos::SECOND.0);
        self.gap = Nanos(self.gap.0 - self.gap.0 / 8 + gap / 8);
        self.came = now;
        self.hits += u32::from(core::mem::take(&mut self.lingers));
    }

    fn goes_on(&mut self, now: Nanos) -> bool {
        if self.lingers {
            self.lingers = now.since(self.came) < LINGER;
            return self.lingers;
        }
        if self.gap > LINGER || now < self.not_before || now.since(self.came) >= LINGER {
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
        self.lingers = true;
        true
    }
}
