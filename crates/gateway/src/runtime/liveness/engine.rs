//! BFD sessions with their sockets, and one round of work.
//!
//! A round reads received packets before it checks for time-outs, so that a delayed thread does not take its
//! own delay for a dead tunnel.

use super::handed::{Counts, HandedSession};
use super::keepalives::{KeepaliveStatus, Keepalives, RETRY};
use super::keys::WantedKeys;
use super::socket::{Datagram, Place, Receiver, sender};
use super::sys::Arrival;
use super::wanted::{Accepts, SessionKey, Wanted};
use crate::bfd::{Authentication, Diagnostic, Packet, SequenceNumbers, Session, State};
use crate::config::model::Configuration;
use polder_buffers::PortId;
use polder_datapath::tunnel::TunnelState;
use polder_datapath::units::Nanos;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;

/// Maximum number of datagrams read from one socket in a round.
const AT_ONCE: usize = 256;
/// Time for which a new session's tunnels are used before the remote end answers.
const PATIENCE: Nanos = Nanos::from_seconds(5);
/// Number of packets that tell the remote end that a session ends.
const FAREWELLS: usize = 3;

/// Sessions and sockets.
pub(super) struct Engine {
    sessions: HashMap<SessionKey, Entry>,
    /// Session keys by local discriminator.
    discriminators: HashMap<u32, SessionKey>,
    receivers: HashMap<Place, Listening>,
    keepalives: Keepalives,
    /// Sessions of the predecessor process that have not been resumed.
    before: HashMap<SessionKey, HandedSession>,
    random: Random,
    ending: Option<Ending>,
    has_changed: bool,
}

/// Way of ending all sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The remote ends are told that this one is down.
    Told,
    /// The remote ends are told nothing.
    Silent,
}

struct Entry {
    session: Session,
    accepts: Accepts,
    /// Authentication of its packets, if configured; without a valid key nothing is sent and nothing
    /// accepted.
    authentication: Option<Authentication>,
    begun: Nanos,
    sender: Option<UdpSocket>,
    /// Source port in the predecessor process.
    source: Option<u16>,
    retry_at: Nanos,
    trouble: Option<String>,
    /// Reason why the configured key is missing.
    unkeyed: Option<String>,
    counts: Counts,
    /// Sequence numbers of the predecessor process.
    numbers: Option<SequenceNumbers>,
}

struct Listening {
    receiver: Result<Arc<Receiver>, String>,
    retry_at: Nanos,
}

/// Status of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// State of the local end.
    pub state: State,
    /// Diagnostic of the last local change.
    pub diagnostic: Diagnostic,
    /// State of the remote end, as last received.
    pub remote_state: State,
    /// Diagnostic of the remote end.
    pub remote_diagnostic: Diagnostic,
    /// Local and remote discriminator.
    pub discriminators: (u32, u32),
    /// Time of the last change.
    pub changed_at: Nanos,
    /// Time of the last accepted packet; `None` if there was none.
    pub heard_at: Option<Nanos>,
    /// Silence after which the remote end counts as down.
    pub detection_time: Option<Nanos>,
    /// Reason why the session cannot work.
    pub trouble: Option<String>,
    /// Packet counts.
    pub counts: Counts,
    /// True if its tunnels may be used.
    pub carries: bool,
}

/// Result of a round.
pub(super) struct Round {
    /// True if a session has changed.
    pub(super) has_changed: bool,
    /// True if all sessions have ended.
    pub(super) is_last: bool,
    /// Time of the next work.
    pub(super) next: Option<Nanos>,
    /// Sockets to poll.
    pub(super) receivers: Vec<Arc<Receiver>>,
}

