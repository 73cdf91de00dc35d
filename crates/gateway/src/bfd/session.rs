//! A BFD session: states, detection, intervals and the poll sequence. Source: RFC 5880, 6.8.
//!
//! Input: packets and the time. Output: due packets and changes of state. The session has no clock: its owner
//! calls [`Session::expire`] and [`Session::transmit`] at [`Session::next_deadline`].

use super::packet::{Diagnostic, Packet, State};
use polder_datapath::units::Nanos;
use serde::{Deserialize, Serialize};

/// Minimum transmit interval while the session is not up (RFC 5880, 6.8.3).
const SLOW: Nanos = Nanos::SECOND;
/// Assumed minimum receive interval of the remote end before its first packet: 1 µs (RFC 5880, 6.8.1).
const UNHEARD_MIN_RX: Nanos = Nanos(1000);

/// Configured values of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Transmit and receive interval while the session is up.
    pub interval: Nanos,
    /// Detection multiplier: one more than the packets that may be lost in a row.
    pub multiplier: u8,
}

/// Reason why a packet does not belong to the session that it was matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Its "your discriminator" is 0 although its sender's state is Init or Up.
    #[error("the BFD packet has no discriminator of this end, although the sender's state is not Down")]
    NoDiscriminator,
    /// Its "your discriminator" belongs to another session.
    #[error("the BFD packet has the discriminator of another session")]
    OtherDiscriminator,
}

/// State of a session for a successor process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Handed {
    /// Local state.
    pub state: State,
    /// Diagnostic of the last change.
    pub diagnostic: Diagnostic,
    /// Time of the last change, in nanoseconds of the gateway's clock.
    pub changed_at: u64,
    /// True if the session has been up.
    pub has_been_up: bool,
    /// State of the remote end, as a packet that it could have sent.
    pub remote: Packet,
}

/// The local end of a session. Fields are named as in RFC 5880, 6.8.1, where possible.
#[derive(Clone, Debug)]
pub struct Session {
    settings: Settings,
    local_discriminator: u32,
    state: State,
    diagnostic: Diagnostic,
    changed_at: Nanos,
    has_been_up: bool,
    remote: Remote,
    /// Desired transmit interval in packets; at least a second while the session is not up.
    desired_min_tx: Nanos,
    required_min_rx: Nanos,
    /// Old intervals that apply until the poll sequence has ended.
    held_tx: Option<Nanos>,
    held_rx: Option<Nanos>,
    /// True during a poll sequence of the local end.
    is_polling: bool,
    /// True if an answer to a poll is due.
    owes_final: bool,
    /// True if the packet's content has changed since the last one was sent.
    has_news: bool,
    heard_at: Option<Nanos>,
    sent_at: Option<Nanos>,
    /// Random part by which the next packet is early, in 256ths of the maximum.
    jitter: u8,
}

/// State of the remote end, from its last packet.
#[derive(Clone, Copy, Debug)]
struct Remote {
    discriminator: u32,
    state: State,
    diagnostic: Diagnostic,
    min_rx: Nanos,
    desired_min_tx: Nanos,
    multiplier: u8,
    demand: bool,
}

impl Remote {
    const UNHEARD: Self = Self {
        discriminator: 0,
        state: State::Down,
        diagnostic: Diagnostic::NONE,
        min_rx: UNHEARD_MIN_RX,
        desired_min_tx: Nanos(0),
        multiplier: 0,
        demand: false,
    };

    fn of(packet: &Packet) -> Self {
        Self {
            discriminator: packet.my_discriminator,
            state: packet.state,
            diagnostic: packet.diagnostic,
            min_rx: micros(packet.required_min_rx),
            desired_min_tx: micros(packet.desired_min_tx),
            multiplier: packet.multiplier,
            demand: packet.demand,
        }
    }
}

impl Session {
    /// Creates a session with a unique discriminator other than 0.
    pub fn new(settings: Settings, local_discriminator: u32, now: Nanos) -> Self {
        Self {
            settings,
            local_discriminator,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            changed_at: now,
            has_been_up: false,
            remote: Remote::UNHEARD,
            desired_min_tx: settings.interval.max(SLOW),
            required_min_rx: settings.interval,
            held_tx: None,
            held_rx: None,
            is_polling: false,
            owes_final: false,
            has_news: true,
            heard_at: None,
            sent_at: None,
            jitter: 0,
        }
    }

