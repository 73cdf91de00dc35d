//! The thread that follows the kernel's connections, and enters those that ports may carry.
//!
//! ```text
//! ctnetlink ─▶ which connections may be carried, their timers ─▶ table of connections, closed ◀─ evidence: programs
//!      ▲                       │                                        │ each second: packets, ends
//!      └── timers, TCP flags ──┘◀───────────────────────────────────────┘
//! ```
//!
//! The table is read each second, and less often where it has more than 3,300 connections: each 30 s with 100,000. Those of which a heartbeat tells that they
//! have ended or carried another 512 MiB are read at once.
//!
//! If it is lost, entries stay as they are: the programs close them with the next change of the kernel's, and the kernel has
//! each connection whose timer ends.

mod known;

pub(super) use known::{Entered, Seen, SharedKnown, State, Totals};

use known::Known;

use crate::clock::Clock;
use crate::config::router::Mark;
use crate::kernel::conntrack::{self, AllEvents, Change, Connections, Limits, Reading, Socket};
use crate::kernel::hooks::addresses;
use crate::supervise::{Loss, Thread, Threads};
use anyhow::{Context as _, Result};
use polder_datapath::units::Nanos;
use polder_devices::checks::Check;
use polder_devices::skb::connections::{ConnectionTable, Transport};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Bytes of events that may wait to be read.
const BUFFER_BYTES: usize = 8 << 20;
/// Interval at which the entries of the table are read: at least, for each connection, and at most. It is also at most a quarter of
/// the timeout of UDP streams, because timers are set again after a quarter.
const INTERVAL: Nanos = Nanos::SECOND;
const INTERVAL_EACH: Nanos = Nanos(300_000);
const LONGEST_INTERVAL: Nanos = Nanos::from_seconds(30);
/// Wake-ups that are answered at once, and the time in which there may be so many: events gather for the rest of it.
const AT_ONCE: u32 = 8;
const GATHER: Nanos = Nanos::from_millis(10);

/// Marks of connections that the file speaks of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// Mark of connections that are the kernel's.
    pub(super) kernel: Option<Mark>,
    /// Mark of connections that are carried although rules look at each packet.
    pub(super) carried: Option<Mark>,
}

impl Marks {
    /// The connection as it is entered; `None` for one that stays the kernel's by its mark or protocol.
    fn admit(&self, connection: &conntrack::Connection, now: Nanos) -> Option<Entered> {
        let has = |mark: Option<Mark>| mark.is_some_and(|mark| mark.fits(connection.mark));
        if has(self.kernel) {
            return None;
        }
        Entered::new(connection, has(self.carried), now)
    }
}

/// The kernel's connections, followed once a port may carry some. The default is a gateway that starts, which follows none yet.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// True once the setting of the kernel's is here, if there is one.
    is_ready: bool,
    events: Option<AllEvents>,
    following: Option<Following>,
    /// Generation of the kernel's last notice when it could not be done.
    failed: Option<u64>,
}

impl Followed {
    /// Connections that are followed by that setting of the kernel's.
    pub(super) fn by(events: Option<AllEvents>) -> Self {
        Self { is_ready: true, events, ..Self::default() }
    }

    pub(super) fn is_followed(&self) -> bool {
        self.following.is_some()
    }

    /// Follows them for the table, unless they are followed already. What fails is in the log, and is tried again after a notice
    /// of the kernel's: rules that need connection tracking load its modules. `generation` is that of the last notice.
    pub(super) fn follow(
        &mut self,
        threads: &Threads,
        clock: Clock,
        (table, marks): (Arc<ConnectionTable>, Marks),
        generation: u64,
    ) {
        if !self.is_ready || self.is_followed() || self.failed == Some(generation) {
            return;
        }
        if let Some(Err(error)) = self.events.as_mut().map(AllEvents::want) {
            tracing::error!("the kernel does not report all connections: {error}");
        }
        match Following::start(threads, clock, (table, marks)) {
            Ok(following) => self.following = Some(following),
            Err(error) => {
                if self.failed.replace(generation).is_none() {
                    tracing::error!("no connection is carried: {error:#}");
                }
            }
        }
    }

