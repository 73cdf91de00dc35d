//! The configuration's filter rules in the datapath's form, and their counters.

use crate::config::filters::Filter;
use crate::config::model::{Configuration, MemberVlan, OnExit};
use crate::show::filters::{FilterRow, Filters as Shown};
use anyhow::Result;
use polder_datapath::counters::WorkerCounters;
use polder_datapath::filter::{Filters, RuleCounts, Size};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Counters of rules. A rule that a reload keeps, by name or with the same text, keeps its count.
#[derive(Debug, Default)]
pub struct FilterSlots {
    counts: RuleCounts,
    slots: HashMap<String, Slot>,
    free: Vec<u32>,
    next: u32,
    size: Size,
}

/// Counter of one rule.
#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    /// Counter value that is subtracted: the count of an earlier rule in this slot, less the predecessor
    /// process's count for this rule.
    before: (u64, u64),
}

impl FilterSlots {
    /// Converts the rules of a configuration.
    ///
    /// # Errors
    /// When there are too many rules; a checked configuration has fewer.
    pub(super) fn filters(&mut self, configuration: &Configuration) -> Result<Filters> {
        if configuration.filters.is_empty() {
            self.size = Size::default();
            return Ok(Filters::none());
        }
        self.counts.serve(usize::from(configuration.gateway.workers));
        let identities = identities(configuration);
        let rules = configuration.filters.iter().zip(&identities);
        let rules = rules.map(|(filter, identity)| (filter.rule(), self.slot(identity))).collect::<Vec<_>>();
        self.counts.grow_to(self.next as usize);
        let filters = Filters::new(&rules, untagged(configuration), self.counts.clone())?;
        self.size = filters.size();
        Ok(filters)
    }

