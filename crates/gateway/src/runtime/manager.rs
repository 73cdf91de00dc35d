//! Notifications to the service manager, and its watchdog.
//!
//! The watchdog is fed only while every worker makes rounds, so the service manager restarts a gateway with a
//! stuck worker.

use super::gateway::Gateway;
use polder_datapath::units::Nanos;
pub(super) use sd_notify::NotifyState;
use std::time::Duration;

/// The service manager, if there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manager {
    watchdog: Option<Duration>,
}

/// Schedule of the watchdog's notifications, and the state that they depend on.
#[derive(Debug)]
pub(super) struct Watchdog {
    period: Option<Nanos>,
    fed_at: Nanos,
    /// Round count of each worker at the last notification.
    rounds: Vec<u64>,
}

impl Manager {
    /// The service manager that started this process, if any.
    pub(super) fn new() -> Self {
        Self { watchdog: sd_notify::watchdog_enabled() }
    }

    /// Sends states to the service manager; errors are ignored.
    pub(super) fn tell(self, states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            tracing::debug!(%error, "cannot notify the service manager");
        }
    }

    /// Sends states to the service manager, if there is one.
    pub(super) fn tell_any(states: &[NotifyState<'_>]) {
        Self { watchdog: None }.tell(states);
    }

    /// Reports that a reload begins, as `Type=notify-reload` expects.
    pub(super) fn reloading(self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "cannot read the monotonic clock"),
        }
    }

    pub(super) fn watchdog(self) -> Watchdog {
        let period = self.watchdog.map(|period| Nanos(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)));
        Watchdog { period, fed_at: Nanos(0), rounds: Vec::new() }
    }
}

impl Watchdog {
    /// Time until the next check: an eighth of the period, because idle workers need a second check.
    pub(super) fn pause(&self) -> Nanos {
        self.period.map_or(Nanos(u64::MAX), |period| Nanos(period.0 / 8))
    }

    /// Notifies the watchdog if it is due and all workers have made a round since the last time.
    pub(super) fn look(&mut self, gateway: &Gateway) {
        let now = gateway.clock.now();
        if self.period.is_none() || now.since(self.fed_at) < self.pause() {
            return;
        }
        let rounds = gateway.workers.iter().map(|worker| worker.counters.polls.get()).collect::<Vec<_>>();
        if !have_all_moved(&self.rounds, &rounds) {
            // An idle worker sleeps until an event; waking it causes a round before the next check.
            gateway.wake_workers();
            return;
        }
        self.rounds = rounds;
        self.fed_at = now;
        Manager::tell_any(&[NotifyState::Watchdog]);
    }
}

fn have_all_moved(then: &[u64], now: &[u64]) -> bool {
    then.iter().zip(now).all(|(then, now)| then != now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_that_is_stuck_is_enough() {
        assert!(have_all_moved(&[], &[0, 0]));
        assert!(have_all_moved(&[1, 2], &[2, 3]));
        assert!(!have_all_moved(&[1, 2], &[2, 2]));
    }
}
