//! Changes of the running configuration to the file's, and their roll-back.

use super::{Service, refusal};
use crate::config::added::{self, NotOnePort};
use crate::config::model::{Configuration, Decide, OnExit, Port};
use crate::config::{self, LoadError, Report, detail, difference};
use crate::control::{Compared, Fault, PortOrder, PortRequest, Refusal, ReloadRequest, Reloaded};
use crate::device;
use crate::events::EventKind;
use crate::runtime::confirmation::{Back, Confirmation, Pending};
use crate::runtime::filters::{keep_on_exit, told_of};
use crate::runtime::gateway::{AddedPort, AddedPorts, Gateway, Plan};
use crate::runtime::hooks::{self, decision};
use crate::runtime::host_traffic;
use crate::runtime::preflight::tags;
use crate::runtime::shared::lock;
use anyhow::{Result, ensure};
use polder_datapath::units::Nanos;
use std::sync::PoisonError;

impl Service {
    /// Reloads; a dry run stops before the last step.
    pub(super) fn change(&self, request: ReloadRequest) -> Result<Reloaded, Refusal> {
        // The control thread takes the confirmation's lock in each turn, so it is not held while a long file
        // is read.
        let _one_at_a_time = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let added = lock(&self.gateway).added.clone();
        let (loaded, added) = self.load(&added)?;
        self.apply(loaded, request, added)
    }

    /// Adds, changes or removes a port; other differences between the files and the running configuration
    /// stay.
    pub(super) fn change_port(&self, request: &PortRequest) -> Result<Reloaded, Refusal> {
        let _one_at_a_time = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let (running, mut added) = {
            let gateway = lock(&self.gateway);
            (gateway.configuration.clone(), gateway.added.clone())
        };
        let PortRequest { name, order, in_file, dry_run, yes, .. } = request;
        let wrong = |message: String| refusal(Fault::Input, message);
        let tables =
            added::tables_of(name, &request.tables).map_err(|error: NotOnePort| wrong(error.to_string()))?;
        let is_there = running.ports.iter().any(|port| port.name == *name);
        let place = added.iter().position(|port| port.name == *name);
        let of = place.and_then(|place| added[place].of.as_ref());
        match order {
            // A reload has read the file between its writing and this request.
            PortOrder::Add if *in_file && is_as_said(&running, name, &request.tables) => {
                return Ok(unchanged(*dry_run));
            }
            PortOrder::Delete if *in_file && !is_there => return Ok(unchanged(*dry_run)),
            PortOrder::Add if is_there => {
                return Err(wrong(format!(
                    "port {name} already exists: `polder port set {name}` changes it"
                )));
            }
            PortOrder::Set | PortOrder::Delete if !is_there => {
                return Err(wrong(format!("there is no port {name}: `polder show ports` lists them")));
            }
            PortOrder::Set | PortOrder::Delete if of.is_some() => {
                let pattern = of.map_or("", |of| of.pattern.as_str());
                return Err(wrong(format!(
                    "port {name} was created by [port.\"{pattern}\"]: change that and `polder reload`, or \
                     rename the interface"
                )));
            }
            PortOrder::Set | PortOrder::Delete if place.is_none() && !in_file => {
                let file = self.path.display();
                return Err(wrong(format!("port {name} is in {file}: change it there, and `polder reload`")));
            }
            PortOrder::Add | PortOrder::Set | PortOrder::Delete => {}
        }
        let before = place.map(|place| added.remove(place).tables);
        let before = before.and_then(|text| text.parse().ok()).unwrap_or_default();
        let text = added::changed(before, tables).to_string();
        let port = AddedPort { name: name.clone(), tables: text, of: None };
        let own = [port.clone()];
        let loaded = match order {
            PortOrder::Add => with_ports(&running, &[], &named(&own)),
            PortOrder::Set => with_ports(&running, &[name], &named(&own)),
            PortOrder::Delete => with_ports(&running, &[name], &[]),
        };
        if *order != PortOrder::Delete && !in_file {
            added.push(port);
        }
        let with = ReloadRequest { dry_run: *dry_run, yes: *yes, confirm: None };
        self.apply(loaded?, with, added)
    }