    /// Connections in the table; `None` before they are followed.
    pub(super) fn known(&self) -> Option<&Arc<SharedKnown>> {
        self.following.as_ref().map(|following| &following.known)
    }

    /// Gives the setting its old value again.
    pub(super) fn restore(&mut self) {
        if let Some(Err(error)) = self.events.take().map(AllEvents::end) {
            tracing::warn!("cannot restore net.netfilter.nf_conntrack_events, which stays 1: {error}");
        }
    }
}

/// The running thread; it ends with this.
#[derive(Debug)]
struct Following {
    end: Arc<OwnedFd>,
    known: Arc<SharedKnown>,
    _thread: Thread<()>,
}

impl Following {
    /// Subscribes to the kernel's events, and starts the thread.
    ///
    /// # Errors
    /// If the kernel tracks no connections, or no thread can be started.
    fn start(threads: &Threads, clock: Clock, (table, marks): (Arc<ConnectionTable>, Marks)) -> Result<Self> {
        let socket = Socket::open(BUFFER_BYTES).context("cannot follow the kernel's connections")?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let limits = Limits { timeouts: conntrack::timeouts(), ..Limits::new(table.most() as usize) };
        let quarter = Nanos(Nanos::from_seconds(limits.timeouts.udp_stream.into()).0 / 4);
        let connections = Connections::new(limits, socket.port_id(), !Check::ConnectionOlder.is_made());
        let until = Arc::clone(&end);
        let known = Arc::<SharedKnown>::default();
        let mut follower = Follower {
            socket,
            connections,
            table,
            marks,
            clock,
            known: Arc::clone(&known),
            told: 0,
            looked_at: clock.now(),
            longest_interval: quarter.clamp(INTERVAL, LONGEST_INTERVAL),
            entered: 0,
            passed_up: 0,
            local: BTreeSet::new(),
        };
        follower.learn_addresses();
        let thread = threads.spawn("connections", Loss::Ends, move || follower.run(&until))?;
        Ok(Self { end, known, _thread: thread })
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // A counter that is full is raised as well.
        let _: Result<usize, rustix::io::Errno> = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
    }
}

struct Follower {
    socket: Socket,
    connections: Connections,
    table: Arc<ConnectionTable>,
    marks: Marks,
    clock: Clock,
    known: Arc<SharedKnown>,
    /// Events of the programs that were read.
    told: u64,
    /// Time of the last look at all of the table.
    looked_at: Nanos,
    /// Maximum time between two looks.
    longest_interval: Nanos,
    /// Number of connections in the table.
    entered: usize,
    /// Packets that the kernel had by the last look.
    passed_up: u64,
    /// Addresses of this machine.
    local: BTreeSet<IpAddr>,
}

impl Follower {
    fn run(&mut self, end: &OwnedFd) {
        // True if a connection has ended, and it is not known which.
        let (mut is_behind, mut moderation) = (false, Moderation::default());
        loop {
            let now = self.clock.now();
            if now.since(self.looked_at) >= self.interval(is_behind) {
                self.look(now);
                (self.looked_at, is_behind) = (now, false);
            }
            if let Err(error) = self.ask(now) {
                self.fail(&error);
                break;
            }
            self.enter(now);
            let look = (self.entered > 0).then(|| self.looked_at + self.interval(is_behind));
            let gathers = moderation.note(now);
            let due = self.connections.next_deadline().into_iter().chain(look).chain(gathers).min();
            let (socket, now) = (gathers.is_none().then_some(&self.socket), self.clock.now());
            let Some(woken) = wait([end, self.table.events()], socket, due.map(|due| due.since(now))) else {
                break;
            };
            is_behind |= woken && !self.look_at_told();
            if let Err(error) = self.read() {
                self.fail(&error);
                break;
            }
        }
        for entered in std::mem::take(&mut self.known.lock().connections).iter().flatten() {
            self.table.leave(&entered.connection());
        }
    }