    /// Resumes a session of a predecessor process. Its detection time starts at `now`.
    pub fn resumed(settings: Settings, handed: &Handed, now: Nanos) -> Self {
        let Handed { state, diagnostic, changed_at, has_been_up, remote } = handed;
        let mut session = Self::new(settings, remote.your_discriminator, now);
        session.remote = Remote::of(remote);
        session.heard_at = (remote.multiplier > 0).then_some(now);
        (session.state, session.diagnostic, session.changed_at) = (*state, *diagnostic, Nanos(*changed_at));
        session.has_been_up = *has_been_up;
        session.take_intervals();
        session
    }

    /// State for a successor process.
    pub fn handed(&self) -> Handed {
        let remote = Packet {
            diagnostic: self.remote.diagnostic,
            state: self.remote.state,
            demand: self.remote.demand,
            multiplier: self.remote.multiplier,
            my_discriminator: self.remote.discriminator,
            your_discriminator: self.local_discriminator,
            desired_min_tx: in_micros(self.remote.desired_min_tx),
            required_min_rx: in_micros(self.remote.min_rx),
            ..Packet::default()
        };
        let &Self { state, diagnostic, changed_at, has_been_up, .. } = self;
        Handed { state, diagnostic, changed_at: changed_at.0, has_been_up, remote }
    }

    /// Local state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Diagnostic of the last local change.
    pub fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// State and diagnostic of the remote end, as last received.
    pub fn remote_state(&self) -> (State, Diagnostic) {
        (self.remote.state, self.remote.diagnostic)
    }

    /// Local and remote discriminator; the remote one is 0 while it is unknown.
    pub fn discriminators(&self) -> (u32, u32) {
        (self.local_discriminator, self.remote.discriminator)
    }

    /// Time of the last change of state, or of the creation.
    pub fn changed_at(&self) -> Nanos {
        self.changed_at
    }

    /// True if the session has been up.
    pub fn has_been_up(&self) -> bool {
        self.has_been_up
    }

    /// Time of the last accepted packet.
    pub fn heard_at(&self) -> Option<Nanos> {
        self.heard_at
    }

    /// Changes the settings. While the session is up, a poll sequence tells the remote end, and until it has
    /// ended, no interval gets slower to send or shorter to detect (RFC 5880, 6.8.3).
    pub fn set(&mut self, settings: Settings) {
        if settings == self.settings {
            return;
        }
        self.settings = settings;
        self.take_intervals();
    }

    /// Disables the session (RFC 5880, 6.8.16). The next packet says AdminDown.
    pub fn disable(&mut self, now: Nanos) {
        self.change(State::AdminDown, Diagnostic::ADMIN_DOWN, now);
    }

    /// Handles a packet. Returns true if the state has changed.
    ///
    /// # Errors
    /// When it does not belong to this session.
    pub fn receive(&mut self, packet: &Packet, now: Nanos) -> Result<bool, Refused> {
        match packet.your_discriminator {
            0 if matches!(packet.state, State::Init | State::Up) => return Err(Refused::NoDiscriminator),
            0 => {}
            known if known != self.local_discriminator => return Err(Refused::OtherDiscriminator),
            _ => {}
        }
        self.remote = Remote::of(packet);
        if self.is_polling && packet.is_final {
            (self.is_polling, self.held_tx, self.held_rx) = (false, None, None);
        }
        if self.state == State::AdminDown {
            return Ok(false);
        }
        self.heard_at = Some(now);
        let before = self.state;
        if let Some((state, diagnostic)) = next(self.state, packet.state) {
            self.change(state, diagnostic, now);
        }
        self.owes_final |= packet.poll;
        Ok(self.state != before)
    }

    /// Checks the detection time. Returns true if the state has changed.
    pub fn expire(&mut self, now: Nanos) -> bool {
        if self.detect_at().is_none_or(|at| now < at) {
            return false;
        }
        self.remote = Remote { state: self.remote.state, ..Remote::UNHEARD };
        match self.state {
            State::Init | State::Up => {
                self.change(State::Down, Diagnostic::TIME_EXPIRED, now);
                true
            }
            State::Down | State::AdminDown => false,
        }
    }

    /// The packet that is due, if any. `random` decides how early the next one is.
    pub fn transmit(&mut self, now: Nanos, random: u8) -> Option<Packet> {
        if self.owes_final {
            // An answer to a poll does not affect the periodic timer (RFC 5880, 6.8.7).
            self.owes_final = false;
            return Some(Packet { poll: false, is_final: true, ..self.packet() });
        }
        if self.send_at().is_none_or(|at| now < at) {
            return None;
        }
        (self.has_news, self.sent_at, self.jitter) = (false, Some(now), random);
        Some(self.packet())
    }

