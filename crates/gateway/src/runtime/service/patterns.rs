//! Ports from patterns, added and removed with their interfaces.

use super::change::{named, with_ports};
use super::{Seen, Service};
use crate::config::patterns::Pattern;
use crate::control::{Refusal, ReloadRequest, Reloaded};
use crate::events::EventKind;
use crate::kernel::notices::Notices;
use crate::runtime::gateway::AddedPort;
use crate::runtime::hooks::decision;
use crate::runtime::host_traffic::HostState;
use crate::runtime::patterns::{Skipped, sort};
use crate::runtime::shared::lock;
use polder_datapath::units::Nanos;
use std::collections::BTreeSet;
use std::sync::PoisonError;

/// Retry interval after a failure: the kernel gives no notice when its rules are removed.
const RETRY: Nanos = Nanos::from_seconds(10);

impl Seen {
    /// True if interfaces or patterns may have changed.
    fn is_due(&mut self, patterns: &[Pattern], now: Nanos) -> bool {
        if self.notices.is_none() {
            self.notices = Notices::new().ok();
        }
        // Without a notice socket, every call checks.
        let has_news = self.notices.as_ref().is_none_or(Notices::take);
        let is_new = self.patterns != patterns;
        let is_late = self.retry_at.is_some_and(|at| at <= now);
        if is_new {
            self.patterns = patterns.to_vec();
        }
        has_news || is_new || is_late
    }
}

impl Service {
    /// Adds ports for new interfaces that match patterns, and removes ports whose interface is gone.
    pub(super) fn follow_patterns(&self) {
        let (patterns, added, now) = {
            let gateway = lock(&self.gateway);
            let patterns = gateway.configuration.patterns.clone();
            let added = gateway.added.iter().filter(|port| port.of.is_some()).cloned().collect::<Vec<_>>();
            (patterns, added, gateway.clock.now())
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if patterns.is_empty() && added.is_empty() || !seen.is_due(&patterns, now) {
            return;
        }
        seen.retry_at = None;
        let host = HostState::look_at_interfaces();
        let is_there = |port: &AddedPort| host.links.iter().any(|link| link.name == port.interface());
        let gone = added.into_iter().filter(|port| !is_there(port)).map(|port| port.name).collect::<Vec<_>>();
        let sorted = sort(&lock(&self.gateway).configuration, &host);
        let mut skipped = sorted.skipped;
        skipped.retain(Skipped::is_news);
        let failed = self.exchange(&gone, &sorted.ports);
        if !failed.is_empty() {
            seen.retry_at = Some(now + RETRY);
        }
        skipped.extend(failed);
        let skipped = skipped.into_iter().collect::<BTreeSet<_>>();
        for Skipped { pattern, interface, why } in skipped.difference(&seen.skipped) {
            let event = EventKind::PatternSkipped {
                pattern: pattern.clone(),
                interface: interface.clone(),
                why: why.clone(),
            };
            lock(&self.gateway).events.note(event);
        }
        seen.skipped = skipped;
    }

    /// Changes the ports from patterns: all at once, or one by one if that is refused. Returns the failures.
    fn exchange(&self, gone: &[String], new: &[AddedPort]) -> Vec<Skipped> {
        if gone.is_empty() && new.is_empty() || self.change_ports(gone, new).is_ok() {
            return Vec::new();
        }
        for name in gone {
            // The port is closed already, and its removal is retried.
            if let Err(refusal) = self.change_ports(std::slice::from_ref(name), &[]) {
                tracing::warn!("cannot remove port {name}: {}", refusal.message);
            }
        }
        let failed = |port: &AddedPort| {
            let refusal = self.change_ports(&[], std::slice::from_ref(port)).err()?;
            let pattern = port.of.as_ref()?.pattern.clone();
            let why = refusal.brief.unwrap_or(refusal.message);
            Some(Skipped { pattern, interface: port.interface().to_owned(), why })
        };
        new.iter().filter_map(failed).collect()
    }

    /// Lets the kernel decide, and ports carry its connections, once a hook appears that routed packets would
    /// bypass.
    pub(super) fn follow_hooks(&self) {
        let times = lock(&self.gateway).hooks.appeared();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = core::mem::replace(&mut seen.hooks, times) < times;
        // Checked last, because it queries the kernel.
        if !is_news || !decision::may_settle(&lock(&self.gateway).configuration) {
            return;
        }
        if let Err(refusal) = self.change_ports(&[], &[]) {
            let why = refusal.message;
            tracing::warn!("the router's ports carry no connection while they yield to the kernel: {why}");
        }
    }

    fn change_ports(&self, gone: &[String], new: &[AddedPort]) -> Result<Reloaded, Refusal> {
        let reloaded = {
            let _one_at_a_time = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
            let (running, mut added) = {
                let gateway = lock(&self.gateway);
                (gateway.configuration.clone(), gateway.added.clone())
            };
            let gone = gone.iter().map(String::as_str).collect::<Vec<_>>();
            let loaded = with_ports(&running, &gone, &named(new))?;
            added.retain(|port| !gone.contains(&port.name.as_str()));
            added.extend_from_slice(new);
            self.apply(loaded, ReloadRequest { dry_run: false, yes: false, confirm: None }, added)
        }?;
        // Failures were logged for each interface.
        self.announced(false, || Ok(reloaded))
    }
}
