//! Keeps one connection's timer as the kernel would keep it, if it saw the carried packets.
//!
//! The timeout of the kernel's policy is the largest that was seen for the connection. A carried packet sets the
//! kernel's timer again when a quarter of it has passed since it was set last, or a quarter of the shorter timeout for
//! unacknowledged data since a packet of TCP that the kernel saw. It is set to what is left since the last packet.

use super::connection::{Connection, ConnectionId, Timeouts, Tuples};
use crate::kernel::conntrack::message::{Record, Tcp, Tuple, Update};
use core::num::NonZeroU32;
use polder_datapath::units::Nanos;
use polder_devices::checks::Check;

/// A connection that may be carried, or waits for the kernel's acknowledgement.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: ConnectionId,
    pub(super) kernel_id: u32,
    pub(super) tuples: Tuples,
    pub(super) mark: u32,
    tcp: Option<Tcp>,
    /// True if it was entered.
    pub(super) is_entered: bool,
    /// Number of the update that the kernel has not answered.
    pub(super) unanswered: Option<NonZeroU32>,
    /// Time that it is listed by among the alarms.
    pub(super) alarm: Option<Nanos>,
    /// Time that it is listed by among the idle.
    pub(super) listed_at: Nanos,
    /// Timeout of the kernel's policy, in seconds.
    policy: u32,
    /// The kernel's timeout for unacknowledged data, in seconds.
    unacknowledged: u32,
    /// Time at which the timer is set again if packets were carried: a quarter of the policy has passed then.
    refresh_at: Nanos,
    /// Earliest time at which it ends.
    expires_at: Nanos,
    /// Time of the last packet.
    active_at: Nanos,
    /// True if packets were carried since the timer was set.
    has_moved: bool,
    /// Time of the first packet of TCP that the kernel saw since the timer was set.
    up_at: Option<Nanos>,
    /// True if it was entered anew because its timer was about to end.
    is_closed: bool,
    /// Number of carried bytes that were reported for this id.
    reported: u64,
    /// Number of carried bytes since the kernel was told to accept any segment.
    unloosened: u64,
}

/// Duty of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Have the kernel accept any segment, before the connection is entered.
    Loosen,
    /// Set the timer again.
    Refresh,
    /// Let it leave and enter anew.
    Close,
    /// Ask whether it is still there.
    Probe,
}

impl Entry {
    pub(super) fn new(id: ConnectionId, record: &Record, (timeouts, now): (Timeouts, Nanos)) -> Self {
        let mut entry = Self {
            id,
            kernel_id: record.id,
            tuples: Tuples::new([record.original, record.reply]),
            mark: record.mark,
            tcp: record.tcp,
            is_entered: false,
            unanswered: None,
            alarm: None,
            listed_at: now,
            policy: 0,
            unacknowledged: timeouts.unacknowledged,
            refresh_at: now,
            expires_at: now,
            active_at: now,
            has_moved: false,
            up_at: None,
            is_closed: false,
            reported: 0,
            unloosened: 0,
        };
        entry.saw(record, timeouts, now);
        entry
    }

    /// Learns from the timeout in an event that packets or another socket have caused, or in a dump.
    pub(super) fn saw(&mut self, record: &Record, timeouts: Timeouts, now: Nanos) {
        let seconds = seconds_of(record).unwrap_or_default();
        let Timeouts { established, unacknowledged, udp_stream } = timeouts;
        // What is left of a timer, or the timeout for unacknowledged data, does not say what the policy gives.
        let usual = match self.tcp {
            Some(_) if record.is_dumped || seconds.abs_diff(unacknowledged) <= 1 => established,
            None if record.is_dumped => udp_stream,
            Some(_) | None => 1,
        };
        self.policy = self.policy.max(usual);
        self.saw_timer(record, now);
    }

    /// Learns from what a message tells of the timer.
    pub(super) fn saw_timer(&mut self, record: &Record, now: Nanos) {
        if let Some(seconds) = seconds_of(record) {
            self.policy = self.policy.max(seconds);
            self.set_timer(seconds, now);
        }
    }

    /// The kernel's timer ends in that number of seconds.
    fn set_timer(&mut self, seconds: u32, now: Nanos) {
        self.expires_at = now + Nanos::from_seconds(seconds.into());
        let passed = self.policy.saturating_sub(seconds);
        let rest = quarter(self.policy).0.saturating_sub(Nanos::from_seconds(passed.into()).0);
        self.refresh_at = now + Nanos(rest);
    }

    /// The connection, as it is entered.
    pub(super) fn connection(&self) -> Connection {
        let tcp = self.tcp.unwrap_or_default();
        let [original, reply] = self.tuples.both();
        Connection {
            id: self.id,
            original,
            reply,
            mark: self.mark,
            window_scales: [tcp.wscale_original, tcp.wscale_reply],
        }
    }