    /// Time at which [`expire`](Self::expire) or [`transmit`](Self::transmit) has work.
    pub fn next_deadline(&self) -> Option<Nanos> {
        if self.owes_final {
            return Some(Nanos(0));
        }
        self.send_at().into_iter().chain(self.detect_at()).min()
    }

    /// Detection time (RFC 5880, 6.8.4); `None` before the first packet.
    pub fn detection_time(&self) -> Option<Nanos> {
        let required = self.held_rx.unwrap_or(self.required_min_rx);
        let interval = required.max(self.remote.desired_min_tx);
        (self.remote.multiplier > 0).then(|| Nanos(interval.0 * u64::from(self.remote.multiplier)))
    }

    fn detect_at(&self) -> Option<Nanos> {
        Some(self.heard_at? + self.detection_time()?)
    }

    /// Time of the next packet (RFC 5880, 6.8.7); `None` if the remote end wants none.
    fn send_at(&self) -> Option<Nanos> {
        let is_demanded = self.remote.demand && self.state == State::Up && self.remote.state == State::Up;
        // Changes are sent even if the remote end wants no periodic packets, and a poll is repeated.
        if self.remote.min_rx == Nanos(0) || is_demanded && !self.is_polling {
            return self.has_news.then(|| self.sent_at.unwrap_or_default());
        }
        let Some(sent_at) = self.sent_at.filter(|_| !self.has_news) else { return Some(Nanos(0)) };
        Some(sent_at + self.pause())
    }

    /// Time between two packets: the interval less 0 to 25 %, or less 10 to 25 % with a detection multiplier
    /// of 1.
    fn pause(&self) -> Nanos {
        let desired = self.held_tx.unwrap_or(self.desired_min_tx);
        let interval = desired.max(self.remote.min_rx).0;
        let least = if self.settings.multiplier == 1 { 10 } else { 0 };
        let early = interval / 100 * least + interval / 100 * (25 - least) * u64::from(self.jitter) / 255;
        Nanos(interval - early)
    }

    fn packet(&self) -> Packet {
        Packet {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: self.is_polling,
            is_final: false,
            // Sessions run in the gateway's process, and end with it.
            control_plane_independent: false,
            is_authenticated: false,
            demand: false,
            multiplier: self.settings.multiplier,
            my_discriminator: self.local_discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: in_micros(self.desired_min_tx),
            required_min_rx: in_micros(self.required_min_rx),
            required_min_echo_rx: 0,
        }
    }

    fn change(&mut self, state: State, diagnostic: Diagnostic, now: Nanos) {
        if state == self.state {
            return;
        }
        (self.state, self.diagnostic, self.changed_at, self.has_news) = (state, diagnostic, now, true);
        self.has_been_up |= state == State::Up;
        self.take_intervals();
    }

    /// Updates the intervals for the current state and settings.
    fn take_intervals(&mut self) {
        let is_up = self.state == State::Up;
        let interval = self.settings.interval;
        let desired = if is_up { interval } else { interval.max(SLOW) };
        let before = (self.desired_min_tx, self.required_min_rx);
        (self.desired_min_tx, self.required_min_rx) = (desired, interval);
        if before == (desired, interval) {
            return;
        }
        self.has_news = true;
        self.is_polling = is_up;
        if is_up {
            self.held_tx = (desired > before.0).then_some(self.held_tx.unwrap_or(before.0));
            self.held_rx = (interval < before.1).then_some(self.held_rx.unwrap_or(before.1));
        } else {
            (self.held_tx, self.held_rx) = (None, None);
        }
    }
}

/// Local state and diagnostic after a packet from an end in state `theirs`; `None` if unchanged (RFC 5880,
/// 6.2 and 6.8.6).
fn next(ours: State, theirs: State) -> Option<(State, Diagnostic)> {
    let up = Some((State::Up, Diagnostic::NONE));
    match (ours, theirs) {
        (State::Init | State::Up, State::AdminDown) | (State::Up, State::Down) => {
            Some((State::Down, Diagnostic::NEIGHBOR_DOWN))
        }
        (State::Down, State::Down) => Some((State::Init, Diagnostic::NONE)),
        (State::Down, State::Init) | (State::Init, State::Init | State::Up) => up,
        (State::Down, State::AdminDown | State::Up)
        | (State::Init, State::Down)
        | (State::Up, State::Init | State::Up)
        | (State::AdminDown, _) => None,
    }
}

fn micros(micros: u32) -> Nanos {
    Nanos(u64::from(micros) * 1000)
}

fn in_micros(time: Nanos) -> u32 {
    u32::try_from(time.0 / 1000).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
