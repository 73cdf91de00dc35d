//! Another configuration, applied as one difference.

use super::start::bind_static;
use super::upkeep::note_link;
use super::{Gateway, PortState};
use crate::config::model::{Configuration, Port, Role};
use crate::runtime::numbers::{ensure_reloadable, keep_numbers, needs_other_workers};
use crate::runtime::ports::{self, OpenPort};
use crate::runtime::tables::tables;
use crate::runtime::worker::Command;
use anyhow::{Context as _, Result};
use polder_datapath::engine::Tables;
use polder_datapath::units::Nanos;
use std::time::Duration;

/// How long a reload waits at most for workers that stand still.
const SETTLE: Nanos = Nanos::from_millis(200);
/// How often it looks at them.
const LOOK: Duration = Duration::from_micros(100);

impl Gateway {
    /// Applies another configuration as one difference: whatever can fail comes first, then tables are
    /// replaced whole, ports that came are attached and ports that went are let go.
    ///
    /// # Errors
    /// When a new port cannot be opened, or something has changed that needs a restart; then nothing
    /// has changed.
    pub fn reload(&mut self, mut next: Configuration) -> Result<()> {
        keep_numbers(&self.configuration, &mut next);
        ensure_reloadable(&self.configuration, &next)?;
        let is_kept = |port: &&Port| self.ports.iter().any(|state| state.configuration.id == port.id);
        let mut opened = Vec::new();
        for port in next.ports.iter().filter(|port| !is_kept(port)) {
            opened.push((self.open)(port, &next, self.memory.manager().region())?);
        }
        let mut facts = self.facts();
        facts.retain(|id, _| next.port(*id).is_some());
        facts.extend(opened.iter().map(|port| (port.id, port.facts.clone())));
        let tables = tables(&next, &facts, &mut self.lasting, &self.links)?;
        let is_staffed_anew = needs_other_workers(&self.configuration, &next);
        let recruits = is_staffed_anew.then(|| self.hire(&next)).transpose()?;
        if let Err(error) = self.claim(&next) {
            self.claim(&self.configuration)?;
            return Err(error);
        }
        self.adopt(next, tables, opened);
        if let Some(recruits) = recruits {
            self.replace_workers(recruits);
        }
        self.route_anew();
        self.settle();
        self.tick();
        Ok(())
    }

    /// Tells workers which ports that stay have other weights in `next`.
    fn weigh_anew(&mut self, next: &Configuration) {
        for state in &mut self.ports {
            let Some(port) = next.port(state.configuration.id) else { continue };
            if port.weight != state.configuration.weight {
                self.workers.iter().for_each(|worker| worker.send(Command::Weigh(port.id, port.weight)));
            }
            state.configuration.clone_from(port);
        }
    }

    /// Waits, within bounds, until every worker has ended the round that it was in: from then on no
    /// packet meets the old tables.
    fn settle(&self) {
        let end = self.clock.now() + SETTLE;
        let polls = self.workers.iter().map(|worker| worker.counters.polls.get()).collect::<Vec<_>>();
        for (worker, polls) in self.workers.iter().zip(polls) {
            worker.bell.ring();
            while worker.counters.polls.get() == polls && self.clock.now() < end {
                std::thread::sleep(LOOK);
            }
        }
    }

    /// Takes the packets of the tunnels of `configuration`, and leaves those of others to the kernel.
    fn claim(&self, configuration: &Configuration) -> Result<()> {
        for state in &self.ports {
            let Some(attachment) = state.interface() else { continue };
            let port = &state.configuration;
            if port.role != Role::Bridge {
                let claims = ports::claims(port.id, configuration);
                let told = || format!("cannot take the tunnels' packets on port {}", port.name);
                attachment.set_claims(&claims).with_context(told)?;
            }
        }
        Ok(())
    }

    /// The part of a reload that cannot fail.
    fn adopt(&mut self, next: Configuration, tables: Tables, opened: Vec<OpenPort>) {
        let (kept, gone) = std::mem::take(&mut self.ports)
            .into_iter()
            .partition::<Vec<_>, _>(|state| next.port(state.configuration.id).is_some());
        self.ports = kept;
        self.weigh_anew(&next);
        self.ports.extend(opened.iter().filter_map(|port| next.port(port.id)).map(PortState::closed));
        bind_static(&tables, self.clock.now());
        self.tables.replace(tables);
        // Workers are told of a port what its configuration says.
        self.configuration = next;
        for port in opened {
            self.attach(port);
        }
        for state in gone {
            note_link(&self.links, &self.lasting, state.configuration.id, false);
            for worker in &self.workers {
                worker.send(Command::Detach(state.configuration.id));
            }
            self.retired.extend(state.counters);
        }
        self.lasting.retain(&self.configuration);
    }
}