    /// True if the kernel has to be told to accept any segment before it is entered.
    pub(super) fn has_to_loosen(&self) -> bool {
        self.tcp.is_some()
    }

    /// Tuple of its first packet.
    pub(super) fn original(&self) -> Tuple {
        self.tuples.both()[0]
    }

    /// Time of its last packet.
    pub(super) fn active_at(&self) -> Nanos {
        self.active_at
    }

    /// Packets were carried, `bytes` since it was entered.
    pub(super) fn moved(&mut self, bytes: u64, now: Nanos) {
        self.unloosened += bytes.saturating_sub(self.reported);
        self.reported = self.reported.max(bytes);
        (self.active_at, self.has_moved, self.is_closed) = (now, true, false);
    }

    /// The kernel saw a packet between these times.
    pub(super) fn went_up(&mut self, (since, now): (Nanos, Nanos)) {
        (self.active_at, self.is_closed) = (now, false);
        if self.tcp.is_some() {
            self.up_at.get_or_insert(since);
            let seconds = self.policy.min(self.unacknowledged);
            self.expires_at = since + Nanos::from_seconds(seconds.into());
        } else {
            self.has_moved = false;
            self.set_timer(self.policy, now);
        }
    }

    /// It is entered anew, under another id.
    pub(super) fn close(&mut self, id: ConnectionId) {
        (self.id, self.is_closed, self.reported) = (id, true, 0);
    }

    /// Returns the next duty and its deadline; `None` while an update is not answered. Deadlines derived from the kernel's timer are
    /// rounded down to a multiple of [`TICK`], so that one wake-up serves many connections.
    pub(super) fn due(&self) -> Option<(Nanos, Act)> {
        let at_tick = |at: Nanos| Nanos(at.0 - at.0 % TICK.0);
        Some(if self.unanswered.is_some() {
            return None;
        } else if !self.is_entered {
            (self.active_at, Act::Loosen)
        } else if self.has_moved && self.tcp.is_some() && self.unloosened >= LOOSEN_BYTES {
            (self.active_at, Act::Refresh)
        } else if self.has_moved {
            let after_up = self.up_at.map(|at| at + quarter(self.unacknowledged));
            (
                at_tick(after_up.map_or(self.refresh_at, |after_up| self.refresh_at.min(after_up))),
                Act::Refresh,
            )
        } else if self.is_closed {
            (self.expires_at + PROBE_AFTER, Act::Probe)
        } else {
            (at_tick(self.expires_at - self.margin()), Act::Close)
        })
    }

    /// Time before the end of the timer at which it is entered anew: an eighth of the timeout, a minute at most.
    fn margin(&self) -> Nanos {
        Nanos(Nanos::from_seconds(self.policy.into()).0 / 8).min(Nanos::from_seconds(60))
    }

    /// Begins a duty that is an update.
    pub(super) fn begin(&mut self, act: Act, sequence: NonZeroU32, now: Nanos) -> Update {
        self.unanswered = Some(sequence);
        let is_tcp = self.tcp.is_some();
        match act {
            Act::Probe | Act::Close => Update::default(),
            Act::Loosen => Update { timeout: None, loosen: is_tcp },
            Act::Refresh => {
                let idle = now.since(self.active_at).0 / Nanos::SECOND.0;
                let seconds = self.policy.saturating_sub(u32::try_from(idle).unwrap_or(u32::MAX)).max(1);
                self.set_timer(seconds, now);
                (self.has_moved, self.up_at, self.unloosened) = (false, None, 0);
                let timeout = Check::ConnectionRefresh.is_made().then_some(seconds);
                Update { timeout, loosen: is_tcp }
            }
        }
    }

    /// The kernel has done the update.
    pub(super) fn acknowledged(&mut self, now: Nanos) {
        self.unanswered = None;
        // It is there, and no event has told its timer.
        if self.expires_at < now {
            self.set_timer(self.policy, now);
        }
    }
}

/// A quarter of a number of seconds.
fn quarter(seconds: u32) -> Nanos {
    Nanos(Nanos::from_seconds(seconds.into()).0 / 4)
}

fn seconds_of(record: &Record) -> Option<u32> {
    record.timeout.map(|timeout| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX))
}

/// Carried bytes after which the kernel is told again to accept any segment: its memory of acknowledgements wraps at 2 GiB.
const LOOSEN_BYTES: u64 = 1 << 30;
/// Time after the end of the kernel's timer at which it is asked for the connection.
const PROBE_AFTER: Nanos = Nanos::SECOND;
/// Granularity of deadlines: at most ten wake-ups a second. A quarter of the shortest timeout, 1 s, is longer.
const TICK: Nanos = Nanos::from_millis(100);
