//! Reload: another configuration, applied as one difference.

use super::start::bind_static;
use super::{Gateway, PortState};
use crate::config::model::{Configuration, Device, Order, Port, Rate, Role};
use crate::config::{Difference, difference};
use crate::control::Way;
use crate::device::forward_groups;
use crate::kernel::hooks::Port as HookPort;
use crate::runtime::devices::Opening;
use crate::runtime::hooks;
use crate::runtime::liveness::check_keys;
use crate::runtime::neighbour::number;
use crate::runtime::tables::{Lasting, tables};
use crate::runtime::worker::Command;
use anyhow::{Context as _, Result, bail};
use polder_datapath::engine::Tables;
use polder_datapath::units::Nanos;
use std::time::Duration;

/// Maximum time that a reload waits for workers to finish their round.
const SETTLE: Nanos = Nanos::from_millis(200);
/// Interval at which the workers are polled.
const LOOK: Duration = Duration::from_micros(100);

/// A reload that has been checked without touching devices.
pub struct Plan {
    /// Difference of the configurations.
    pub difference: Difference,
    /// Warnings about devices of new ports, and about renamed interfaces, a line each.
    pub warnings: Vec<String>,
    /// True if the file has the new name of a renamed interface.
    pub follows_rename: bool,
}

impl Plan {
    /// True if the plan changes nothing.
    pub fn is_empty(&self) -> bool {
        self.difference.is_empty() && !self.follows_rename
    }
}

impl Gateway {
    /// Plans a reload to `next` and checks that it is possible, without changing anything.
    ///
    /// # Errors
    /// Keys that need a restart, and devices that cannot be opened, each with its remedy.
    pub fn plan(&self, next: &Configuration) -> Result<Plan> {
        let current = self.renamed_as_in(next);
        let difference = difference(&current, next);
        if !difference.restart.is_empty() {
            bail!(
                "a running gateway cannot make this change, so nothing was changed:\n{difference}\nrestart \
                 the gateway to apply the file, or revert the lines marked with `!`; a port's keys also \
                 change by two reloads, the first without the port, the second with it"
            );
        }
        let mut warnings = self.stale_names(next);
        for port in &difference.ports.added {
            warnings.extend((self.devices.probe)(port, &difference.target)?);
        }
        check_keys(&difference.target)?;
        // Built with empty state, only to find contradictions.
        tables(&difference.target, &self.facts(), &mut Lasting::default(), &self.links)?;
        let follows_rename = current != self.configuration;
        Ok(Plan { difference, warnings, follows_rename })
    }

    /// The running configuration, with the current names of interfaces that `next` uses.
    pub(in crate::runtime) fn renamed_as_in(&self, next: &Configuration) -> Configuration {
        self.with_names(self.configuration.clone(), |port, name| {
            next.ports.iter().any(|next| next.name == port && next.device.interface() == Some(name))
        })
    }

    /// A configuration with the current names of interfaces, for ports where `is_wanted` returns true.
    fn with_names(
        &self,
        mut configuration: Configuration,
        is_wanted: impl Fn(&str, &str) -> bool,
    ) -> Configuration {
        for (state, name) in self.renamed() {
            let is_port =
                |port: &&mut Port| port.name == state.configuration.name && port.device.interface().is_some();
            let port = configuration.ports.iter_mut().find(is_port);
            if let Some(port) = port.filter(|port| is_wanted(&port.name, name)) {
                port.device = Device::Interface(name.to_owned());
            }
        }
        configuration
    }

    /// Warnings about ports for which `next` has an outdated interface name.
    fn stale_names(&self, next: &Configuration) -> Vec<String> {
        let stale = self.renamed().filter_map(|(state, name)| {
            let Port { name: port, device, .. } = &state.configuration;
            let old = device.interface()?;
            let has_old = |next: &&Port| next.name == *port && next.device.interface() == Some(old);
            next.ports.iter().find(has_old)?;
            // An alternative name of the interface, which works at the next start too.
            let is_altname = number(old) == state.facts.as_ref().and_then(|facts| facts.index);
            if is_altname {
                return None;
            }
            Some(format!(
                "port {port}: its interface {old} was renamed to {name} and remains in use until it \
                 disappears: write `interface = \"{name}\"`, or the next start looks for {old}"
            ))
        });
        stale.collect()
    }