impl Engine {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            sessions: HashMap::new(),
            discriminators: HashMap::new(),
            receivers: HashMap::new(),
            keepalives: Keepalives::default(),
            before: HashMap::new(),
            random: Random::new(now),
            ending: None,
            has_changed: false,
        }
    }

    /// Replaces the sessions. The remote end of a removed session is told AdminDown if a tunnel remains
    /// between the same addresses, otherwise Down.
    pub(super) fn set(
        &mut self,
        wanted: &HashMap<SessionKey, Wanted>,
        ends: &HashSet<(IpAddr, IpAddr)>,
        now: Nanos,
    ) {
        let gone = self.sessions.keys().filter(|key| !wanted.contains_key(*key)).copied().collect::<Vec<_>>();
        for key in gone {
            let Some(mut entry) = self.sessions.remove(&key) else { continue };
            self.discriminators.remove(&entry.session.discriminators().0);
            let stays = ends.contains(&(key.local, key.remote));
            entry.say_farewell(if stays { State::AdminDown } else { State::Down }, now);
        }
        for (key, Wanted { settings, accepts, keys }) in wanted {
            let settings = *settings;
            let first = self.random.draw();
            if let Some(entry) = self.sessions.get_mut(key) {
                entry.session.set(settings);
                entry.accepts.clone_from(accepts);
                entry.take_keys(keys.as_ref(), first, now);
                continue;
            }
            let mut entry =
                match self.before.remove(key).filter(|before| self.is_free(before.discriminator())) {
                    Some(before) => {
                        Entry::resumed(&before, Session::resumed(settings, &before.session, now), accepts)
                    }
                    None => Entry::new(Session::new(settings, self.draw_discriminator(), now), accepts, now),
                };
            entry.take_keys(keys.as_ref(), first, now);
            self.discriminators.insert(entry.session.discriminators().0, *key);
            self.sessions.insert(*key, entry);
        }
        self.before.clear();
        let places = wanted.keys().map(SessionKey::place).collect::<HashSet<_>>();
        self.receivers.retain(|place, _| places.contains(place));
        for place in places {
            let closed = || Listening { receiver: Err(String::new()), retry_at: now };
            self.receivers.entry(place).or_insert_with(closed);
        }
        self.has_changed = true;
    }

    /// Replaces the keepalives.
    pub(super) fn set_keepalives(
        &mut self,
        configuration: &Configuration,
        states: &HashMap<String, Arc<TunnelState>>,
        now: Nanos,
    ) {
        self.keepalives.set(configuration, states, now);
        self.has_changed = true;
    }

    /// Keepalive status of a tunnel.
    pub(super) fn keepalive(&self, tunnel: PortId) -> Option<KeepaliveStatus> {
        self.keepalives.status(tunnel)
    }

    /// Ends all sessions in the next round.
    pub(super) fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
    }

    /// All sessions, for a successor process.
    pub(super) fn handed(&self) -> Vec<HandedSession> {
        self.sessions.iter().map(|(key, entry)| entry.handed(*key)).collect()
    }

    /// Stores a predecessor's sessions for the next [`set`](Self::set).
    pub(super) fn go_on_with(&mut self, sessions: &[HandedSession]) {
        self.before = sessions.iter().map(|session| (session.key, session.clone())).collect();
    }

    /// Reads received packets, checks for time-outs, and sends due packets.
    pub(super) fn round(&mut self, now: Nanos) -> Round {
        if let Some(ending) = self.ending {
            if ending == Ending::Told {
                self.sessions.values_mut().for_each(|entry| entry.say_farewell(State::Down, now));
            }
            (self.sessions, self.receivers) = (HashMap::new(), HashMap::new());
            return Round { has_changed: false, is_last: true, next: None, receivers: Vec::new() };
        }
        self.open(now);
        let receivers = self.receivers.values().filter_map(|listening| listening.receiver.as_ref().ok());
        let receivers = receivers.map(Arc::clone).collect::<Vec<_>>();
        let mut is_more = false;
        for receiver in &receivers {
            let place = receiver.socket.local_addr().map(|address| (address.ip(), address.port()));
            let Ok(place) = place else { continue };
            let mut left = AT_ONCE;
            while left > 0
                && let Some(datagram) = receiver.receive()
            {
                self.take(place, &datagram, now);
                left -= 1;
            }
            is_more |= left == 0;
        }
        let mut next = is_more.then_some(now);
        for (key, entry) in &mut self.sessions {
            self.has_changed |= entry.work(key, now, &mut self.random);
            next = next.into_iter().chain(entry.next_deadline()).min();
        }
        let (has_changed, due) = self.keepalives.round(now);
        self.has_changed |= has_changed;
        next = next.into_iter().chain(due).min();
        let retries = self.receivers.values().filter(|listening| listening.receiver.is_err());
        next = next.into_iter().chain(retries.map(|listening| listening.retry_at)).min();
        Round { has_changed: std::mem::take(&mut self.has_changed), is_last: false, next, receivers }
    }

    /// Status of a session.
    pub(super) fn status(&self, key: &SessionKey, now: Nanos) -> Option<SessionStatus> {
        let entry = self.sessions.get(key)?;
        let session = &entry.session;
        let (remote_state, remote_diagnostic) = session.remote_state();
        let listening = self.receivers.get(&key.place());
        let deaf = listening.and_then(|listening| listening.receiver.as_ref().err());
        let unkeyed = entry.unkeyed.as_ref();
        let trouble = unkeyed.or(deaf.filter(|text| !text.is_empty())).or(entry.trouble.as_ref());
        Some(SessionStatus {
            state: session.state(),
            diagnostic: session.diagnostic(),
            remote_state,
            remote_diagnostic,
            discriminators: session.discriminators(),
            changed_at: session.changed_at(),
            heard_at: session.heard_at(),
            detection_time: session.detection_time(),
            trouble: trouble.cloned(),
            counts: entry.counts,
            carries: entry.carries(now),
        })
    }

    fn open(&mut self, now: Nanos) {
        for (place, listening) in &mut self.receivers {
            if listening.receiver.is_ok() || now < listening.retry_at {
                continue;
            }
            let receiver = Receiver::open(*place).map(Arc::new);
            if let Err(why) = &receiver
                && listening.receiver.as_ref().err() != Some(why)
            {
                tracing::warn!("BFD: {why}");
            }
            *listening = Listening { receiver, retry_at: now + RETRY };
        }
    }

    /// Handles a datagram. One with a local discriminator belongs to that session, if it comes from its
    /// remote address; one without belongs to the session of its addresses (RFC 5881, 3; RFC 5883, 4).
    fn take(&mut self, place: Place, datagram: &Datagram, now: Nanos) {
        let packet = Packet::read(&datagram.octets[..datagram.length]);
        let of_ends = |key: &&SessionKey| key.place() == place && key.remote == datagram.from;
        let known = packet.ok().and_then(|packet| self.discriminators.get(&packet.your_discriminator));
        let key = known.or_else(|| self.sessions.keys().find(of_ends)).filter(|key| of_ends(key));
        let Some(entry) = key.copied().and_then(|key| self.sessions.get_mut(&key)) else { return };
        let Arrival { ttl, interface } = datagram.arrival;
        if !entry.accepts.is_from(interface) {
            entry.counts.elsewhere += 1;
            return;
        }
        if ttl.is_none_or(|ttl| ttl < entry.accepts.least_ttl) {
            entry.counts.far += 1;
            entry.counts.far_ttl = ttl.unwrap_or_default();
            return;
        }
        self.has_changed |= entry.take(packet.ok(), datagram, now);
    }

    /// A random discriminator that no session has.
    fn draw_discriminator(&mut self) -> u32 {
        loop {
            let [a, b, c, d, ..] = self.random.draw().to_le_bytes();
            let drawn = u32::from_le_bytes([a, b, c, d]);
            if self.is_free(drawn) {
                return drawn;
            }
        }
    }

    fn is_free(&self, discriminator: u32) -> bool {
        discriminator != 0 && !self.discriminators.contains_key(&discriminator)
    }
}

