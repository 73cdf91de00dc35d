//! Keepalive state machine of a tunnel: due and unanswered keepalives, and the state of the remote end.
//!
//! Input: current time, and the time of the last answer, which workers record. Time-outs count keepalives
//! rather than time, because a thread that was not scheduled has sent nothing that could be answered.
//! Packets, sockets and the thread are in [`runtime::liveness`](crate::runtime::liveness).

use polder_datapath::units::Nanos;

/// Time after a keepalive at which its answer is checked unless the remote end is up.
const LOOK: Nanos = Nanos::from_millis(100);

/// Configured values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Interval of keepalives.
    pub interval: Nanos,
    /// Number of consecutive unanswered keepalives after which the remote end is down.
    pub retries: u8,
}

/// State of the remote end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not known yet.
    Init,
    /// Keepalives are answered.
    Up,
    /// Keepalives are not answered.
    Down,
}

impl State {
    /// Name of the state in views.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Keepalives of a tunnel, and the state of its remote end.
#[derive(Clone, Debug)]
pub struct Watch {
    settings: Settings,
    state: State,
    begun: Nanos,
    changed_at: Nanos,
    /// Time of the last sent keepalive.
    sent_at: Option<Nanos>,
    /// Time of the last answer.
    heard_at: Option<Nanos>,
    unanswered: u8,
    /// Time of the next check for an answer before the next keepalive.
    look_at: Option<Nanos>,
}

impl Watch {
    /// Creates the state of a tunnel, which is used until keepalives fail.
    pub fn new(settings: Settings, now: Nanos) -> Self {
        Self {
            settings,
            state: State::Init,
            begun: now,
            changed_at: now,
            sent_at: None,
            heard_at: None,
            unanswered: 0,
            look_at: None,
        }
    }

    /// Changes the settings.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// State of the remote end.
    pub fn state(&self) -> State {
        self.state
    }

    /// Time of the last change of the state.
    pub fn changed_at(&self) -> Nanos {
        self.changed_at
    }

    /// Time of the last answer; `None` if there was none.
    pub fn heard_at(&self) -> Option<Nanos> {
        self.heard_at
    }

    /// Number of consecutive unanswered keepalives.
    pub fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// Records the time of the last answer. Returns true if the state has changed.
    pub fn look(&mut self, heard_at: Option<Nanos>, now: Nanos) -> bool {
        self.look_at = self.look_at.filter(|&at| at > now);
        // An earlier answer belongs to keepalives from before.
        let heard_at = heard_at.filter(|&heard| heard >= self.begun);
        if heard_at <= self.heard_at {
            return false;
        }
        (self.heard_at, self.unanswered) = (heard_at, 0);
        self.change(State::Up, now)
    }

    /// Returns whether a keepalive is due, which then counts as sent, and whether the state has changed
    /// because too many were unanswered. Call it after [`look`](Self::look).
    pub fn send(&mut self, now: Nanos) -> (bool, bool) {
        let Some(sent_at) = self.sent_at else {
            self.sent(now);
            return (true, false);
        };
        if now < sent_at + self.settings.interval {
            return (false, false);
        }
        let is_answered = self.heard_at.is_some_and(|heard| heard >= sent_at);
        self.unanswered = if is_answered { 0 } else { self.unanswered.saturating_add(1) };
        let has_changed = self.unanswered >= self.settings.retries && self.change(State::Down, now);
        self.sent(now);
        (true, has_changed)
    }

    fn sent(&mut self, now: Nanos) {
        self.sent_at = Some(now);
        self.look_at = (self.state != State::Up).then(|| now + LOOK);
    }

    fn change(&mut self, state: State, now: Nanos) -> bool {
        let has_changed = self.state != state;
        if has_changed {
            (self.state, self.changed_at) = (state, now);
        }
        has_changed
    }

    /// Time of the next work.
    pub fn next_deadline(&self, now: Nanos) -> Nanos {
        let due = self.sent_at.map_or(now, |sent| sent + self.settings.interval);
        self.look_at.map_or(due, |look| look.min(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { interval: Nanos::SECOND, retries: 3 };

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(10_000 + millis)
    }

    /// Looks and sends at each time; gives the state and the keepalives sent so far.
    fn run(watch: &mut Watch, times: &[u64], heard: Option<u64>) -> (State, usize) {
        let sent = times.iter().filter(|&&time| {
            watch.look(heard.map(at), at(time));
            watch.send(at(time)).0
        });
        let sent = sent.count();
        (watch.state(), sent)
    }

    #[test]
    fn one_that_is_never_answered_goes_down_after_its_retries() {
        let mut watch = Watch::new(SETTINGS, at(0));
        assert_eq!(run(&mut watch, &[0, 500, 1000, 2000, 2999], None), (State::Init, 3));
        assert_eq!(run(&mut watch, &[3000], None), (State::Down, 1));
        assert_eq!((watch.changed_at(), watch.unanswered(), watch.heard_at()), (at(3000), 3, None));
    }

    #[test]
    fn an_answer_brings_it_up_and_silence_down() {
        let mut watch = Watch::new(SETTINGS, at(0));
        assert_eq!(run(&mut watch, &[0], None), (State::Init, 1));
        assert_eq!(watch.next_deadline(at(0)), at(100), "an answer is looked for soon");
        assert_eq!(run(&mut watch, &[100], Some(1)), (State::Up, 0));
        assert_eq!(watch.next_deadline(at(100)), at(1000));
        assert_eq!(run(&mut watch, &[1000, 2000, 3000], Some(1001)), (State::Up, 3));
        assert_eq!(watch.unanswered(), 1, "that of 2000");
        assert_eq!(run(&mut watch, &[4000], Some(1001)), (State::Up, 1));
        assert_eq!(run(&mut watch, &[5000], Some(1001)), (State::Down, 1), "2000, 3000 and 4000");
        assert_eq!(run(&mut watch, &[5050], Some(5001)), (State::Up, 0), "at once");
    }

    /// An absence of the sender is no silence of the other end.
    #[test]
    fn time_without_keepalives_does_not_count() {
        let mut watch = Watch::new(SETTINGS, at(0));
        run(&mut watch, &[0, 100], Some(1));
        assert_eq!(run(&mut watch, &[60_000, 61_000], Some(1)), (State::Up, 2));
        assert_eq!(run(&mut watch, &[62_000], Some(61_500)), (State::Up, 1));
    }

    #[test]
    fn an_answer_from_before_is_none() {
        let mut watch = Watch::new(SETTINGS, at(5));
        assert_eq!(run(&mut watch, &[6, 1006, 2006], Some(4)), (State::Init, 3));
        assert_eq!(run(&mut watch, &[3006], Some(4)), (State::Down, 1));
    }

    #[test]
    fn fewer_retries_hold_from_the_next_keepalive_on() {
        let mut watch = Watch::new(SETTINGS, at(0));
        run(&mut watch, &[0], None);
        watch.set(Settings { interval: Nanos::from_millis(100), retries: 1 });
        assert_eq!(run(&mut watch, &[100], None), (State::Down, 1));
    }
}