    /// Open ports whose interface was renamed, with its current name.
    fn renamed(&self) -> impl Iterator<Item = (&PortState, &str)> {
        self.ports.iter().filter(|state| state.open).filter_map(|state| {
            let (configured, facts) = (state.configuration.device.interface()?, state.facts.as_ref()?);
            let name = facts.interface.as_str();
            (facts.index.is_some() && name != configured).then_some((state, name))
        })
    }

    /// Ports whose packets Polder takes from the kernel, with the current names of their interfaces.
    pub(in crate::runtime) fn hook_ports(&self, configuration: &Configuration) -> Vec<HookPort> {
        hooks::ports(&self.with_names(configuration.clone(), |_, _| true))
    }

    /// Applies another configuration as one difference: steps that can fail come first, then tables are
    /// replaced whole, new ports are attached and old ports detached.
    ///
    /// # Errors
    /// As [`Gateway::plan`], and when a new port cannot be opened in spite of the checks; then nothing has
    /// changed.
    pub fn reload(&mut self, next: Configuration) -> Result<()> {
        let plan = self.plan(&next)?;
        self.carry_out(plan)
    }

    /// Applies a plan that was made under the same lock.
    ///
    /// # Errors
    /// As [`Gateway::reload`].
    pub fn carry_out(&mut self, Plan { difference, .. }: Plan) -> Result<()> {
        let next = difference.target;
        let _locks = self.devices.lock(&difference.ports.added, &next)?;
        let mut opened = Vec::new();
        for port in &difference.ports.added {
            opened.push(self.devices.open_or_wait(port, &next, self.memory.manager().region())?);
        }
        let mut facts = self.facts();
        facts.retain(|id, _| next.port(*id).is_some());
        facts.extend(opened.iter().filter_map(Opening::facts));
        let tables = tables(&next, &facts, &mut self.lasting, &self.links)?;
        let is_staffed_anew = needs_other_workers(&self.configuration, &next);
        let new_workers = is_staffed_anew.then(|| self.prepare_workers(&next)).transpose()?;
        if let Err(error) = self.endpoint(&next) {
            self.endpoint(&self.configuration)?;
            return Err(error);
        }
        let (has_new, filters_change) = (!opened.is_empty(), difference.filters.is_some());
        self.adopt(next, tables, opened);
        if let Some(new_workers) = new_workers {
            self.replace_workers(new_workers);
        }
        self.watch_tunnels();
        self.route_anew();
        self.say_renewed();
        if filters_change {
            self.open_doors();
        }
        self.settle();
        // From here on no packet passes the old filters, so connections that passed them need new evidence.
        if let Some(connections) = self.devices.connections().filter(|_| filters_change) {
            connections.raise_generation();
        }
        self.tick();
        if has_new {
            self.devices.prepare(self.memory.manager().region());
        }
        Ok(())
    }

    /// Sends workers the changes of `next` for ports that stay.
    fn change_ports(&mut self, next: &Configuration) {
        let (mut queues, mut inlets) = (Vec::new(), Vec::new());
        for state in &mut self.ports {
            let Some(port) = next.port(state.configuration.id) else { continue };
            if port.weight != state.configuration.weight {
                self.workers.iter().for_each(|worker| worker.send(Command::Weigh(port.id, port.weight)));
            }
            if port.way_out() != state.configuration.way_out() {
                queues.push(port.id);
            }
            if port.way_in() != state.configuration.way_in() {
                inlets.push(port.id);
            }
            state.configuration.clone_from(port);
        }
        queues.into_iter().for_each(|port| self.exchange_queue(port));
        inlets.into_iter().for_each(|port| self.exchange_inlet(port));
    }