impl Entry {
    fn new(session: Session, accepts: &Accepts, now: Nanos) -> Self {
        Self {
            session,
            accepts: accepts.clone(),
            authentication: None,
            begun: now,
            sender: None,
            source: None,
            retry_at: Nanos(0),
            trouble: None,
            unkeyed: None,
            counts: Counts::default(),
            numbers: None,
        }
    }

    /// Resumes a session of the predecessor process.
    fn resumed(before: &HandedSession, session: Session, accepts: &Accepts) -> Self {
        let &HandedSession { source, begun, counts, .. } = before;
        let source = Some(source).filter(|source| *source != 0);
        let numbers = before.numbers;
        Self { source, counts, numbers, ..Self::new(session, accepts, Nanos(begun)) }
    }

    fn handed(&self, key: SessionKey) -> HandedSession {
        let source = self.sender.as_ref().and_then(|sender| sender.local_addr().ok());
        let source = source.map_or(0, |source| source.port());
        let (session, counts) = (self.session.handed(), self.counts);
        let numbers = self.authentication.as_ref().map(Authentication::numbers);
        HandedSession { key, session, source, begun: self.begun.0, counts, numbers }
    }

    /// Sets or removes the keys. Sequence numbers continue; new ones begin at a random number.
    fn take_keys(&mut self, keys: Option<&WantedKeys>, random: u64, now: Nanos) {
        let Some(WantedKeys { form, keys }) = keys else {
            (self.authentication, self.unkeyed) = (None, None);
            return;
        };
        self.unkeyed = keys.as_ref().err().cloned();
        let keys = keys.as_deref().unwrap_or_default();
        if let Some(authentication) = &mut self.authentication {
            return authentication.set(*form, keys);
        }
        let [a, b, c, d, ..] = random.to_le_bytes();
        let fresh = SequenceNumbers { sent: u32::from_le_bytes([a, b, c, d]), received: None };
        let numbers = self.numbers.take().unwrap_or(fresh);
        let until = self.known_until(now);
        self.authentication = Some(Authentication::new(*form, keys.to_vec(), numbers, until));
    }