    fn fail(&self, error: &anyhow::Error) {
        tracing::error!(%error, "can no longer follow the kernel's connections");
        self.known.lock().totals.has_failed = true;
    }

    /// Time between two looks, the second of which is for connections that have ended if `is_behind`.
    fn interval(&self, is_behind: bool) -> Nanos {
        let usual = Nanos(INTERVAL_EACH.0 * self.entered as u64).clamp(INTERVAL, self.longest_interval);
        if is_behind { Nanos(usual.0 / 8) } else { usual }
    }

    /// Brings the addresses of this machine up to date: its own connections are the kernel's.
    fn learn_addresses(&mut self) {
        match addresses().map(|all| all.into_iter().map(|(_, address)| address).collect::<BTreeSet<_>>()) {
            Ok(addresses) if addresses != self.local => {
                self.connections.set_local_addresses(addresses.iter().copied());
                self.local = addresses;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "cannot read the addresses of this host"),
        }
    }

    /// Takes all events that wait.
    fn read(&mut self) -> Result<()> {
        loop {
            let now = self.clock.now();
            match self.socket.read()? {
                Reading::Datagram(datagram) => {
                    conntrack::events(datagram).for_each(|event| self.connections.take(event, now));
                }
                Reading::Lost => self.connections.lost(now),
                Reading::Nothing => return Ok(()),
            }
        }
    }

    /// Sends what is due. The answers are there at once.
    fn ask(&mut self, now: Nanos) -> Result<()> {
        while let Some(requests) = self.connections.next_requests(now) {
            if self.socket.send(&requests).is_err() {
                self.connections.lost(now);
                break;
            }
            self.read()?;
        }
        Ok(())
    }

    /// Brings the table up to date.
    fn enter(&mut self, now: Nanos) {
        let mut known = self.known.lock();
        let mut before = None::<Entered>;
        for change in self.connections.changes() {
            let (id, entered) = match change {
                Change::Enter(connection) => (connection.id, self.marks.admit(&connection, now)),
                Change::Leave(id) => (id, None),
            };
            if let Some(left) = known.leave(id, entered.is_some()) {
                let seen = Seen::of(&self.table.leave(&left.connection()));
                known.totals.add(seen.carried.since(left.seen.carried));
                before = Some(left);
            }
            // One that finds no room stays the kernel's.
            if let Some(entered) = entered.filter(|entered| self.table.enter(&entered.connection()).is_ok()) {
                known.enter(entered, before.as_ref());
            }
        }
        known.totals.decisions = *self.connections.counters();
        self.entered = known.totals.entered;
    }

    /// Reads what the programs have carried.
    fn look(&mut self, now: Nanos) {
        self.learn_addresses();
        let passed_up = self.table.counters().passed_up;
        let may_have_gone_up = core::mem::replace(&mut self.passed_up, passed_up) != passed_up;
        // Each at the slot of its connection's name; its memory goes back.
        let mut seen = vec![Seen::default(); self.known.lock().connections.len()];
        let read = self.table.for_each(|direction| {
            if let Some(seen) = seen.get_mut(direction.number as usize) {
                seen.add(direction);
            }
        });
        if let Err(error) = read {
            return tracing::warn!(%error, "cannot read the table of connections");
        }
        let mut known = self.known.lock();
        let time = known.rates(now);
        let Known { connections, totals, .. } = &mut *known;
        totals.states = Default::default();
        for (entered, &seen) in connections.iter_mut().zip(&seen) {
            let Some(entered) = entered else { continue };
            totals.states[seen.state() as usize] += 1;
            let last = entered.look(seen, time);
            totals.add(seen.carried.since(last.carried));
            take(&mut self.connections, entered, (last, may_have_gone_up), (self.looked_at, now));
        }
    }