    /// Applies another configuration, with the ports `added` by command; a dry run stops before the last
    /// step.
    pub(super) fn apply(
        &self,
        mut loaded: config::Loaded,
        request: ReloadRequest,
        added: AddedPorts,
    ) -> Result<Reloaded, Refusal> {
        let mut confirmation = self.confirmation();
        let mut gateway = lock(&self.gateway);
        let now = gateway.clock.now();
        let failed = |error: anyhow::Error| refusal(Fault::Runtime, format!("{error:#}"));
        is_free(&confirmation, request, now).map_err(failed)?;
        let kept = keep_on_exit(&gateway.configuration, &mut loaded.configuration);
        decision::settle(&mut loaded.configuration);
        let decided = loaded.configuration.decided.clone();
        let ports = gateway.hook_ports(&loaded.configuration);
        let hooks =
            hooks::admit_new(&gateway.configuration, &loaded.configuration, &ports).map_err(failed)?;
        host_traffic::admit_new(&gateway.configuration, &loaded.configuration, request.yes)
            .map_err(failed)?;
        tags::admit(Some(&gateway.configuration), &loaded.configuration).map_err(failed)?;
        let moved = match request.dry_run {
            true => Vec::new(),
            false => decide_anew(&mut gateway, &loaded.configuration).map_err(failed)?,
        };
        let plan = gateway.plan(&loaded.configuration).map_err(failed)?;
        let mut changes = detail::describe(&gateway.configuration, &plan.difference);
        changes.extend(moved);
        let found = plan.warnings.iter().map(|warning| format!("warning: {warning}")).collect::<Vec<_>>();
        let seconds = request.confirm.filter(|_| !changes.is_empty());
        let pending =
            seconds.map(|seconds| way_back(&gateway, &plan, now + Nanos::from_seconds(seconds.into())));
        let pending = pending.transpose().map_err(failed)?;
        if !(request.dry_run || plan.is_empty() && changes.is_empty()) {
            gateway.carry_out(plan).map_err(failed)?;
            gateway.configuration.decided.clone_from(&decided);
            let (threads, clock) = (gateway.threads.clone(), gateway.clock);
            gateway.hooks.follow(&threads, clock, ports, hooks);
            gateway.tell_hooks();
            pending.into_iter().for_each(|pending| confirmation.wait(pending));
        } else if !request.dry_run {
            // Keys of BFD and keepalive may have changed.
            gateway.watch_tunnels();
        }
        // Done last: a change that failed is not stored.
        if !request.dry_run {
            gateway.added = added;
        }
        let kept = told_of(&kept, &gateway.configuration);
        let warnings = [loaded.warnings.to_string(), found.join("\n"), kept];
        let warnings = warnings.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
        Ok(Reloaded { applied: !request.dry_run, changes, warnings, confirm: seconds })
    }

    /// Compares the running configuration with the files plus the ports `added` by command.
    pub(super) fn compare(&self, added: &[AddedPort]) -> Result<Compared, Refusal> {
        let (mut loaded, _) = self.load(added)?;
        let gateway = lock(&self.gateway);
        let running = &gateway.configuration;
        // A reload would keep these settings, too.
        keep_on_exit(running, &mut loaded.configuration);
        decision::keep(running, &mut loaded.configuration);
        let difference = difference(&gateway.renamed_as_in(&loaded.configuration), &loaded.configuration);
        Ok(Compared {
            format: 1,
            gateway: running.gateway.name.clone(),
            file: self.path.display().to_string(),
            changes: detail::describe(running, &difference),
            keys: detail::keys_changed(running, &difference.target),
            needs_restart: !difference.restart.is_empty(),
        })
    }

    /// Reads the files, with those ports of `added` that remain valid.
    fn load(&self, added: &[AddedPort]) -> Result<(config::Loaded, AddedPorts), Refusal> {
        let load = |added: &[AddedPort]| {
            config::load_with(&self.path, &named(added)).map_err(|error| match error {
                LoadError::Invalid(report) => invalid(&report),
                LoadError::Unreadable { .. } => refusal(Fault::Input, error.to_string()),
            })
        };
        let (of_patterns, mut kept): (AddedPorts, AddedPorts) =
            added.iter().cloned().partition(|port| port.of.is_some());
        let loaded = load(&kept)?;
        if of_patterns.is_empty() {
            return Ok((loaded, kept));
        }
        // The file may have other patterns, or a port of its own for the interface.
        let still = of_patterns.iter().filter_map(|port| port.still(&loaded.configuration));
        kept.extend(still);
        Ok((load(&kept)?, kept))
    }

    /// Rolls back a pending change that has expired. Returns it if it is the start.
    pub(super) fn take_back(&self) -> Option<Pending> {
        let mut confirmation = self.confirmation();
        confirmation.pending()?;
        let mut gateway = lock(&self.gateway);
        let pending = confirmation.due(gateway.clock.now())?;
        let Back::To(before) = &pending.back else { return Some(pending) };
        match go_back(&mut gateway, before) {
            Ok(changes) => gateway.events.note(EventKind::ReloadTakenBack { changes }),
            Err(error) => {
                tracing::error!(
                    "not confirmed, but the change cannot be reverted; the new configuration stays active: \
                     {error:#}"
                );
            }
        }
        open(&pending.closed);
        None
    }
}