    /// Time until which the remote end's sequence number stays valid: twice the detection time (RFC 5880,
    /// 6.8.1).
    fn known_until(&self, now: Nanos) -> Nanos {
        now + Nanos(2 * self.session.detection_time().unwrap_or_default().0)
    }

    /// Handles a packet from the remote address. Returns true if the session's state changed.
    fn take(&mut self, packet: Option<Packet>, datagram: &Datagram, now: Nanos) -> bool {
        let Some(packet) = packet else {
            self.counts.refused += 1;
            return false;
        };
        let octets = &datagram.octets[..datagram.length];
        let number = self.authentication.as_ref().map(|own| own.verify(octets, now));
        let is_authentic = number.map_or(!packet.is_authenticated, |number| number.is_some());
        if !is_authentic {
            self.counts.not_authentic += 1;
            return false;
        }
        let Ok(has_changed) = self.session.receive(&packet, now) else {
            self.counts.refused += 1;
            return false;
        };
        self.counts.received += 1;
        let until = self.known_until(now);
        if let (Some(own), Some(number)) = (&mut self.authentication, number.flatten()) {
            own.note(number, until);
        }
        has_changed
    }

    /// Checks for a time-out and sends due packets. Returns true if the state, or the use of the tunnels,
    /// changed.
    fn work(&mut self, key: &SessionKey, now: Nanos, random: &mut Random) -> bool {
        let mut has_changed = self.session.expire(now);
        if !self.session.has_been_up() && now.since(self.begun) >= PATIENCE && self.begun != Nanos(0) {
            // From here on a silent session's tunnels are not used.
            (self.begun, has_changed) = (Nanos(0), true);
        }
        if self.sender.is_none() && now >= self.retry_at {
            let [low, high, ..] = random.draw().to_le_bytes();
            match sender(key, self.source.take().unwrap_or(u16::from_le_bytes([low, high]))) {
                Ok(socket) => (self.sender, self.trouble) = (Some(socket), None),
                Err(error) => {
                    let SessionKey { local, remote, .. } = key;
                    self.trouble = Some(format!("cannot send from {local} to {remote}: {error}"));
                    self.retry_at = now + RETRY;
                }
            }
        }
        let [jitter, ..] = random.draw().to_le_bytes();
        while self.sender.is_some()
            && let Some(packet) = self.session.transmit(now, jitter)
        {
            self.send(&packet);
        }
        has_changed
    }

    fn next_deadline(&self) -> Option<Nanos> {
        let patience = (self.begun != Nanos(0) && !self.session.has_been_up()).then(|| self.begun + PATIENCE);
        let deadline = if self.sender.is_some() { self.session.next_deadline() } else { Some(self.retry_at) };
        deadline.into_iter().chain(patience).min()
    }

    fn send(&mut self, packet: &Packet) {
        let Some(sender) = &self.sender else { return };
        let sent = match &mut self.authentication {
            None => sender.send(&packet.write()),
            Some(own) => {
                let Some(octets) = own.seal(packet) else { return };
                sender.send(&octets)
            }
        };
        match sent {
            Ok(_) => (self.counts.sent, self.trouble) = (self.counts.sent + 1, None),
            // ICMP errors of an unreachable remote end; the detection time decides.
            Err(error) => self.trouble = Some(format!("cannot send: {error}")),
        }
    }

    /// Tells the remote end that the local state is now `state`.
    fn say_farewell(&mut self, state: State, now: Nanos) {
        self.session.disable(now);
        let Some(packet) = self.session.transmit(now, 0).map(|packet| Packet { state, ..packet }) else {
            return;
        };
        (0..FAREWELLS).for_each(|_| self.send(&packet));
    }

    /// True if its tunnels may be used. An AdminDown remote end does not mean a dead tunnel (RFC 5882, 3.2).
    fn carries(&self, now: Nanos) -> bool {
        let is_waited_for =
            !self.session.has_been_up() && self.begun != Nanos(0) && now.since(self.begun) < PATIENCE;
        let is_switched_off = self.session.remote_state().0 == State::AdminDown;
        self.session.state() == State::Up || is_switched_off || is_waited_for
    }
}

/// Unpredictable numbers: a keyed hash of a counter.
struct Random {
    state: RandomState,
    count: u64,
}

impl Random {
    fn new(now: Nanos) -> Self {
        Self { state: RandomState::new(), count: now.0 }
    }

    fn draw(&mut self) -> u64 {
        self.count = self.count.wrapping_add(1);
        let mut hasher = self.state.build_hasher();
        hasher.write_u64(self.count);
        hasher.finish()
    }
}