    /// Changes the rate of a port's queue until the next reload; returns the former rate in kbit/s.
    ///
    /// # Errors
    /// When there is no such port or queue.
    pub(in crate::runtime) fn set_rate(
        &mut self,
        name: &str,
        way: Way,
        rate: Rate,
    ) -> Result<Option<u32>, String> {
        let missing = || format!("there is no port {name}: `polder show ports` lists them");
        let port = self.configuration.ports.iter_mut().find(|port| port.name == name).ok_or_else(missing)?;
        let before = port.set_rate(way == Way::Up, rate).ok_or_else(|| match way {
            Way::Up => format!("port {name} has no queue: give it `queue` or `up` of a `shaper`"),
            Way::Down => {
                format!("port {name} has no queue of packets that come in: give it `down` of a `shaper`")
            }
        })?;
        let (id, changed) = (port.id, port.clone());
        if let Some(state) = self.ports.iter_mut().find(|state| state.configuration.id == id) {
            state.configuration = changed;
        }
        match way {
            Way::Up => self.exchange_queue(id),
            Way::Down => self.exchange_inlet(id),
        }
        Ok(before)
    }

    /// Waits, at most [`SETTLE`], until every worker has finished its current round: no packet uses the old
    /// tables afterwards.
    fn settle(&self) {
        let end = self.clock.now() + SETTLE;
        let polls = self.workers.iter().map(|worker| worker.counters.polls.get()).collect::<Vec<_>>();
        for (worker, polls) in self.workers.iter().zip(polls) {
            worker.wakeup.wake();
            while worker.counters.polls.get() == polls && self.clock.now() < end {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Sets the tunnel endpoints and link-local groups of `configuration` in the ports' programs.
    fn endpoint(&self, configuration: &Configuration) -> Result<()> {
        for state in &self.ports {
            let Some(handle) = state.handle() else { continue };
            let port = &state.configuration;
            if port.role == Role::Bridge {
                handle.set_forward_groups(forward_groups(port, configuration));
            } else {
                let told = || format!("cannot receive the tunnels' packets on port {}", port.name);
                handle.set_tunnels(port, configuration).with_context(told)?;
            }
        }
        Ok(())
    }

    /// The part of a reload that cannot fail.
    fn adopt(&mut self, next: Configuration, tables: Tables, opened: Vec<Opening>) {
        // A removed port drops its flow table.
        self.count_carried();
        let (kept, gone) = std::mem::take(&mut self.ports)
            .into_iter()
            .partition::<Vec<_>, _>(|state| next.port(state.configuration.id).is_some());
        self.ports = kept;
        self.change_ports(&next);
        self.ports.extend(opened.iter().filter_map(|port| next.port(port.id())).map(PortState::closed));
        bind_static(&tables, self.clock.now());
        self.tables.replace(tables);
        self.end_changed_flows(&next);
        // Workers get their commands from this configuration.
        self.configuration = next;
        for port in opened {
            self.attach_or_wait(port);
        }
        for state in gone {
            self.set_link(state.configuration.id, false);
            for worker in &self.workers {
                worker.send(Command::Detach(state.configuration.id));
            }
            self.retired.extend(state.counters);
        }
        self.lasting.retain(&self.configuration);
    }
}

/// True if the workers must be replaced: another number, other CPUs, or newly shared flows.
fn needs_other_workers(current: &Configuration, next: &Configuration) -> bool {
    let gateways = [&current.gateway, &next.gateway].map(|gateway| (gateway.workers, &gateway.cpus));
    gateways[0] != gateways[1] || is_shared(next) && !is_shared(current) && next.gateway.workers > 1
}

fn is_shared(configuration: &Configuration) -> bool {
    configuration.ports.iter().any(|port| port.order != Order::Queue)
}