    fn slot(&mut self, identity: &str) -> u32 {
        if let Some(slot) = self.slots.get(identity) {
            return slot.number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        self.slots.insert(identity.to_owned(), Slot { number, before: self.counts.get(number) });
        number
    }

    /// Frees the counters of rules that `configuration` does not have.
    pub(super) fn retain(&mut self, configuration: &Configuration) {
        let identities = identities(configuration);
        let known = identities.iter().map(String::as_str).collect::<std::collections::HashSet<_>>();
        let free = &mut self.free;
        self.slots.retain(|identity, slot| {
            let stays = known.contains(identity.as_str());
            if !stays {
                free.push(slot.number);
            }
            stays
        });
    }

    /// Packets and bytes of each rule, by its identity.
    pub(super) fn totals(&self) -> BTreeMap<String, (u64, u64)> {
        let total = |slot: &Slot| {
            let (packets, bytes) = self.counts.get(slot.number);
            (packets.wrapping_sub(slot.before.0), bytes.wrapping_sub(slot.before.1))
        };
        self.slots.iter().map(|(identity, slot)| (identity.clone(), total(slot))).collect()
    }

    /// Adds the counts of the predecessor process.
    pub(super) fn resume(&mut self, totals: &BTreeMap<String, (u64, u64)>) {
        for (identity, (packets, bytes)) in totals {
            let Some(slot) = self.slots.get_mut(identity) else { continue };
            slot.before = (slot.before.0.wrapping_sub(*packets), slot.before.1.wrapping_sub(*bytes));
        }
    }

    /// Rows of the rules of `configuration`, with their counts.
    pub(super) fn show(&self, configuration: &Configuration, workers: &[Arc<WorkerCounters>]) -> Shown {
        let row = |((number, filter), identity): ((usize, &Filter), String)| {
            let slot = self.slots.get(&identity);
            let count = slot.map_or((0, 0), |slot| {
                let (packets, bytes) = self.counts.get(slot.number);
                (packets.wrapping_sub(slot.before.0), bytes.wrapping_sub(slot.before.1))
            });
            FilterRow {
                number: number + 1,
                name: filter.name.clone(),
                direction: filter.direction.word().to_owned(),
                conditions: conditions(filter, configuration),
                action: filter.action.word().to_owned(),
                packets: count.0,
                bytes: count.1,
            }
        };
        let rows = configuration.filters.iter().enumerate().zip(identities(configuration));
        Shown {
            rules: rows.map(row).collect(),
            boxes: self.size.boxes,
            tables: self.size.tables,
            most_compared: self.size.most_compared,
            memory_bytes: self.size.bytes,
            answered: workers.iter().map(|worker| worker.filter.answered.get()).sum(),
            silenced: workers.iter().map(|worker| worker.filter.silenced.get()).sum(),
        }
    }
}

fn conditions(filter: &Filter, configuration: &Configuration) -> BTreeMap<String, String> {
    let given = filter.conditions(configuration).into_iter().filter(|(key, _)| *key != "direction");
    given.map(|(key, value)| (key.to_owned(), value.replace('"', ""))).collect()
}

/// Identity of each rule: its name, or its text with the number of equal rules before it.
fn identities(configuration: &Configuration) -> Vec<String> {
    let mut seen = HashMap::<String, usize>::new();
    let identity = |filter: &Filter| {
        let said = filter.name.clone().unwrap_or_else(|| format!("{filter:?}"));
        let times = seen.entry(said.clone()).or_default();
        *times += 1;
        format!("{times} {said}")
    };
    configuration.filters.iter().map(identity).collect()
}

/// Untagged VLAN of each port, by port number; 0 without VLANs.
fn untagged(configuration: &Configuration) -> Vec<u16> {
    let mut untagged = vec![0; configuration.id_limit()];
    for member in configuration.bridges.iter().flat_map(|bridge| &bridge.members) {
        let vlan = match &member.vlan {
            Some(MemberVlan::Access(vlan)) => *vlan,
            Some(MemberVlan::Trunk { native, .. }) => native.unwrap_or(0),
            None => 0,
        };
        if let Some(slot) = untagged.get_mut(usize::from(member.port.0)) {
            *slot = vlan;
        }
    }
    untagged
}

/// Keeps `on_exit` of running ports when the first filter is added or the last removed: their XDP programs
/// are attached already. Returns the names of these ports.
pub fn keep_on_exit(current: &Configuration, next: &mut Configuration) -> Vec<String> {
    if current.filters.is_empty() && next.filters.is_empty() {
        return Vec::new();
    }
    let running = |name: &str| current.ports.iter().find(|port| port.name == name);
    let mut kept = Vec::new();
    for port in &mut next.ports {
        let Some(old) = running(&port.name).filter(|old| old.device == port.device) else { continue };
        if old.on_exit != port.on_exit && port.device.interface().is_some() {
            port.on_exit = old.on_exit;
            kept.push(port.name.clone());
        }
    }
    kept
}

/// Warning about ports whose `on_exit` is unchanged.
pub(super) fn told_of(kept: &[String], configuration: &Configuration) -> String {
    let [first, ..] = kept else { return String::new() };
    let is_open =
        configuration.ports.iter().any(|port| port.name == *first && port.on_exit == OnExit::Kernel);
    let (now, then) = if is_open { ("kernel", "drop") } else { ("drop", "kernel") };
    format!(
        "warning: {} keeps on_exit = \"{now}\" until the gateway is restarted; then it will be \"{then}\", \
         unless the file says otherwise",
        kept.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use std::path::Path;

    const BASE: &str = "version = 1\n[port.lan]\ninterface = \"eth0\"\n[port.dmz]\ninterface = \"eth1\"\n\
                        [bridge.br0]\nmembers = [\"lan\", \"dmz\"]\n";

    fn configuration(rules: &[&str]) -> Configuration {
        let rules = rules.iter().map(|rule| format!("[[filter]]\n{rule}\n")).collect::<String>();
        let loaded = parse(&format!("{BASE}{rules}"), Path::new("a.toml"));
        loaded.unwrap_or_else(|report| panic!("{report}")).configuration
    }

    const UDP: &str = "protocol = \"udp\"\naction = \"drop\"";
    const NAMED: &str = "name = \"web\"\ndestination_port = 80\naction = \"accept\"";

    #[test]
    fn a_rule_keeps_its_place_by_name_or_word_by_word() {
        let mut slots = FilterSlots::default();
        let mut of = |rules: &[&str]| {
            let configuration = configuration(rules);
            let _ = slots.filters(&configuration).expect("few rules");
            slots.retain(&configuration);
            identities(&configuration).iter().map(|identity| slots.slots[identity].number).collect::<Vec<_>>()
        };
        assert_eq!(of(&[UDP, NAMED]), [0, 1]);
        assert_eq!(of(&[NAMED, UDP, UDP]), [1, 0, 2]);
        assert_eq!(of(&[&NAMED.replace("80", "443"), UDP]), [1, 0], "a name stays the same rule");
        assert_eq!(of(&[&UDP.replace("udp", "tcp"), UDP]), [2, 0], "what is free is used again");
    }

    #[test]
    fn on_exit_stays_until_a_restart() {
        let (none, mut some) = (configuration(&[]), configuration(&[UDP]));
        assert_eq!(some.ports[0].on_exit, OnExit::Drop);
        let kept = keep_on_exit(&none, &mut some);
        assert_eq!((kept.len(), some.ports[0].on_exit), (2, OnExit::Kernel));
        assert!(told_of(&kept, &some).contains("lan, dmz keeps on_exit = \"kernel\""));
        assert!(keep_on_exit(&none, &mut configuration(&[])).is_empty());
    }
}
