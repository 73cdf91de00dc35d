//! Rows and health checks for the metrics.

use super::gateway::{Gateway, PortState};
use super::shared::{SharedGateway, lock};
use super::show::rows;
use crate::metrics::server::Collected;
use polder_datapath::units::Nanos;

/// Delay of the control thread from which on the gateway is unhealthy.
const LATE: Nanos = Nanos::from_seconds(5);
/// Minimum time between two collections that compare workers' rounds.
const STILL: Nanos = Nanos::SECOND;

/// Reads a gateway for its metrics.
pub(super) struct Collector {
    gateway: SharedGateway,
    /// Round count of each worker at an earlier collection, and its time.
    rounds: (Vec<u64>, Nanos),
    /// Numbers of the workers without a round since an earlier collection.
    stuck: Vec<usize>,
}

impl Collector {
    /// Creates a collector for `gateway`.
    pub(super) fn new(gateway: SharedGateway) -> Self {
        Self { gateway, rounds: (Vec::new(), Nanos(0)), stuck: Vec::new() }
    }

    /// Reads all rows and the reasons for being unhealthy.
    pub(super) fn collect(&mut self) -> Collected {
        let unhealthy = self.look();
        Collected { rows: rows(&self.gateway), unhealthy }
    }

    /// Reasons why the gateway is unhealthy. Collections wake the workers, so a working one makes a round in
    /// between.
    fn look(&mut self) -> Vec<String> {
        let gateway = lock(&self.gateway);
        let now = gateway.clock.now();
        let polls = gateway.workers.iter().map(|worker| worker.counters.polls.get()).collect::<Vec<_>>();
        let lost = gateway.threads.losses();
        let late = late(gateway.turn_due, now);
        drop(gateway);
        let (before, at) = &self.rounds;
        if polls.len() != before.len() || now.since(*at) >= STILL {
            self.stuck = still(before, &polls);
            self.rounds = (polls, now);
        }
        let stuck = self.stuck.iter().map(|worker| format!("worker {worker} hangs"));
        stuck.chain(late).chain(lost).collect()
    }
}

/// Reason why the gateway is unhealthy, if the control thread's turn is overdue.
fn late(due: Nanos, now: Nanos) -> Option<String> {
    let late = now.since(due);
    let seconds = late.0 / Nanos::SECOND.0;
    (due != Nanos(0) && late >= LATE).then(|| format!("the control thread has not run for {seconds} s"))
}

/// Workers with the same round count as before; empty if the number of workers changed.
fn still(before: &[u64], now: &[u64]) -> Vec<usize> {
    if before.len() != now.len() {
        return Vec::new();
    }
    let pairs = before.iter().zip(now).enumerate();
    pairs.filter(|(_, (before, now))| before == now).map(|(worker, _)| worker).collect()
}

impl Gateway {
    /// Reasons why the gateway is not ready, a sentence each: a drain, ports that carry nothing, incomplete
    /// routes, and new packet hooks that Polder bypasses.
    pub(super) fn not_ready(&self) -> Vec<String> {
        // The punt path is left out: the other ports carry packets without it.
        let carry = self.ports.iter().filter(|state| !state.configuration.device.is_punt_path());
        let mut reasons = carry.filter_map(reason).collect::<Vec<_>>();
        if self.draining {
            reasons.insert(0, "the gateway is being drained (`polder drain`)".to_owned());
        }
        if !self.lasting.routing.is_settled() {
            reasons.push("routes: the kernel's tables are not completely read yet".to_owned());
        }
        reasons.extend(self.hooks.not_ready());
        reasons
    }
}

impl Gateway {
    /// Status line for the service manager: number of ports that carry and that do not, and the
    /// configuration's generation.
    pub(super) fn status(&self) -> String {
        let not_ready = self.not_ready();
        let down = self.ports.iter().filter(|state| !state.carries()).count();
        let up = self.ports.len() - down;
        let ports = if up == 1 { "1 port carries".to_owned() } else { format!("{up} ports up") };
        let reasons =
            if not_ready.is_empty() { String::new() } else { format!("; {}", not_ready.join("; ")) };
        format!("{ports}, generation {}{reasons}", self.reloads.generation)
    }
}

/// Reason why a port carries nothing.
fn reason(state: &PortState) -> Option<String> {
    let name = &state.configuration.name;
    if state.carries() {
        return None;
    }
    let trouble = state.trouble.as_ref().filter(|_| !state.open);
    let trouble = trouble.map(|trouble| format!(": {trouble}")).unwrap_or_default();
    Some(format!("port {name}: {}{trouble}", state.word().replace('-', " ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_round_is_named() {
        assert_eq!(still(&[1, 2, 3], &[2, 2, 4]), [1]);
        assert_eq!(still(&[], &[0]), Vec::<usize>::new(), "the first collection shows nothing");
    }

    #[test]
    fn a_control_thread_that_makes_no_turn_is_unhealthy() {
        let at = Nanos::from_seconds;
        assert_eq!(late(Nanos(0), at(60)), None, "it has not begun");
        assert_eq!(late(at(7), at(3)), None, "it sleeps");
        assert_eq!(late(at(7), at(11)), None);
        assert_eq!(late(at(7), at(13)).as_deref(), Some("the control thread has not run for 6 s"));
    }
}