/// Reopens ports whose `decide` changes, and returns their descriptions. One port is closed at a time; the
/// kernel forwards its packets meanwhile.
fn decide_anew(gateway: &mut Gateway, next: &Configuration) -> Result<Vec<String>> {
    let mut changes = Vec::new();
    for (name, decide) in decision::moved(&gateway.configuration, next) {
        let mut without = gateway.configuration.clone();
        let mut with = without.clone();
        without.take_out(&name);
        with.ports.iter_mut().filter(|port| port.name == name).for_each(|port| port.decide = decide);
        for configuration in [without, with] {
            let plan = gateway.plan(&configuration)?;
            gateway.carry_out(plan)?;
        }
        let who = if decide == Decide::Kernel { "the kernel decides" } else { "the router decides" };
        changes.push(format!("~ port {name}: {who}"));
    }
    Ok(changes)
}

/// Tables of ports that are in no file, each with a label in place of the file's name.
pub(in crate::runtime) fn named(added: &[AddedPort]) -> Vec<(String, String)> {
    added.iter().map(|port| (port.origin(), port.tables.clone())).collect()
}

/// The running configuration, without `removed` and with the ports of `texts`.
pub(super) fn with_ports(
    running: &Configuration,
    removed: &[&str],
    texts: &[(String, String)],
) -> Result<config::Loaded, Refusal> {
    added::with_ports(running, removed, texts).map_err(|report| invalid(&report))
}

fn invalid(report: &Report) -> Refusal {
    Refusal { brief: Some(report.brief()), ..refusal(Fault::Input, report.to_string()) }
}

/// True if the running port `name` equals its description in a file.
fn is_as_said(running: &Configuration, name: &str, tables: &str) -> bool {
    let is_there = running.ports.iter().any(|port| port.name == name);
    let texts = [(format!("polder port {name}"), tables.to_owned())];
    let said = is_there.then(|| added::with_ports(running, &[name], &texts));
    said.and_then(Result::ok).is_some_and(|said| difference(running, &said.configuration).is_empty())
}

/// Answer to a request that changes nothing.
fn unchanged(dry_run: bool) -> Reloaded {
    Reloaded { applied: !dry_run, changes: Vec::new(), warnings: String::new(), confirm: None }
}

/// Refuses a reload without `--confirm` while a change is pending.
fn is_free(confirmation: &Confirmation, request: ReloadRequest, now: Nanos) -> Result<()> {
    let Some(pending) = confirmation.pending() else { return Ok(()) };
    ensure!(
        request.confirm.is_some(),
        "a change waits another {} s for confirmation: `polder confirm` keeps it; `polder reload --confirm \
         60` adds a further change, and both are reverted unless confirmed",
        pending.until.since(now).0 / Nanos::SECOND.0
    );
    Ok(())
}

/// The roll-back of a reload to the running configuration.
fn way_back(gateway: &Gateway, plan: &Plan, until: Nanos) -> Result<Pending> {
    let before = &gateway.configuration;
    let back = difference(&plan.difference.target, before);
    ensure!(
        back.restart.is_empty(),
        "this change could not be reverted without a restart, so nothing was changed: reload without \
         `--confirm`\n{back}"
    );
    let closed = closing(plan.difference.ports.added.iter());
    Ok(Pending { until, back: Back::To(Box::new(before.clone())), closed })
}

/// Open interfaces that ports leave closed when they are removed.
pub(in crate::runtime) fn closing<'a>(ports: impl Iterator<Item = &'a Port>) -> Vec<String> {
    let closing =
        ports.filter(|port| port.on_exit == OnExit::Drop).filter_map(|port| port.device.interface());
    closing.filter(|interface| !device::is_left(interface)).map(str::to_owned).collect()
}

/// Opens interfaces that a change has left closed.
pub(in crate::runtime) fn open(interfaces: &[String]) {
    for interface in interfaces {
        match device::release(interface) {
            Ok(_) => tracing::warn!("{interface}: open, as before"),
            Err(error) => tracing::error!("{interface} stays closed: {error}; `polder release {interface}`"),
        }
    }
}

fn go_back(gateway: &mut Gateway, before: &Configuration) -> Result<Vec<String>> {
    let plan = gateway.plan(before)?;
    let changes = detail::describe(&gateway.configuration, &plan.difference);
    gateway.carry_out(plan)?;
    let ports = gateway.hook_ports(&gateway.configuration);
    gateway.hooks.renew(|| ports);
    gateway.tell_hooks();
    Ok(changes)
}