    /// Reads the connections of which the programs tell. Answers false if it is not known which these are.
    fn look_at_told(&mut self) -> bool {
        let now = self.clock.now();
        let mut known = self.known.lock();
        let Known { connections, totals, .. } = &mut *known;
        self.table.told(&mut self.told, |number| {
            let Some(Some(entered)) = connections.get_mut(number as usize) else { return };
            let seen = Seen::of(&self.table.state(&entered.connection()));
            let last = entered.look(seen, None);
            totals.add(seen.carried.since(last.carried));
            take(&mut self.connections, entered, (last, false), (self.looked_at, now));
        })
    }
}

/// Takes what a look has seen of a connection, `last` what the one before had, at `before`. `may_have_gone_up` says that the kernel
/// has had packets.
fn take(
    connections: &mut Connections,
    entered: &Entered,
    (last, may_have_gone_up): (Seen, bool),
    (before, now): (Nanos, Nanos),
) {
    let (id, seen, state) = (entered.id, entered.seen, entered.seen.state());
    if state == State::Ended && Check::ConnectionEnded.is_made() {
        return connections.ended(id);
    }
    if seen.carried != last.carried {
        connections.moved(id, seen.carried.bytes, now);
    }
    // A segment that the kernel has seen may have shortened its timer.
    let is_tcp = entered.transport() == Transport::Tcp && Check::ConnectionShortened.is_made();
    if state != State::Carried || seen.opened != last.opened || is_tcp && may_have_gone_up {
        connections.went_up(id, (before, now));
    }
}

/// Moderation of wake-ups. An event is taken at once. Of many, as with thousands of short connections a second, each would cost
/// more to wake up for than to read, so they gather, and a connection that has ended meanwhile is not entered at all.
#[derive(Debug, Default)]
struct Moderation {
    begin: Nanos,
    wakes: u32,
}

impl Moderation {
    /// Notes a wake-up. Answers the time until which events gather, after many.
    fn note(&mut self, now: Nanos) -> Option<Nanos> {
        if now.since(self.begin) >= GATHER {
            *self = Self { begin: now, wakes: 0 };
        }
        self.wakes += 1;
        (self.wakes > AT_ONCE).then_some(self.begin + GATHER)
    }
}

/// Waits for events of the table, and of the kernel if there is a socket, until the time is over. Answers whether the table has
/// some; `None` at the end.
fn wait([end, table]: [&OwnedFd; 2], socket: Option<&Socket>, time: Option<Nanos>) -> Option<bool> {
    let mut files = vec![PollFd::new(end, PollFlags::IN), PollFd::new(table, PollFlags::IN)];
    files.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
    let time = time.map(|time| Timespec {
        tv_sec: i64::try_from(time.0 / Nanos::SECOND.0).unwrap_or(1),
        tv_nsec: i64::try_from(time.0 % Nanos::SECOND.0).unwrap_or(0),
    });
    // An interrupted wait ends early.
    let _: Result<usize, rustix::io::Errno> = poll(&mut files, time.as_ref());
    let [is_over, has_events] = [&files[0], &files[1]].map(|file| !file.revents().is_empty());
    if has_events {
        let _: Result<usize, rustix::io::Errno> = rustix::io::read(table, &mut [0; 8]);
    }
    (!is_over).then_some(has_events)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_events_are_taken_at_once_and_many_gather() {
        let mut moderation = Moderation::default();
        let at = |millis| Nanos::from_millis(1000 + millis);
        for millis in 0..u64::from(AT_ONCE) {
            assert_eq!(moderation.note(at(millis)), None);
        }
        assert_eq!(moderation.note(at(9)), Some(at(0) + GATHER));
        assert_eq!(moderation.note(at(10)), None, "the next time");
    }
}
